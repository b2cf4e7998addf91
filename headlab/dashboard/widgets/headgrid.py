"""The head grid: a clickable map of one value per head, switches, and maps on one scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from headlab.core import (
    HEADS,
    Bools,
    Head,
    HeadGrid,
    Json,
    as_list,
    display_unit,
    fingerprint_of,
    json_at,
    kind_title,
    nouns_of_kinds,
    percent_text,
    player_name,
    read_json,
)
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.widgets import presses
from headlab.dashboard.widgets.notices import keep_known_choice
from headlab.methods import DEFAULT_METHOD, METHODS, remarks
from headlab.pictures import HeadMap
from headlab.results import (
    SAMPLING_ERROR_LIMIT,
    HeadScores,
    omission_notes,
    value_notes,
    why_holm_rejects_none,
)
from headlab.studies.savings import Costs


def draw_map(
    head_map: HeadMap,
    *,
    key: str,
    title: str,
    selected_head: Head | None = None,
    on_click: Callable[[Head], None] | None = None,
    compact: bool = False,
    has_shared_legend: bool = False,
    pictures: Sequence[str] = (),
    group_sizes: Sequence[int] = (),
) -> None:
    """Draw one value per head.

    Args:
        head_map: The values, as colours and words.
        key: Widget key.
        title: Above the map.
        selected_head: The head that is marked.
        on_click: Called with a head that is clicked, before the page runs.
        compact: Whether the map is small.
        has_shared_legend: Whether the legend of several maps says what its colours mean.
        pictures: One of every head, as a data URI, framed by the head's colour; empty for none, and
            "" for a head without.
        group_sizes: For each layer of the grid, how many heads share a key and a value; empty where
            that is not known.
    """
    data = _browser_data(head_map) | {
        "compact": compact,
        "shared": has_shared_legend,
        "pictures": list(pictures),
    }
    draw_grid("headgrid", data, head_map.grid, key, title, selected_head, on_click, group_sizes)


def draw_grid(
    kind: str,
    data: dict[str, Any],
    grid: HeadGrid,
    key: str,
    title: str,
    selected_head: Head | None,
    on_click: Callable[[Head], None] | None,
    group_sizes: Sequence[int] = (),
    other_actions: Mapping[str, Callable[[Any], None]] | None = None,
) -> None:
    """Draw a map by a component.

    Args:
        kind: Name of the component.
        data: What it shows of each head, beyond `BLANK`.
        grid: The heads.
        key: Widget key.
        title: Above the map.
        selected_head: The head that is marked.
        on_click: Called with a head that is clicked.
        group_sizes: As in `draw_map`.
        other_actions: By key, the action of a press on another part of it than a head.
    """
    selected_index = -1 if selected_head is None else grid.index(selected_head)
    grid_data = players_data(grid) | {
        "stacks": stacks(grid, group_sizes),
        "title": title,
        "clickable": on_click is not None,
        "selected": selected_index,
        "key": key,
    }
    actions = {key: head_press_action(grid, on_click), **(other_actions or {})}
    presses.draw(kind, key, BLANK | data | grid_data, actions)


def head_press_action(
    grid: HeadGrid, on_click: Callable[[Head], None] | None
) -> Callable[[Any], None]:
    """The action of a press on a map, whose value is the index of a head."""

    def click_head(index: Any) -> None:
        if on_click is not None and isinstance(index, int) and 0 <= index < grid.size:
            on_click(grid.heads[index])

    return click_head


# What a map that can be clicked has, unless it says otherwise.
BLANK: dict[str, Any] = {
    "mode": "map",
    "compact": False,
    "shared": False,
    "signed": False,
    "off": [],
    "marks": [],
    "unit": "",
    "noun": "heads",
    "names": [],
}


def players_data(grid: HeadGrid) -> dict[str, Any]:
    """What players are called where these are not heads: all of them, and each; empty for heads."""
    if grid.has_only_heads:
        return {}
    return {
        "noun": grid.noun,
        "names": [player_name(grid, player) for player in grid.heads],
    }


def stacks(grid: HeadGrid, group_sizes: Sequence[int] = ()) -> list[dict[str, Any]]:
    """A grid as the browser takes it.

    Args:
        grid: The heads.
        group_sizes: As in `draw_map`.
    """
    ends = np.cumsum([stack.layers for stack in grid.stacks]).tolist()
    has_several_bases = len({stack.base for stack in grid.stacks}) > 1
    stacks_data: list[dict[str, Any]] = []
    for stack, end in zip(grid.stacks, ends, strict=True):
        together = group_sizes[end - stack.layers : end] if stack.kind == HEADS else ()
        stack_data = {
            "name": stack.name,
            "heads": list(stack.heads),
            "together": list(together),
        }
        if not grid.has_only_heads:
            stack_data["title"] = kind_title(stack.name, several_bases=has_several_bases)
            stack_data["one"] = nouns_of_kinds([stack.kind])[0]
        stacks_data.append(stack_data)
    return stacks_data


def draw_head_switches(
    head_map: HeadMap,
    kept_heads: Bools,
    *,
    key: str,
    title: str,
    on_switch: Callable[[Sequence[int], bool], None],
    group_sizes: Sequence[int] = (),
) -> None:
    """Draw every head as a switch.

    A click changes its own heads only, so one that arrives late cannot revert an undo or an import.

    Args:
        head_map: Values that colour the heads.
        kept_heads: Heads that are on, bool [head].
        key: Widget key.
        title: Above the grid.
        on_switch: Called with a press: the indices of its heads, and whether they are on then.
        group_sizes: As in `draw_map`.
    """
    grid = head_map.grid

    def switch_heads(press: Json) -> None:
        head_indices = [
            index
            for index in as_list(json_at(press, "heads"))
            if type(index) is int and 0 <= index < grid.size
        ]
        on_switch(head_indices, bool(json_at(press, "on")))

    data = BLANK | _browser_data(head_map) | players_data(grid)
    data |= {
        "stacks": stacks(grid, group_sizes),
        "title": title,
        "clickable": True,
        "selected": -1,
        "key": key,
        "mode": "switch",
        "off": np.flatnonzero(~kept_heads).tolist(),
    }
    presses.draw("headgrid", key, data, {key: switch_heads})


def _browser_data(head_map: HeadMap) -> dict[str, Any]:
    """Data for the browser: values as shares of the scale's limit, -1 to 1.

    The stylesheet turns them into colours.
    """

    def share(value: float) -> float | None:
        if not np.isfinite(value):
            return None
        lowest = -1 if head_map.signed else 0
        return float(f"{np.clip(value / head_map.limit, lowest, 1):.4g}")

    return {
        "shares": [share(value) for value in head_map.values.tolist()],
        "named": [[share(value), words] for value, words in head_map.named],
        "scale": [colour for _, colour in head_map.scale],
        "ends": list(head_map.ends),
        "marks": head_map.marks.tolist(),
        "meanings": {str(mark): words for mark, words in head_map.meanings.items()},
        "tips": list(head_map.tips),
        "signed": head_map.signed,
        "unit": head_map.unit,
    }


# Heads that share a key and a value (grouped queries), where that is known of a model.


@st.cache_resource(show_spinner=False)
def _group_sizes_by_fingerprint() -> dict[str, tuple[int, ...]]:
    """How many heads share a key and a value, [layer], by fingerprint.

    At first it has the decoders that come with headlab.
    """
    folder = Path(str(files("headlab"))) / "embedded"
    group_sizes: dict[str, tuple[int, ...]] = {}
    for source in map(read_json, folder.glob("*/source.json")):
        group_sizes[source["fingerprint"]] = (source["together"],) * source["layers"]
    return group_sizes


def remember_head_groups(fingerprint: str, costs: Costs) -> None:
    """Remember how a model's heads are grouped, from what they cost."""
    _group_sizes_by_fingerprint()[fingerprint] = tuple(layer.group_size for layer in costs.layers)


