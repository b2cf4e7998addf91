"""Which two of the masks are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import streamlit as st

from headlab.dashboard.widgets import PageState, set_widget, uninterrupted

FIRST_LIST = "masks-a"
"""Widget key of the list for mask A."""
SECOND_LIST = "masks-b"
"""Widget key of the list for mask B."""


@dataclass
class PairOfMasks(PageState):
    """The choice of two masks in one session, beside the lists to choose from.

    Attributes:
        lists_set_by_hand: Keys of the lists in which a mask was chosen by hand.
        uploaded_names: Names of the uploaded masks when the page was last drawn.
    """

    key = "_masks"
    lists_set_by_hand: set[str] = field(default_factory=set)
    uploaded_names: list[str] = field(default_factory=list)


def choose_uploaded(names: list[str]) -> None:
    """Choose the masks that were uploaded just now, in the lists that were not set by hand.

    The newest is chosen in the last of these lists: where both are free, a single mask as B, two as
    A and B.

    Args:
        names: Of all uploaded masks, in the order of their upload.
    """
    pair = PairOfMasks.of_session()
    new_names = [name for name in names if name not in pair.uploaded_names]
    pair.uploaded_names = names
    free_list_keys = []
    for key in (FIRST_LIST, SECOND_LIST):
        if key not in st.session_state or key not in pair.lists_set_by_hand:
            free_list_keys.append(key)
    set_count = min(len(new_names), len(free_list_keys))
    last_list_keys = free_list_keys[len(free_list_keys) - set_count :]
    last_names = new_names[len(new_names) - set_count :]
    for key, name in zip(last_list_keys, last_names, strict=True):
        set_widget(key, name)


def pick_two(names: Sequence[str]) -> tuple[str, str]:
    """The two masks to compare; by default the first two."""
    first_place, second_place = st.columns(2)
    with first_place:
        first_name = _pick_one("A", FIRST_LIST, names, start=0)
    with second_place:
        second_name = _pick_one("B", SECOND_LIST, names, start=min(1, len(names) - 1))
    return first_name, second_name


def _pick_one(letter: str, key: str, names: Sequence[str], start: int) -> str:
    """One of the two lists.

    Args:
        letter: What the list is called.
        key: Of the list.
        names: Of the masks.
        start: Position of the mask that is chosen to begin with.
    """
    if st.session_state.get(key) not in names:
        st.session_state.pop(key, None)  # from a removed file or another choice
    if key not in st.session_state:
        PairOfMasks.of_session().lists_set_by_hand.discard(key)
    return st.selectbox(
        letter, names, start, key=key, on_change=uninterrupted(_note_choice_by_hand), args=(key,)
    )


def _note_choice_by_hand(key: str) -> None:
    PairOfMasks.of_session().lists_set_by_hand.add(key)
