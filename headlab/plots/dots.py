"""Dots with their intervals, several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from headlab.plots.style import CHANCE, LEGEND, LINES, ROW_PIXELS, SYMBOLS, UNSURE, finish
from headlab.records import Bools, Floats

DOT_PIXELS = 12
TOP, BOTTOM = 56, 60  # pixels for the legend and for the axis


class Dots(NamedTuple):
    """One dot a row: its value and the ends of its interval, NaN where there is none; float [row].

    sure: bool [row], drawn filled; else open.
    """

    value: Floats
    low: Floats
    high: Floats
    sure: Bools


def dots(
    rows: Sequence[str], series: Mapping[str, Dots], unit: str, *, zero: bool = True, template: str | None = None
) -> go.Figure:
    """Rows from top to bottom, in each a dot of every series, one below the other.

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
            error_x={"type": "data", "symmetric": False, "array": of.high - of.value, "arrayminus": of.value - of.low,
                     "color": colour, "thickness": 1.5, "width": 0},
            text=[_words(*row) for row in zip(rows, *of[:3], strict=True)],
            hovertemplate=f"{name}, %{{text}}<extra></extra>",
        )  # fmt: skip
    if zero:
        figure.add_vline(x=0, line={"color": UNSURE, "width": 1, "dash": "dot"})
    figure.update_yaxes(
        tickvals=np.arange(len(rows)), ticktext=list(rows), range=[len(rows) - 0.5, -0.5], showgrid=False,
        zeroline=False,
    )  # fmt: skip
    figure.update_xaxes(title=unit, zeroline=False)
    height = TOP + BOTTOM + max(ROW_PIXELS, DOT_PIXELS * len(series) + 6) * len(rows)
    return finish(figure, template, height=height, showlegend=len(series) > 1, legend=LEGEND)


def _words(row: str, value: float, low: float, high: float) -> str:
    return f"{row}: {value:.1f}" + ("" if np.isnan(low) else f" [{low:.1f}, {high:.1f}]")
