"""Figures of heads: maps of scores, one head in every language, and their roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from headlab.charts.chart import Axis, Chart
from headlab.charts.dots import ROW_PIXELS
from headlab.charts.matrices import marked_cells
from headlab.pictures import (
    CORRECTED,
    DARK,
    HARMS,
    HELPS,
    LIGHT,
    LOOKS,
    UNSURE,
    in_order,
    look_of,
    map_of,
)
from headlab.plots.drawing import plotly_figure
from headlab.plots.style import DOTTED, LEGEND, finish
from headlab.records import Bools, Floats, HeadGrid
from headlab.roles.table import group_of
from headlab.scores import HeadScores
from headlab.tables import NOTHING
from headlab.value_functions import shown_unit

# Scores of heads: maps, one head in every language, distributions over all heads.


def head_map(scores: HeadScores, limit: float | None = None) -> go.Figure:
    """One map per stack of a method's values, in the unit shown; heads whose interval excludes 0 carry a + or −.

    limit: end of the colour scale in the scores' unit, such as the `symmetric_limit` of several maps; by default that
    of these scores.
    """
    shown = map_of(scores, None if limit is None else shown_unit(scores.unit)[0] * limit)
    figure, tips = (
        go.Figure(),
        _rows(shown.grid, np.array([tip.replace("\n", "<br>") for tip in shown.tips])),
    )
    for at, (name, rows) in enumerate(_rows(shown.grid, shown.values).items()):
        figure.add_heatmap(
            z=rows,
            customdata=tips[name],
            hovertemplate=name + " layer %{y}, head %{x}<br>%{customdata}<extra></extra>",
            colorscale=shown.scale,
            zmin=shown.lowest,
            zmax=shown.limit,
            visible=at == 0,
            name=name,
            xgap=1,
            ygap=1,
            colorbar={
                "title": {"text": shown.unit, "side": "right"},
                "tickvals": np.linspace(shown.lowest, shown.limit, len(shown.ends)).tolist(),
                "ticktext": shown.ends,
            },
        )
        if shown.marks.any():
            figure.add_scatter(
                visible=at == 0, name=name, **_marks(_rows(shown.grid, shown.marks)[name])
            )
    figure.update_yaxes(autorange="reversed", title="layer", dtick=1).update_xaxes(
        title="head", dtick=1
    )
    return finish(
        figure, showlegend=False, height=420, title=f"{scores.language} · {scores.estimand}"
    )


def _marks(rows: Sequence[Sequence[float]]) -> dict[str, object]:
    """The marks of a stack as points: a disc with the head's sign, white, or black where it is corrected."""
    at = [(x, y, int(mark)) for y, row in enumerate(rows) for x, mark in enumerate(row) if mark]
    sure = [abs(mark) == CORRECTED for _, _, mark in at]
    return {
        "x": [x for x, _, _ in at], "y": [y for _, y, _ in at], "mode": "markers+text", "hoverinfo": "skip",
        "marker": {"size": 13, "color": [DARK if own else LIGHT for own in sure], "line": {"color": DARK, "width": 1}},
        "text": ["+" if mark > 0 else "−" for _, _, mark in at],
        "textfont": {"color": [LIGHT if own else DARK for own in sure], "size": 12},
    }  # fmt: skip


def _rows(
    grid: HeadGrid, flat: np.ndarray[tuple[int], np.dtype[np.generic]]
) -> Mapping[str, list[list[float]]]:
    return grid.layers_by_stack(flat)


