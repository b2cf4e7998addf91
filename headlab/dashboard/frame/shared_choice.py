"""The choice that all pages share: in the sidebar's widgets, in the link and in the session."""

from __future__ import annotations

from typing import Any

import streamlit as st

from headlab.dashboard.frame.cache_folder import stored_results, stored_specs
from headlab.dashboard.frame.choice import Choice, known_models, task_languages
from headlab.dashboard.frame.sidebar import (
    LABEL_MAP_PARAM,
    VARIANT_PARAM,
    draw_label_map,
    label_map_text,
    notes_on_task,
    pick_languages,
    pick_model,
    pick_variant,
    recall_label_map,
    remember_model,
    typed_label_map,
)
from headlab.dashboard.frame.stored_scores import matching_scores, stored_subjects, variants
from headlab.dashboard.frame.worker_supervisor import show_worker_state
from headlab.dashboard.names import plain
from headlab.dashboard.widgets import notices, set_widget, uninterrupted
from headlab.methods import METHODS
from headlab.results import HeadScores
from headlab.tasks import TREEBANK, names

LINKED_KEYS = (
    "model",
    "task",
    "method",
    "langs",
    LABEL_MAP_PARAM,
    VARIANT_PARAM,
)  # the choice's keys, in the link and of the widgets


def _restore_choice() -> None:
    """Restore what a page switch lost: a browser that has not drawn a widget yet sends neither its value nor its link.

    When going back in the browser's history, streamlit gives the link precedence over this.
    """
    earlier_choice = st.session_state.get("_choice")
    if not isinstance(earlier_choice, Choice):
        _restore_link()
        return
    for key, value in (
        _widget_values(earlier_choice)
        | {LABEL_MAP_PARAM: typed_label_map(earlier_choice.model, earlier_choice.task)}
    ).items():
        if key not in st.session_state and not st.query_params.get_all(key):
            st.session_state[key] = value


def _restore_link() -> None:
    """Restore the choice of the session's first link, if a page switch ended its run before it got here.

    Widgets read the link as it was when their run started, so this starts another run.
    """
    first_link = st.session_state.get("_link", {})
    lost_params = {
        key: first_link[key]
        for key in LINKED_KEYS
        if first_link.get(key) and not st.query_params.get_all(key)
    }
    if lost_params:
        st.query_params.update(lost_params)
        st.rerun()


def open_page(name: str, choice: Choice) -> None:
    """Open a page with another choice, in a callback.

    The choice is applied after the switch, because the browser sends what it showed before along with it.
    """
    st.session_state["_go"], st.session_state["_wanted"] = name, choice


def _switch_page_or_apply_choice() -> None:
    """Make the switch that `go` asked for, or apply its choice once it has been made."""
    if (name := st.session_state.pop("_go", None)) is not None:
        st.switch_page(f"pages/{name}.py", query_params={})
    if (wanted := st.session_state.pop("_wanted", None)) is not None:
        remember_model(wanted.model)
        for key, value in _widget_values(wanted).items():
            set_widget(key, value)


def _widget_values(choice: Choice) -> dict[str, Any]:
    label_map_typed = label_map_text(choice.label_map)
    values = (
        choice.model,
        choice.task,
        choice.method,
        list(choice.languages),
        label_map_typed,
        choice.variant,
    )
    return dict(zip(LINKED_KEYS, values, strict=True))


def draw_sidebar() -> Choice:
    """Draw the shared widgets, bound to the link, and return the choice. Called by app.py only."""
    _restore_choice()
    _switch_page_or_apply_choice()
    specs = stored_specs()
    tasks = list(
        dict.fromkeys(
            [*names(), *sorted({task_name for _, task_name in stored_subjects(specs)} - {TREEBANK})]
        )
    )
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
        variant = pick_variant(
            list(
                variants(
                    matching_scores(
                        stored_results(HeadScores).results,
                        model,
                        task_name,
                        method,
                        stated_label_map,
                    )
                )
            )
        )
        options = task_languages(task_name)
        notices.note("langs", "language", options)
        pick_languages(options)
        show_worker_state()
    chosen_languages = st.session_state["langs"]
    choice = Choice(
        model,
        task_name,
        tuple(o for o in options if o in chosen_languages),
        method,
        stated_label_map,
        variant,
    )
    if st.session_state.get("_choice") not in (None, choice):
        notices.clear()  # they are about the link
    st.session_state["_choice"] = choice
    return choice
