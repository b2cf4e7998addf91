"""Lines and dots: accuracy as heads are removed, dots with intervals, and smaller models by cost and loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from headlab.core import Bools, Floats, Ints
from headlab.pictures import CHANCE, LINES, UNSURE
from headlab.plots.style import DOTTED, LEGEND, ROW_PIXELS, SYMBOLS, finish, interval, stroke
from headlab.results import Band, Curve, curve_names

# Accuracy as heads are removed, as lines.

SHADE, FAINT = 0.13, 0.06  # opacity of an area: for few areas, and for many that overlap


def curve_figure(curves: Sequence[Curve], band: Band | None = None) -> go.Figure:
    """Accuracy against heads removed, one labelled line per curve; shaded: 95 % intervals of the difference.

    The difference is from the untouched model.  Names are what distinguishes the curves: the ordering, the language,
    or both.  band: drawn in grey behind the curves, from lowest to highest, its median dotted.
    """
    figure = go.Figure()
    if band is not None:
        shade(figure, band.removed, band.low, band.high, UNSURE)
        name = f"{band.ordering}, median of {band.curves}"
        figure.add_scatter(
            x=band.removed, y=band.median, name=name, mode="lines", line=DOTTED | {"width": 1.5},
            hovertemplate=f"{name}: %{{y:.1%}} without %{{x}} heads<extra></extra>",
        )  # fmt: skip
    for at, (curve, name) in enumerate(zip(curves, curve_names(curves), strict=True)):
        look, start = stroke(at, curve.ordering, width=2), curve.accuracy[0]
        shade(figure, curve.removed, start + curve.low, start + curve.high, str(look["color"]))
        figure.add_scatter(
            x=curve.removed, y=curve.accuracy, name=name, mode="lines", line=look,
            customdata=100 * np.stack([curve.difference, curve.low, curve.high], axis=1),
            hovertemplate=name + ": %{y:.1%} without %{x} heads, %{customdata[0]:+.1f} points "
            "[%{customdata[1]:+.1f}, %{customdata[2]:+.1f}]<extra></extra>",
        )  # fmt: skip
    label_lines(figure)
    figure.update_xaxes(title="heads removed", zeroline=False)
    figure.update_yaxes(title="accuracy", tickformat=".0%", rangemode="tozero", zeroline=False)
    return finish(figure, height=420, showlegend=False, hovermode="closest")


def shade(
    figure: go.Figure, x: Ints, low: Floats, high: Floats, colour: str, opacity: float = SHADE
) -> None:
    """Add the area between two lines, in a translucent colour."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    figure.add_scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), mode="none", fill="toself",
        fillcolor=f"rgba({red},{green},{blue},{opacity})", hoverinfo="skip",
    )  # fmt: skip


def label_lines(figure: go.Figure) -> None:
    """Write each line's name beside it, at the point where it is farthest from the others."""
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    for line in lines:
        x, y = np.asarray(line.x, float), np.asarray(line.y, float)
        others = np.array([np.interp(x, o.x, o.y) for o in lines if o is not line]).reshape(
            -1, len(x)
        )
        gaps = np.abs(others - y).min(axis=0, initial=np.inf)
        inner = (
            slice(1, -1) if len(x) > 2 else slice(None)
        )  # all curves start together and nearly end together
        at = int(np.arange(len(x))[inner][np.argmax(gaps[inner])])
        nearest = others[np.abs(others[:, at] - y[at]).argmin(), at] if len(others) else -np.inf
        above = nearest <= y[at]
        figure.add_annotation(
            x=x[at], y=y[at], text=line.name, showarrow=False, yshift=12 if above else -12,
            font={"color": line.line.color, "size": 12},
        )  # fmt: skip


class Line(NamedTuple):
    """Accuracy in percent and the ends of the band around it, by count of heads removed; each [point]."""

    removed: Ints
    accuracy: Floats
    low: Floats
    high: Floats


