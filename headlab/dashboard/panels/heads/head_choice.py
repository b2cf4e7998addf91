"""The widget for one head, on the pages that show one, and its name in the link."""

from __future__ import annotations

import streamlit as st

from headlab.core import Head, HeadGrid, HeadlabError, nouns_of_kinds
from headlab.dashboard.names import HEAD_NUMBER_HELP, PLAYER_NUMBER_HELP, head_from, head_number
from headlab.dashboard.widgets import keep_known_choice, remember_choice, remembered_choice

HEAD_PARAM = "head"
"""The widget's key, which is its parameter in the link."""


def pick_head(grid: HeadGrid, first_head: Head) -> Head:
    """The widget for one head: the link's, the one chosen last on any page, or else the first one.

    Its options are the heads' numbers. A head that a link names by its key (`encoder.3.7`, as older
    links do) keeps that name while the link has it: a widget that is bound to the link takes nothing
    from it but its own options.

    Args:
        grid: The model's heads.
        first_head: Shown where none was chosen.
    """
    options = [head_number(head, grid) for head in grid.heads]
    linked = st.query_params.get(HEAD_PARAM)
    linked_head = _head_named(linked, grid)
    if linked is not None and linked_head is not None:
        options[grid.index(linked_head)] = linked
    chosen_head = _head_named(st.session_state.get(HEAD_PARAM), grid)
    if chosen_head is not None:
        option = options[grid.index(chosen_head)]
        if st.session_state[HEAD_PARAM] != option:
            st.session_state[HEAD_PARAM] = option
    remembered_head = _head_named(remembered_choice(HEAD_PARAM), grid)
    if remembered_head is not None:
        remember_choice(HEAD_PARAM, options[grid.index(remembered_head)])
    keep_known_choice(HEAD_PARAM, "head", options)
    label = nouns_of_kinds(grid.kinds)[0]
    selected = st.selectbox(
        label[0].upper() + label[1:],
        options,
        index=grid.index(first_head),
        key=HEAD_PARAM,
        bind="query-params",
        help=HEAD_NUMBER_HELP if grid.has_only_heads else PLAYER_NUMBER_HELP,
    )
    return head_from(selected, grid)


def _head_named(text: str | None, grid: HeadGrid) -> Head | None:
    """The model's head that a text names; None if it names none."""
    if text is None:
        return None
    try:
        head = head_from(text, grid)
        grid.index(head)
    except HeadlabError:
        return None
    return head