def across_languages(
    names: Sequence[str], values: Floats, low: Floats, high: Floats, unit: str
) -> go.Figure:
    """One head's value in every language, one row each: a dot with its interval.

    values, low, high: float [language] in `unit`; low and high are NaN without an interval.
    """
    colours = [
        HELPS if a > 0 else HARMS if b < 0 else UNSURE for a, b in zip(low, high, strict=True)
    ]
    figure = go.Figure()
    for name, value, start, end, colour in zip(names, values, low, high, colours, strict=True):
        figure.add_scatter(
            x=[start, end],
            y=[name, name],
            mode="lines",
            line={"color": colour, "width": 2},
            hoverinfo="skip",
        )
        hover = f"{name}: {value:+.4f}" + (
            "" if np.isnan(start) else f" [{start:+.4f}, {end:+.4f}]"
        )
        look = {"color": colour, "size": 9}
        figure.add_scatter(
            x=[value],
            y=[name],
            mode="markers",
            marker=look,
            hovertemplate=f"{hover}<extra></extra>",
        )
    figure.add_vline(x=0, line=DOTTED)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(title=unit, zeroline=False)
    return finish(figure, height=90 + ROW_PIXELS * len(names), showlegend=False)


def distribution(values: Mapping[str, Floats], unit: str) -> go.Figure:
    """Every head's value, one strip per row, which shows where most heads lie and which stand out.

    values: {name: float [head]} in `unit`.
    """
    figure = go.Figure()
    for name, row in values.items():
        figure.add_box(
            x=row, name=name, boxpoints="all", jitter=0.5, pointpos=0, line={"width": 1, "color": UNSURE},
            marker={"size": 4, "color": HELPS, "opacity": 0.6}, fillcolor="rgba(0,0,0,0)",
        )  # fmt: skip
    figure.add_vline(x=0, line=DOTTED)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title=unit, zeroline=False)
    return finish(figure, height=90 + ROW_PIXELS * len(values), showlegend=False)


# Roles of heads.

HATCHED = {"shape": "/", "solidity": 0.25, "fillmode": "overlay", "fgcolor": LIGHT}
FAINT = "rgba(138,143,152,0.3)"  # heads without a role


def roles_across_languages(
    above: Floats, share: Floats, sure: Bools, rows: Sequence[str], columns: Sequence[str]
) -> go.Figure:
    """What heads with a role in one language do in the others: points above chance on a scale centred at 0.

    above, share: float [row, language], in points and in percent, NaN for none.  sure: bool [row, language], whether
    it has the role there, marked by a dot.  With many languages the shares are shown on hover only.
    """
    texts = [
        [NOTHING if np.isnan(value) else f"{value:.0f}" for value in row_of_shares]
        for row_of_shares in share.tolist()
    ]
    tip = "{row} in {column}: {details} %, {value:+.1f} points against chance"
    title = "points above chance"
    matrix = marked_cells(above, texts, sure, rows, columns, scale_title=title, tip=tip)
    height = max(150, 90 + ROW_PIXELS * len(rows))
    chart = Chart("roles in the languages", (matrix,), x=Axis(is_on_top=True), height=height)
    # On a phone, plotly would label every second language.
    return plotly_figure(chart).update_xaxes(dtick=1)


def stacked(sizes: Sequence[int], counts: Mapping[str, Sequence[float]], unit: str) -> go.Figure:
    """How many heads have each role at every size, stacked in the order of the legend, heads without a role on top.

    sizes: heads left.  counts: {role: heads with it at each size}; the second direction of a relation is hatched,
    since both directions have the same colour.
    """
    figure, seen = go.Figure(), list[str]()
    groups = in_order(map(group_of, counts))
    for role in sorted(counts, key=lambda role: groups.index(group_of(role))):
        group = group_of(role)
        again, colour = group in seen, look_of(group).colour if group in LOOKS else FAINT
        seen.append(group)
        figure.add_bar(
            x=[str(size) for size in sizes], y=list(counts[role]), name=role,
            marker={"color": colour, "pattern": HATCHED if again else {}},
            hovertemplate=role + ": %{y:g} of %{x} heads<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="heads left", type="category", showgrid=False)
    figure.update_yaxes(title=unit, rangemode="tozero", zeroline=False)
    legend = LEGEND | {"traceorder": "normal"}
    height = 380 + 12 * len(counts)  # a phone stacks the legend
    return finish(
        figure, height=height, barmode="stack", bargap=0.15, showlegend=True, legend=legend
    )
