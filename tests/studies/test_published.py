"""The papers' figures, as they stand in the papers, beside those of the reports that are committed here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.synthetic_reports import made_reports

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


def committed(name: str) -> Report:
    return Report.from_json(
        json.loads((ROOT / "docs" / "results" / "held" / f"{name}.json").read_text("utf-8"))
    )


def noted(title: str) -> dict[str, dict[str, tuple[float, str]]]:
    """A table of the notes on the papers, read without the code under test."""
    if not NOTES.is_file():
        pytest.skip("no papers.md in ../shared")
    text = NOTES.read_text("utf-8").split(f"**{title}")[1].split("\n\n")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:1] == "|"
    ]
    languages, _, *rows = lines
    marks = {"−": "-", "+": "+"}
    return {
        ROWS[name]: {
            language: (float(cell.rstrip("+−")), marks.get(cell[-1], ""))
            for language, cell in zip(languages[1:], cells, strict=True)
        }
        for name, *cells in rows
    }


@pytest.mark.parametrize("task", ["xnli", "udpos"])
def test_table_2_is_the_paper_s(task: str) -> None:
    assert parsed_figures(TARGETED_FIGURES[task]) == noted(f"Table 2, {task.upper()}")


def test_the_tables_give_what_the_paper_says_of_them() -> None:
    """Where the notes on the paper are not at hand: its text's own sums."""
    xnli = parsed_figures(TARGETED_FIGURES["xnli"])
    tags = parsed_figures(TARGETED_FIGURES["udpos"])
    gains = {name: value - xnli["whole"][name][0] for name, (value, _) in xnli["shapley"].items()}
    assert sum(gains.values()) / len(gains) == pytest.approx(1.59, abs=0.05)
    assert gains["zh"] == pytest.approx(3.78, abs=0.1)
    gained = {
        name: value - tags["whole"][name][0]
        for name, (value, mark) in tags["shapley"].items()
        if mark == "+"
    }
    assert (len(gained), round(gained["zh"], 1)) == (6, 12.4)
    assert sum(gained.values()) / 6 == pytest.approx(3.4, abs=0.05)
    assert gained["zh"] / tags["whole"]["zh"][0] == pytest.approx(0.247, abs=0.001)


def test_table_3_is_the_paper_s_and_its_whole_model_is_that_of_table_2() -> None:
    found = parsed_figures(TRANSFER_FIGURES["xnli"])
    assert found.pop("whole") == parsed_figures(TARGETED_FIGURES["xnli"])["whole"]
    assert found == noted("Table 3, XNLI")


def test_both_stand_in_one_row_a_language() -> None:
    report = committed("udpos-targeted")
    table = comparison_with_paper(report)
    assert table is not None
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == report.spec["task"]["language"].split(",")
    chinese = rows["zh"]
    assert (chinese["the paper: heads removed"], chinese["the paper: shapley, points"]) == (
        18,
        12.4,
    )
    assert (chinese["the paper: P < 0.05"], chinese["here: heads removed"]) == ("higher", 1)
    own = next(row for row in report.table("targeted").rows if row[:2] == ("zh", "shapley"))
    assert (
        tuple(chinese[f"here: {name}, points"] for name in ("shapley", "low", "high")) == own[5:8]
    )
    assert chinese["here: shapley, points"] == pytest.approx(4.9, abs=0.05)
    assert (chinese["here: P < 0.05"], rows["en"]["here: low, points"]) == ("higher", None)
    assert "up to 400 examples of test" in table.notes[0]
    assert with_paper(report) == (table, *report.tables)


def test_transfer_stands_beside_table_3_where_english_chose_the_heads() -> None:
    report = committed("xnli-transfer-10")
    table = comparison_with_paper(report)
    assert table is not None
    paper = table.column("the paper: shapley, points")
    here = table.column("here: shapley, points")
    assert (paper[0], len(paper)) == (1.0, 15)
    assert here == report.table("zero-shot").column("difference, points")
    assert set(table.column("here: heads removed")) == {10}
    options: dict[str, Any] = {**report.spec["options"], "source": "de"}
    assert comparison_with_paper(replace(report, spec={**report.spec, "options": options})) is None


def test_what_the_paper_did_not_do_stands_beside_nothing(tmp_path: Path) -> None:
    for report in (
        *made_reports(tmp_path).values(),
        committed("xnli-gap"),
        committed("udpos-transfer"),
    ):
        assert comparison_with_paper(report) is None
        assert with_paper(report) == report.tables


@pytest.mark.parametrize(
    "spec",
    [{}, {"task": "xnli"}, {"task": {"name": ["xnli"]}, "options": {}}, {"task": {"name": "xnli"}}],
)
def test_a_report_of_another_version_is_shown_without_the_paper(spec: dict[str, Any]) -> None:
    report = replace(committed("xnli-targeted"), spec=spec)
    assert comparison_with_paper(report) is None
    other = replace(committed("xnli-targeted"), tables=committed("xnli-gap").tables)
    assert comparison_with_paper(other) is None


def test_a_row_without_a_figure_is_left_out() -> None:
    report = committed("xnli-targeted")
    table = report.table("targeted")
    at = table.columns.index("difference, points")
    rows = [
        (*row[:at], None, *row[at + 1 :]) if row[:2] == ("en", "shapley") else row
        for row in table.rows
    ]
    found = comparison_with_paper(replace(report, tables=(replace(table, rows=tuple(rows)),)))
    assert found is not None
    assert "en" not in found.column("language")
    assert len(found.rows) == 14
