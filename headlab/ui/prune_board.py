"""The board of the Prune page: the grid of switches, its toolbar, the method's suggestion, and the widget twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from headlab.records import Bools, HeadGrid
from headlab.scores import HeadScores
from headlab.ui.headgrid import head_switches, score_marks, score_tips, symmetric_limit, take_clicks
from headlab.ui.heads_maps import is_signed
from headlab.ui.history import History
from headlab.ui.names import head_words, language_title
from headlab.ui.once import once
from headlab.ui.prune_suggest import MEAN, RULES, Suggestion, how_chosen, pooled, risk, rules_for, suggest
from headlab.ui.results import Found
from headlab.values import shown_unit

GRID = "prune-grid"


@dataclass(frozen=True)
class Board:
    """What the board draws from. scores: what colours the grid and feeds the suggestion, if anything is cached."""

    now: History
    found: Found
    scores: HeadScores | None

    @property
    def grid(self) -> HeadGrid:
        """The model's heads."""
        return self.now.grid


def pick_scores(found: Found) -> HeadScores | None:
    """The widget that says whose scores colour the grid; draws nothing where there is no choice."""
    if len(found.scores) < 2:
        return pooled(found.scores, MEAN)
    source = st.selectbox(
        "Colours and suggestion from one language, or the mean of all",
        [MEAN, *found.scores],
        key="from",
        bind="query-params",
    )
    return pooled(found.scores, source)


def after_clicks(change: Callable[..., None]) -> Callable[..., None]:
    """A change of the mask that comes after the clicks in the grid, as it did for the user."""

    def changed(*given: Any) -> None:
        take_clicks(GRID)
        change(*given)

    return once(changed)


def toolbar(now: History) -> None:
    """Undo, redo, reset."""
    with st.container(horizontal=True, gap="small"):
        st.button("Undo", icon=":material/undo:", on_click=after_clicks(now.undo), disabled=not now.can_undo)
        st.button("Redo", icon=":material/redo:", on_click=after_clicks(now.redo), disabled=not now.can_redo)
        st.button(
            "Reset",
            icon=":material/restart_alt:",
            on_click=after_clicks(now.reset),
            disabled=bool(now.kept.all()),
            help="All heads on",
        )


def switches(board: Board) -> None:
    """The grid itself, coloured by the scores where there are any."""
    now, scores = board.now, board.scores
    coloured: dict[str, Any] = {}
    values = np.full(board.grid.size, np.nan)
    if scores is not None and scores.grid.to_json() == board.grid.to_json():
        values = shown_unit(scores.unit)[0] * scores.values
        coloured = {
            "limit": symmetric_limit([values]),
            "marks": score_marks(scores),
            "tips": score_tips(scores),
            "signed": is_signed(scores),
        }
    head_switches(values, board.grid, now.kept, key=GRID, rev=now.rev, on_change=now.click, title="Heads", **coloured)
    st.caption(
        "Click a head to switch it off or on; Shift-click takes the rectangle from the last one clicked; "
        "a number at the edge takes its whole layer or column. Keys: arrows, Home, End, Enter."
    )


def suggestion(board: Board) -> None:
    """A rule over the scores, what it would do, and the button that does it."""
    scores = board.scores
    with st.expander("Take the method's suggestion", icon=":material/auto_fix_high:"):
        if scores is None:
            st.markdown(
                "There is nothing to suggest from yet: no scores of this method are cached for these languages."
            )
            return
        wanted = _rule(scores)
        kept = suggest(scores, wanted)
        off = int((~kept).sum())
        st.markdown(f"**{off} of {kept.size} heads** would be off, by {scores.method} of {_whose(board)}.")
        if sentence := risk(kept):
            st.warning(sentence)
        chosen = how_chosen(scores, wanted, list(board.found.scores))
        st.button("Switch these off", type="primary", on_click=after_clicks(board.now.put), args=(kept, chosen))


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
    return Suggestion(rule)


def twin(now: History) -> None:
    """The same switches as ordinary widgets."""
    several = len(now.grid.stacks) > 1

    def words(index: int) -> str:
        return head_words(now.grid.heads[index], several)

    # A list of its own for every state that did not come from it, in a form: a multiselect by itself also sends
    # what it showed before, and would take back a click in the grid.
    key = f"twin-heads-{now.stamp}"

    def listed() -> None:
        kept = np.ones(now.grid.size, bool)
        kept[st.session_state[key]] = False
        now.set_list(kept)

    with st.expander("The same switches as a list", icon=":material/list:"):
        with st.form(f"twin-form-{now.stamp}", border=False):
            off = np.flatnonzero(~now.kept).tolist()
            st.multiselect("Heads that are off", list(range(now.grid.size)), default=off, format_func=words, key=key)
            st.form_submit_button("Switch exactly these off", on_click=after_clicks(listed))
        _whole_layers(now, several)


def _whole_layers(now: History, several: bool) -> None:
    layers = {
        (f"{stack} " if several else "") + f"layer {layer}": (stack, layer)
        for stack, layer in dict.fromkeys((head.stack, head.layer) for head in now.grid.heads)
    }

    def put(layer: tuple[str, int], on: bool) -> None:
        kept = now.kept.copy()
        kept[_heads_of(now.grid, layer)] = on
        now.set_layer(kept)

    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = layers[st.selectbox("A whole layer", list(layers), key="twin-layer", width=150)]
        st.button("Switch it off", on_click=after_clicks(put), args=(layer, False))
        st.button("Switch it on", on_click=after_clicks(put), args=(layer, True))
    off = [f"{name} {n}" for name, layer in layers.items() if (n := int((~now.kept[_heads_of(now.grid, layer)]).sum()))]
    st.caption("Heads off: " + (", ".join(off) if off else "none") + ".")


def _heads_of(grid: HeadGrid, layer: tuple[str, int]) -> Bools:
    return np.array([(h.stack, h.layer) == layer for h in grid.heads], bool)
