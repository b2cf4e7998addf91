"""What a link asks for and what was chosen before, for all pages.

Sentences say what of it is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import streamlit as st

from headlab.dashboard.names import plain
from headlab.dashboard.widgets import presses
from headlab.dashboard.widgets.page_state import PageState

T = TypeVar("T")


@dataclass
class Notice:
    """A sentence about a link.

    Attributes:
        sentence: The sentence.
        page: That it stands on.
        value: That the widget then showed, in a tuple once known.
    """

    sentence: str
    page: str
    value: tuple[Any, ...] = ()


@dataclass
class Notices(PageState):
    """What one session is told about its link.

    Attributes:
        on_every_page: Sentences about the choice in the sidebar.
        by_param: Of widgets of one page, by the parameter of the link.
    """

    key = "_notices"
    on_every_page: list[str] = field(default_factory=list)
    by_param: dict[str, Notice] = field(default_factory=dict)


@dataclass
class LastChosen(PageState):
    """What one session chose last under the names of `SHARED_PARAMS`, on whatever page.

    Attributes:
        by_param: What was chosen, by the name.
        visit_by_param: The visit to a page, by its number, to whose widget of the name the
            session's value belongs.
    """

    key = "_thread"
    by_param: dict[str, Any] = field(default_factory=dict)
    visit_by_param: dict[str, int] = field(default_factory=dict)


def unknown_in_link(param: str, noun: str, options: Sequence[str]) -> str | None:
    """A sentence about link values that are not options, else None.

    Call before the widget drops them.
    """
    unknown = [value for value in st.query_params.get_all(param) if value and value not in options]
    if not unknown:
        return None
    known_options = ", ".join(options[:20])
    if len(options) > 20:
        known_options += f" and {len(options) - 20} more"
    unknown_values = ", ".join(repr(value[:80]) for value in unknown[:5])
    return (
        f"The link asks for {noun} {unknown_values}, which is unknown here; choose from {known_options}. "
        "It was left out."
    )


# About the choice in the sidebar: shown on every page.


def note(param: str, noun: str, options: Sequence[str]) -> None:
    """Say on every page that the link's value is not an option.

    Called before a widget of the sidebar is drawn.
    """
    if sentence := unknown_in_link(param, noun, options):
        add(sentence)


def add(sentence: str) -> None:
    """Show a sentence on every page, until another choice is made."""
    Notices.of_session().on_every_page.append(sentence)


def clear() -> None:
    """The choice has changed."""
    Notices.of_session().on_every_page.clear()


def draw() -> None:
    """Show what was added."""
    for sentence in Notices.of_session().on_every_page:
        st.warning(plain(sentence))


# About a widget of one page: shown on that page.


def _notices_of_page() -> dict[str, Notice]:
    """The notices of this page; those of another page are gone once this one is drawn."""
    notices = Notices.of_session()
    page = presses.log().page
    notices.by_param = {
        param: notice for param, notice in notices.by_param.items() if notice.page == page
    }
    return notices.by_param


def notify_of_link(param: str, sentence: str | None) -> None:
    """Show a sentence about a link until another value is chosen, or the page is left.

    The value is that of the widget of this name.

    Streamlit takes a value that is not an option out of the link, so that later runs no longer see
    it.

    Args:
        param: The widget's key, which is its parameter in the link.
        sentence: To show; None shows the one that still stands.
    """
    page_notices = _notices_of_page()
    if sentence:
        page_notices[param] = Notice(sentence, presses.log().page)
    elif param in page_notices and page_notices[param].value not in (
        (),
        (st.session_state.get(param),),
    ):
        del page_notices[param]
    if param in page_notices:
        st.warning(plain(page_notices[param].sentence))


# What was chosen on one page holds on the next: streamlit drops a widget's value with its page.

SHARED_PARAMS = ("focus", "head", "split", "scale")


def keep_known_choice(param: str, noun: str, options: Sequence[Any]) -> None:
    """Warn of a link's value that is no option, and forget a choice that is none.

    Called before a widget is drawn.

    Without either, a widget of SHARED shows what was last chosen under its name, on whatever page.
    It is set again after a page turn even where the session still has it: that value belongs to the
    widget of a page before, perhaps of this one, and Streamlit would begin the new one at its
    default.
    """
    state = st.session_state
    visit_by_param = LastChosen.of_session().visit_by_param
    is_of_this_visit = visit_by_param.get(param) == presses.log().visit
    # What the widget itself put into the link is no option any more after another choice, such as
    # that of a language: nobody asked for it by a link.
    is_own_value = is_of_this_visit and st.query_params.get(param) == str(state.get(param))
    notify_of_link(param, None if is_own_value else unknown_in_link(param, noun, options))
    if state.get(param) not in options:
        state.pop(param, None)  # from a link, or from another page with other options
    is_chosen = st.query_params.get_all(param) or (param in state and is_of_this_visit)
    last_chosen = remembered_choice(param)
    if not is_chosen and last_chosen in options:
        state[param] = last_chosen
    # At once: who turns to another page before this one is drawn to its end has chosen it too.
    chosen = state.get(param, st.query_params.get(param))
    if param in SHARED_PARAMS and chosen in options:
        remember_choice(param, chosen)
    # Last: a run that is interrupted before this leaves it to the next.
    visit_by_param[param] = presses.log().visit


def pick_result(label: str, by_key: Mapping[str, T], words: Callable[[str], str], key: str) -> T:
    """One of several, chosen by its key.

    Nothing is drawn for a single one, and a choice that is gone is forgotten.
    """
    if len(by_key) == 1:
        return next(iter(by_key.values()))
    if st.session_state.get(key) not in by_key:
        st.session_state.pop(key, None)
    return by_key[st.selectbox(label, list(by_key), format_func=words, key=key)]


def remembered_choice(param: str) -> Any:
    """What was last chosen under a name of SHARED, on whatever page; None if nothing was."""
    return LastChosen.of_session().by_param.get(param)


def remember_choice(param: str, value: Any) -> None:
    """Make a value the one that other pages take up."""
    LastChosen.of_session().by_param[param] = value


def without_bound(link_params: Mapping[str, str]) -> dict[str, str]:
    """Parameters for a link that this page may turn to by itself.

    Streamlit refuses those that a widget of this page is bound to: they are remembered instead, and
    the page that is turned to takes them up.
    """
    last_chosen = LastChosen.of_session()
    visit = presses.log().visit
    unbound = {}
    for param, value in link_params.items():
        if last_chosen.visit_by_param.get(param) == visit:
            remember_choice(param, value)
            del last_chosen.visit_by_param[param]
        else:
            unbound[param] = value
    return unbound


def settle() -> None:
    """The page is drawn: its widgets show what they made of the link."""
    visit_by_param = LastChosen.of_session().visit_by_param
    for param in SHARED_PARAMS:
        if visit_by_param.get(param) != presses.log().visit:
            visit_by_param.pop(param, None)  # the session still has the value of another page
        elif param in st.session_state:
            remember_choice(param, st.session_state[param])
    _take_from_link(CARRIED_PARAM)
    for param, notice in _notices_of_page().items():
        notice.value = notice.value or (st.session_state.get(param),)


CARRIED_PARAM = "head"
"""The name whose choice a link brings to any page, also to one without a widget for it."""
MAX_CARRIED_LENGTH = 40
"""Characters of a value that a link brings: a head's key has fewer."""


def _take_from_link(param: str) -> None:
    """Take up what the link says under a name, for the pages that have a widget for it.

    It is not written into the link of other pages: writing replaces all of a link by what it was
    when the request was sent, which may lose what the page's own widgets have put there.

    Args:
        param: One of `SHARED_PARAMS`.
    """
    page_has_widget = param in LastChosen.of_session().visit_by_param
    linked = st.query_params.get(param, "")[:MAX_CARRIED_LENGTH]
    if linked and not page_has_widget:
        remember_choice(param, linked)
