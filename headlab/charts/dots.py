"""Dots with their intervals, several side by side in each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headlab.charts.chart import SYMBOLS, TICK, Axis, Chart, Points, Rule
from headlab.core import Bools, Floats
from headlab.pictures import CHANCE_METHOD, LINE_COLOURS, UNSURE

ROW_PIXELS = 26
DOT_PIXELS = 12  # height of a row, and of each of its dots
LEGEND_PIXELS = 56
AXIS_PIXELS = 60
ROW_SHARE = 0.8  # of a row's height that its dots take
OUTLINE = 1.5


class Dots(NamedTuple):
    """One dot per row: value and ends of its interval, float [row], NaN for none.

    Attributes:
        sure: bool [row], whether the dot is filled or open.
    """

    value: Floats
    low: Floats
    high: Floats
    sure: Bools


class Dot(NamedTuple):
    """One dot: its row and series, value, the ends of its interval, and whether it is filled."""

    row: str
    series: str
    value: float | None
    low: float | None
    high: float | None
    is_sure: bool


def side_by_side(dots: Sequence[Dot]) -> tuple[list[str], dict[str, Dots]]:
    """Names of the rows, and one dot per row for every series, in the order in which they come."""
    rows = list(dict.fromkeys(dot.row for dot in dots))
    dots_by_series: dict[str, Dots] = {}
    for dot in dots:
        if dot.series not in dots_by_series:
            value, low, high = np.full((3, len(rows)), np.nan)
            dots_by_series[dot.series] = Dots(value, low, high, np.zeros(len(rows), bool))
        series = dots_by_series[dot.series]
        index = rows.index(dot.row)
        for values, number in zip(series[:3], (dot.value, dot.low, dot.high), strict=True):
            values[index] = np.nan if number is None else number
        series.sure[index] = dot.is_sure
    return rows, dots_by_series


def dots_chart(
    title: str,
    rows: Sequence[str],
    series: Mapping[str, Dots],
    unit: str,
    *,
    has_zero_line: bool = True,
) -> Chart:
    """Rows from top to bottom, each with one dot per series, one below the other.

    Filled dots are sure; those of random orders are grey.

    Args:
        title: What the chart shows.
        rows: Names of the rows.
        series: The dots of all rows by series.
        unit: Of all values.
        has_zero_line: Whether to draw a line at 0.

    Returns:
        The chart.
    """
    names = list(series)
    points = [
        _points(name, number, len(names), rows, series[name]) for number, name in enumerate(names)
    ]
    ticks = tuple((float(index), name) for index, name in enumerate(rows))
    row_height = max(ROW_PIXELS, DOT_PIXELS * len(names) + 6)
    return Chart(
        title,
        points,
        x=Axis(unit),
        y=Axis(ticks=ticks, limits=(len(rows) - 0.5, -0.5), has_grid=False),
        rules=(Rule("x", 0.0),) if has_zero_line else (),
        height=LEGEND_PIXELS + AXIS_PIXELS + row_height * len(rows),
        has_legend=len(names) > 1,
    )


def _points(name: str, number: int, total: int, rows: Sequence[str], dots: Dots) -> Points:
    """The dots of one series.

    Args:
        number, total: Its place from 0, and how many series there are.
    """
    place = number % len(LINE_COLOURS)
    colour, symbol = (
        (UNSURE, TICK) if name == CHANCE_METHOD else (LINE_COLOURS[place], SYMBOLS[place])
    )
    shift = ROW_SHARE / total * (number - (total - 1) / 2)
    return Points(
        name,
        dots.value,
        np.arange(len(rows), dtype=np.float64) + shift,
        colour,
        symbol,
        is_filled=dots.sure.tolist(),
        outline=OUTLINE,
        low=dots.low,
        high=dots.high,
        texts=[_text(*row) for row in zip(rows, *dots[:3], strict=True)],
        tip="{name}, {text}",
    )


def _text(row: str, value: float, low: float, high: float) -> str:
    return f"{row}: {value:.1f}" + ("" if np.isnan(low) else f" [{low:.1f}, {high:.1f}]")
