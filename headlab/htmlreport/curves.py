"""Accuracy as heads leave, drawn: a line a curve on the area that encloses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headlab.htmlreport.chart import Area, Chart, Entry, Line, Mark, draw
from headlab.htmlreport.style import CHANCE, DASHES, FAINT, LINES, SHADE, UNSURE
from headlab.htmlreport.ticks import axis, widened
from headlab.scores import Curve

HEIGHT, FEW = 300.0, 3


def names_of(curves: Sequence[Curve]) -> list[str]:
    """What tells curves apart: language, ordering, or both; the seed too, of curves alike in these."""
    one_language, one_ordering = (len({getattr(c, what) for c in curves}) == 1 for what in ("language", "ordering"))
    if len(curves) == 1:
        return [f"{curves[0].language} by {curves[0].ordering}"]
    if one_ordering and not one_language:
        names = [c.language for c in curves]
    else:
        names = [c.ordering if one_language else f"{c.language} by {c.ordering}" for c in curves]
    twice = {name for name in names if names.count(name) > 1}
    return [f"{name}, seed {_seed(c)}" if name in twice else name for name, c in zip(names, curves, strict=True)]


def _seed(curve: Curve) -> object:
    order = curve.spec.get("order")
    return (order if isinstance(order, Mapping) else curve.spec).get("seed")


def curves_drawn(curves: Sequence[Curve]) -> str:
    """Accuracy against heads removed; shaded: 95 % of the difference to the start."""
    names, marks, entries = names_of(curves), list[Mark](), list[Entry]()
    for at, (curve, name) in enumerate(zip(curves, names, strict=True)):
        chance = curve.ordering == CHANCE
        colour, dash = (UNSURE, "dot") if chance else (LINES[at % len(LINES)], DASHES[at % len(DASHES)])
        start, gone = curve.accuracy[0], curve.removed.astype(float)
        x = np.concatenate([gone, gone[::-1]]).tolist()
        y = (100 * np.concatenate([start + curve.high, (start + curve.low)[::-1]])).clip(0, 100).tolist()
        marks += [
            Area(x, y, colour, SHADE if len(curves) < FEW else FAINT),
            Line(gone.tolist(), (100 * curve.accuracy).tolist(), colour, dash),
        ]
        entries.append(Entry(name, colour, dash))
    heights = [value for mark in marks if isinstance(mark, Area | Line) for value in mark.y]
    low, high = widened(heights, zero=True)
    most = max(float(curve.removed[-1]) for curve in curves)
    x_axis = axis(0.0, most, title="heads removed", most=9)
    y_axis = axis(low, min(high, 100.0), title="accuracy", unit=" %")
    return draw(Chart(x_axis, y_axis, marks, HEIGHT, f"accuracy as heads leave: {', '.join(names)}", entries))
