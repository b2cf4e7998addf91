"""Layout shared by all figures; colours are in `headlab.pictures`."""

from __future__ import annotations

import json
import math
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_json

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")  # one per method, like its dashes
LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1, "x": 0, "xanchor": "left"}  # above, with room to wrap
ROW_PIXELS = 26
PRINT_WIDTH, PRINT_HEIGHT = 900, 420  # pixels of a figure in a file
TITLE_TOP, TITLE_HEIGHT, LEGEND_ROW = 24, 62, 22  # pixels above a figure: its two lines of title, then its legend
ENTRY, LETTER = 45, 7.5  # pixels of an entry of the legend, and of each letter
PRINT_FONT = {"family": "Arial, Helvetica, sans-serif", "size": 13, "color": "#222222"}
PRINT_MARGIN = {"l": 16, "r": 16, "t": 16, "b": 16}


def finish(figure: go.Figure, template: str | None, **layout: object) -> go.Figure:
    """Apply the common layout: transparent background, and room for a title only if there is one."""
    figure.update_layout(
        template=template,
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


def as_data(figure: go.Figure) -> dict[str, Any]:
    """The figure as JSON values, with the uids that `printed` gives its traces."""
    data: dict[str, Any] = json.loads(to_json(figure, remove_uids=False))
    return data


def legend_rows(figure: go.Figure) -> int:
    """How many rows the legend above a printed figure takes, about: plotly makes no room for a title and a legend."""
    names = {trace.name for trace in figure.data if trace.name and trace.showlegend is not False}
    shown = figure.layout.showlegend is not False and len(names) > 1
    return math.ceil(sum(ENTRY + LETTER * len(name) for name in names) / PRINT_WIDTH) if shown else 0