def group_sizes_of(scores_or_fingerprint: HeadScores | str | None) -> tuple[int, ...]:
    """How many heads share a key and a value, [layer]; empty where that is not known.

    Args:
        scores_or_fingerprint: Scores of the model, or its fingerprint.
    """
    fingerprint: object = scores_or_fingerprint
    if isinstance(scores_or_fingerprint, HeadScores):
        fingerprint = fingerprint_of(scores_or_fingerprint.spec)
    return _group_sizes_by_fingerprint().get(str(fingerprint), ())


# Head maps of several languages: small multiples, and one large.

SCALES = {"one": "one for all maps", "own": "each map's own"}


def pick_scale(map_count: int) -> bool:
    """Draw the choice of the colour scale, unless there is a single map.

    Returns:
        Whether all maps share one scale; True for a single map.
    """
    if map_count < 2:
        return True
    keep_known_choice("scale", "colour scale", list(SCALES))
    scale = st.radio(
        "Colour scale",
        list(SCALES),
        format_func=SCALES.__getitem__,
        horizontal=True,
        key="scale",
        bind="query-params",
        help="One scale compares languages. Its own shows the order within a language whose values are "
        "all small.",
    )
    return scale == "one"


def draw_small_maps(
    maps: Mapping[str, HeadMap],
    *,
    key: str,
    selected_head: Head | None = None,
    on_click: Callable[[str, Head], None] | None = None,
    group_sizes: Sequence[int] = (),
    missing: Mapping[str, Callable[[], None]] | None = None,
) -> None:
    """A compact map per language, side by side, wrapping with the width of the window.

    Above several maps is one legend for all.

    Args:
        maps: By language.
        key: Start of the widgets' keys.
        selected_head: The head that is marked.
        on_click: Called with the language and the head that are clicked.
        group_sizes: As in `draw_map`.
        missing: By language without scores, a function that draws in place of its map.
    """
    scales = {(head_map.limit, head_map.unit) for head_map in maps.values()}
    has_one_scale = len(maps) > 1 and len(scales) == 1
    if len(maps) > 1:
        _draw_shared_legend(list(maps.values()), f"legend-{key}", has_one_scale=has_one_scale)
    with st.container(horizontal=True, key=f"maps-{key}"):  # a grid by static/page.css
        for language, head_map in maps.items():
            with st.container():
                draw_map(
                    head_map,
                    key=f"{key}-{language}",
                    title=language_title(language),
                    selected_head=selected_head,
                    on_click=None if on_click is None else partial(on_click, language),
                    compact=True,
                    has_shared_legend=has_one_scale,
                    group_sizes=group_sizes,
                )
        for draw_instead in (missing or {}).values():
            with st.container():
                draw_instead()


