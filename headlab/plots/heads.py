"""Figures of heads: maps of scores, one head in every language, and their roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from headlab.charts.chart import Axis, Chart
from headlab.charts.dots import ROW_PIXELS
from headlab.charts.matrices import marked_cells
from headlab.core import EMPTY_CELL, Bools, Floats, HeadGrid, display_unit
from headlab.pictures import (
    DARK,
    HARMS,
    HELPS,
    HOLM_CORRECTED,
    LIGHT,
    LOOKS,
    MINUS,
    UNSURE,
    in_legend_order,
    look_of,
    map_of_scores,
)
from headlab.plots.drawing import plotly_figure
from headlab.plots.style import DOTTED, LEGEND, with_common_layout
from headlab.results import HeadScores
from headlab.roles import group_of

# Scores of heads: maps, one head in every language, distributions over all heads.

CLEAR = "#8e5ea2"
"""Of what is clear of 0 and neither helps nor harms."""


def head_map(scores: HeadScores, limit: float | None = None) -> go.Figure:
    """One map per stack of a method's values, in the unit shown.

    Heads whose interval excludes 0 carry a + or −.

    Args:
        scores: Of one method in one language.
        limit: End of the colour scale in the scores' unit, such as the `symmetric_limit` of several
            maps; by default that of these scores.

    Returns:
        A new figure.
    """
    map_shown = map_of_scores(
        scores, None if limit is None else display_unit(scores.unit)[0] * limit
    )
    figure = go.Figure()
    tip_texts = np.array([tip.replace("\n", "<br>") for tip in map_shown.tips])
    tips = _rows(map_shown.grid, tip_texts)
    for number, (name, rows) in enumerate(_rows(map_shown.grid, map_shown.values).items()):
        figure.add_heatmap(
            z=rows,
            customdata=tips[name],
            hovertemplate=name + " layer %{y}, head %{x}<br>%{customdata}<extra></extra>",
            colorscale=map_shown.scale,
            zmin=map_shown.lowest,
            zmax=map_shown.limit,
            visible=number == 0,
            name=name,
            xgap=1,
            ygap=1,
            colorbar={
                "title": {"text": map_shown.unit, "side": "right"},
                "tickvals": np.linspace(
                    map_shown.lowest, map_shown.limit, len(map_shown.ends)
                ).tolist(),
                "ticktext": map_shown.ends,
            },
        )
        if map_shown.marks.any():
            figure.add_scatter(
                visible=number == 0,
                name=name,
                **_marks(_rows(map_shown.grid, map_shown.marks)[name]),
            )
    figure.update_yaxes(autorange="reversed", title="layer", dtick=1).update_xaxes(
        title="head", dtick=1
    )
    return with_common_layout(
        figure, showlegend=False, height=420, title=f"{scores.language} · {scores.estimand}"
    )


def _marks(rows: Sequence[Sequence[float]]) -> dict[str, object]:
    """The marks of a stack as points, for Plotly.

    Each is a disc with the head's sign: white, or black where the mark is CORRECTED.

    Args:
        rows: Marks by layer and head, 0 for none.
    """
    x = []
    y = []
    signs = []
    discs = []
    inks = []
    for layer, marks in enumerate(rows):
        for head, mark in enumerate(marks):
            if not int(mark):
                continue
            is_corrected = abs(int(mark)) == HOLM_CORRECTED
            x.append(head)
            y.append(layer)
            signs.append("+" if mark > 0 else MINUS)
            discs.append(DARK if is_corrected else LIGHT)
            inks.append(LIGHT if is_corrected else DARK)
    return {
        "x": x,
        "y": y,
        "mode": "markers+text",
        "hoverinfo": "skip",
        "marker": {"size": 13, "color": discs, "line": {"color": DARK, "width": 1}},
        "text": signs,
        "textfont": {"color": inks, "size": 12},
    }


def _rows(
    grid: HeadGrid, flat: np.ndarray[tuple[int], np.dtype[np.generic]]
) -> Mapping[str, list[list[float]]]:
    return grid.layers_by_stack(flat)


def across_languages(
    names: Sequence[str],
    values: Floats,
    low: Floats,
    high: Floats,
    unit: str,
    *,
    says_help: bool = True,
) -> go.Figure:
    """One head's value in every language, one row each: a dot with its interval.

    Args:
        names: Of the languages.
        values: Float [language] in `unit`.
        low: Lower ends of the intervals, float [language], NaN without one.
        high: Their upper ends.
        unit: Of the values.
        says_help: Whether values above 0 help and those below harm, which colours say; else what
            is clear of 0 has one colour.
    """
    figure = go.Figure()
    for name, value, start, end in zip(names, values, low, high, strict=True):
        colour = UNSURE
        if start > 0:
            colour = HELPS if says_help else CLEAR
        elif end < 0:
            colour = HARMS if says_help else CLEAR
        figure.add_scatter(
            x=[start, end],
            y=[name, name],
            mode="lines",
            line={"color": colour, "width": 2},
            hoverinfo="skip",
        )
        hover = f"{name}: {value:+.4f}"
        if not np.isnan(start):
            hover += f" [{start:+.4f}, {end:+.4f}]"
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
    return with_common_layout(figure, height=90 + ROW_PIXELS * len(names), showlegend=False)


def distribution(values: Mapping[str, Floats], unit: str) -> go.Figure:
    """Every head's value, one strip per row: where most heads lie and which stand out.

    Args:
        values: {name: float [head]} in `unit`.
        unit: Of the values.
    """
    figure = go.Figure()
    for name, row in values.items():
        figure.add_box(
            x=row,
            name=name,
            boxpoints="all",
            jitter=0.5,
            pointpos=0,
            line={"width": 1, "color": UNSURE},
            marker={"size": 4, "color": HELPS, "opacity": 0.6},
            fillcolor="rgba(0,0,0,0)",
        )
    figure.add_vline(x=0, line=DOTTED)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title=unit, zeroline=False)
    return with_common_layout(figure, height=90 + ROW_PIXELS * len(values), showlegend=False)


# Roles of heads.

HATCHED = {"shape": "/", "solidity": 0.25, "fillmode": "overlay", "fgcolor": LIGHT}
FAINT = "rgba(138,143,152,0.3)"  # heads without a role


def roles_across_languages(
    above: Floats, share: Floats, sure: Bools, rows: Sequence[str], columns: Sequence[str]
) -> go.Figure:
    """What heads with a role in one language do in the others, on a scale centred at 0.

    With many languages the shares are shown on hover only.

    Args:
        above: Points above chance, float [row, language], NaN for none.
        share: In percent, float [row, language], NaN for none.
        sure: Bool [row, language], whether the head has the role there, marked by a dot.
        rows: Names of the heads.
        columns: Names of the languages.
    """
    texts = [
        [EMPTY_CELL if np.isnan(value) else f"{value:.0f}" for value in row_of_shares]
        for row_of_shares in share.tolist()
    ]
    tip = "{row} in {column}: {details} %, {value:+.1f} points against chance"
    title = "points above chance"
    matrix = marked_cells(above, texts, sure, rows, columns, scale_title=title, tip=tip)
    height = max(150, 90 + ROW_PIXELS * len(rows))
    chart = Chart("roles in the languages", (matrix,), x=Axis(is_on_top=True), height=height)
    # On a phone, plotly would label every second language.
    return plotly_figure(chart).update_xaxes(dtick=1)


def roles_by_size_figure(
    sizes: Sequence[int], counts: Mapping[str, Sequence[float]], unit: str
) -> go.Figure:
    """How many heads have each role at every size, stacked, heads without a role on top.

    Args:
        sizes: Heads left.
        counts: {role: heads with it at each size}. The second direction of a relation is hatched,
            since both directions have the same colour.
        unit: Of the counts.
    """
    figure = go.Figure()
    drawn_groups: list[str] = []
    groups = in_legend_order(map(group_of, counts))
    for role in sorted(counts, key=lambda role: groups.index(group_of(role))):
        group = group_of(role)
        is_second = group in drawn_groups
        colour = look_of(group).colour if group in LOOKS else FAINT
        drawn_groups.append(group)
        figure.add_bar(
            x=[str(size) for size in sizes],
            y=list(counts[role]),
            name=role,
            marker={"color": colour, "pattern": HATCHED if is_second else {}},
            hovertemplate=role + ": %{y:g} of %{x} heads<extra></extra>",
        )
    figure.update_xaxes(title="heads left", type="category", showgrid=False)
    figure.update_yaxes(title=unit, rangemode="tozero", zeroline=False)
    legend = LEGEND | {"traceorder": "normal"}
    height = 380 + 12 * len(counts)  # a phone stacks the legend
    return with_common_layout(
        figure, height=height, barmode="stack", bargap=0.15, showlegend=True, legend=legend
    )
