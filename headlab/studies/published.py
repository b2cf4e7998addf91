"""The papers' own figures, and a table that puts them beside those of a report here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headlab.core import Cell, Json, Report, Table
from headlab.studies.result import readable_rows
from headlab.studies.targeted import ChoiceEffect
from headlab.studies.transfer import MaskEffect

# Held & Yang (EACL 2023), tables 2 and 3: accuracy of XLM-R base, %, and the number K of heads
# removed. + and - mark an accuracy that differs from the whole model's (p < 0.05). In table 3,
# English's heads are removed in every language.
TARGETED_FIGURES = {
    "xnli": """
        language   en    ar    bg    de    el    es    fr    hi    ru    sw    th    tr    ur    vi    zh
        whole      84.1  70.6  76.7  76.8  75.4  79.8  77.7  70.0  74.7  63.4  70.6  71.9  65.9  73.3  73.5
        random     81.5- 67.2- 72.7- 72.7- 71.3- 75.5- 73.0- 66.3- 70.5- 63.5  67.4- 68.4- 61.6- 69.7- 70.8-
        gradient   84.3  71.0  77.3  77.4  72.8- 80.2  78.4  71.5+ 75.2  63.1  70.7  71.7  66.9+ 73.3  77.2+
        shapley    85.1+ 72.0+ 77.8+ 78.3+ 76.3  80.6  79.7+ 71.5+ 76.5+ 63.8  73.3+ 73.2+ 67.6+ 75.3+ 77.2+
        K          4     6     6     5     4     5     5     7     5     5     7     5     6     6     9
    """,
    "udpos": """
        language   en    ar    bg    de    el    es    fr    hi    ru    tr    ur    vi    zh
        whole      95.7  75.1  90.9  88.8  71.5  89.8  81.3  73.9  88.2  78.7  67.3  66.3  50.2
        random     95.7  74.3- 90.9  88.8  71.8  89.8  81.4  73.7  88.2  78.7  67.5  66.3  55.3+
        gradient   95.7  75.1  90.9  88.8  71.1  89.8  81.1  73.8  88.2  78.7  67.3  66.3  48.9-
        shapley    95.7  76.6+ 90.9  88.8  72.8+ 89.8  82.6+ 75.6+ 88.2  78.7  69.5+ 66.3  62.6+
        K          0     4     0     0     4     0     2     2     0     0     4     0     18
    """,
}
TRANSFER_FIGURES = {
    "xnli": """
        language   en    ar    bg    de    el    es    fr    hi    ru    sw    th    tr    ur    vi    zh
        whole      84.1  70.6  76.7  76.8  75.4  79.8  77.7  70.0  74.7  63.4  70.6  71.9  65.9  73.3  73.5
        random     81.7- 67.1- 72.3- 72.9- 71.1- 75.1- 73.5- 65.7- 71.0- 60.7- 67.0- 68.3- 61.0- 69.7- 70.7-
        gradient   84.3  70.3  76.7  77.1  75.9  80.1  77.9  70.1  75.1  62.9  71.6  72.5  66.1  74.7+ 74.5+
        shapley    85.1+ 72.0+ 77.8+ 79.4+ 76.3  80.6  79.7+ 71.5+ 76.5+ 63.3  73.1+ 73.1+ 68.4+ 75.2+ 76.3+
    """,
}
BASELINE = "whole"
HEADS_REMOVED = "K"
METHODS = ("shapley", "gradient", "random")
MARKS = "+-"
DIRECTIONS = {"": "", "+": "higher", "-": "lower"}  # as the studies' own tables say it
PAPER = "Held & Yang, EACL 2023"
MODEL = "XLM-R base, 12 × 12 heads"


def parsed_figures(text: str) -> dict[str, dict[str, tuple[float, str]]]:
    """{row: {language: (value, mark)}} of one of the tables above."""
    (_, *languages), *rows = (line.split() for line in text.strip().splitlines())
    return {
        name: {
            language: (float(cell.rstrip(MARKS)), cell[len(cell.rstrip(MARKS)) :])
            for language, cell in zip(languages, cells, strict=True)
        }
        for name, *cells in rows
    }


class ReportColumns(NamedTuple):
    """What of a report stands beside the paper's figures.

    Attributes:
        columns: Their titles.
        formats: As in `Table.formats`.
        cells: By language.
    """

    columns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    cells: Mapping[str, tuple[Cell, ...]] = {}


def with_paper(report: Report) -> tuple[Table, ...]:
    """A report's tables, the comparison with its paper first, where there is one."""
    comparison = comparison_with_paper(report)
    if comparison is None:
        return report.tables
    return (comparison, *report.tables)


