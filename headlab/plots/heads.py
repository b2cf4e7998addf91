"""Scores of heads: maps, one head in every language, all heads of a language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from headlab.plots.style import DIVERGING, HARMS, HELPS, ROW_PIXELS, SEQUENTIAL, UNSURE, finish
from headlab.records import Floats, HeadGrid
from headlab.scores import HeadScores


def symmetric_limit(values: Sequence[Floats]) -> float:
    """One bound for all maps, so that equal colours mean equal values; 1.0 if every value is 0."""
    peak = max((float(np.nanmax(np.abs(v), initial=0.0)) for v in values), default=0.0)
    return peak or 1.0


def head_map(scores: HeadScores, limit: float | None = None, template: str | None = None) -> go.Figure:
    """One map per stack of a method's values; heads whose interval excludes 0 carry a dot.

    limit: end of the colour scale, in the scores' unit; by default the largest absolute value.
    Values below 0 give a diverging scale around 0, otherwise it runs from 0 up.
    """
    limit = limit or symmetric_limit([scores.values])
    signed = bool((scores.values < 0).any())
    figure = go.Figure()
    for at, (name, rows) in enumerate(_rows(scores.grid, scores.values).items()):
        marks = _rows(scores.grid, scores.helpful | scores.harmful)[name]
        figure.add_heatmap(
            z=rows,
            text=[["●" if mark else "" for mark in row] for row in marks],
            texttemplate="%{text}",
            hovertemplate=name + " layer %{y}, head %{x}: %{z:.4f}<extra></extra>",
            colorscale=DIVERGING if signed else SEQUENTIAL,
            zmin=-limit if signed else 0,
            zmax=limit,
            visible=at == 0,
            name=name,
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": scores.unit, "side": "right"}},
        )
    figure.update_yaxes(autorange="reversed", title="layer", dtick=1)
    figure.update_xaxes(title="head", dtick=1)
    return finish(figure, template, height=420, title=f"{scores.language} · {scores.estimand}")


def _rows(grid: HeadGrid, flat: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Mapping[str, list[list[float]]]:
    nested = grid.nest(flat)
    return nested if isinstance(nested, dict) else {grid.stacks[0].name: nested}


def across_languages(
    names: Sequence[str], values: Floats, low: Floats, high: Floats, unit: str, template: str | None = None
) -> go.Figure:
    """One head's value in every language, a dot with its interval per row.

    values, low, high: float [language] in `unit`; NaN ends where there is no interval.
    """
    colours = [HELPS if a > 0 else HARMS if b < 0 else UNSURE for a, b in zip(low, high, strict=True)]
    figure = go.Figure()
    for name, value, start, end, colour in zip(names, values, low, high, colours, strict=True):
        figure.add_scatter(
            x=[start, end], y=[name, name], mode="lines", line={"color": colour, "width": 2}, hoverinfo="skip"
        )
        hover = f"{name}: {value:+.4f}" + ("" if np.isnan(start) else f" [{start:+.4f}, {end:+.4f}]")
        figure.add_scatter(
            x=[value],
            y=[name],
            mode="markers",
            marker={"color": colour, "size": 9},
            hovertemplate=hover + "<extra></extra>",
        )
    figure.add_vline(x=0, line={"color": UNSURE, "width": 1, "dash": "dot"})
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(title=unit, zeroline=False)
    return finish(figure, template, height=90 + ROW_PIXELS * len(names), showlegend=False)


def distribution(values: Mapping[str, Floats], unit: str, template: str | None = None) -> go.Figure:
    """Every head's value, one strip per row: where most heads lie and which stand out.

    values: {name: float [head]} in `unit`.
    """
    figure = go.Figure()
    for name, row in values.items():
        figure.add_box(
            x=row, name=name, boxpoints="all", jitter=0.5, pointpos=0, line={"width": 1, "color": UNSURE},
            marker={"size": 4, "color": HELPS, "opacity": 0.6}, fillcolor="rgba(0,0,0,0)",
        )  # fmt: skip
    figure.add_vline(x=0, line={"color": UNSURE, "width": 1, "dash": "dot"})
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title=unit, zeroline=False)
    return finish(figure, template, height=90 + ROW_PIXELS * len(values), showlegend=False)


def share_map(values: Mapping[tuple[str, int, int], float], unit: str, template: str | None = None) -> go.Figure:
    """A value of 0 or more for every head, layer by layer, stacks one below the other.

    values: {(stack, layer, head): value in `unit`}.
    """
    several = len({stack for stack, _, _ in values}) > 1
    rows = list(dict.fromkeys((stack, layer) for stack, layer, _ in values))
    z = np.full((len(rows), 1 + max(head for _, _, head in values)), np.nan)
    for (stack, layer, head), value in values.items():
        z[rows.index((stack, layer)), head] = value
    names = [f"{stack} {layer}" if several else str(layer) for stack, layer in rows]
    figure = go.Figure(
        go.Heatmap(
            z=z, y=names, colorscale=SEQUENTIAL, zmin=0, xgap=1, ygap=1, texttemplate="%{z:.0f}",
            hovertemplate="layer %{y}, head %{x}: %{z:.1f}<extra></extra>",
            colorbar={"title": {"text": unit, "side": "right"}, "thickness": 12},
        )
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", type="category", title="layer", showgrid=False)
    figure.update_xaxes(title="head", dtick=1, showgrid=False)
    return finish(figure, template, height=110 + ROW_PIXELS * len(rows))
