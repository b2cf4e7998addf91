"""The figures of an experiment's report, drawn from what it found."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from headlab.errors import HeadlabError
from headlab.extensions import implementation
from headlab.plots.lines import Dots, Line, dots, orderings_figure
from headlab.records import HEAD, Floats, Head
from headlab.roles.report import heads_of
from headlab.studies.result import result_of
from headlab.studies.table import STUDIES
from headlab.tables import Cell, Report, Table

log = logging.getLogger(__name__)
HOME = "headlab.plots.studies"  # package of the modules that the table of studies names by one word
Figures = dict[str, go.Figure]
Draw = Callable[[Report], Figures]
Columns = tuple[str, str, str]  # of a value and the ends of its interval
POINTS: Columns = ("difference, points", "low, points", "high, points")
SURE = 0.05  # dots of differences with a p below this are filled


def report_figures(report: Report) -> Figures:
    """{name, usable as a file name: figure} of a report; empty for a study without figures.

    Raises:
        HeadlabError: If the report does not hold what its study finds, or the study cannot draw it, as one from
            another package may not.
    """
    if report.name in DRAW:
        return DRAW[report.name](report)
    study = STUDIES.get(report.name)
    if study is None or not study.figures:
        return {}
    try:
        result = result_of(report)
        figures: Figures = implementation(study.figures, HOME).figures(result)
        for name, figure in figures.items():
            if not isinstance(figure, go.Figure):
                raise TypeError(f"{name} is no Plotly figure")
    except HeadlabError:
        raise
    except Exception as error:  # a package can raise anything
        log.warning("the figures of %s cannot be drawn", report.name, exc_info=True)
        raise HeadlabError(
            f"study {report.name} cannot draw them ({type(error).__name__}: {error})",
            code="figure.study_failed",
        ) from error
    return figures


def column(table: Table, name: str) -> Floats:
    """A column's numbers, float [row], NaN for empty cells."""
    return np.array(
        [np.nan if value is None else value for value in table.column(name)], dtype=np.float64
    )


def heads_by_row(table: Table) -> list[Head]:
    """The head of each row; empty where a table's rows are of no heads. Raises HeadlabError if one is invalid."""
    return heads_of(table) if {*HEAD} <= {*table.columns} else []


def rows_by(table: Table, *names: str) -> dict[tuple[Cell, ...], Table]:
    """{values of these columns: the table of the rows that have them}, in the table's order."""
    rows: dict[tuple[Cell, ...], list[tuple[Cell, ...]]] = {}
    for row, key in zip(table.rows, zip(*map(table.column, names), strict=True), strict=True):
        rows.setdefault(key, []).append(row)
    return {key: replace(table, rows=tuple(own)) for key, own in rows.items()}


def side_by_side(
    table: Table, rows: str, series: str, value: Columns, p: str | None = None
) -> tuple[list[str], dict[str, Dots]]:
    """Names of the rows, and one dot per row for every series, from a long table.

    rows, series: columns of names.  value: columns of the value and its interval.  p: column of p-values; dots are
    filled where p is below 0.05, or all if None.
    """
    names, out = list(dict.fromkeys(map(str, table.column(rows)))), dict[str, Dots]()
    for (kind,), own in rows_by(table, series).items():
        place = [names.index(str(name)) for name in own.column(rows)]
        parts, filled = np.full((3, len(names)), np.nan), np.zeros(len(names), bool)
        parts[:, place] = [column(own, name) for name in value]
        filled[place] = True if p is None else column(own, p) < SURE
        out[str(kind)] = Dots(parts[0], parts[1], parts[2], filled)
    return names, out


def _iterative(report: Report) -> Figures:
    out, differences = _curves(report.table("iterative")), report.table("iterative-differences")
    for (other,), rows in rows_by(differences, "minus").items():
        names, series = side_by_side(rows, "language", "ordering", POINTS, p="p")
        unit = f"area minus that of {other}, points"
        out[f"iterative-minus-{other}"] = dots(names, series, unit)
    return out


def _curves(points: Table) -> Figures:
    """One figure per language, with a curve for every ordering."""
    lines_by_language: dict[str, dict[str, Line]] = {}
    for (language, ordering), rows in rows_by(points, "language", "ordering").items():
        removed = column(rows, "removed").astype(np.int64)
        accuracy, low, high = (column(rows, name) for name in ("accuracy, %", "low, %", "high, %"))
        lines = lines_by_language.setdefault(str(language), {})
        lines[str(ordering)] = Line(removed, accuracy, low, high)
    return {
        f"{points.name}-{language}": orderings_figure(lines, language)
        for language, lines in lines_by_language.items()
    }


def _dots(table: Table, columns: Columns, p: str = "") -> Dots:
    """A dot per row, filled where p is small, or without p where the interval is clear of 0."""
    value, low, high = (column(table, name) for name in columns)
    return Dots(value, low, high, column(table, p) < SURE if p else (low > 0) | (high < 0))


def _gap(report: Report) -> Figures:
    table, out = report.table("gap"), {}
    kept = tuple(
        row
        for row, gone in zip(table.rows, column(table, "heads removed"), strict=True)
        if gone > 0
    )
    for (rule,), rows in rows_by(replace(table, rows=kept), "rule").items():
        parts = {
            s: (f"{s}, points", f"{s} low, points", f"{s} high, points") for s in ("dev", "test")
        }
        series = {f"on {split}": _dots(rows, columns) for split, columns in parts.items()}
        out[f"gap-{str(rule).lower().replace(' ', '-')}"] = dots(
            rows.column("language"), series, "gain, points"
        )
    return out


DRAW: Mapping[str, Draw] = {
    "iterative": _iterative,
    "gap": _gap,
}
