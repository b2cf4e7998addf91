"""Head maps of several languages on one scale: small multiples and one large."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from headlab.methods.costs import caution
from headlab.methods.table import METHODS
from headlab.records import Head
from headlab.scores import HeadScores
from headlab.ui.headgrid import head_map, score_marks, score_tips, symmetric_limit
from headlab.ui.names import language_title
from headlab.value_functions import shown_unit


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