def orderings_figure(lines: Mapping[str, Line], language: str) -> go.Figure:
    """Accuracy in one language against heads removed, one line per ordering in its shaded band.

    Random orders are grey, behind the others, their median dotted.
    """
    figure = go.Figure()
    coloured = [name for name in lines if name != CHANCE]
    for name in sorted(lines, key=lambda name: name != CHANCE):
        line, grey = lines[name], name == CHANCE
        look = stroke(0 if grey else coloured.index(name), name, width=1.5 if grey else 2)
        opacity = SHADE if grey or len(coloured) < 3 else FAINT
        shade(figure, line.removed, line.low, line.high, str(look["color"]), opacity)
        figure.data[-1].showlegend = False
        figure.add_scatter(
            x=line.removed, y=line.accuracy, name=name, mode="lines", line=look,
            customdata=np.stack([line.low, line.high], axis=1),
            hovertemplate=name + ": %{y:.1f} % without %{x} heads [%{customdata[0]:.1f}, %{customdata[1]:.1f}]"
            + "<br>median, lowest and highest order" * grey + "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="heads removed", zeroline=False)
    figure.update_yaxes(title=f"accuracy in {language}, %", rangemode="tozero", zeroline=False)
    return finish(figure, height=440, showlegend=True, legend=LEGEND, hovermode="closest")


# Dots with their intervals, several side by side.

DOT_PIXELS = 12
TOP, BOTTOM = 56, 60  # pixels for the legend and for the axis


class Dots(NamedTuple):
    """One dot per row: value and ends of its interval, float [row], NaN for none.

    sure: bool [row], whether the dot is filled or open.
    """

    value: Floats
    low: Floats
    high: Floats
    sure: Bools


class Dot(NamedTuple):
    """One dot: the names of its row and series, its value, the ends of its interval, and whether it is filled."""

    row: str
    series: str
    value: float | None
    low: float | None
    high: float | None
    is_sure: bool


def side_by_side(dots: Sequence[Dot]) -> tuple[list[str], dict[str, Dots]]:
    """Names of the rows, and one dot per row for every series, both in the order in which they come."""
    rows = list(dict.fromkeys(dot.row for dot in dots))
    dots_by_series: dict[str, Dots] = {}
    for dot in dots:
        if dot.series not in dots_by_series:
            value, low, high = np.full((3, len(rows)), np.nan)
            dots_by_series[dot.series] = Dots(value, low, high, np.zeros(len(rows), bool))
        series, index = dots_by_series[dot.series], rows.index(dot.row)
        for values, number in zip(series[:3], (dot.value, dot.low, dot.high), strict=True):
            values[index] = np.nan if number is None else number
        series.sure[index] = dot.is_sure
    return rows, dots_by_series


def dots(
    rows: Sequence[str], series: Mapping[str, Dots], unit: str, *, zero: bool = True
) -> go.Figure:
    """Rows from top to bottom, each with one dot per series, one below the other.

    unit: of all values.  zero: whether to draw a line at 0.  Filled dots are sure; random is grey.
    """
    figure = go.Figure()
    share = 0.8 / max(1, len(series))
    for number, (name, of) in enumerate(series.items()):
        place = number % len(LINES)
        colour, symbol = (UNSURE, "line-ns") if name == CHANCE else (LINES[place], SYMBOLS[place])
        figure.add_scatter(
            x=of.value, y=np.arange(len(rows)) + share * (number - (len(series) - 1) / 2), name=name, mode="markers",
            marker={"color": colour, "size": 9, "line": {"color": colour, "width": 1.5},
                    "symbol": [symbol if sure else f"{symbol}-open" for sure in of.sure]},
            error_x=interval(of.low, of.value, of.high, color=colour, thickness=1.5),
            text=[_words(*row) for row in zip(rows, *of[:3], strict=True)],
            hovertemplate=f"{name}, %{{text}}<extra></extra>",
        )  # fmt: skip
    if zero:
        figure.add_vline(x=0, line=DOTTED)
    figure.update_yaxes(
        tickvals=np.arange(len(rows)), ticktext=list(rows), range=[len(rows) - 0.5, -0.5], showgrid=False,
        zeroline=False,
    )  # fmt: skip
    figure.update_xaxes(title=unit, zeroline=False)
    height = TOP + BOTTOM + max(ROW_PIXELS, DOT_PIXELS * len(series) + 6) * len(rows)
    return finish(figure, height=height, showlegend=len(series) > 1, legend=LEGEND)


def _words(row: str, value: float, low: float, high: float) -> str:
    return f"{row}: {value:.1f}" + ("" if np.isnan(low) else f" [{low:.1f}, {high:.1f}]")


# Smaller models: cost against loss, with a line through those that no other dominates.

HEIGHT, FADED = 440, 0.4
DEEPEST = 10.0  # points below 0 shown at first: larger losses would squeeze the rest
MILLION = 1e6
BEATEN, BEST, CHOSEN = 7, 10, 18  # sizes of dots


class FrontDot(NamedTuple):
    """One model.

    order, removed: identify it.  cost: to be minimised.  value: to be maximised, in points.  low: lower bound of the
    value, or None.  best: whether no other model here dominates it.  words: tooltip.
    """

    order: str
    removed: int
    cost: float
    value: float
    low: float | None
    best: bool
    words: str


def front_figure(
    dots: Sequence[FrontDot], cost: str, value: str, *, loss: float | None = None,
    chosen: tuple[str, int] | None = None
) -> go.Figure:  # fmt: skip
    """The front: one colour and symbol per order, dominated dots faded, the others filled and joined by a line.

    cost, value: axis titles.  loss: points that may be lost, drawn as a line.  chosen: order and heads removed of the
    answer, ringed.  Every dot carries (order, removed).
    """
    figure = go.Figure()
    best = sorted((dot for dot in dots if dot.best), key=lambda dot: dot.cost)
    figure.add_scatter(
        x=[d.cost for d in best], y=[d.value for d in best], mode="lines", name="best for its size", hoverinfo="skip",
        line={"color": UNSURE, "width": 1.5, "shape": "hv"},
    )  # fmt: skip
    for number, order in enumerate(dict.fromkeys(dot.order for dot in dots)):
        _order(figure, [dot for dot in dots if dot.order == order], order, number)
    answer = next((dot for dot in dots if (dot.order, dot.removed) == chosen), None)
    if answer is not None:
        ring = {"symbol": "circle-open", "color": UNSURE, "size": CHOSEN, "line": {"width": 2}}
        figure.add_scatter(
            x=[answer.cost],
            y=[answer.value],
            mode="markers",
            name="the answer",
            hoverinfo="skip",
            marker=ring,
        )
    figure.add_hline(y=0, line={"color": UNSURE, "width": 1})
    if loss is not None:
        figure.add_hline(y=-loss, line=DOTTED)
    figure.update_yaxes(title=value, zeroline=False).update_xaxes(title=cost, zeroline=False)
    deep = max(DEEPEST, 4 * (loss or 0.0))
    if min(dot.value for dot in dots) < -deep:
        shown = [dot.cost for dot in dots if dot.value >= -deep]
        room = 0.06 * (max(shown) - min(shown)) or 1.0
        figure.update_yaxes(range=[-deep, max(1.0, 1.2 * max(dot.value for dot in dots))])
        figure.update_xaxes(range=[min(shown) - room, max(shown) + room])
    return finish(
        figure, height=HEIGHT, legend=LEGEND, clickmode="event+select", hovermode="closest"
    )


def _order(figure: go.Figure, dots: Sequence[FrontDot], order: str, number: int) -> None:
    """Add the dots of one order; those that are not dominated show their lower bound."""
    colour, symbol = LINES[number % len(LINES)], SYMBOLS[number % len(SYMBOLS)]
    down = [
        0.0 if dot.low is None or not dot.best else max(0.0, dot.value - dot.low) for dot in dots
    ]
    figure.add_scatter(
        x=[dot.cost for dot in dots], y=[dot.value for dot in dots], mode="markers", name=order,
        marker={"color": colour, "symbol": [symbol if dot.best else f"{symbol}-open" for dot in dots],
                "size": [BEST if dot.best else BEATEN for dot in dots],
                "opacity": [1.0 if dot.best else FADED for dot in dots]},
        error_y={"type": "data", "symmetric": False, "array": [0.0] * len(dots), "arrayminus": down, "color": colour,
                 "thickness": 1, "width": 0},
        customdata=[[dot.order, dot.removed] for dot in dots], text=[dot.words for dot in dots],
        hovertemplate="%{text}<extra></extra>",
        # Dots that are not selected stay as they are: the page marks the choice with a ring.
        selected={"marker": {"opacity": 1.0}}, unselected={"marker": {"opacity": FADED}},
    )  # fmt: skip
