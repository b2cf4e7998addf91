"""Figures of learned gates: how open each was during training, the loss, and what each penalty weight keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headlab.charts.chart import SYMBOLS
from headlab.charts.dots import ROW_PIXELS
from headlab.l0_gates import LearnedGates
from headlab.pictures import DIVERGING, HELPS, LINES, SEQUENTIAL, UNSURE
from headlab.plots.style import DOTTED, LEGEND, cells, finish, interval, stroke
from headlab.records import Bools, Floats, HeadGrid, Ints, by_layer

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
    """Mean task loss and penalty during training, both in nats, and below them how many heads are open.

    Open: the sum of P(open), stack by stack, including heads without a gate.
    """
    figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.55, 0.45])
    for at, (name, values) in enumerate((("task loss", gates.loss), ("penalty", gates.penalty))):
        figure.add_scatter(
            x=gates.steps, y=values, name=name, mode="lines", line=stroke(at),
            hovertemplate=f"{name} %{{y:.4f}} nats at step %{{x}}<extra></extra>", row=1, col=1,
        )  # fmt: skip
    several = len(gates.grid.stacks) > 1
    for at, (stack, values) in enumerate(expected(gates).items()):
        name = f"open, {stack}" if several else "open heads"
        figure.add_scatter(
            x=gates.steps, y=values, name=name, mode="lines", line=stroke(at + 2),
            hovertemplate=f"{name}: %{{y:.1f}} heads at step %{{x}}<extra></extra>", row=2, col=1,
        )  # fmt: skip
    figure.update_yaxes(title="nats an answer", rangemode="tozero", zeroline=False, row=1)
    figure.update_yaxes(title="heads open", rangemode="tozero", zeroline=False, row=2)
    figure.update_xaxes(zeroline=False, showgrid=False)
    figure.update_xaxes(title="step", row=2)
    return finish(figure, height=420, showlegend=True, legend=LEGEND, hovermode="closest")


def expected(gates: LearnedGates) -> Mapping[str, Floats]:
    """{stack: expected number of open heads, float [time]}."""
    names, likely = np.array([head.stack for head in gates.grid.heads]), gates.open_probability
    return {stack.name: likely[:, names == stack.name].sum(axis=1) for stack in gates.grid.stacks}


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


class Dots(NamedTuple):
    """Masks as dots: heads kept, accuracy in percent and the ends of its interval (NaN for none), all [dot].

    told: tooltips.  runs: the run of each dot, passed on when it is clicked.
    """

    kept: Ints
    accuracy: Floats
    low: Floats
    high: Floats
    told: Sequence[str]
    runs: Sequence[str] = ()


def trade_off(
    series: Mapping[str, Dots], whole: float, size: int, unit: str, *, chosen: int | None = None
) -> go.Figure:  # fmt: skip
    """Accuracy against heads kept, one dot per run, one symbol per way of choosing heads; dotted line: all heads.

    whole: accuracy with all `size` heads, in percent.  unit: axis title.  chosen: index of the ringed dot in the
    first series.
    """
    figure = go.Figure()
    figure.add_hline(y=whole, line=DOTTED)
    for at, (name, dots) in enumerate(series.items()):
        figure.add_scatter(
            x=dots.kept, y=dots.accuracy, name=name, mode="lines+markers", text=list(dots.told),
            error_y=interval(dots.low, dots.accuracy, dots.high, thickness=1.5),
            line=stroke(at, width=1), hovertemplate="%{text}<extra></extra>",
            marker=_marker(at % len(LINES), len(dots.kept), chosen if at == 0 else None),
            customdata=list(dots.runs) or None,
            unselected={"marker": {"opacity": 1}},  # a click chooses a run without dimming the others
        )  # fmt: skip
    figure.update_xaxes(title="heads kept", range=[-0.02 * size, 1.02 * size], zeroline=False)
    figure.update_yaxes(title=unit, zeroline=False)
    return finish(figure, height=420, showlegend=True, legend=LEGEND, hovermode="closest")


def _marker(place: int, dots: int, chosen: int | None) -> dict[str, object]:
    ring = [3 if at == chosen else 0 for at in range(dots)]
    sizes = [14 if at == chosen else 9 for at in range(dots)]
    return {
        "symbol": SYMBOLS[place],
        "size": sizes,
        "color": LINES[place],
        "line": {"width": ring, "color": UNSURE},
    }
