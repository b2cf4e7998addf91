"""Figures of learned gates on pages: the animated map of a training, its course, what is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headlab.charts.chart import SYMBOLS
from headlab.charts.dots import ROW_PIXELS
from headlab.charts.gates import loss_chart, open_heads_chart
from headlab.core import Bools, Floats, HeadGrid, by_layer
from headlab.pictures import HELPS, SEQUENTIAL, SWITCHES, UNSURE
from headlab.plots.drawing import plotly_rows
from headlab.plots.style import LEGEND, cells, stroke, with_common_layout
from headlab.results import LearnedGates

MILLISECONDS = 150  # per frame
QUIET = {"duration": 0}


# The controls of an animated figure: play, pause, and a slider over its frames.


def player(frames: Sequence[str], what: str) -> dict[str, object]:
    """Layout of the controls; the last frame is active at first.

    Args:
        frames: Their names.
        what: Label before the name of the frame on view.

    Returns:
        Parts of Plotly's layout.
    """
    play = {"frame": {"duration": MILLISECONDS, "redraw": True}, "transition": QUIET}
    pause = {"mode": "immediate", "frame": QUIET | {"redraw": False}, "transition": QUIET}
    buttons = [
        {"label": "▶ Play", "method": "animate", "args": [None, play]},
        {"label": "❚❚ Pause", "method": "animate", "args": [[None], pause]},
    ]
    menu = {
        "type": "buttons",
        "direction": "left",
        "showactive": False,
        "buttons": buttons,
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
        "pad": {"t": 62},
        "font": {"color": HELPS},
        "bordercolor": UNSURE,
    }
    slider = {
        "active": len(frames) - 1,
        "steps": [_step(name) for name in frames],
        "x": 0,
        "len": 1,
        "y": 0,
        "pad": {"t": 106, "b": 8},
        "currentvalue": {"prefix": f"{what} ", "xanchor": "right"},
        "tickcolor": UNSURE,
        "bordercolor": UNSURE,
    }
    return {"updatemenus": [menu], "sliders": [slider]}


def _step(name: str) -> dict[str, object]:
    at_once = {"mode": "immediate", "frame": QUIET | {"redraw": True}, "transition": QUIET}
    return {"label": name, "method": "animate", "args": [[name], at_once]}


MAX_FRAMES = 60  # maximum number of times drawn
MAX_TICKS = (
    16  # maximum number of layers, or of heads side by side, for which every one gets a tick
)
DIGITS = 3
COURSE_HEIGHT = 420  # pixels of loss, penalty and open heads together
MAX_COUNTED_LAYERS = (
    24  # maximum number of layers in all stacks; with more, counts are shown on hover only
)
BAR = 44
TITLES = 24  # pixels for the colour bar and for the stacks' names
OPEN_SCALE = {
    "orientation": "h",
    "yref": "container",
    "y": 1,
    "yanchor": "top",
    "thickness": 10,
    "tickvals": [0, 0.5, 1],
    "ticktext": ["closed", "50 %", "open"],
    "len": 0.9,
}


def moments(times: int) -> list[int]:
    """Indices of the times to draw: all, or MAX_FRAMES spread evenly.

    The first and the last are among them.
    """
    return sorted(
        {round(float(time)) for time in np.linspace(0, times - 1, min(times, MAX_FRAMES))}
    )


def open_probability_map(gates: LearnedGates) -> go.Figure:
    """P(open) of every gate, stacks side by side; a slider and a button step through the training.

    The end is shown first.  Heads without a gate are blank.

    Args:
        gates: Of one training.

    Returns:
        A new figure with a frame for each time.
    """
    stacks = gates.grid.stacks
    open_probability = np.where(gates.has_gate, gates.open_probability, np.nan).round(DIGITS)
    figure = make_subplots(
        1,
        len(stacks),
        subplot_titles=_titles(gates.grid),
        horizontal_spacing=0.04,
        shared_yaxes=True,
    )
    last_maps = rectangles(gates.grid, open_probability[-1])
    for column, (stack, values) in enumerate(zip(stacks, last_maps, strict=True), start=1):
        tip = f"{stack.name} layer %{{y}}, head %{{x}}: open with %{{z:.1%}}<extra></extra>"
        figure.add_heatmap(
            z=values, coloraxis="coloraxis", xgap=1, ygap=1, hovertemplate=tip, row=1, col=column
        )
    frames = []
    for time in moments(len(gates.steps)):
        maps = rectangles(gates.grid, open_probability[time])
        traces = [{"type": "heatmap", "z": values} for values in maps]
        frame = go.Frame(name=str(gates.steps[time]), data=traces, traces=list(range(len(stacks))))
        frames.append(frame)
    figure.frames = frames
    figure.update_layout(player([frame.name for frame in figure.frames], "step"))
    rows = max(stack.layers for stack in stacks)
    columns = max(gates.grid.width, 1) * len(stacks)
    figure.update_yaxes(
        autorange="reversed", dtick=1 if rows <= MAX_TICKS else None, showgrid=False, zeroline=False
    )
    figure.update_yaxes(title="layer", col=1).update_yaxes(ticks="")
    step = 1 if columns <= MAX_TICKS else None
    figure.update_xaxes(title="head", dtick=step, showgrid=False, zeroline=False)
    top = BAR + TITLES * (len(stacks) > 1)
    axis = {"colorscale": SWITCHES, "cmin": 0, "cmax": 1, "colorbar": OPEN_SCALE}
    with_common_layout(figure, height=200 + top + ROW_PIXELS * max(rows, 4), coloraxis=axis)
    return figure.update_layout(margin={"t": top})


def _titles(grid: HeadGrid) -> list[str] | None:
    if len(grid.stacks) > 1:
        return [stack.name for stack in grid.stacks]
    return None


def rectangles(grid: HeadGrid, flat: Floats) -> list[Floats]:
    """Values, float [head], as one array [layer, head] per stack.

    NaN where a layer has fewer heads.
    """
    values_by_stack = [
        np.full((stack.layers, max(stack.heads, default=0)), np.nan) for stack in grid.stacks
    ]
    names = [stack.name for stack in grid.stacks]
    for stack, layer, values in by_layer(grid, flat):
        values_by_stack[names.index(stack)][layer, : len(values)] = values
    return values_by_stack


def training_figure(gates: LearnedGates) -> go.Figure:
    """Mean task loss and penalty during training, and below them how many heads are open.

    Args:
        gates: Of one training.

    Returns:
        A new figure.
    """
    return plotly_rows([loss_chart([gates]), open_heads_chart(gates)], COURSE_HEIGHT)


def kept_by_layer_figure(rows: Sequence[str], kept: Sequence[Bools], grid: HeadGrid) -> go.Figure:
    """How many heads each layer keeps, one row per run; colours are shares of the layer.

    Args:
        rows: Names of the runs.
        kept: Bool [head] of each run.
        grid: The heads.

    Returns:
        A new figure.
    """
    has_stacks = len(grid.stacks) > 1
    columns = []
    sizes = []
    for stack, layer, heads in by_layer(grid, np.arange(grid.size)):
        if len(heads):
            columns.append(f"{stack} {layer}" if has_stacks else str(layer))
            sizes.append(len(heads))
    counts = []
    shares = []
    share_texts = []
    for mask in kept:
        kept_heads = [int(heads.sum()) for _, _, heads in by_layer(grid, mask) if len(heads)]
        counts.append(kept_heads)
        pairs = list(zip(kept_heads, sizes, strict=True))
        shares.append([count / size for count, size in pairs])
        share_texts.append([f"{count} of {size}" for count, size in pairs])
    figure = cells(
        shares,
        columns,
        rows,
        text=counts,
        texttemplate="%{text}" if len(columns) <= MAX_COUNTED_LAYERS else None,
        customdata=share_texts,
        zmin=0,
        zmax=1,
        showscale=False,
        colorscale=SEQUENTIAL,
        hovertemplate="%{y}, layer %{x}: %{customdata} kept<extra></extra>",
    )
    figure.update_xaxes(title="layer")
    return with_common_layout(figure, height=max(170, 110 + ROW_PIXELS * len(rows)))


def kept_by_stack_figure(
    weights: Sequence[float], kept: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
) -> go.Figure:
    """The share of each stack's heads kept as the weight grows: which stack loses heads first.

    Args:
        weights: λ of each run.
        kept: {stack: heads kept at each weight}.
        sizes: {stack: heads}.

    Returns:
        A new figure.
    """
    figure = go.Figure()
    for number, (stack, counts) in enumerate(kept.items()):
        size = max(1, sizes[stack])
        figure.add_scatter(
            x=list(weights),
            y=[count / size for count in counts],
            name=stack,
            mode="lines+markers",
            line=stroke(number),
            marker={"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 9},
            customdata=list(counts),
            hovertemplate=f"{stack}: %{{customdata}} of {size} heads kept at λ = %{{x:g}}"
            "<extra></extra>",
        )
    figure.update_xaxes(
        title="λ",
        type="log" if min(weights, default=0) > 0 else "linear",
        zeroline=False,
        showgrid=False,
        tickvals=list(weights),
        ticktext=[f"{weight:g}" for weight in weights],
    )
    figure.update_yaxes(
        title="share of the stack's heads kept",
        tickformat=".0%",
        rangemode="tozero",
        zeroline=False,
    )
    return with_common_layout(figure, height=340, showlegend=True, legend=LEGEND)
