"""The board of the Prune page: the grid of switches, its toolbar, the method's suggestion, and the list of heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import streamlit as st

from headlab.pictures import head_map, map_of
from headlab.records import Bools, HeadGrid
from headlab.scores import HeadScores
from headlab.ui.headgrid import head_switches
from headlab.ui.history import History
from headlab.ui.names import head_words, language_title, plain
from headlab.ui.presses import Button, button, row
from headlab.ui.results import (
    CORRECTED,
    MEAN,
    RULES,
    Found,
    Suggestion,
    expected_false,
    how_chosen,
    pooled,
    risk,
    rules_for,
    suggest,
)
from headlab.value_functions import shown_unit

GRID = "prune-grid"
HOW = (
    "Click a head to switch it off or on; Shift-click takes the rectangle from the last one clicked; "
    "a number at the edge takes its whole layer or column. Keys: arrows, Home, End, Enter."
)


@dataclass(frozen=True)
class Board:
    """The board's data. scores: colour the grid and feed the suggestion; None if nothing is cached."""

    now: History
    found: Found
    scores: HeadScores | None

    @property
    def grid(self) -> HeadGrid:
        """The model's heads."""
        return self.now.grid


def pick_scores(found: Found) -> HeadScores | None:
    """The widget that chooses whose scores colour the grid; not drawn if there is no choice."""
    if len(found.scores) < 2:
        return pooled(found.scores, MEAN)
    source = st.selectbox(
        "Colours and suggestion from one language, or the mean of all",
        [MEAN, *found.scores],
        key="from",
        bind="query-params",
    )
    return pooled(found.scores, source)


def toolbar(now: History) -> None:
    """Undo, redo, reset."""
    row(
        Button("Undo", "prune-undo", now.undo, icon="undo", disabled=not now.can_undo),
        Button("Redo", "prune-redo", now.redo, icon="redo", disabled=not now.can_redo),
        Button(
            "Reset", "prune-reset", now.reset, icon="restart_alt", disabled=bool(now.kept.all()), help="All heads on"
        ),
    )


def switches(board: Board) -> None:
    """The grid itself, coloured by the scores if there are any."""
    now, scores = board.now, board.scores
    shown = head_map(np.full(board.grid.size, np.nan), board.grid) if scores is None else map_of(scores)
    head_switches(shown, now.kept, key=GRID, on_switch=now.switch)


def suggestion(board: Board, on_test: Callable[[], None] | None = None) -> None:
    """A rule over the scores, its effect, and the button that applies it.

    on_test: draws what the current mask does on test; called where it is the one suggested.
    """
    scores = board.scores
    with st.expander("Take the method's suggestion", icon=":material/auto_fix_high:"):
        if scores is None:
            st.markdown("There is no suggestion yet: no scores of this method are cached for these languages.")
            return
        wanted = _rule(scores)
        kept = suggest(scores, wanted)
        off = int((~kept).sum())
        st.markdown(f"**{off} of {kept.size} heads** would be off, by {scores.method} of {plain(_whose(board))}.")
        if false_ones := expected_false(scores, wanted, off):
            st.caption(false_ones)
        if sentence := risk(kept):
            st.warning(sentence)
        chosen = how_chosen(scores, wanted, list(board.found.scores))
        button("Switch these off", key="prune-suggest", kind="primary", on_press=board.now.put, args=(kept, chosen))
        if on_test is not None and off and np.array_equal(kept, board.now.kept):
            on_test()


def _whose(board: Board) -> str:
    assert board.scores is not None
    name = board.scores.language
    return f"the mean over {len(board.found.scores)} languages" if name == MEAN else language_title(name)


def _rule(scores: HeadScores) -> Suggestion:
    rules = rules_for(scores)
    rule = st.radio("Rule", rules, captions=[RULES[r] for r in rules], key="rule", bind="query-params")
    if rule == "bottom":
        size = scores.grid.size
        return Suggestion(
            rule, k=st.slider("k, heads to switch off", 0, size, min(10, size), key="k", bind="query-params")
        )
    if rule == "threshold":
        factor, unit = shown_unit(scores.unit)
        low, high = (float(f(scores.values)) * factor for f in (np.min, np.max))
        start = min(max(0.0, low), high)
        shown = st.number_input(
            f"Threshold ({unit})", value=start, step=(high - low) / 100 or 0.01, format="%.4g", key="threshold"
        )
        return Suggestion(rule, threshold=shown / factor)
    if rule == "harmful" and scores.p_values is not None:
        return Suggestion(rule, correction=pick_correction())
    return Suggestion(rule)


def pick_correction() -> str:
    """The widget that chooses how rule harmful corrects for testing many heads."""
    label, words = "Corrected for testing many heads", CORRECTED.__getitem__
    return str(st.radio(label, list(CORRECTED), format_func=words, key="correct", bind="query-params"))


def twin(now: History) -> None:
    """The same switches as ordinary widgets."""
    several = len(now.grid.stacks) > 1

    def words(index: int) -> str:
        return head_words(now.grid.heads[index], several)

    # A new list for every state that did not come from it, applied only when the button is pressed: on its own, a
    # list also sends what it showed before, and would revert a click in the grid.
    key = f"twin-heads-{now.stamp}"

    def listed() -> None:
        kept = np.ones(now.grid.size, bool)
        kept[st.session_state[key]] = False
        now.set_list(kept)

    with st.expander("The same switches as a list", icon=":material/list:"):
        off = np.flatnonzero(~now.kept).tolist()
        st.multiselect("Heads that are off", list(range(now.grid.size)), default=off, format_func=words, key=key)
        button("Switch exactly these off", key="twin-listed", on_press=listed)
        _whole_layers(now, several)


def _whole_layers(now: History, several: bool) -> None:
    layers = {
        (f"{stack} " if several else "") + f"layer {layer}": (stack, layer)
        for stack, layer in dict.fromkeys((head.stack, head.layer) for head in now.grid.heads)
    }

    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = layers[st.selectbox("A whole layer", list(layers), key="twin-layer", width=150)]
        heads = _heads_of(now.grid, layer)
        row(
            Button("Switch it off", "twin-layer-off", now.switch, (heads, False)),
            Button("Switch it on", "twin-layer-on", now.switch, (heads, True)),
        )
    off = [f"{name} {n}" for name, layer in layers.items() if (n := int((~now.kept[_heads_of(now.grid, layer)]).sum()))]
    st.caption("Heads off: " + (", ".join(off) if off else "none") + ".")


def _heads_of(grid: HeadGrid, layer: tuple[str, int]) -> Bools:
    return np.array([(h.stack, h.layer) == layer for h in grid.heads], bool)
