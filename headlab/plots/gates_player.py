"""The controls of an animated figure: play, pause, and a slider over its frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headlab.plots.style import HELPS, UNSURE

MILLISECONDS = 150  # a frame
QUIET = {"duration": 0}


def player(frames: Sequence[str], what: str) -> dict[str, Any]:
    """Layout of a figure whose last frame is shown first.  frames: their names.  what: they are counts of."""
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


def _step(name: str) -> dict[str, Any]:
    at_once = {"mode": "immediate", "frame": QUIET | {"redraw": True}, "transition": QUIET}
    return {"label": name, "method": "animate", "args": [[name], at_once]}
