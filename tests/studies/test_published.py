"""The figures of the papers, as the papers print them, beside those of the committed reports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.synthetic_reports import made_reports
from support.table_rows import rows_where

from headlab.core import Report
from headlab.studies.published import (
    TARGETED_FIGURES,
    TRANSFER_FIGURES,
    comparison_with_paper,
    parsed_figures,
    with_paper,
)

ROOT = Path(__file__).parents[2]
NOTES = ROOT.parent / "shared" / "papers.md"
ROWS = {
    "whole model": "whole",
    "random": "random",
    "gradient (Michel)": "gradient",
    "gradient": "gradient",
    "Shapley": "shapley",
    "K": "K",
}


def committed_report(name: str) -> Report:
    path = ROOT / "docs" / "results" / "held" / f"{name}.json"
    return Report.from_json(json.loads(path.read_text("utf-8")))


def figures_in_notes(title: str) -> dict[str, dict[str, tuple[float, str]]]:
    """A table of the notes on the papers, by row and language, read without the code under test.

    Each cell is a figure and the mark of its significance: "+", "-" or "".
    """
    if not NOTES.is_file():
        pytest.skip("no papers.md in ../shared")
    after_title = NOTES.read_text("utf-8").split(f"**{title}")[1]
    text = after_title.split("\n\n")[0]
    cells_of_lines = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells_of_lines.append(line.strip("|").split("|"))
    header, _, *rows = cells_of_lines
    languages = [language.strip() for language in header[1:]]
    marks = {"−": "-", "+": "+"}
    figures = {}
    for name, *cells in rows:
        figures_of_row = {}
        for language, cell in zip(languages, cells, strict=True):
            figure_text = cell.strip()
            mark = marks.get(figure_text[-1], "")
            figures_of_row[language] = (float(figure_text.rstrip("+−")), mark)
        figures[ROWS[name.strip()]] = figures_of_row
    return figures


@pytest.mark.parametrize("task", ["xnli", "udpos"])
def test_table_2_is_that_of_the_paper(task: str) -> None:
    figures = parsed_figures(TARGETED_FIGURES[task])
    assert figures == figures_in_notes(f"Table 2, {task.upper()}")


def test_the_tables_give_what_the_paper_says_of_them() -> None:
    """The sums in the text of the paper, also where the notes on it are missing."""
    xnli = parsed_figures(TARGETED_FIGURES["xnli"])
    tags = parsed_figures(TARGETED_FIGURES["udpos"])
    gains = {}
    for name, (value, _) in xnli["shapley"].items():
        baseline, _ = xnli["whole"][name]
        gains[name] = value - baseline
    mean_gain = sum(gains.values()) / len(gains)
    assert mean_gain == pytest.approx(1.59, abs=0.05)
    assert gains["zh"] == pytest.approx(3.78, abs=0.1)
    significant_gains = {}
    for name, (value, mark) in tags["shapley"].items():
        if mark == "+":
            baseline, _ = tags["whole"][name]
            significant_gains[name] = value - baseline
    assert len(significant_gains) == 6
    assert round(significant_gains["zh"], 1) == 12.4
    mean_significant_gain = sum(significant_gains.values()) / 6
    assert mean_significant_gain == pytest.approx(3.4, abs=0.05)
    chinese_baseline, _ = tags["whole"]["zh"]
    relative_gain = significant_gains["zh"] / chinese_baseline
    assert relative_gain == pytest.approx(0.247, abs=0.001)


def test_table_3_is_that_of_the_paper_and_its_baseline_is_that_of_table_2() -> None:
    figures = parsed_figures(TRANSFER_FIGURES["xnli"])
    targeted_figures = parsed_figures(TARGETED_FIGURES["xnli"])
    assert figures.pop("whole") == targeted_figures["whole"]
    assert figures == figures_in_notes("Table 3, XNLI")


def test_a_language_has_one_row_with_both_figures() -> None:
    report = committed_report("udpos-targeted")
    table = comparison_with_paper(report)
    assert table is not None
    rows = {row["language"]: row for row in rows_where(table)}
    languages = report.spec["task"]["language"].split(",")
    assert list(rows) == languages
    chinese = rows["zh"]
    assert chinese["the paper: heads removed"] == 18
    assert chinese["the paper: shapley, points"] == 12.4
    assert chinese["the paper: P < 0.05"] == "higher"
    assert chinese["here: heads removed"] == 1
    (shapley_row,) = rows_where(report.table("targeted"), language="zh", removed_by="shapley")
    assert chinese["here: shapley, points"] == shapley_row["difference, points"]
    assert chinese["here: low, points"] == shapley_row["low, points"]
    assert chinese["here: high, points"] == shapley_row["high, points"]
    assert chinese["here: shapley, points"] == pytest.approx(4.9, abs=0.05)
    assert chinese["here: P < 0.05"] == "higher"
    assert rows["en"]["here: low, points"] is None
    assert "up to 400 examples of test" in table.notes[0]
    assert with_paper(report) == (table, *report.tables)


def test_transfer_is_compared_with_table_3_where_english_chose_the_heads() -> None:
    report = committed_report("xnli-transfer-10")
    table = comparison_with_paper(report)
    assert table is not None
    published_gains = table.column("the paper: shapley, points")
    measured_gains = table.column("here: shapley, points")
    assert published_gains[0] == 1.0
    assert len(published_gains) == 15
    assert measured_gains == report.table("zero-shot").column("difference, points")
    assert set(table.column("here: heads removed")) == {10}
    options: dict[str, Any] = {**report.spec["options"], "source": "de"}
    from_german = replace(report, spec={**report.spec, "options": options})
    assert comparison_with_paper(from_german) is None


def test_a_report_of_what_the_paper_did_not_do_is_compared_with_nothing(tmp_path: Path) -> None:
    for report in (
        *made_reports(tmp_path).values(),
        committed_report("xnli-gap"),
        committed_report("udpos-transfer"),
    ):
        assert comparison_with_paper(report) is None
        assert with_paper(report) == report.tables


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"task": "xnli"},
        {"task": {"name": ["xnli"]}, "options": {}},
        {"task": {"name": "xnli"}},
    ],
)
def test_a_report_of_another_version_is_shown_without_the_paper(spec: dict[str, Any]) -> None:
    report = replace(committed_report("xnli-targeted"), spec=spec)
    assert comparison_with_paper(report) is None
    report_without_table = replace(
        committed_report("xnli-targeted"), tables=committed_report("xnli-gap").tables
    )
    assert comparison_with_paper(report_without_table) is None


def test_a_row_without_a_figure_is_left_out() -> None:
    report = committed_report("xnli-targeted")
    table = report.table("targeted")
    column = table.columns.index("difference, points")
    rows = []
    for row in table.rows:
        cells = list(row)
        if row[:2] == ("en", "shapley"):
            cells[column] = None
        rows.append(tuple(cells))
    table_without_figure = replace(table, rows=tuple(rows))
    comparison = comparison_with_paper(replace(report, tables=(table_without_figure,)))
    assert comparison is not None
    assert "en" not in comparison.column("language")
    assert len(comparison.rows) == 14
