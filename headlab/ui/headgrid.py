"""The head grid: a clickable map of one value per head, a board of switches, and maps on one scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st

from headlab.methods.costs import caution
from headlab.methods.table import METHODS
from headlab.records import Bools, Floats, Head, HeadGrid
from headlab.scores import HeadScores
from headlab.ui import presses
from headlab.ui.names import language_title
from headlab.value_functions import shown_unit

# The head grid: a clickable map of one value per head, or the same grid as a board of switches.


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


# Head maps of several languages on one scale: small multiples and one large.


def is_signed(scores: HeadScores) -> bool:
    """Whether the method's sign means help and harm; for one not in the table, whether it has signs."""
    known = METHODS.get(scores.method)
    return known.signed if known else bool((scores.values < 0).any())


def common_limit(scores: Mapping[str, HeadScores]) -> float:
    """End of the scale for all these maps, in the unit shown."""
    return symmetric_limit([shown_unit(s.unit)[0] * s.values for s in scores.values()])


def one_map(
    scores: HeadScores,
    limit: float,
    *,
    key: str,
    selected: Head | None,
    on_click: Callable[[Head], None] | None,
    compact: bool,
) -> None:
    """One language's map, in the unit shown."""
    head_map(
        shown_unit(scores.unit)[0] * scores.values,
        scores.grid,
        key=key,
        title=language_title(scores.language),
        limit=limit,
        marks=score_marks(scores),
        tips=score_tips(scores),
        selected=selected,
        on_click=on_click,
        compact=compact,
        signed=is_signed(scores),
    )


def small_multiples(
    scores: Mapping[str, HeadScores],
    limit: float,
    *,
    key: str,
    selected: Head | None = None,
    on_click: Callable[[str, Head], None] | None = None,
    missing: Mapping[str, Callable[[], None]] | None = None,
) -> None:
    """A compact map per language, side by side, wrapping with the width of the window.

    missing: by language without scores, what draws in the place of its map.
    """

    def clicked(language: str) -> Callable[[Head], None] | None:
        return None if on_click is None else lambda head: on_click(language, head)

    with st.container(horizontal=True, key=f"maps-{key}"):  # a grid by shell.STYLE
        for language, s in scores.items():
            with st.container():
                one_map(s, limit, key=f"{key}-{language}", selected=selected, on_click=clicked(language), compact=True)
        for instead in (missing or {}).values():
            with st.container():
                instead()


def reading(scores: Mapping[str, HeadScores]) -> str:
    """How to read these maps: estimand, unit, samples, level, what the colours mean."""
    s = next(iter(scores.values()))
    unit = shown_unit(s.unit)[1]
    words = [f"**{METHODS[s.method].title if s.method in METHODS else s.method}**, estimand `{s.estimand}`, in {unit}."]
    words.append("Rows are layers, columns are heads, both counted from 0; one colour scale for all maps.")
    if is_signed(s):
        words.append("Blue heads help, orange heads harm.")
    if s.low is None:
        words.append("This method gives no intervals: nothing here says which differences are noise.")
    else:
        words.append(f"A dot marks a head whose {s.level:.0%} interval excludes 0.")
    if text := caution(s.method):
        words.append(f"**Caution: {text}.**")
    return " ".join(words)
