"""Accuracy as heads are removed, as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headlab.charts.chart import FAINT_SHADE, SHADE, Axis, Band, Chart, Line, Note, Series
from headlab.core import Floats, Ints
from headlab.pictures import CHANCE_METHOD, UNSURE, line_look
from headlab.results import AccuracyBand as CurveBand
from headlab.results import Curve, curve_names, removed_noun

FEW_LINES = 3  # ordered lines below which their areas are shaded as usual
NAME_DISTANCE = 12.0  # pixels between a line and its name
CURVES_HEIGHT = 420
ORDERINGS_HEIGHT = 440
REMOVED = "heads removed"


def curves_chart(
    curves: Sequence[Curve], band: CurveBand | None = None, *, has_labels: bool = True
) -> Chart:
    """Accuracy against heads removed, one named line per curve.

    Shaded: 95 % intervals of the difference from the untouched model.  Names are what distinguishes
    the curves: the ordering, the language, or both.

    Args:
        curves: At least one.
        band: Drawn in grey behind the curves, from lowest to highest, its median dotted; None for
            none.
        has_labels: Whether each line's name stands beside it, or else in a legend.

    Returns:
        The chart.
    """
    noun = removed_noun(curves)
    series: list[Series] = []
    if band is not None:
        name = f"{band.ordering}, median of {band.curves}"
        series.append(Band(band.removed, band.low, band.high, UNSURE))
        median = Line(
            name,
            band.removed,
            band.median,
            UNSURE,
            "dot",
            width=1.5,
            tip=f"{{name}}: {{y:.1%}} without {{x}} {noun}",
        )
        series.append(median)
    names = curve_names(curves)
    opacity = SHADE if has_labels or len(curves) < FEW_LINES else FAINT_SHADE
    for number, (curve, name) in enumerate(zip(curves, names, strict=True)):
        colour, dashes = line_look(number, curve.ordering)
        start = curve.accuracy[0]
        series.append(Band(curve.removed, start + curve.low, start + curve.high, colour, opacity))
        line = Line(
            name,
            curve.removed,
            curve.accuracy,
            colour,
            dashes,
            tip=f"{{name}}: {{y:.1%}} without {{x}} {noun}, {{details[0]:+.1f}} points "
            "[{details[1]:+.1f}, {details[2]:+.1f}]",
            details=100 * np.stack([curve.difference, curve.low, curve.high], axis=1),
        )
        series.append(line)
    lines = [line for line in series if isinstance(line, Line)]
    return Chart(
        f"accuracy as {noun} leave: {', '.join(names)}",
        series,
        x=Axis(f"{noun} removed"),
        y=Axis("accuracy", number_format=".0%", has_zero=True),
        notes=line_labels(lines) if has_labels else (),
        height=CURVES_HEIGHT,
        has_legend=not has_labels,
    )


def line_labels(lines: Sequence[Line]) -> list[Note]:
    """Each line's name beside it, at the point where it is farthest from the others."""
    notes = []
    for line in lines:
        x = np.asarray(line.x, float)
        y = np.asarray(line.y, float)
        others = np.array(
            [np.interp(x, other.x, other.y) for other in lines if other is not line]
        ).reshape(-1, len(x))
        gaps = np.abs(others - y).min(axis=0, initial=np.inf)
        # All curves start together and nearly end together.
        inner = slice(1, -1) if len(x) > 2 else slice(None)
        index = int(np.arange(len(x))[inner][np.argmax(gaps[inner])])
        nearest = -np.inf
        if len(others):
            nearest = others[np.abs(others[:, index] - y[index]).argmin(), index]
        shift = NAME_DISTANCE if nearest <= y[index] else -NAME_DISTANCE
        notes.append(Note(x[index], y[index], line.name, line.colour, shift=(0.0, shift)))
    return notes


class OrderingLine(NamedTuple):
    """Accuracy in percent and the ends of the band around it, by heads removed; each [point]."""

    removed: Ints
    accuracy: Floats
    low: Floats
    high: Floats


def orderings_chart(lines: Mapping[str, OrderingLine], language: str) -> Chart:
    """Accuracy in one language against heads removed, one line per ordering in its shaded band.

    Random orders are grey, behind the others, their median dotted.

    Args:
        lines: By the names of the orderings.
        language: Whose accuracy it is.

    Returns:
        The chart.
    """
    coloured = [name for name in lines if name != CHANCE_METHOD]
    series: list[Series] = []
    for name in sorted(lines, key=lambda name: name != CHANCE_METHOD):
        line = lines[name]
        is_chance = name == CHANCE_METHOD
        colour, dashes = line_look(0 if is_chance else coloured.index(name), name)
        opacity = SHADE if is_chance or len(coloured) < FEW_LINES else FAINT_SHADE
        tip = "{name}: {y:.1f} % without {x} heads [{details[0]:.1f}, {details[1]:.1f}]"
        drawn_line = Line(
            name,
            line.removed,
            line.accuracy,
            colour,
            dashes,
            width=1.5 if is_chance else 2,
            tip=tip + "\nmedian, lowest and highest order" * is_chance,
            details=np.stack([line.low, line.high], axis=1),
        )
        series += [Band(line.removed, line.low, line.high, colour, opacity), drawn_line]
    return Chart(
        f"accuracy in {language} as heads leave, by ordering",
        series,
        x=Axis(REMOVED),
        y=Axis(f"accuracy in {language}, %", has_zero=True),
        height=ORDERINGS_HEIGHT,
        has_legend=True,
    )
