"""Colours and layout that all figures share."""

from __future__ import annotations

import plotly.graph_objects as go

# Orange harms, blue helps: told apart with every common colour blindness, and in grey by their labels.
DIVERGING = ((0.0, "#b35806"), (0.25, "#f1a340"), (0.5, "#f7f7f7"), (0.75, "#67a9cf"), (1.0, "#2166ac"))
SEQUENTIAL = ((0.0, "#f7fbff"), (0.5, "#6baed6"), (1.0, "#08306b"))
HELPS, HARMS, UNSURE = "#2b7bba", "#d9730d", "#8a8f98"
# Lines of one figure; neighbours differ in lightness too.
LINES = (HELPS, HARMS, "#3a8f5c", "#8e5ea2", "#b08d2e", "#c94f7c")
CHANCE = "random"  # what is drawn in grey, as all else is compared with it
# One each a method, so that colour is not all that tells them apart.
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dash")
LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1, "x": 0, "xanchor": "left"}  # above, where it wraps
ROW_PIXELS = 26
PRINT_WIDTH, PRINT_HEIGHT = 900, 420  # pixels of a figure in a file
PRINT_FONT = {"family": "Arial, Helvetica, sans-serif", "size": 13, "color": "#222222"}
PRINT_MARGIN = {"l": 16, "r": 16, "t": 16, "b": 16}


def finish(figure: go.Figure, template: str | None, **layout: object) -> go.Figure:
    """What every figure has: no background of its own, and room for a title only where there is one."""
    figure.update_layout(
        template=template,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 8, "r": 8, "t": 40 if layout.get("title") else 8, "b": 8},
        **layout,
    )
    return figure


def printed(figure: go.Figure, name: str) -> go.Figure:
    """The figure as it goes into a file: on white, dark on light, and equal for equal figures.

    name: tells its parts from those of other figures in one document.
    """
    out = go.Figure(figure.data, figure.layout)  # without frames, and without what moves them
    out.layout.updatemenus = out.layout.sliders = None
    for number, trace in enumerate(out.data):
        trace.uid = f"{name}-{number}"  # plotly would draw it by lot
    return out.update_layout(
        template="plotly_white", paper_bgcolor="white", plot_bgcolor="white", font=PRINT_FONT, margin=PRINT_MARGIN,
        height=figure.layout.height or PRINT_HEIGHT,
    )  # fmt: skip
