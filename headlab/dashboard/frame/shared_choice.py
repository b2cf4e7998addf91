"""The choice that all pages share: in the sidebar's widgets, in the link and in the session."""

from __future__ import annotations

from typing import Any

import streamlit as st

from headlab.dashboard.frame.cache_folder import stored_results, stored_specs
from headlab.dashboard.frame.choice import Choice, known_models, task_languages
from headlab.dashboard.frame.sidebar import (
    CLASSES,
    VARIANT,
    label_map,
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

LINKED = (
    "model",
    "task",
    "method",
    "langs",
    CLASSES,
    VARIANT,
)  # the choice's keys, in the link and of the widgets


def _restore() -> None:
    """Restore what a page switch lost: a browser that has not drawn a widget yet sends neither its value nor its link.

    When going back in the browser's history, streamlit gives the link precedence over this.
    """
    before = st.session_state.get("_choice")
    if not isinstance(before, Choice):
        _return_link()
        return
    for key, value in (
        _widget_values(before) | {CLASSES: typed_label_map(before.model, before.task)}
    ).items():
        if key not in st.session_state and not st.query_params.get_all(key):
            st.session_state[key] = value


def _return_link() -> None:
    """Restore the choice of the session's first link, if a page switch ended its run before it got here.

    Widgets read the link as it was when their run started, so this starts another run.
    """
    first = st.session_state.get("_link", {})
    lost = {
        key: first[key] for key in LINKED if first.get(key) and not st.query_params.get_all(key)
    }
    if lost:
        st.query_params.update(lost)
        st.rerun()


def open_page(name: str, choice: Choice) -> None:
    """Open a page with another choice, in a callback.

    The choice is applied after the switch, because the browser sends what it showed before along with it.
    """
    st.session_state["_go"], st.session_state["_wanted"] = name, choice


def _arrive() -> None:
    """Make the switch that `go` asked for, or apply its choice once it has been made."""
    if (name := st.session_state.pop("_go", None)) is not None:
        st.switch_page(f"pages/{name}.py", query_params={})
    if (wanted := st.session_state.pop("_wanted", None)) is not None:
        remember_model(wanted.model)
        for key, value in _widget_values(wanted).items():
            set_widget(key, value)


def _widget_values(choice: Choice) -> dict[str, Any]:
    stated = label_map_text(choice.label_map)
    values = (
        choice.model,
        choice.task,
        choice.method,
        list(choice.languages),
        stated,
        choice.variant,
    )
    return dict(zip(LINKED, values, strict=True))


def draw_sidebar() -> Choice:
    """Draw the shared widgets, bound to the link, and return the choice. Called by app.py only."""
    _restore()
    _arrive()
    specs = stored_specs()
    tasks = list(
        dict.fromkeys(
            [*names(), *sorted({name for _, name in stored_subjects(specs)} - {TREEBANK})]
        )
    )
    with st.sidebar:
        model = pick_model(known_models(specs), specs)
        notices.note("task", "task", tasks)
        name = st.selectbox(
            "Task",
            tasks,
            key="task",
            bind="query-params",
            on_change=uninterrupted(recall_label_map),
        )
        for note in notes_on_task(name):
            st.caption(plain(note))
        stated = label_map(model, name)
        notices.note("method", "method", list(METHODS))
        method = st.selectbox("Method", list(METHODS), key="method", bind="query-params")
        st.caption(f"{METHODS[method].title}. Unit: {METHODS[method].unit}.")
        variant = pick_variant(
            list(
                variants(
                    matching_scores(stored_results(HeadScores).results, model, name, method, stated)
                )
            )
        )
        options = task_languages(name)
        notices.note("langs", "language", options)
        pick_languages(options)
        show_worker_state()
    chosen = st.session_state["langs"]
    choice = Choice(model, name, tuple(o for o in options if o in chosen), method, stated, variant)
    if st.session_state.get("_choice") not in (None, choice):
        notices.clear()  # they are about the link
    st.session_state["_choice"] = choice
    return choice