def comparison_with_paper(report: Report) -> Table | None:
    """The paper's changes beside a report's, a row a language.

    For `targeted` and, with English as the source, `transfer`, on xnli and udpos. Rows of a stored
    report that lack a figure are left out.

    Returns:
        None for a report that no table of a paper is of.
    """
    if report.name not in READERS:
        return None
    tables, columns_of = READERS[report.name]
    task = report.spec.get("task")
    options = report.spec.get("options")
    text = tables.get(str(task.get("name"))) if isinstance(task, Mapping) else None
    if text is None or not isinstance(options, Mapping):
        return None
    paper = parsed_figures(text)
    report_columns = columns_of(report, options)
    rows = [
        (language, *_paper_cells(paper, language), *report_columns.cells[language])
        for language in paper[BASELINE]
        if language in report_columns.cells
    ]
    if not rows:
        return None
    format_by_title = {"language": ""}
    if HEADS_REMOVED in paper:
        format_by_title["the paper: heads removed"] = "d"
    format_by_title["the paper: unpruned, %"] = ".1f"
    for method in METHODS:
        format_by_title[f"the paper: {method}, points"] = "+.1f"
    format_by_title["the paper: P < 0.05"] = ""
    return Table(
        "beside-the-paper",
        f"The paper's figures ({PAPER}; {MODEL}) beside these",
        (*format_by_title, *(f"here: {title}" for title in report_columns.columns)),
        (*format_by_title.values(), *report_columns.formats),
        tuple(rows),
        (
            "points: accuracy on test without the heads minus that of the unpruned model; P < 0.05 "
            f"marks those of shapley that differ from it. Here on {_examples_text(report)} of test "
            "and on another model, with other numbers of heads removed: a difference whose "
            "interval from low to high holds 0 has no sign to compare.",
        ),
    )


def _paper_cells(
    paper: Mapping[str, Mapping[str, tuple[float, str]]], language: str
) -> tuple[Cell, ...]:
    """The paper's cells of a language: heads removed, if known, baseline, changes and direction."""
    baseline, _ = paper[BASELINE][language]
    cells: list[Cell] = []
    if HEADS_REMOVED in paper:
        head_count, _ = paper[HEADS_REMOVED][language]
        cells.append(int(head_count))
    cells.append(baseline)
    for method in METHODS:
        accuracy, _ = paper[method][language]
        cells.append(round(accuracy - baseline, 1))
    _, mark = paper["shapley"][language]
    cells.append(DIRECTIONS[mark])
    return tuple(cells)


def _examples_text(report: Report) -> str:
    """How many examples of test a report is on, as a text."""
    sizes = (report.spec.get("task") or {}).get("sizes")
    test_sizes = sizes.get("test") if isinstance(sizes, Mapping) else None
    if not isinstance(test_sizes, list):
        return "examples"
    known_sizes = [size for size in test_sizes if isinstance(size, int)]
    if known_sizes:
        return f"up to {max(known_sizes):,} examples"
    return "examples"


FORMATS = ("d", ".1f", "+.1f", "+.1f", "+.1f", "")


def _targeted_columns(report: Report, options: Mapping[str, Json]) -> ReportColumns:
    """Of every language: how many heads were removed, and what that changed.

    It is shown for the method, and for the gradient and chance.
    """
    method = str(options.get("method"))
    rivals = ("gradient (example)", "random")
    effects = {
        (effect.language, effect.choice): effect
        for effect in readable_rows(report, "targeted", ChoiceEffect)
    }
    shown_rivals = [name for name in rivals if any(choice == name for _, choice in effects)]
    cells = {}
    for (language, choice), effect in effects.items():
        rival_effects = [effects.get((language, name)) for name in shown_rivals]
        differences = [rival.difference.value for rival in rival_effects if rival is not None]
        is_whole = effect.heads_removed is not None and len(differences) == len(shown_rivals)
        if choice == method and is_whole:
            cells[language] = (*_cells(effect), *differences)
    return ReportColumns(
        (*_titles(method), *(f"{name}, points" for name in shown_rivals)),
        (*FORMATS, *("+.1f" for _ in shown_rivals)),
        cells,
    )


def _transfer_columns(report: Report, options: Mapping[str, Json]) -> ReportColumns:
    """Of every language: what removing English's heads changed.

    None where the source is another language.
    """
    if options.get("source") != "en":
        return ReportColumns()
    effects = readable_rows(report, "transfer", MaskEffect)
    cells = {effect.language: _cells(effect) for effect in effects if effect.chosen_on == "en"}
    return ReportColumns(_titles(str(options.get("method"))), FORMATS, cells)


def _cells(effect: ChoiceEffect | MaskEffect) -> tuple[Cell, ...]:
    """What is shown of an effect; where no head was removed, there is no interval."""
    gain = effect.difference
    ends = gain.value, gain.low, gain.high
    return effect.heads_removed, effect.untouched_percent, *ends, effect.mark


def _titles(method: str) -> tuple[str, ...]:
    """What the columns of `_cells` are called here."""
    return (
        "heads removed",
        "unpruned, %",
        f"{method}, points",
        "low, points",
        "high, points",
        "P < 0.05",
    )


READERS = {
    "targeted": (TARGETED_FIGURES, _targeted_columns),
    "transfer": (TRANSFER_FIGURES, _transfer_columns),
}
