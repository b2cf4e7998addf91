"""The head grid: a clickable map of one value per head, a board of switches, and maps on one scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from headlab.core import (
    Bools,
    Head,
    HeadGrid,
    Json,
    as_list,
    fingerprint_of,
    json_at,
    read_json,
    shown_unit,
)
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.widgets import presses
from headlab.dashboard.widgets.notices import keep_known_choice
from headlab.methods import METHODS, remarks
from headlab.pictures import HeadMap
from headlab.results import HeadScores, coarse, omission_notes
from headlab.studies.savings import Costs


def draw_map(
    shown: HeadMap,
    *,
    key: str,
    title: str,
    selected: Head | None = None,
    on_click: Callable[[Head], None] | None = None,
    compact: bool = False,
    pictures: Sequence[str] = (),
    together: Sequence[int] = (),
) -> None:
    """Draw one value per head; a click calls `on_click(head)` before the page runs.

    pictures: one of every head, as a data URI, framed by the head's colour; empty for none, and "" for a head without.
    together: for each layer of the grid, how many heads share a key and a value; empty where that is not known.
    """
    data = _data(shown) | {"compact": compact, "pictures": list(pictures)}
    draw_grid("headgrid", data, shown.grid, key, title, selected, on_click, together)


def draw_grid(
    kind: str, data: dict[str, Any], grid: HeadGrid, key: str, title: str, selected: Head | None,
    on_click: Callable[[Head], None] | None, together: Sequence[int] = (),
) -> None:  # fmt: skip
    """Draw a map by a component. data: what it shows of each head, beyond BLANK.  together: as in `draw_map`."""
    at = -1 if selected is None else grid.index(selected)
    about = {
        "stacks": stacks(grid, together),
        "title": title,
        "clickable": on_click is not None,
        "selected": at,
        "key": key,
    }
    presses.draw(kind, key, BLANK | data | about, {key: picker(grid, on_click)})


def picker(grid: HeadGrid, on_click: Callable[[Head], None] | None) -> Callable[[Any], None]:
    """The action of a press on a map, whose value is the index of a head."""

    def picked(index: Any) -> None:
        if on_click is not None and isinstance(index, int) and 0 <= index < grid.size:
            on_click(grid.heads[index])

    return picked


# What a map that can be clicked has, unless it says otherwise.
BLANK: dict[str, Any] = {"mode": "map", "compact": False, "signed": False, "off": [], "marks": []}


def stacks(grid: HeadGrid, together: Sequence[int] = ()) -> list[dict[str, Any]]:
    """A grid as the browser takes it. together: as in `draw_map`."""
    ends = np.cumsum([stack.layers for stack in grid.stacks]).tolist()
    return [
        {
            "name": stack.name,
            "heads": list(stack.heads),
            "together": list(together[end - stack.layers : end]),
        }
        for stack, end in zip(grid.stacks, ends, strict=True)
    ]


def head_switches(
    shown: HeadMap,
    kept: Bools,
    *,
    key: str,
    on_switch: Callable[[Sequence[int], bool], None],
    together: Sequence[int] = (),
) -> None:
    """Draw every head as a switch.

    A click changes its own heads only, so one that arrives late cannot revert an undo or an import.

    Args:
        shown: Values that colour the heads.
        kept: Heads that are on, bool [head].
        key: Widget key.
        on_switch: Called with a press: the indices of its heads, and whether they are on then.
        together: As in `draw_map`.
    """
    grid = shown.grid

    def switched(press: Json) -> None:
        head_indices = [
            index
            for index in as_list(json_at(press, "heads"))
            if type(index) is int and 0 <= index < grid.size
        ]
        on_switch(head_indices, bool(json_at(press, "on")))

    data = BLANK | _data(shown)
    data |= {
        "stacks": stacks(grid, together),
        "title": "Heads",
        "clickable": True,
        "selected": -1,
        "key": key,
        "mode": "switch",
        "off": np.flatnonzero(~kept).tolist(),
    }
    presses.draw("headgrid", key, data, {key: switched})


def _data(shown: HeadMap) -> dict[str, Any]:
    """Data for the browser: values as shares of the scale's limit, -1 to 1, which the stylesheet turns into colours."""

    def share(value: float) -> float | None:
        lowest = -1 if shown.signed else 0
        return (
            float(f"{np.clip(value / shown.limit, lowest, 1):.4g}") if np.isfinite(value) else None
        )

    return {
        "shares": [share(value) for value in shown.values.tolist()],
        "named": [[share(value), words] for value, words in shown.named],
        "scale": [colour for _, colour in shown.scale],
        "ends": list(shown.ends),
        "marks": shown.marks.tolist(),
        "meanings": {str(mark): words for mark, words in shown.meanings.items()},
        "tips": list(shown.tips),
        "signed": shown.signed,
    }


