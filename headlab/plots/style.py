"""Layout shared by all figures; colours are in `headlab.pictures`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go
from plotly.io import to_json

from headlab.json_types import JsonObject
from headlab.pictures import UNSURE, line_look
from headlab.records import Floats

LEGEND = {
    "orientation": "h",
    "yanchor": "bottom",
    "y": 1,
    "x": 0,
    "xanchor": "left",
}  # above, with room to wrap
PRINT_WIDTH, PRINT_HEIGHT = 900, 420  # pixels of a figure in a file
TITLE_TOP, TITLE_HEIGHT, LEGEND_ROW = (
    24,
    62,
    22,
)  # pixels above a figure: its two lines of title, then its legend
ENTRY, LETTER = 45, 7.5  # pixels of an entry of the legend, and of each letter
PRINT_FONT = {"family": "Arial, Helvetica, sans-serif", "size": 13, "color": "#222222"}
PRINT_MARGIN = {"l": 16, "r": 16, "t": 16, "b": 16}
DOTTED = {
    "color": UNSURE,
    "width": 1,
    "dash": "dot",
}  # of a line at 0, or at what others are compared with


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
    """A coloured cell for each row and column, the first row on top. columns: None counts them from 0.

    look: of the heat map, such as its scale.
    """
    figure = go.Figure(go.Heatmap(z=z, y=list(rows), xgap=1, ygap=1, **look))
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    if columns is None:
        return figure.update_xaxes(dtick=1, showgrid=False)
    return figure.update_traces(x=list(columns)).update_xaxes(type="category", showgrid=False)


def finish(figure: go.Figure, **layout: object) -> go.Figure:
    """Apply the common layout: transparent background, and room for a title only if there is one."""
    figure.update_layout(
        template=None,  # the page's, or `printed`'s
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 8, "r": 8, "t": 40 if layout.get("title") else 8, "b": 8},
        **layout,
    )
    return figure


def printed(figure: go.Figure, name: str, title: str = "", about: str = "") -> go.Figure:
    """The figure as it goes into a file: dark on white, and identical for equal figures.

    name: distinguishes its traces from those of other figures in the same document.  title, about: what it shows, and
    of what, in two lines above it; none without a title.
    """
    out = go.Figure(figure.data, figure.layout)  # without frames or animation controls
    out.layout.updatemenus = out.layout.sliders = None
    for number, trace in enumerate(out.data):
        trace.uid = f"{name}-{number}"  # plotly would draw a random one
    height, margin = figure.layout.height or PRINT_HEIGHT, PRINT_MARGIN
    if title:
        above = TITLE_HEIGHT + LEGEND_ROW * legend_rows(out)
        height, margin = height + above, {**PRINT_MARGIN, "t": above}
        text = f'{escape(title, quote=False)}<br><span style="font-size:12px">{escape(about, quote=False)}</span>'
        place = {"x": 0.02, "y": 1 - TITLE_TOP / height, "yanchor": "top", "yref": "container"}
        out.update_layout(title={"text": text, "font": {"size": 15}, **place})
    return out.update_layout(
        template="plotly_white", paper_bgcolor="white", plot_bgcolor="white", font=PRINT_FONT, margin=margin,
        height=height,
    )  # fmt: skip


def as_data(figure: go.Figure) -> JsonObject:
    """The figure as JSON values, with the uids that `printed` gives its traces."""
    data: JsonObject = json.loads(to_json(figure, remove_uids=False))
    return data


def legend_rows(figure: go.Figure) -> int:
    """How many rows the legend above a printed figure takes, about: plotly makes no room for a title and a legend."""
    names = {trace.name for trace in figure.data if trace.name and trace.showlegend is not False}
    shown = figure.layout.showlegend is not False and len(names) > 1
    return (
        math.ceil(sum(ENTRY + LETTER * len(name) for name in names) / PRINT_WIDTH) if shown else 0
    )
