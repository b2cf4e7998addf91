"""Figures of learned gates: how open each was during training, the loss, and what each penalty weight keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headlab.charts.chart import SYMBOLS
from headlab.charts.dots import ROW_PIXELS
from headlab.charts.gates import loss_chart, open_heads_chart
from headlab.core import Bools, Floats, HeadGrid, by_layer
from headlab.pictures import DIVERGING, HELPS, SEQUENTIAL, UNSURE
from headlab.plots.drawing import plotly_rows
from headlab.plots.style import LEGEND, cells, finish, stroke
from headlab.results import LearnedGates

# The controls of an animated figure: play, pause, and a slider over its frames.

MILLISECONDS = 150  # per frame
QUIET = {"duration": 0}


def player(frames: Sequence[str], what: str) -> dict[str, object]:
    """Layout of the controls; the last frame is active at first. frames: their names.  what: label before the name."""
    play = {"frame": {"duration": MILLISECONDS, "redraw": True}, "transition": QUIET}
    pause = {"mode": "immediate", "frame": QUIET | {"redraw": False}, "transition": QUIET}
    buttons = [
        {"label": "▶ Play", "method": "animate", "args": [None, play]},
        {"label": "❚❚ Pause", "method": "animate", "args": [[None], pause]},
    ]
    menu = {
        "type": "buttons", "direction": "left", "showactive": False, "buttons": buttons, "x": 0, "xanchor": "left",
        "y": 0, "yanchor": "top", "pad": {"t": 62}, "font": {"color": HELPS}, "bordercolor": UNSURE,
    }  # fmt: skip
    slider = {
        "active": len(frames) - 1, "steps": [_step(name) for name in frames], "x": 0, "len": 1, "y": 0,
        "pad": {"t": 106, "b": 8}, "currentvalue": {"prefix": f"{what} ", "xanchor": "right"}, "tickcolor": UNSURE,
        "bordercolor": UNSURE,
    }  # fmt: skip
    return {"updatemenus": [menu], "sliders": [slider]}


def _step(name: str) -> dict[str, object]:
    at_once = {"mode": "immediate", "frame": QUIET | {"redraw": True}, "transition": QUIET}
    return {"label": name, "method": "animate", "args": [[name], at_once]}


FRAMES = 60  # maximum number of times drawn
FEW = 16  # maximum number of layers, or of heads side by side, for which every one gets a tick
DIGITS = 3
COURSE_HEIGHT = 420  # pixels of loss, penalty and open heads together
MANY = 24  # maximum number of layers in all stacks; with more, counts are shown on hover only
BAR, TITLES = 44, 24  # pixels for the colour bar and for the stacks' names
OPEN = {
    "orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "thickness": 10, "tickvals": [0, 0.5, 1],
    "ticktext": ["closed", "50 %", "open"], "len": 0.9,
}  # fmt: skip


def moments(times: int) -> list[int]:
    """Indices of the times to draw: all, or FRAMES spread evenly, including the first and the last."""
    return sorted({round(float(at)) for at in np.linspace(0, times - 1, min(times, FRAMES))})


def open_map(gates: LearnedGates) -> go.Figure:
    """P(open) of every gate, stacks side by side; a slider and a play button step through the training.

    The end is shown first.  Heads without a gate are blank.
    """
    stacks, times = gates.grid.stacks, moments(len(gates.steps))
    likely = np.where(gates.gated, gates.open_probability, np.nan).round(DIGITS)
    figure = make_subplots(
        1,
        len(stacks),
        subplot_titles=_titles(gates.grid),
        horizontal_spacing=0.04,
        shared_yaxes=True,
    )
    for place, z in enumerate(rectangles(gates.grid, likely[-1])):
        hover = (
            f"{stacks[place].name} layer %{{y}}, head %{{x}}: open with %{{z:.1%}}<extra></extra>"
        )
        figure.add_heatmap(
            z=z, coloraxis="coloraxis", xgap=1, ygap=1, hovertemplate=hover, row=1, col=place + 1
        )
    figure.frames = [
        go.Frame(name=str(gates.steps[time]), data=[{"type": "heatmap", "z": z} for z in rectangles(gates.grid, now)],
                 traces=list(range(len(stacks))))
        for time, now in ((time, likely[time]) for time in times)
    ]  # fmt: skip
    figure.update_layout(player([frame.name for frame in figure.frames], "step"))
    rows, wide = max(stack.layers for stack in stacks), max(gates.grid.width, 1)
    figure.update_yaxes(
        autorange="reversed", dtick=1 if rows <= FEW else None, showgrid=False, zeroline=False
    )
    figure.update_yaxes(title="layer", col=1).update_yaxes(ticks="")
    few = wide * len(stacks) <= FEW
    figure.update_xaxes(title="head", dtick=1 if few else None, showgrid=False, zeroline=False)
    top = BAR + TITLES * (len(stacks) > 1)
    axis = {"colorscale": DIVERGING, "cmin": 0, "cmax": 1, "colorbar": OPEN}
    finish(figure, height=200 + top + ROW_PIXELS * max(rows, 4), coloraxis=axis)
    return figure.update_layout(margin={"t": top})


def _titles(grid: HeadGrid) -> list[str] | None:
    return [stack.name for stack in grid.stacks] if len(grid.stacks) > 1 else None


def rectangles(grid: HeadGrid, flat: Floats) -> list[Floats]:
    """Values, float [head], as one array [layer, head] per stack; NaN where a layer has fewer heads than another."""
    out = [np.full((stack.layers, max(stack.heads, default=0)), np.nan) for stack in grid.stacks]
    names = [stack.name for stack in grid.stacks]
    for stack, layer, values in by_layer(grid, flat):
        out[names.index(stack)][layer, : len(values)] = values
    return out


def course(gates: LearnedGates) -> go.Figure:
    """Mean task loss and penalty during training, and below them how many heads are open.

    Args:
        gates: Of one training.

    Returns:
        A new figure.
    """
    return plotly_rows([loss_chart([gates]), open_heads_chart(gates)], COURSE_HEIGHT)


def kept_by_layer(rows: Sequence[str], kept: Sequence[Bools], grid: HeadGrid) -> go.Figure:
    """How many heads each layer keeps, one row per run; colours are shares of the layer.

    rows: names of the runs.  kept: bool [head] of each run.
    """
    layers = [
        (stack, layer, len(heads))
        for stack, layer, heads in by_layer(grid, np.arange(grid.size))
        if len(heads)
    ]
    counts = [
        [int(heads.sum()) for _, _, heads in by_layer(grid, mask) if len(heads)] for mask in kept
    ]
    several = len(grid.stacks) > 1
    shares = [[n / size for n, (_, _, size) in zip(row, layers, strict=True)] for row in counts]
    told = [
        [f"{n} of {size}" for n, (_, _, size) in zip(row, layers, strict=True)] for row in counts
    ]
    columns = [f"{stack} {layer}" if several else str(layer) for stack, layer, _ in layers]
    figure = cells(
        shares, columns, rows, text=counts, texttemplate="%{text}" if len(columns) <= MANY else None, customdata=told,
        zmin=0, zmax=1, showscale=False, colorscale=SEQUENTIAL,
        hovertemplate="%{y}, layer %{x}: %{customdata} kept<extra></extra>",
    ).update_xaxes(title="layer")  # fmt: skip
    return finish(figure, height=max(170, 110 + ROW_PIXELS * len(rows)))


def kept_by_stack(
    weights: Sequence[float], kept: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
) -> go.Figure:
    """The share of each stack's heads kept as the weight grows, which shows the stack that loses heads first.

    kept: {stack: heads kept at each weight}.  sizes: {stack: heads}.
    """
    figure = go.Figure()
    for at, (stack, counts) in enumerate(kept.items()):
        size = max(1, sizes[stack])
        figure.add_scatter(
            x=list(weights), y=[count / size for count in counts], name=stack, mode="lines+markers",
            line=stroke(at), marker={"symbol": SYMBOLS[at % len(SYMBOLS)], "size": 9}, customdata=list(counts),
            hovertemplate=f"{stack}: %{{customdata}} of {size} heads kept at λ = %{{x:g}}<extra></extra>",
        )  # fmt: skip
    ticks = {"tickvals": list(weights), "ticktext": [f"{weight:g}" for weight in weights]}
    kind = "log" if min(weights, default=0) > 0 else "linear"
    figure.update_xaxes(title="λ", type=kind, zeroline=False, showgrid=False, **ticks)
    figure.update_yaxes(
        title="share of the stack's heads kept",
        tickformat=".0%",
        rangemode="tozero",
        zeroline=False,
    )
    return finish(figure, height=340, showlegend=True, legend=LEGEND)
