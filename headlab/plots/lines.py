"""Accuracy as heads leave, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from headlab.plots.style import CHANCE, DASHES, LEGEND, LINES, UNSURE, finish
from headlab.records import Floats, Ints
from headlab.scores import Band, Curve

SHADE, FAINT = 0.13, 0.06  # opacity of an area: of few, and of many that lie on each other


def curve_figure(curves: Sequence[Curve], band: Band | None = None, template: str | None = None) -> go.Figure:
    """Accuracy against heads removed, a line a curve with its name on it; shaded: 95 % of the difference to the start.

    band: drawn in grey behind the curves, from lowest to highest, its median dotted.  Names are what tells
    the curves apart: the ordering, the language, or both.
    """
    figure = go.Figure()
    if band is not None:
        shade(figure, band.removed, band.low, band.high, UNSURE)
        name = f"{band.ordering}, median of {band.curves}"
        figure.add_scatter(
            x=band.removed, y=band.median, name=name, mode="lines", line={"color": UNSURE, "width": 1.5, "dash": "dot"},
            hovertemplate=f"{name}: %{{y:.1%}} without %{{x}} heads<extra></extra>",
        )  # fmt: skip
    colours = [LINES[at % len(LINES)] for at in range(len(curves))]
    for curve, name, colour in zip(curves, _names(curves), colours, strict=True):
        start = curve.accuracy[0]
        shade(figure, curve.removed, start + curve.low, start + curve.high, colour)
        figure.add_scatter(
            x=curve.removed, y=curve.accuracy, name=name, mode="lines", line={"color": colour, "width": 2},
            customdata=100 * np.stack([curve.difference, curve.low, curve.high], axis=1),
            hovertemplate=name + ": %{y:.1%} without %{x} heads, %{customdata[0]:+.1f} points "
            "[%{customdata[1]:+.1f}, %{customdata[2]:+.1f}]<extra></extra>",
        )  # fmt: skip
    label_lines(figure)
    figure.update_xaxes(title="heads removed", zeroline=False)
    figure.update_yaxes(title="accuracy", tickformat=".0%", rangemode="tozero", zeroline=False)
    return finish(figure, template, height=420, showlegend=False, hovermode="closest")


def shade(figure: go.Figure, x: Ints, low: Floats, high: Floats, colour: str, opacity: float = SHADE) -> None:
    """The area between two lines, in a colour that lets what is behind it through."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    figure.add_scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), mode="none", fill="toself",
        fillcolor=f"rgba({red},{green},{blue},{opacity})", hoverinfo="skip",
    )  # fmt: skip


def _names(curves: Sequence[Curve]) -> list[str]:
    """What tells curves apart: ordering, language, or both."""
    one_language, one_ordering = (len({getattr(c, what) for c in curves}) == 1 for what in ("language", "ordering"))
    if one_ordering and not one_language:
        return [c.language for c in curves]
    return [c.ordering if one_language else f"{c.language} {c.ordering}" for c in curves]


def label_lines(figure: go.Figure) -> None:
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


class Line(NamedTuple):
    """Accuracy in percent at counts of heads removed, and what encloses it; each [point]."""

    removed: Ints
    accuracy: Floats
    low: Floats
    high: Floats


def orderings_figure(lines: Mapping[str, Line], language: str, template: str | None = None) -> go.Figure:
    """Accuracy of a language against heads removed, a line for each ordering, in the area that encloses it.

    Random orders lie behind the others in grey, their median dotted.
    """
    figure = go.Figure()
    coloured = [name for name in lines if name != CHANCE]
    for name in sorted(lines, key=lambda name: name != CHANCE):
        line, grey = lines[name], name == CHANCE
        place = 0 if grey else coloured.index(name) % len(LINES)
        colour, dash = (UNSURE, "dot") if grey else (LINES[place], DASHES[place])
        shade(figure, line.removed, line.low, line.high, colour, SHADE if grey or len(coloured) < 3 else FAINT)
        figure.data[-1].showlegend = False
        figure.add_scatter(
            x=line.removed, y=line.accuracy, name=name, mode="lines",
            line={"color": colour, "width": 1.5 if grey else 2, "dash": dash},
            customdata=np.stack([line.low, line.high], axis=1),
            hovertemplate=name + ": %{y:.1f} % without %{x} heads [%{customdata[0]:.1f}, %{customdata[1]:.1f}]"
            + "<br>median, lowest and highest order" * grey + "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="heads removed", zeroline=False)
    figure.update_yaxes(title=f"accuracy in {language}, %", rangemode="tozero", zeroline=False)
    return finish(figure, template, height=440, showlegend=True, legend=LEGEND, hovermode="closest")