# Heads that share a key and a value (grouped queries), where that is known of a model.


@st.cache_resource(show_spinner=False)
def _groups() -> dict[str, tuple[int, ...]]:
    """How many heads share a key and a value, [layer], by fingerprint; of decoders that come with headlab to begin."""
    told = map(read_json, (Path(str(files("headlab"))) / "embedded").glob("*/source.json"))
    return {one["fingerprint"]: (one["together"],) * one["layers"] for one in told}


def remember_head_groups(fingerprint: str, costs: Costs) -> None:
    """Remember how a model's heads are grouped, from what they cost."""
    _groups()[fingerprint] = tuple(layer.together for layer in costs.layers)


def heads_gated_together(of: HeadScores | str | None) -> tuple[int, ...]:
    """For every layer, how many heads share a key and a value; empty where that is not known.

    of: scores of the model, or its fingerprint.
    """
    weights = fingerprint_of(of.spec) if isinstance(of, HeadScores) else of
    return _groups().get(str(weights), ())


# Head maps of several languages: small multiples, and one large.

SCALES = {"one": "one for all maps", "own": "each map's own"}


def pick_scale(maps: int) -> bool:
    """The widget that chooses the colour scale; whether it is one for all maps. Not drawn for a single map."""
    if maps < 2:
        return True
    keep_known_choice("scale", "colour scale", list(SCALES))
    return st.radio(
        "Colour scale", list(SCALES), format_func=SCALES.__getitem__, horizontal=True, key="scale", bind="query-params",
        help="One scale compares languages. Its own shows the order within a language whose values are all small.",
    ) == "one"  # fmt: skip


def draw_small_maps(
    maps: Mapping[str, HeadMap],
    *,
    key: str,
    selected: Head | None = None,
    on_click: Callable[[str, Head], None] | None = None,
    together: Sequence[int] = (),
    missing: Mapping[str, Callable[[], None]] | None = None,
) -> None:
    """A compact map per language, side by side, wrapping with the width of the window.

    together: as in `draw_map`.  missing: by language without scores, a function that draws in place of its map.
    """
    with st.container(horizontal=True, key=f"maps-{key}"):  # a grid by static/page.css
        for language, shown in maps.items():
            with st.container():
                draw_map(
                    shown, key=f"{key}-{language}", title=language_title(language), selected=selected,
                    on_click=None if on_click is None else partial(on_click, language), compact=True,
                    together=together,
                )  # fmt: skip
        for instead in (missing or {}).values():
            with st.container():
                instead()


def how_to_read_maps(scores: Mapping[str, HeadScores]) -> str:
    """How to read these maps: estimand, unit, samples, level, what the colours mean."""
    s = next(iter(scores.values()))
    unit = shown_unit(s.unit)[1]
    title = METHODS[s.method].title if s.method in METHODS else s.method
    words = [f"**{plain(title)}**, estimand `{s.estimand.replace('`', '')}`, in {plain(unit)}."]
    words.append("Rows are layers, columns are heads, both counted from 0.")
    if s.signed:
        words.append("Blue heads help, orange heads harm.")
    if s.low is None:
        words.append(
            "These scores have no intervals, so it is not known which differences are noise."
        )
    elif not s.signed:
        words.append(f"Intervals at {s.level:.0%} cover the sampling of the examples.")
    else:
        words.append(f"A hollow + or − marks a head whose own {s.level:.0%} interval excludes 0")
        tests, short = (
            sum(s.grid.size for s in scores.values() if s.p_values is not None),
            coarse(scores.values()),
        )
        filled = f", a filled one also after Holm's correction for all {tests:,} tests."
        words[-1] += f". {short}" if short else filled if tests else "."
    words += [f"**Caution: {plain(remark)}.**" for remark in remarks(scores.values())]
    words += map(plain, omission_notes(scores.values()))
    return " ".join(words)
