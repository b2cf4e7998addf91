"""The head grid: a clickable map of one value per head, or the same grid as a board of switches.

A Streamlit component (v2): `static/headgrid.js` draws it, this module feeds it; its clicks go to the log of presses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from headlab.records import Bools, Floats, Head, HeadGrid
from headlab.scores import HeadScores
from headlab.ui import presses


def head_map(
    values: Floats,
    grid: HeadGrid,
    *,
    key: str,
    title: str,
    limit: float | None = None,
    marks: Bools | None = None,
    tips: Sequence[str] = (),
    selected: Head | None = None,
    on_click: Callable[[Head], None] | None = None,
    compact: bool = False,
    signed: bool = True,
) -> None:
    """Draw one value per head on a symmetric diverging scale; a click calls `on_click(head)` before the page runs.

    values: float [head]; NaN is drawn as "no value".  limit: the scale's end, by default the largest
    magnitude.  marks: bool [head], heads whose interval excludes 0.  tips: one line per head for the
    tooltip.  signed: False for scores that cannot be negative.
    """
    data = _data(values, grid, title, limit, marks, tips, signed) | {
        "mode": "map",
        "compact": compact,
        "clickable": on_click is not None,
        "selected": -1 if selected is None else grid.index(selected),
        "off": [],
    }

    presses.draw("headgrid", key, data | {"key": key}, {key: picker(grid, on_click)})


def picker(grid: HeadGrid, on_click: Callable[[Head], None] | None) -> Callable[[Any], None]:
    """What a press on a map does: its value is the number of a head."""

    def picked(index: Any) -> None:
        if on_click is not None and isinstance(index, int) and 0 <= index < grid.size:
            on_click(grid.heads[index])

    return picked


def head_switches(
    values: Floats,
    grid: HeadGrid,
    kept: Bools,
    *,
    key: str,
    on_switch: Callable[[Bools, bool], None],
    title: str = "Heads",
    limit: float | None = None,
    marks: Bools | None = None,
    tips: Sequence[str] = (),
    signed: bool = True,
) -> None:
    """Draw every head as a switch; each click calls `on_switch(heads, on)`: which ones, bool [head], and to what.

    A click changes what it was made for and nothing else, so one on its way cannot take back an undo or an import.
    """
    data = _data(values, grid, title, limit, marks, tips, signed) | {
        "mode": "switch",
        "compact": False,
        "clickable": True,
        "selected": -1,
        "off": np.flatnonzero(~kept).tolist(),
        "key": key,
    }

    def switched(change: Any) -> None:
        heads = np.zeros(grid.size, bool)
        heads[[i for i in change["heads"] if isinstance(i, int) and 0 <= i < grid.size]] = True
        on_switch(heads, bool(change["on"]))

    presses.draw("headgrid", key, data, {key: switched})


def symmetric_limit(values: Iterable[Floats], quantile: float = 0.99) -> float:
    """One scale end for several maps: a high quantile of the magnitudes, so that one head does not bleach the rest."""
    every = np.abs(np.concatenate([np.asarray(v, float).ravel() for v in values] or [np.zeros(1)]))
    every = every[np.isfinite(every)]
    limit = float(np.quantile(every, quantile)) if every.size else 0.0
    return limit or float(every.max(initial=0.0)) or 1.0


def score_tips(scores: HeadScores) -> list[str]:
    """One tooltip per head: value, interval (seldom symmetric) and half-width in the score's unit, and samples."""
    half, unit = scores.half_width, scores.unit
    tips = []
    for i, value in enumerate(scores.values):
        lines = [_shown(value, unit) + (" points" if unit == "accuracy" else f" ({unit})")]
        if half is not None and scores.low is not None and scores.high is not None:
            ends = f"{_shown(scores.low[i], unit)} to {_shown(scores.high[i], unit)}"
            lines.append(f"{scores.level:.0%} interval {ends}, half-width {_shown(half[i], unit).lstrip('+')}")
        if scores.samples is not None:
            lines.append(f"{int(scores.samples[i]):,} samples")
        tips.append("\n".join(lines))
    return tips


def _shown(value: float, unit: str) -> str:
    return f"{100 * value:+.2f}" if unit == "accuracy" else f"{value:+.4g}"


def score_marks(scores: HeadScores) -> Bools:
    """Heads whose interval excludes 0, bool [head]."""
    return scores.harmful | scores.helpful


def _data(
    values: Floats,
    grid: HeadGrid,
    title: str,
    limit: float | None,
    marks: Bools | None,
    tips: Sequence[str],
    signed: bool,
) -> dict[str, Any]:
    finite = np.isfinite(values)
    if limit is None:
        limit = float(np.abs(values[finite]).max(initial=0.0)) or 1.0
    return {
        "title": title,
        "stacks": [{"name": s.name, "heads": list(s.heads)} for s in grid.stacks],
        "values": [float(f"{v:.4g}") if ok else None for v, ok in zip(values, finite, strict=True)],
        "limit": limit,
        "marks": [] if marks is None else marks.astype(int).tolist(),
        "tips": list(tips),
        "signed": signed,
    }
