"""Records as Plotly figures: transparent, no global state, the template is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from headlab.records import Floats, HeadGrid, Ints
from headlab.scores import Band, Curve, HeadScores

# Orange harms, blue helps: told apart with every common colour blindness, and in grey by their labels.
DIVERGING = ((0.0, "#b35806"), (0.25, "#f1a340"), (0.5, "#f7f7f7"), (0.75, "#67a9cf"), (1.0, "#2166ac"))
SEQUENTIAL = ((0.0, "#f7fbff"), (0.5, "#6baed6"), (1.0, "#08306b"))
HELPS, HARMS, UNSURE = "#2b7bba", "#d9730d", "#8a8f98"
# Lines of one figure; neighbours differ in lightness too.
LINES = (HELPS, HARMS, "#3a8f5c", "#8e5ea2", "#b08d2e", "#5b6770")
ROW_PIXELS = 26


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
    return _finish(figure, template, height=420, title=f"{scores.language} · {scores.estimand}")


def _rows(grid: HeadGrid, flat: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Mapping[str, list[list[float]]]:
    nested = grid.nest(flat)
    return nested if isinstance(nested, dict) else {grid.stacks[0].name: nested}


def agreement(rho: Floats, names: Sequence[str], template: str | None = None) -> go.Figure:
    """Rank correlations of every pair of languages, one colour scale from -1 to 1.

    rho: float [language, language], NaN where a language's scores are all equal.
    """
    figure = go.Figure(
        go.Heatmap(
            z=rho,
            x=list(names),
            y=list(names),
            text=np.where(np.isnan(rho), "–", np.char.mod("%.2f", np.nan_to_num(rho))),
            texttemplate="%{text}" if len(names) <= 20 else None,
            hovertemplate="%{y} and %{x}: ρ = %{text}<extra></extra>",
            colorscale=DIVERGING,
            zmin=-1,
            zmax=1,
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": "Spearman ρ", "side": "right"}, "thickness": 12, "dtick": 0.5},
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(side="top", type="category", showgrid=False)
    return _finish(figure, template, height=max(260, 110 + ROW_PIXELS * len(names)))


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
    return _finish(figure, template, height=90 + ROW_PIXELS * len(names), showlegend=False)


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
    return _finish(figure, template, height=90 + ROW_PIXELS * len(values), showlegend=False)


def curve_figure(curves: Sequence[Curve], band: Band | None = None, template: str | None = None) -> go.Figure:
    """Accuracy against heads removed, a line a curve with its name on it; shaded: 95 % of the difference to the start.

    band: drawn in grey behind the curves, from lowest to highest, its median dotted.  Names are what tells
    the curves apart: the ordering, the language, or both.
    """
    figure = go.Figure()
    if band is not None:
        _shade(figure, band.removed, band.low, band.high, UNSURE)
        name = f"{band.ordering}, median of {band.curves}"
        figure.add_scatter(
            x=band.removed, y=band.median, name=name, mode="lines", line={"color": UNSURE, "width": 1.5, "dash": "dot"},
            hovertemplate=f"{name}: %{{y:.1%}} without %{{x}} heads<extra></extra>",
        )  # fmt: skip
    colours = [LINES[at % len(LINES)] for at in range(len(curves))]
    for curve, name, colour in zip(curves, _names(curves), colours, strict=True):
        start = curve.accuracy[0]
        _shade(figure, curve.removed, start + curve.low, start + curve.high, colour)
        figure.add_scatter(
            x=curve.removed, y=curve.accuracy, name=name, mode="lines", line={"color": colour, "width": 2},
            customdata=100 * np.stack([curve.difference, curve.low, curve.high], axis=1),
            hovertemplate=name + ": %{y:.1%} without %{x} heads, %{customdata[0]:+.1f} points "
            "[%{customdata[1]:+.1f}, %{customdata[2]:+.1f}]<extra></extra>",
        )  # fmt: skip
    _label_lines(figure)
    figure.update_xaxes(title="heads removed", zeroline=False)
    figure.update_yaxes(title="accuracy", tickformat=".0%", rangemode="tozero", zeroline=False)
    return _finish(figure, template, height=420, showlegend=False, hovermode="closest")


def _shade(figure: go.Figure, x: Ints, low: Floats, high: Floats, colour: str) -> None:
    """The area between two lines, in a colour that lets what is behind it through."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    figure.add_scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), mode="none", fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.13)", hoverinfo="skip",
    )  # fmt: skip


def _names(curves: Sequence[Curve]) -> list[str]:
    """What tells curves apart: ordering, language, or both."""
    one_language, one_ordering = (len({getattr(c, what) for c in curves}) == 1 for what in ("language", "ordering"))
    if one_ordering and not one_language:
        return [c.language for c in curves]
    return [c.ordering if one_language else f"{c.language} {c.ordering}" for c in curves]


def _label_lines(figure: go.Figure) -> None:
    """Write each line's name beside it, at the place where it is farthest from the others."""
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    for line in lines:
        x, y = np.asarray(line.x, float), np.asarray(line.y, float)
        others = np.array([np.interp(x, o.x, o.y) for o in lines if o is not line]).reshape(-1, len(x))
        gaps = np.abs(others - y).min(axis=0, initial=np.inf)
        inner = slice(1, -1) if len(x) > 2 else slice(None)  # every curve begins, and nearly ends, where the others do
        at = int(np.arange(len(x))[inner][np.argmax(gaps[inner])])
        nearest = others[np.abs(others[:, at] - y[at]).argmin(), at] if len(others) else -np.inf
        above = nearest <= y[at]
        figure.add_annotation(
            x=x[at], y=y[at], text=line.name, showarrow=False, yshift=12 if above else -12,
            font={"color": line.line.color, "size": 12},
        )  # fmt: skip


def _finish(figure: go.Figure, template: str | None, **layout: object) -> go.Figure:
    figure.update_layout(
        template=template,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 8, "r": 8, "t": 40 if layout.get("title") else 8, "b": 8},
        **layout,
    )
    return figure
