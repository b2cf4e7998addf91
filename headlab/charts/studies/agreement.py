"""Agreement between languages: a matrix of correlations and a tree of languages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from headlab.charts.chart import Axis, Chart, Line, Note
from headlab.charts.dots import ROW_PIXELS
from headlab.charts.matrices import correlations_chart
from headlab.core import EMPTY_CELL
from headlab.pictures import HELPS, UNSURE
from headlab.studies.agreement import (
    RHO,
    AgreementResult,
    Correlation,
    LanguageAgreement,
    Merge,
)

SURE = 80.0  # minimum share of resamples with a cluster, in percent, for its lines to be coloured


def figures(result: AgreementResult) -> dict[str, Chart]:
    """The matrix, and of three languages or more the tree."""
    charts = {"agreement": agreement_matrix(result)}
    if len(result.languages.rows) > 2:
        charts["agreement-clusters"] = dendrogram(result.merges.rows, result.languages.rows)
    return charts


def agreement_matrix(result: AgreementResult, *, similar: bool = True) -> Chart:
    """Rank correlations of every pair of languages; interval, ceiling and corrected value on hover.

    Args:
        result: The agreement of some languages.
        similar: Whether to put similar languages side by side, instead of keeping the order of the
            pairs.
    """
    pairs = [(pair.language, pair.other_language, pair.correlation) for pair in result.pairs.rows]
    if similar:
        names = [language.language for language in result.languages.rows]
    else:
        names = names_of(pairs)
    title = "rank correlations of the heads' scores between languages"
    return correlation_matrix(title, pairs, names, "the same language")


def names_of(pairs: Sequence[tuple[str, str, Correlation]]) -> list[str]:
    """The names in pairs, those that come first in one before the others."""
    return list(
        dict.fromkeys([*(first for first, _, _ in pairs), *(second for _, second, _ in pairs)])
    )


def correlation_matrix(
    title: str,
    pairs: Iterable[tuple[str, str, Correlation]],
    names: Sequence[str],
    diagonal_text: str,
) -> Chart:
    """Rank correlations of every pair of names; interval, ceiling and corrected value on hover.

    Args:
        title: What the chart shows.
        pairs: Two names and their correlation.
        names: In the order of rows and columns.
        diagonal_text: Hover text of the diagonal.
    """
    index_of = {name: index for index, name in enumerate(names)}
    rho = np.eye(len(names))
    hover_texts = [[diagonal_text] * len(names) for _ in names]
    for row_name, column_name, correlation in pairs:
        row = index_of[row_name]
        column = index_of[column_name]
        value = np.nan if correlation.rho is None else correlation.rho
        for cell in ((row, column), (column, row)):
            rho[cell] = value
            hover_texts[cell[0]][cell[1]] = _hover_text(correlation)
    return correlations_chart(title, rho, names, hover_texts)


def _hover_text(correlation: Correlation) -> str:
    """A pair's numbers, one line each."""
    lines = [f"ρ = {_interval(correlation.rho, correlation.low, correlation.high)}"]
    if correlation.noise is None:  # a mean of correlations has no ceiling
        return lines[0]
    if correlation.ceiling is None:
        lines.append("noise ceiling unknown")
    else:
        ceiling = _interval(correlation.ceiling, correlation.ceiling_low, correlation.ceiling_high)
        corrected = _rho_text(correlation.corrected_rho)
        across_halves = _rho_text(correlation.across_halves)
        lines.append(f"noise ceiling {ceiling}")
        lines.append(correlation.noise or f"corrected {corrected}, across halves {across_halves}")
    return "\n".join(lines)


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    return f"{_rho_text(value)} [{_rho_text(low)}, {_rho_text(high)}]"


def _rho_text(value: float | None) -> str:
    if value is None:
        return EMPTY_CELL
    return format(value, RHO)


def dendrogram(merges: Sequence[Merge], languages: Sequence[LanguageAgreement]) -> Chart:
    """The tree of languages, similar ones side by side.

    Clusters found in most resamples are coloured.

    Args:
        merges: Of the tree, nearest first.
        languages: In the order of its leaves.
    """
    # Where the line of a language or cluster begins: its height on the page and its distance.
    ends = {language.number: (float(row), 0.0) for row, language in enumerate(languages)}
    branches = []
    notes = []
    for merge in merges:
        (y1, x1) = ends[merge.first_part]
        (y2, x2) = ends[merge.second_part]
        distance = merge.distance
        middle = (y1 + y2) / 2
        ends[merge.number] = (middle, distance)
        is_sure = merge.support_percent >= SURE and merge.size < len(languages)
        branch = Line(
            merge.languages,
            [x1, distance, distance, x2],
            [y1, y1, y2, y2],
            HELPS if is_sure else UNSURE,
            tip=f"{{name}}\n1 − ρ = {distance:.2f}; in {merge.support_percent:.0f} % of resamples",
            is_in_legend=False,
        )
        branches.append(branch)
        if merge.size < len(languages):
            support = f"{merge.support_percent:.0f} %"
            notes.append(Note(distance, middle, support, anchor="left", shift=(2, 8), size=11))
    farthest = 1.06 * max((distance for _, distance in ends.values()), default=1.0)
    ticks = tuple((float(row), language.language) for row, language in enumerate(languages))
    return Chart(
        "tree of languages by the agreement of their heads' scores",
        branches,
        x=Axis("1 − ρ, mean over the pairs of two clusters", limits=(0, farthest)),
        y=Axis(ticks=ticks, limits=(len(languages) - 0.5, -0.5), has_grid=False),
        notes=notes,
        height=max(220, 90 + ROW_PIXELS * len(languages)),
        has_legend=False,
    )
