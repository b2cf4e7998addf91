"""What a link asks for, and what was chosen before: sentences about what is not there, and one choice for all pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st

from headlab.dashboard.names import plain
from headlab.dashboard.widgets import presses

EVERYWHERE, HERE = "_notices", "_page_notices"
T = TypeVar("T")


def unknown_in_link(param: str, what: str, options: Sequence[str]) -> str | None:
    """A sentence about link values that are not options, else None; call before the widget drops them."""
    unknown = [value for value in st.query_params.get_all(param) if value and value not in options]
    if not unknown:
        return None
    known = ", ".join(options[:20]) + (
        f" and {len(options) - 20} more" if len(options) > 20 else ""
    )
    named = ", ".join(repr(value[:80]) for value in unknown[:5])
    return f"The link asks for {what} {named}, which is unknown here; choose from {known}. It was left out."


# About the choice in the sidebar: shown on every page.


def note(param: str, what: str, options: Sequence[str]) -> None:
    """Before a widget of the sidebar is drawn: say on every page that the link's value is not an option."""
    if sentence := unknown_in_link(param, what, options):
        add(sentence)


def add(sentence: str) -> None:
    """Show a sentence on every page, until another choice is made."""
    st.session_state[EVERYWHERE] = [*st.session_state.get(EVERYWHERE, ()), sentence]


def clear() -> None:
    """The choice has changed."""
    st.session_state[EVERYWHERE] = []


def draw() -> None:
    """Show what was added."""
    for sentence in st.session_state.get(EVERYWHERE, ()):
        st.warning(plain(sentence))


# About a widget of one page: shown on that page.


@dataclass
class Notice:
    """A sentence about a link.  page: that it stands on.  value: that the widget then showed, in a tuple once known."""

    sentence: str
    page: str
    value: tuple[Any, ...] = ()


def _of_page() -> dict[str, Notice]:
    """The notices of this page; those of another page are gone once this one is drawn."""
    held: dict[str, Notice] = st.session_state.get(HERE, {})
    mine = {param: notice for param, notice in held.items() if notice.page == presses.log().page}
    st.session_state[HERE] = mine
    return mine


def notify_of_link(param: str, sentence: str | None) -> None:
    """Show a sentence about a link until another value is chosen in the widget of this name, or the page is left.

    Streamlit takes a value that is not an option out of the link, so that later runs no longer see it.

    sentence: None shows the one that still stands.
    """
    held = _of_page()
    if sentence:
        held[param] = Notice(sentence, presses.log().page)
    elif param in held and held[param].value not in ((), (st.session_state.get(param),)):
        del held[param]
    if param in held:
        st.warning(plain(held[param].sentence))


# What was chosen on one page holds on the next: streamlit drops a widget's value with its page.

SHARED, THREAD = ("focus", "head", "split", "scale"), "_thread"


def keep_known_choice(param: str, what: str, options: Sequence[Any]) -> None:
    """Before a widget is drawn: warn of a link's value that is not an option, and forget a choice that is none.

    Without either, a widget of SHARED shows what was last chosen under its name, on whatever page.
    """
    notify_of_link(param, unknown_in_link(param, what, options))
    state = st.session_state
    if state.get(param) not in options:
        state.pop(param, None)  # from a link, or from another page with other options
    if (
        param not in state
        and not st.query_params.get_all(param)
        and (kept := remembered_choice(param)) in options
    ):
        state[param] = kept


def pick_result(label: str, by_key: Mapping[str, T], words: Callable[[str], str], key: str) -> T:
    """One of several, chosen by its key; nothing is drawn for a single one, and a choice that is gone is forgotten."""
    if len(by_key) == 1:
        return next(iter(by_key.values()))
    if st.session_state.get(key) not in by_key:
        st.session_state.pop(key, None)
    return by_key[st.selectbox(label, list(by_key), format_func=words, key=key)]


def remembered_choice(param: str) -> Any:
    """What was last chosen under a name of SHARED, on whatever page; None if nothing was."""
    return st.session_state.get(THREAD, {}).get(param)


def remember_choice(param: str, value: Any) -> None:
    """Make a value the one that other pages take up."""
    st.session_state[THREAD] = {**st.session_state.get(THREAD, {}), param: value}


def settle() -> None:
    """The page is drawn: its widgets show what they made of the link."""
    for param in SHARED:
        if param in st.session_state:
            remember_choice(param, st.session_state[param])
    for param, notice in _of_page().items():
        notice.value = notice.value or (st.session_state.get(param),)
