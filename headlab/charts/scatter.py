"""All heads as points: any two of their measures against each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from headlab.charts.chart import SYMBOLS, Axis, Chart, Points, Rule
from headlab.charts.head_measures import HeadMeasure
from headlab.core import Bools, Floats, Head, Ints
from headlab.pictures import HARMS, HELPS, UNSURE, in_legend_order, look_of
from headlab.results import HeadScores
from headlab.roles import Roles

HEIGHT = 520.0
"""Of the chart on a page, in pixels."""
HELPS_SYMBOL = "triangle-up"
HARMS_SYMBOL = "square"
NEITHER_SYMBOL = "circle"
"""Symbols of heads by their sign, so that more than the colour tells them apart."""
ALL_HEADS = "heads"
NO_ROLE = "no role"
NOT_EXAMINED = "not looked at"


@dataclass(frozen=True)
class HeadGroup:
    """Heads that are drawn alike.

    Attributes:
        name: What the legend calls them.
        colour: "#rrggbb".
        symbol: One of the symbols of a chart.
        head_indices: Of these heads, int [head of the group].
    """

    name: str
    colour: str
    symbol: str
    head_indices: Ints


def one_group(head_count: int) -> list[HeadGroup]:
    """All heads, drawn alike."""
    return [HeadGroup(ALL_HEADS, HELPS, NEITHER_SYMBOL, np.arange(head_count))]


def groups_by_sign(scores: HeadScores) -> list[HeadGroup]:
    """Heads that help, harm, or do neither for sure, each by its own interval."""
    is_unsure = ~scores.helpful & ~scores.harmful
    looks = (
        ("neither for sure", UNSURE, NEITHER_SYMBOL, is_unsure),
        ("helps", HELPS, HELPS_SYMBOL, scores.helpful),
        ("harms", HARMS, HARMS_SYMBOL, scores.harmful),
    )
    return [
        HeadGroup(name, colour, symbol, np.flatnonzero(is_of_group))
        for name, colour, symbol, is_of_group in looks
        if is_of_group.any()
    ]


def groups_by_role(roles: Roles, heads: Sequence[Head]) -> list[HeadGroup]:
    """Heads by the clearest of their roles.

    Args:
        roles: A report, which may lack some of the heads.
        heads: All heads of the model, in flat order.
    """
    names = []
    for head in heads:
        if head not in roles.measures:
            names.append(NOT_EXAMINED)
            continue
        roles_of_head = roles.groups(head)
        names.append(roles_of_head[0] if roles_of_head else NO_ROLE)
    without_role = [name for name in (NOT_EXAMINED, NO_ROLE) if name in names]
    groups = []
    for name in without_role:
        groups.append(HeadGroup(name, UNSURE, NEITHER_SYMBOL, _indices_of(name, names)))
    role_names = in_legend_order(name for name in names if name not in without_role)
    for number, name in enumerate(role_names):
        symbol = SYMBOLS[(number + 1) % len(SYMBOLS)]
        groups.append(HeadGroup(name, look_of(name).colour, symbol, _indices_of(name, names)))
    return groups


def _indices_of(name: str, names: Sequence[str]) -> Ints:
    return np.array([index for index, other in enumerate(names) if other == name], np.int64)


def scatter_chart(
    x: HeadMeasure,
    y: HeadMeasure,
    groups: Sequence[HeadGroup],
    head_names: Sequence[str],
    *,
    selected_indices: Collection[int] = (),
) -> Chart:
    """Every head that has both measures as a point.

    Args:
        x: The measure on the horizontal axis.
        y: That on the upright axis.
        groups: How the heads are drawn, each head in one group.
        head_names: Of all heads, as their tips call them.
        selected_indices: Heads that stand out, the others being faint; empty for none.

    Returns:
        The chart; a selection of points gives the heads' indices.
    """
    is_known = known_in_both(x, y)
    series = []
    for group in groups:
        indices = [int(index) for index in group.head_indices if is_known[index]]
        if not indices:
            continue
        is_faint: list[bool] = []
        if selected_indices:
            is_faint = [index not in selected_indices for index in indices]
        series.append(
            Points(
                group.name,
                x.values[indices],
                y.values[indices],
                group.colour,
                group.symbol,
                is_filled=[True] * len(indices),
                is_faint=is_faint,
                texts=[_tip(x, y, head_names[index], index) for index in indices],
                tip="{text}\n{name}",
                keys=[(index,) for index in indices],
            )
        )
    return Chart(
        f"{x.title} against {y.title}, a point per head",
        series,
        x=Axis(x.title),
        y=Axis(y.title),
        rules=[*_zero_rule("x", x.values[is_known]), *_zero_rule("y", y.values[is_known])],
        height=HEIGHT,
        has_legend=len(series) > 1,
        is_selectable=True,
    )


def known_in_both(x: HeadMeasure, y: HeadMeasure) -> Bools:
    """Heads of which both measures are known, bool [head]."""
    return np.isfinite(x.values) & np.isfinite(y.values)


def _tip(x: HeadMeasure, y: HeadMeasure, head_name: str, head_index: int) -> str:
    lines = [head_name]
    for measure in (x, y):
        of_language = f", {measure.language}" if measure.language else ""
        lines.append(f"{measure.name}{of_language}: {measure.text_of(head_index)}")
    return "\n".join(lines)


def _zero_rule(axis: str, values: Floats) -> list[Rule]:
    """A line at 0 where values lie on both sides of it."""
    if values.size and values.min() < 0 < values.max():
        return [Rule(axis, 0.0)]
    return []
