"""Smaller models: cost against loss, with a line through those that no other dominates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from headlab.charts.chart import OPEN, RING, SYMBOLS, Axis, Chart, Line, Points, Rule, Series
from headlab.pictures import LINE_COLOURS, UNSURE

HEIGHT = 440
DEEPEST = 10.0  # points below 0 shown at first: larger losses would squeeze the rest
MILLION = 1e6
BEATEN = 7
BEST = 10
CHOSEN = 18
PINNED = 22  # sizes of dots
FRAME = f"square{OPEN}"


class FrontDot(NamedTuple):
    """One model.

    Attributes:
        order: In which its heads, or other players, were removed.
        removed: How many were removed; with the order it identifies the model.
        cost: To be minimised.
        value: To be maximised, in points.
        low: Lower bound of the value; None without one.
        best: Whether no other model here dominates it; of a front that is not final, whether it is
            measured to its end.
        words: Tooltip.
    """

    order: str
    removed: int
    cost: float
    value: float
    low: float | None
    best: bool
    words: str


def front_chart(
    dots: Sequence[FrontDot],
    cost: str,
    value: str,
    *,
    loss: float | None = None,
    chosen: tuple[str, int] | None = None,
    pinned: tuple[str, int] | None = None,
    is_final: bool = True,
) -> Chart:
    """The front: a colour and a symbol per order.

    Dominated dots are faded, the others joined by a line.

    Args:
        dots: The models.
        cost: Title of the axis of costs.
        value: Title of the axis of values.
        loss: Points that may be lost, drawn as a line; None for no line.
        chosen: Order and number of removed heads of the answer, which is ringed; None for no answer.
        pinned: The same of the model that is looked at, which is framed; None for none.
        is_final: Whether all models are there. If not, none is called the best for its size, and
            dots cannot be clicked.

    Returns:
        The chart; a click on a dot gives (order, heads removed).
    """
    series: list[Series] = []
    if is_final:
        best_dots = sorted((dot for dot in dots if dot.best), key=lambda dot: dot.cost)
        line = Line(
            "best for its size",
            [dot.cost for dot in best_dots],
            [dot.value for dot in best_dots],
            UNSURE,
            width=1.5,
            is_step=True,
        )
        series.append(line)
    for number, order in enumerate(dict.fromkeys(dot.order for dot in dots)):
        dots_of_order = [dot for dot in dots if dot.order == order]
        series.append(_order(dots_of_order, order, number, fades=is_final))
    marks = [("the answer", chosen, RING, CHOSEN), ("pinned", pinned, FRAME, PINNED)]
    for name, model, symbol, size in marks:
        marked_dot = next((dot for dot in dots if (dot.order, dot.removed) == model), None)
        if marked_dot is None:
            continue
        mark = Points(
            name,
            [marked_dot.cost],
            [marked_dot.value],
            UNSURE,
            symbol,
            is_filled=[True],
            sizes=size,
            outline=2,
            tip="",
        )
        series.append(mark)
    rules = [Rule("y", 0.0, dashes="solid")]
    if loss is not None:
        rules.append(Rule("y", -loss))
    x, y = _axes(dots, loss or 0.0)
    return Chart(
        f"smaller models: {cost} against the {value}",
        series,
        x=replace(x, title=cost),
        y=replace(y, title=value),
        rules=rules,
        height=HEIGHT,
        is_clickable=is_final,
    )


def _axes(dots: Sequence[FrontDot], loss: float) -> tuple[Axis, Axis]:
    """The axes of cost and value, without what lies far below the loss."""
    deepest = max(DEEPEST, 4 * loss)
    if min(dot.value for dot in dots) >= -deepest:
        return Axis(), Axis()
    costs = [dot.cost for dot in dots if dot.value >= -deepest]
    room = 0.06 * (max(costs) - min(costs)) or 1.0
    highest = max(1.0, 1.2 * max(dot.value for dot in dots))
    return Axis(limits=(min(costs) - room, max(costs) + room)), Axis(limits=(-deepest, highest))


def _order(dots: Sequence[FrontDot], order: str, number: int, *, fades: bool) -> Points:
    """The dots of one order; those that are not dominated show their lower bound.

    Args:
        dots: Of the order.
        order: Its key.
        number: Among the orders, from 0.
        fades: Whether those that are dominated are small and faint.
    """
    lows = [
        dot.value if dot.low is None or not dot.best else min(dot.value, dot.low) for dot in dots
    ]
    values = [dot.value for dot in dots]
    return Points(
        order,
        [dot.cost for dot in dots],
        values,
        LINE_COLOURS[number % len(LINE_COLOURS)],
        SYMBOLS[number % len(SYMBOLS)],
        is_filled=[dot.best for dot in dots],
        sizes=[BEATEN if fades and not dot.best else BEST for dot in dots],
        is_faint=[not dot.best for dot in dots] if fades else (),
        low=lows,
        high=values,
        along="y",
        interval_width=1.0,
        texts=[dot.words for dot in dots],
        keys=[(dot.order, dot.removed) for dot in dots],
    )
