"""The head grid: a clickable map of one value per head, or the same grid as a board of switches.

A Streamlit component (v2): `static/headgrid.js` draws it, this module feeds it and reads its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import streamlit as st

from headlab.records import Bools, Floats, Head, HeadGrid
from headlab.scores import HeadScores


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
        "rev": 0,
        "off": [],
    }

    def picked() -> None:
        index = _event(key, "pick")
        if on_click is not None and isinstance(index, int) and 0 <= index < grid.size:
            on_click(grid.heads[index])

    _component()(key=key, data=data, on_pick_change=picked)


def head_switches(
    values: Floats,
    grid: HeadGrid,
    kept: Bools,
    *,
    key: str,
    rev: int,
    on_change: Callable[[Bools], None],
    title: str = "Heads",
    limit: float | None = None,
    marks: Bools | None = None,
    tips: Sequence[str] = (),
    signed: bool = True,
) -> None:
    """Draw every head as a switch; each click calls `on_change(kept)` with the whole state, bool [head].

    rev: raise it whenever the mask changes by anything but this grid; events that answer an older
    one are dropped, so that a click on its way cannot undo an import.
    """
    seen: dict[str, int] = st.session_state.setdefault(f"{key}:seen", {})
    data = _data(values, grid, title, limit, marks, tips, signed) | {
        "mode": "switch",
        "compact": False,
        "clickable": True,
        "selected": -1,
        "rev": rev,
        "off": np.flatnonzero(~kept).tolist(),
        "taken": seen,
    }

    def changed() -> None:
        event = _event(key, "heads") or {}
        board = str(event.get("id"))
        for click, now in switched(event, grid, rev, seen.get(board, 0)):
            seen[board] = click
            on_change(now)

    st.session_state[f"{key}:changed"] = changed
    _component()(key=key, data=data, on_heads_change=changed)


def take_clicks(key: str) -> None:
    """Take the clicks that came with another widget's event: the browser may send both at once, and they came first.

    Called by whatever else changes the mask, before it does: streamlit calls such callbacks in any order.
    """
    changed = st.session_state.get(f"{key}:changed")
    if changed is not None:
        changed()


def switched(event: Any, grid: HeadGrid, rev: int, seen: int = 0) -> list[tuple[int, Bools]]:
    """Each click's number and the heads kept after it (bool [head]), of an event of the board of switches.

    seen: number of the last click that was taken.  Empty for an event that answers an older `rev`.
    """
    if not event or event.get("rev") != rev:
        return []
    states = []
    for click, off in event.get("trail", ()):
        if click > seen:
            kept = np.ones(grid.size, bool)
            kept[[i for i in off if isinstance(i, int) and 0 <= i < grid.size]] = False
            states.append((click, kept))
    return states


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


def _event(key: str, name: str) -> Any:
    state = st.session_state.get(key)
    return None if state is None else state.get(name)


@cache
def _component() -> Callable[..., Any]:
    files = resources.files("headlab.ui") / "static"
    css, js = ((files / f"headgrid.{kind}").read_text("utf-8") for kind in ("css", "js"))
    renderer: Callable[..., Any] = st.components.v2.component("headlab-headgrid", css=css, js=js)
    return renderer