def _draw_shared_legend(maps: Sequence[HeadMap], key: str, *, has_one_scale: bool) -> None:
    """Draw the legend of several maps.

    Args:
        maps: The maps.
        key: Widget key.
        has_one_scale: Whether a colour means the same value in all of them. If not, the legend
            says what the colours mean, and each map its own ends.
    """
    all_maps = replace(
        maps[0],
        values=np.concatenate([head_map.values for head_map in maps]),
        marks=np.concatenate([head_map.marks for head_map in maps]),
        tips=(),
    )
    data = _browser_data(all_maps) | {"mode": "legend", "endless": not has_one_scale, "key": key}
    presses.draw("headgrid", key, BLANK | data, {})


def maps_title(scores: Mapping[str, HeadScores]) -> str:
    """What these maps show, in a line: method, estimand, unit, and what to beware of."""
    first_scores = next(iter(scores.values()))
    _, unit = display_unit(first_scores.unit)
    method = METHODS.get(first_scores.method)
    title = first_scores.method if method is None else method.title
    estimand = first_scores.estimand.replace("`", "")
    sentences = [f"**{plain(title)}**, estimand `{estimand}`, in {plain(unit)}."]
    if first_scores.sampling_error is not None:
        noun = nouns_of_kinds(first_scores.grid.kinds)[0]
        sentences.append(f"A first look: no {noun} is marked as helping or harming.")
    sentences += [f"**Caution: {plain(remark)}.**" for remark in remarks(scores.values())]
    return " ".join(sentences)


def maps_details(scores: Mapping[str, HeadScores]) -> str:
    """What the colours and marks of these maps mean, and what the values lean on."""
    first_scores = next(iter(scores.values()))
    noun = first_scores.grid.noun
    sentences = [f"Rows are layers, columns are {noun}, both counted from 0."]
    if noun == "layers":
        sentences = ["Rows are layers, counted from 0."]
    if "neurons" in first_scores.grid.kinds:
        sentences.append(
            "Group 0 has the neurons whose gradients are largest, the last the smallest."
        )
    if first_scores.sampling_error is not None:
        sentences.append(f"Blue {noun} seem to help, orange {noun} to harm.")
    elif first_scores.signed:
        sentences.append(f"Blue {noun} help, orange {noun} harm.")
    sentences.append(_interval_words(scores))
    sentences += map(plain, value_notes(scores.values()))
    sentences += map(plain, omission_notes(scores.values()))
    return " ".join(sentences)


def _interval_words(scores: Mapping[str, HeadScores]) -> str:
    """What the intervals are, and what the marks in these maps say of them.

    One or two sentences.
    """
    first_scores = next(iter(scores.values()))
    one = nouns_of_kinds(first_scores.grid.kinds)[0]
    marked = "a head" if first_scores.grid.has_only_heads else "one"
    if first_scores.sampling_error is not None:
        return (
            f"A value's sampling error {SAMPLING_ERROR_LIMIT}, so no {one} is marked as helping or harming: method "
            f"`{DEFAULT_METHOD}` decides that."
        )
    if first_scores.low is None:
        return "These scores have no intervals, so it is not known which differences are noise."
    level_text = percent_text(first_scores.level)
    if not first_scores.signed:
        return f"Intervals at {level_text} cover the sampling of the examples."
    hollow_mark_words = f"A hollow + or − marks {marked} whose own {level_text} interval excludes 0"
    holm_note = why_holm_rejects_none(scores.values())
    if holm_note:
        return f"{hollow_mark_words}. {holm_note}"
    test_count = 0
    for language_scores in scores.values():
        if language_scores.p_values is not None:
            test_count += language_scores.test_count
    if not test_count:
        return f"{hollow_mark_words}."
    return f"{hollow_mark_words}, a filled one also after Holm's correction for all {test_count:,} tests."
