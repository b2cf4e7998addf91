"""Layout shared by all figures; colours are in `headlab.pictures`."""

from __future__ import annotations

import plotly.graph_objects as go

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")  # one per method, like its dashes
LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1, "x": 0, "xanchor": "left"}  # above, with room to wrap
ROW_PIXELS = 26
PRINT_WIDTH, PRINT_HEIGHT = 900, 420  # pixels of a figure in a file
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


def printed(figure: go.Figure, name: str) -> go.Figure:
    """The figure as it goes into a file: dark on white, and identical for equal figures.

    name: distinguishes its traces from those of other figures in the same document.
    """
    out = go.Figure(figure.data, figure.layout)  # without frames or animation controls
    out.layout.updatemenus = out.layout.sliders = None
    for number, trace in enumerate(out.data):
        trace.uid = f"{name}-{number}"  # plotly would draw a random one
    return out.update_layout(
        template="plotly_white", paper_bgcolor="white", plot_bgcolor="white", font=PRINT_FONT, margin=PRINT_MARGIN,
        height=figure.layout.height or PRINT_HEIGHT,
    )  # fmt: skip
