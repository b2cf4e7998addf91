"""Smaller models: what they cost against what they lose, those that no other beats joined by a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from headlab.plots.style import LEGEND, LINES, SYMBOLS, UNSURE, finish
from headlab.tables import Report

HEIGHT, FADED = 440, 0.4
DEEPEST = 10.0  # points below 0 that are shown at first: what is lost beyond that hides the rest
MILLION = 1e6
BEATEN, BEST, CHOSEN = 7, 10, 18  # sizes of dots


class FrontDot(NamedTuple):
    """One model.

    order, removed: which one it is.  cost: what should be little.  value: what should be much, in points.  low: lower
    bound of the value, None where there is none.  best: no other model here beats it.  words: what the pointer shows.
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
    chosen: tuple[str, int] | None = None, template: str | None = None,
) -> go.Figure:  # fmt: skip
    """The front: a colour and sign an order, dots that are beaten faded, the rest filled and joined.

    cost, value: names of the axes.  loss: points that may be lost, drawn as a line.  chosen: order and heads removed
    of the answer, ringed.  Every dot carries (order, removed).
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
            x=[answer.cost], y=[answer.value], mode="markers", name="the answer", hoverinfo="skip", marker=ring
        )
    figure.add_hline(y=0, line={"color": UNSURE, "width": 1})
    if loss is not None:
        figure.add_hline(y=-loss, line={"color": UNSURE, "width": 1, "dash": "dot"})
    figure.update_yaxes(title=value, zeroline=False).update_xaxes(title=cost, zeroline=False)
    deep = max(DEEPEST, 4 * (loss or 0.0))
    if min(dot.value for dot in dots) < -deep:
        shown = [dot.cost for dot in dots if dot.value >= -deep]
        room = 0.06 * (max(shown) - min(shown)) or 1.0
        figure.update_yaxes(range=[-deep, max(1.0, 1.2 * max(dot.value for dot in dots))])
        figure.update_xaxes(range=[min(shown) - room, max(shown) + room])
    return finish(figure, template, height=HEIGHT, legend=LEGEND, clickmode="event+select", hovermode="closest")


def _order(figure: go.Figure, dots: Sequence[FrontDot], order: str, number: int) -> None:
    """The dots of one order; those that no other beats have their bound."""
    colour, symbol = LINES[number % len(LINES)], SYMBOLS[number % len(SYMBOLS)]
    down = [0.0 if dot.low is None or not dot.best else max(0.0, dot.value - dot.low) for dot in dots]
    figure.add_scatter(
        x=[dot.cost for dot in dots], y=[dot.value for dot in dots], mode="markers", name=order,
        marker={"color": colour, "symbol": [symbol if dot.best else f"{symbol}-open" for dot in dots],
                "size": [BEST if dot.best else BEATEN for dot in dots],
                "opacity": [1.0 if dot.best else FADED for dot in dots]},
        error_y={"type": "data", "symmetric": False, "array": [0.0] * len(dots), "arrayminus": down, "color": colour,
                 "thickness": 1, "width": 0},
        customdata=[[dot.order, dot.removed] for dot in dots], text=[dot.words for dot in dots],
        hovertemplate="%{text}<extra></extra>",
        # What is not selected stays as it is: the page shows the choice by a ring.
        selected={"marker": {"opacity": 1.0}}, unselected={"marker": {"opacity": FADED}},
    )  # fmt: skip


def front_figures(report: Report, template: str | None = None) -> dict[str, go.Figure]:
    """The figure of a stored front, from its tables alone: what is kept against the weakest language's difference.

    Costs and models that no other beats are the table's own: parameters where they are known, else heads.
    """
    table, choice = report.table("front"), report.table("front-choice")
    names = ("order", "heads removed", "heads kept", "weakest, points", "lower bound, points", "weakest language",
             "best for its size")  # fmt: skip
    parameters = table.column("parameters")
    counted = None not in parameters
    costs = [number / MILLION for number in parameters] if counted else table.column("heads kept")
    rows = zip(*(table.column(name) for name in names), strict=True)
    dots = [
        FrontDot(order, gone, cost, worst, low, best, f"{kept} heads kept, {weakest} {worst:+.1f}")
        for cost, (order, gone, kept, worst, low, weakest, best) in zip(costs, rows, strict=True)
    ]
    chosen = (choice.column("order")[0], choice.column("heads removed")[0])
    loss = dict(report.spec.get("options", {})).get("within")
    about = "parameters kept, millions" if counted else "heads kept"
    title = "difference of the weakest language, points"
    return {"front": front_figure(dots, about, title, loss=loss, chosen=chosen, template=template)}
