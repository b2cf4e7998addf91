"""The figures of an experiment's report, drawn from its tables alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from headlab.plots.heads import share_map
from headlab.plots.lines import Dots, Line, dots, front_figures, orderings_figure
from headlab.plots.matrices import agreement_matrix, correlation_matrix, dendrogram, sign_matrix, transfer_matrix
from headlab.records import Floats, Head
from headlab.tables import Report, Table

Figures = dict[str, go.Figure]
Draw = Callable[[Report, str | None], Figures]
POINTS = ("difference, points", "low, points", "high, points")
AGAINST_OWN = ("minus own, points", "minus own low, points", "minus own high, points")
SURE = 0.05  # dots of differences with a p below this are filled


def report_figures(report: Report, template: str | None = None) -> Figures:
    """{name, usable as a file name: figure} of a report; empty for an experiment without figures."""
    draw = DRAW.get(report.name)
    return {} if draw is None else draw(report, template)


def column(table: Table, name: str) -> Floats:
    """A column's numbers, float [row], NaN for empty cells."""
    return np.array([np.nan if value is None else value for value in table.column(name)], dtype=np.float64)


def rows_by(table: Table, *names: str) -> dict[tuple[Any, ...], list[int]]:
    """{values of these columns: indices of the rows that have them}, in the table's order."""
    out: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*(table.column(name) for name in names), strict=True)):
        out.setdefault(key, []).append(row)
    return out


def side_by_side(
    table: Table,
    rows: str,
    series: str,
    value: tuple[str, str, str],
    *,
    p: str | None = None,
    where: Sequence[int] = (),
) -> tuple[list[str], dict[str, Dots]]:
    """Names of the rows, and one dot per row for every series, from a long table.

    rows, series: columns of names.  value: columns of the value and its interval.  p: column of p-values; dots are
    filled where p is below 0.05, or all if None.  where: indices of the table's rows; all if empty.
    """
    at = list(where) or list(range(len(table.rows)))
    labels, kinds = ([str(table.column(name)[i]) for i in at] for name in (rows, series))
    names = list(dict.fromkeys(labels))
    numbers = [column(table, name)[at] for name in value]
    sure = np.ones(len(at), bool) if p is None else column(table, p)[at] < SURE
    out = {}
    for kind in dict.fromkeys(kinds):
        mine = [i for i, other in enumerate(kinds) if other == kind]
        place = [names.index(labels[i]) for i in mine]
        parts = np.full((3, len(names)), np.nan)
        parts[:, place] = [number[mine] for number in numbers]
        filled = np.zeros(len(names), bool)
        filled[place] = sure[mine]
        out[kind] = Dots(parts[0], parts[1], parts[2], filled)
    return names, out


def _iterative(report: Report, template: str | None) -> Figures:
    out, differences = _curves(report.table("iterative"), template), report.table("iterative-differences")
    for (other,), rows in rows_by(differences, "minus").items():
        names, series = side_by_side(differences, "language", "ordering", POINTS, p="p", where=rows)
        unit = f"area minus that of {other}, points"
        out[f"iterative-minus-{other}"] = dots(names, series, unit, template=template)
    return out


def _curves(points: Table, template: str | None) -> Figures:
    """One figure per language, with a curve for every ordering."""
    found: dict[str, dict[str, Line]] = {}
    values = [column(points, name) for name in ("removed", "accuracy, %", "low, %", "high, %")]
    for (language, ordering), rows in rows_by(points, "language", "ordering").items():
        removed, *rest = (value[rows] for value in values)
        found.setdefault(language, {})[ordering] = Line(removed.astype(np.int64), *rest)
    return {f"{points.name}-{name}": orderings_figure(lines, name, template=template) for name, lines in found.items()}


def _methods(report: Report, template: str | None) -> Figures:
    pairs, verdicts = report.table("methods-agreement"), report.table("methods-verdict")
    names = list(dict.fromkeys([*pairs.column("method"), *pairs.column("other")]))
    out = {}
    for (place,), rows in sorted(rows_by(pairs, "language").items(), key=lambda item: item[0] != ("mean",)):
        out[f"methods-agreement-{place}"] = correlation_matrix(
            pairs, names, ("method", "other"), "the same method", where=rows, template=template
        )
    cells = zip(*(verdicts.column(name) for name in ("language", "best", "next")), strict=True)
    against = {"the next method": ("minus next, points", *POINTS[1:]),
               "random": ("minus random, points", "random low, points", "random high, points")}  # fmt: skip
    series = {}
    for name, parts in against.items():
        value, low, high = (column(verdicts, part) for part in parts)
        series[name] = Dots(value, low, high, low > 0)
    rows_named = [f"{place}: {best} (next: {following})" for place, best, following in cells]
    unit = "area of the best method minus that of another, points"
    out["methods-verdict"] = dots(rows_named, series, unit, template=template)
    return out | _curves(report.table("methods-curves"), template)


