"""The choice that all pages share: in the sidebar's widgets, in the link and in the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from headlab.core import HEADS
from headlab.dashboard.frame.cache_folder import stored_players, stored_specs
from headlab.dashboard.frame.choice import (
    Choice,
    cached_variants,
    current_choice,
    known_models,
    known_tasks,
    stored_method,
    task_languages,
)
from headlab.dashboard.frame.sidebar import (
    LABEL_MAP_PARAM,
    PLAYERS_PARAM,
    VARIANT_PARAM,
    draw_label_map,
    first_link,
    label_map_text,
    notes_on_task,
    pick_languages,
    pick_model,
    pick_players,
    pick_variant,
    recall_label_map,
    remember_model,
    typed_label_map,
)
from headlab.dashboard.frame.worker_supervisor import show_worker_state
from headlab.dashboard.names import CHOICE_KEY, plain
from headlab.dashboard.widgets import PageState, notices, set_widget, uninterrupted
from headlab.methods import METHODS

LINKED_KEYS = ("model", "task", "method", "langs", LABEL_MAP_PARAM, VARIANT_PARAM, PLAYERS_PARAM)
"""Keys of the choice's widgets, which are its parameters in the link too."""


@dataclass
class PageSwitch(PageState):
    """The page that one session turns to, and what it shows there.

    Attributes:
        page: Name of the page; empty once it is open.
        choice: What is shown there; None once it is, or if that stays as it is.
        link_params: Parameters of the link to the page, besides the choice.
    """

    key = "_go"
    page: str = ""
    choice: Choice | None = None
    link_params: dict[str, str | list[str]] = field(default_factory=dict)


def _restore_choice() -> None:
    """Restore what a page switch lost.

    A browser that has not drawn a widget yet sends neither its value nor its link.

    When going back in the browser's history, streamlit gives the link precedence over this.
    """
    earlier_choice = current_choice()
    if earlier_choice is None:
        _restore_link()
        return
    values = _widget_values(earlier_choice)
    values[LABEL_MAP_PARAM] = typed_label_map(earlier_choice.model, earlier_choice.task)
    for key, value in values.items():
        if key not in st.session_state and not st.query_params.get_all(key):
            st.session_state[key] = value


def _restore_link() -> None:
    """Restore the choice of the session's first link.

    A page switch may have ended the run that was to read it.

    Widgets read the link as it was when their run started, so this starts another run.
    """
    link = first_link()
    lost_params = {}
    for key in LINKED_KEYS:
        if link.get(key) and not st.query_params.get_all(key):
            lost_params[key] = link[key]
    if lost_params:
        st.query_params.update(lost_params)
        st.rerun()


def show_choice(choice: Choice) -> None:
    """Show another choice on this page, from its next run on."""
    PageSwitch.of_session().choice = choice


def open_page(
    name: str,
    choice: Choice | None = None,
    link_params: Mapping[str, str | list[str]] | None = None,
) -> None:
    """Open a page in the next run of this one: the action of a click.

    The choice is applied after the switch, because the browser sends what it showed before along
    with it.

    Args:
        name: A key of `headlab.dashboard.names.PAGES`.
        choice: What is shown there; None for what is shown here.
        link_params: Parameters of the link to the page, besides the choice.
    """
    switch = PageSwitch.of_session()
    switch.page = name
    switch.choice = choice
    switch.link_params = dict(link_params or {})


def _switch_page_or_apply_choice() -> None:
    """Make the switch that `open_page` asked for, or apply its choice once it has been made."""
    switch = PageSwitch.of_session()
    page = switch.page
    if page:
        switch.page = ""
        st.switch_page(f"pages/{page}.py", query_params=switch.link_params)
    choice = switch.choice
    if choice is not None:
        switch.choice = None
        remember_model(choice.model)
        for key, value in _widget_values(choice).items():
            set_widget(key, value)


def _widget_values(choice: Choice) -> dict[str, Any]:
    """What the sidebar's widgets hold for a choice, by their keys."""
    return {
        "model": choice.model,
        "task": choice.task,
        "method": choice.method,
        "langs": list(choice.languages),
        LABEL_MAP_PARAM: label_map_text(choice.label_map),
        VARIANT_PARAM: choice.variant,
        PLAYERS_PARAM: choice.players,
    }


def link_params_of(choice: Choice) -> dict[str, list[str]]:
    """The parameters of a link that asks for a choice, defaults included.

    A link that does not say what is switched is one of heads.

    Args:
        choice: The choice.
    """
    params = {}
    widget_values = _widget_values(choice)
    if choice.players == HEADS:
        del widget_values[PLAYERS_PARAM]
    for key, value in widget_values.items():
        values = value if isinstance(value, list) else [value]
        params[key] = [str(text) for text in values if text]
    return params


def show_stored_method() -> None:
    """Show a method that the chosen players have scores of, where the one shown has none."""
    state = st.session_state
    method = stored_method(state["model"], state["task"], state["method"], state[PLAYERS_PARAM])
    if method is not None and method != state["method"]:
        set_widget("method", method)


def draw_sidebar() -> Choice:
    """Draw the shared widgets, bound to the link, and return the choice.

    Called by `run_session` only.
    """
    _restore_choice()
    _switch_page_or_apply_choice()
    specs = stored_specs()
    tasks = known_tasks(specs)
    with st.sidebar:
        model = pick_model(known_models(specs), specs)
        notices.note("task", "task", tasks)
        task_name = st.selectbox(
            "Task",
            tasks,
            key="task",
            bind="query-params",
            on_change=uninterrupted(recall_label_map),
        )
        for note in notes_on_task(task_name):
            st.caption(plain(note))
        stated_label_map = draw_label_map(model, task_name)
        notices.note("method", "method", list(METHODS))
        method = st.selectbox("Method", list(METHODS), key="method", bind="query-params")
        st.caption(f"{METHODS[method].title}. Unit: {METHODS[method].unit}.")
        players = pick_players(stored_players(model, task_name), show_stored_method)
        variant = pick_variant(cached_variants(model, task_name, method, stated_label_map, players))
        offered_languages = task_languages(task_name)
        notices.note("langs", "language", offered_languages)
        pick_languages(offered_languages)
        show_worker_state()
    chosen_languages = st.session_state["langs"]
    choice = Choice(
        model=model,
        task=task_name,
        languages=tuple(code for code in offered_languages if code in chosen_languages),
        method=method,
        label_map=stated_label_map,
        variant=variant,
        players=players,
    )
    if current_choice() not in (None, choice):
        notices.clear()  # they are about the link
    st.session_state[CHOICE_KEY] = choice
    return choice
