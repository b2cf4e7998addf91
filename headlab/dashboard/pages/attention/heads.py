"""Which heads the Attention page shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st

from headlab.core import Head, HeadGrid, HeadlabError
from headlab.dashboard.frame import StoredScores
from headlab.dashboard.names import (
    HEAD_NUMBER_HELP,
    head_from,
    head_key,
    head_number,
    head_words,
)
from headlab.dashboard.panels.heads import HEAD_KINDS, MAX_HEADS
from headlab.dashboard.panels.masks import MEAN_OF_LANGUAGES, pooled_scores
from headlab.dashboard.widgets import (
    notify_of_link,
    remember_choice,
    remembered_choice,
    set_widget,
)

HEADS_WIDTH = 176
"""Of the list of heads, in pixels."""


def heads_of_link(grid: HeadGrid, keys: Sequence[str]) -> tuple[list[Head], str | None]:
    """The heads that a link names.

    Returns:
        The valid ones, at most `MAX_HEADS`, and a message about the invalid ones; None if there are
        none.
    """
    heads = []
    errors = []
    for key in keys:
        try:
            head = head_from(key, grid)
            grid.index(head)
            heads.append(head)
        except HeadlabError as error:
            errors.append(str(error))
    return heads[:MAX_HEADS], "; ".join(errors) or None


def head_names(grid: HeadGrid, heads: Sequence[Head]) -> dict[str, str]:
    """{head key: display name}; a link may give a head's kind."""
    keys_by_kind = {kind: st.query_params.get_all(kind) for kind in HEAD_KINDS}
    names = {}
    for head in heads:
        key = head_key(head)
        name = head_words(head, grid)
        kinds = [f"language-{kind}" for kind, keys in keys_by_kind.items() if key in keys]
        names[key] = f"{name} ({', '.join(kinds)})" if kinds else name
    return names


def strongest_head(grid: HeadGrid, stored_scores: StoredScores) -> Head:
    """The head with the highest mean score over these languages; the first if there are none."""
    scores = pooled_scores(stored_scores.scores, MEAN_OF_LANGUAGES)
    if scores is None or scores.grid.to_json() != grid.to_json():
        return grid.heads[0]
    return grid.heads[int(np.argmax(scores.values))]


def head_to_show(grid: HeadGrid, heads: Sequence[Head]) -> Head:
    """The head chosen last if it is among these, or else the first of them, which is chosen then."""
    remembered = remembered_choice("head")
    for head in heads:
        if remembered in (head_key(head), head_number(head, grid)):
            return head
    remember_choice("head", head_number(heads[0], grid))
    return heads[0]


def settle_heads(grid: HeadGrid, stored_scores: StoredScores) -> None:
    """Set which heads the widget holds: at first the link's, or else the strongest one.

    A message says which of the link's heads cannot be shown.
    """
    head_keys = [head_key(head) for head in grid.heads]
    sentence = None
    if "heads" not in st.session_state:
        linked_keys = [*st.query_params.get_all("heads"), *st.query_params.get_all("head")]
        first_heads, link_error = heads_of_link(grid, linked_keys)
        if link_error:
            sentence = f"The link names a head that cannot be shown: {link_error}."
        if not first_heads:
            first_heads = [strongest_head(grid, stored_scores)]
        set_widget("heads", [head_key(head) for head in first_heads])
    fitting_keys = [key for key in st.session_state["heads"] if key in head_keys]
    if fitting_keys != st.session_state["heads"]:  # another model has other heads
        set_widget("heads", fitting_keys)
    notify_of_link("heads", sentence)


def pick_heads(grid: HeadGrid) -> list[Head]:
    """The widget for heads, which `settle_heads` has set."""
    selected_keys = st.multiselect(
        f"Heads (up to {MAX_HEADS})",
        [head_key(head) for head in grid.heads],
        key="heads",
        max_selections=MAX_HEADS,
        format_func=lambda key: head_number(head_from(key), grid),
        help=HEAD_NUMBER_HELP,
        width=HEADS_WIDTH,
    )
    # Writing the link replaces all of it by what it was when the request was sent, so it is
    # written only if it changes.
    if st.query_params.get_all("heads") != selected_keys:
        st.query_params["heads"] = selected_keys
    st.query_params.pop("head", None)
    return [head_from(key) for key in selected_keys]