def _separators(report: Report, template: str | None) -> Figures:
    heads, kinds = report.table("separators"), report.table("separator-kinds")
    share, out = column(heads, "sentences, %"), {}
    mean = {key: float(share[rows].mean()) for key, rows in rows_by(heads, "stack", "layer", "head").items()}
    out["separators"] = share_map(mean, "sentences, %", template)
    names, series = side_by_side(kinds, "language", "heads", ("sentences, %", "low, %", "high, %"))
    out["separator-kinds"] = dots(
        names, series, "sentences that look at separators only, %", zero=False, template=template
    )
    return out


def _agreement(report: Report, template: str | None) -> Figures:
    pairs, languages = report.table("agreement"), report.table("agreement-languages")
    out = {"agreement": agreement_matrix(pairs, languages, template=template)}
    if len(languages.rows) > 2:
        merges = report.table("agreement-clusters")
        out["agreement-clusters"] = dendrogram(merges, languages, template)
    return out


def _targeted(report: Report, template: str | None) -> Figures:
    others = {"targeted": "the untouched model", "targeted-against": "the method's heads"}
    out = {}
    for name, other in others.items():
        rows, series = side_by_side(report.table(name), "language", "removed by", POINTS, p="p")
        out[name] = dots(rows, series, f"accuracy against {other}, points", template=template)
    return out


def _transfer(report: Report, template: str | None) -> Figures:
    pairs = report.table("transfer")
    by, on = (list(map(str, pairs.column(name))) for name in ("chosen on", "language"))
    chosen, tested = list(dict.fromkeys(by)), list(dict.fromkeys(on))
    values, sure = np.full((len(chosen), len(tested)), np.nan), np.zeros((len(chosen), len(tested)), bool)
    at = list(map(chosen.index, by)), list(map(tested.index, on))
    values[at], sure[at] = column(pairs, POINTS[0]), column(pairs, "p") < SURE
    out = {"transfer": transfer_matrix(values, sure, chosen, tested, template)}
    shot = next((table for table in report.tables if table.name == "zero-shot"), None)
    if shot is None:  # the source language is not among the languages
        return out
    parts = {"against the untouched model": (POINTS, "p"), "against its own mask": (AGAINST_OWN, "minus own p")}
    series = {name: _series(shot, columns, p) for name, (columns, p) in parts.items()}
    out["zero-shot"] = dots(shot.column("language"), series, "difference in accuracy, points", template=template)
    return out


def _series(table: Table, columns: tuple[str, str, str], p: str) -> Dots:
    value, low, high = (column(table, name) for name in columns)
    return Dots(value, low, high, column(table, p) < SURE)


def _gap(report: Report, template: str | None) -> Figures:
    table, out = report.table("gap"), {}
    gone = column(table, "heads removed")
    for (rule,), rows in rows_by(table, "rule").items():
        at = [row for row in rows if gone[row] > 0]
        if not at:
            continue
        names = [str(table.column("language")[row]) for row in at]
        series = {}
        for split in ("dev", "test"):
            parts = (f"{split}, points", f"{split} low, points", f"{split} high, points")
            value, low, high = (column(table, name)[at] for name in parts)
            series[f"on {split}"] = Dots(value, low, high, (low > 0) | (high < 0))
        out[f"gap-{str(rule).lower().replace(' ', '-')}"] = dots(names, series, "gain, points", template=template)
    return out


def _heads(report: Report, template: str | None) -> Figures:
    out, shared = {}, report.table("heads-agnostic")
    if shared.rows:
        best, worst = column(shared, "best rank"), column(shared, "worst rank")
        ranks = {"ranks": Dots(worst, best, worst, np.ones(len(best), bool))}
        unit = "rank in the languages, from best to worst (dot)"
        out["heads-agnostic"] = dots(_head_names(shared), ranks, unit, zero=False, template=template)
    for name in ("heads-specific", "heads-few"):
        table = report.table(name)
        if not table.rows:
            continue
        sides = [[_listed(cell) for cell in table.column(f"{side} languages")] for side in ("positive", "negative")]
        order = str(dict(report.spec.get("task", {})).get("language", "")).split(",")
        named = [language for side in sides for row in side for language in row]
        languages = [*(language for language in order if language in named), *sorted(set(named) - set(order))]
        out[name] = sign_matrix(sides[0], sides[1], _head_names(table), languages, template)
    return out


def _head_names(table: Table) -> list[str]:
    """Names of the heads, as written everywhere else."""
    places = zip(*(table.column(name) for name in ("stack", "layer", "head")), strict=True)
    return [str(Head(str(stack), int(layer), int(head))) for stack, layer, head in places]


def _listed(cell: str) -> list[str]:
    return [name for name in cell.split(", ") if name]


DRAW: Mapping[str, Draw] = {
    "agreement": _agreement,
    "targeted": _targeted,
    "transfer": _transfer,
    "iterative": _iterative,
    "methods": _methods,
    "heads": _heads,
    "separators": _separators,
    "gap": _gap,
    "front": front_figures,
}
