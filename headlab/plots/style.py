"""Layout shared by all figures; colours are in `headlab.pictures`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go
from plotly.io import to_json

from headlab.core import Floats, JsonObject
from headlab.pictures import UNSURE, line_look

# Above the plot, with room to wrap.
LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1, "x": 0, "xanchor": "left"}
PRINT_WIDTH = 900
PRINT_HEIGHT = 420  # pixels of a figure in a file
# Pixels above a figure: its two lines of title, then its legend.
TITLE_TOP = 24
TITLE_HEIGHT = 62
LEGEND_ROW = 22
ENTRY = 45
LETTER = 7.5  # pixels of an entry of the legend, and of each letter
PRINT_FONT = {"family": "Arial, Helvetica, sans-serif", "size": 13, "color": "#222222"}
PRINT_MARGIN = {"l": 16, "r": 16, "t": 16, "b": 16}
# Of a line at 0, or at what others are compared with.
DOTTED = {"color": UNSURE, "width": 1, "dash": "dot"}


def stroke(number: int, name: str = "", **more: object) -> dict[str, object]:
    """The colour and dashes of a figure's line by its number or name, as Plotly's `line`."""
    colour, dash = line_look(number, name)
    return {"color": colour, "dash": dash, **more}


def interval(low: Floats, value: Floats, high: Floats, **more: object) -> dict[str, object]:
    """Bars from low to high around values, as Plotly's `error_x` or `error_y`."""
    return {
        "type": "data",
        "symmetric": False,
        "array": high - value,
        "arrayminus": value - low,
        "width": 0,
        **more,
    }


def bar(title: str, **more: object) -> dict[str, object]:
    """A colour bar with its title beside it."""
    return {"title": {"text": title, "side": "right"}, "thickness": 12, **more}


def cells(
    z: Floats | Sequence[Sequence[float | None]],
    columns: Sequence[str] | None,
    rows: Sequence[str],
    **look: object,
) -> go.Figure:
    """A coloured cell for each row and column, the first row on top.

    Args:
        z: Value of each cell, [row][column].
        columns: Their names; None counts them from 0.
        rows: Their names.
        look: Of the heat map, such as its scale.
    """
    figure = go.Figure(go.Heatmap(z=z, y=list(rows), xgap=1, ygap=1, **look))
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    if columns is None:
        return figure.update_xaxes(dtick=1, showgrid=False)
    return figure.update_traces(x=list(columns)).update_xaxes(type="category", showgrid=False)


def with_common_layout(figure: go.Figure, **layout: object) -> go.Figure:
    """The figure with the common layout: a transparent background, no room for an absent title.

    Args:
        figure: Changed in place.
        layout: Further settings of its layout.
    """
    figure.update_layout(
        template=None,  # the page's, or that of `figure_for_file`
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 8, "r": 8, "t": 40 if layout.get("title") else 8, "b": 8},
        **layout,
    )
    return figure


def figure_for_file(figure: go.Figure, name: str, title: str = "", about: str = "") -> go.Figure:
    """The figure as it goes into a file: dark on white, and identical for equal figures.

    Args:
        figure: As a page has it.
        name: Distinguishes its traces from those of other figures in the same document.
        title: What it shows, in a line above it; empty for none.
        about: Of what, in a line below the title.

    Returns:
        A new figure.
    """
    copy = go.Figure(figure.data, figure.layout)  # without frames or animation controls
    copy.layout.updatemenus = copy.layout.sliders = None
    for number, trace in enumerate(copy.data):
        trace.uid = f"{name}-{number}"  # plotly would draw a random one
    height = figure.layout.height or PRINT_HEIGHT
    margin = PRINT_MARGIN
    if title:
        title_height = TITLE_HEIGHT + LEGEND_ROW * legend_rows(copy)
        height += title_height
        margin = {**PRINT_MARGIN, "t": title_height}
        title_line = escape(title, quote=False)
        about_line = escape(about, quote=False)
        text = f'{title_line}<br><span style="font-size:12px">{about_line}</span>'
        place = {"x": 0.02, "y": 1 - TITLE_TOP / height, "yanchor": "top", "yref": "container"}
        copy.update_layout(title={"text": text, "font": {"size": 15}, **place})
    return copy.update_layout(
        template="plotly_white",
        paper_bgcolor="white",
        plot_bgcolor="white",
        font=PRINT_FONT,
        margin=margin,
        height=height,
    )


def as_data(figure: go.Figure) -> JsonObject:
    """The figure as JSON values, with the uids that `figure_for_file` gives its traces."""
    data: JsonObject = json.loads(to_json(figure, remove_uids=False))
    return data


def legend_rows(figure: go.Figure) -> int:
    """About how many rows the legend above a printed figure takes.

    Plotly makes no room for both a title and a legend.
    """
    names = {trace.name for trace in figure.data if trace.name and trace.showlegend is not False}
    has_legend = figure.layout.showlegend is not False and len(names) > 1
    if has_legend:
        return math.ceil(sum(ENTRY + LETTER * len(name) for name in names) / PRINT_WIDTH)
    return 0
