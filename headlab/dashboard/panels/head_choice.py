"""The widget for one head, on the pages that show one, and its name in the link."""

from __future__ import annotations

import streamlit as st

from headlab.core import Head, HeadGrid, HeadlabError
from headlab.dashboard.names import HEAD_NUMBER_HELP, head_from, head_number
from headlab.dashboard.widgets import keep_known_choice, remember_choice, remembered_choice

HEAD_PARAM = "head"
"""The widget's key, which is its parameter in the link."""


def pick_head(grid: HeadGrid, first_head: Head) -> Head:
    """The widget for one head: the link's, the one chosen last on any page, or else the first one.

    Args:
        grid: The model's heads.
        first_head: Shown where none was chosen.
    """
    _write_as_numbers(grid)
    numbers = [head_number(head, grid) for head in grid.heads]
    keep_known_choice(HEAD_PARAM, "head", numbers)
    number = st.selectbox(
        "Head",
        numbers,
        index=grid.index(first_head),
        key=HEAD_PARAM,
        bind="query-params",
        help=HEAD_NUMBER_HELP,
    )
    return head_from(number, grid)


def _write_as_numbers(grid: HeadGrid) -> None:
    """Name the chosen head as the widget does: older links and other pages give its key.

    A bound widget starts with what the browser asked for, whatever the link has been made since, and
    drops it if it is no option; then the session's value counts.
    """
    state = st.session_state
    linked = st.query_params.get(HEAD_PARAM)
    if linked is not None and linked != _as_number(linked, grid):
        st.query_params[HEAD_PARAM] = _as_number(linked, grid)
        if HEAD_PARAM not in state:
            state[HEAD_PARAM] = linked
    if HEAD_PARAM in state and state[HEAD_PARAM] != _as_number(state[HEAD_PARAM], grid):
        state[HEAD_PARAM] = _as_number(state[HEAD_PARAM], grid)
    remembered = remembered_choice(HEAD_PARAM)
    if remembered is not None:
        remember_choice(HEAD_PARAM, _as_number(remembered, grid))


def _as_number(text: str, grid: HeadGrid) -> str:
    """The number of the head that a text names; the text itself if that is no head of the model."""
    try:
        head = head_from(text, grid)
        grid.index(head)
    except HeadlabError:
        return text
    return head_number(head, grid)
