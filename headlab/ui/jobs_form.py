"""The form for a new job: what to compute, what it will cost, Start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.methods.costs import caution
from headlab.methods.table import METHODS
from headlab.tasks import names as task_names
from headlab.ui import jobs_forecast, option_widget
from headlab.ui.form_values import Values, held, pressed
from headlab.ui.jobs_do import asked_for, show, start
from headlab.ui.jobs_draft import (
    ABLATIONS,
    PREFIX,
    RATE,
    SIZE,
    SPLITS,
    STEPS,
    Draft,
    fitting,
    main_options,
    other_options,
)
from headlab.ui.jobs_offer import refusal
from headlab.ui.jobs_words import KINDS
from headlab.ui.links import page_link
from headlab.ui.names import language_title
from headlab.ui.presses import button
from headlab.ui.shell import Choice, known_models, languages_of
from headlab.ui.shell_worker import supervisor

ABOUT = {
    "score": "What each head is worth in each language.",
    "curve": "Accuracy as heads leave one after another, the lowest scores first.",
    "finetune": "A LoRA adapter for the task on the embedded base, trained on English, measured in every language.",
}
PLACES = {"here": "this worker"}


def draw(choice: Choice) -> None:
    """The form, starting from the sidebar's choice."""
    draft = Draft(choice.model, choice.task, choice.languages, choice.method)
    with st.container(border=True, key="new-job"):
        st.subheader("New job")
        kind = st.radio("What", list(ABOUT), format_func=KINDS.__getitem__, horizontal=True, key=draft.key("kind"))
        st.caption(ABOUT[kind])
        if kind == "finetune":
            _training(draft)
        else:
            _scores(draft, kind)
            _place(draft)
        _begin(draft)
    page_link("experiments", "Analyses of many of these: Experiments")
    page_link("roles", "What the heads do: Roles")
    page_link("gates", "Gates that learn which heads to keep: Gates")


def _scores(draft: Draft, kind: str) -> None:
    """What a job that needs scores is told; a curve's heads leave in their order.

    What differs between methods stands in containers: the browser knows the drawer by its place, and with another
    number of widgets before it would close it and drop what is just being typed there.
    """
    with st.container():
        _model(draft)
        _languages(draft, _task(draft))
        method = _method(draft)
    with st.expander("More options"):
        with st.container():
            for name in other_options(method):
                _option(draft, method, name)
            if kind == "curve":
                _curve(draft)
            else:
                st.number_input("Examples of dev, at most", 1, 100_000, SIZE, key=draft.key("size"))
        st.selectbox("A removed head gives", ABLATIONS, key=draft.key("ablation"), help="Zero, or its mean output.")
        _seed(draft)


def _begin(draft: Draft) -> None:
    """The forecast, the button, and what became of the last click on it."""
    values = held(PREFIX)
    kind, spec = draft.kind(values), draft.spec(values)
    if trouble := _trouble(spec):
        st.warning(trouble)
    else:
        shared = draft.place(values) == "ray"
        label = "What this worker would take alone; Ray's workers share it:" if shared else "What it will take:"
        jobs_forecast.draw(kind, spec, label, "")
    button(
        "Start", kind="primary", icon="play_arrow", key="new-start", disabled=bool(trouble), on_press=_start,
        args=(draft, values), form=PREFIX,
    )  # fmt: skip
    _told()


def _start(draft: Draft, drawn: Values, typed: Mapping[str, str] | None) -> None:
    values = pressed(PREFIX, drawn, typed)
    start(draft.kind(values), draft.spec(values), draft.place(values))


def _told() -> None:
    """What became of the last click on Start."""
    if (made := asked_for().started) is None:
        return
    if made.before:
        doing = "running" if made.state == "running" else "waiting"
        st.info(f"This is job {made.job} already, {doing} now: the same work asked for twice is one job.")
    else:
        st.success(f"Job {made.job} is in the queue.")
    button(f"Open job {made.job}", key="new-open", on_press=show, args=(made.job,))


def _model(draft: Draft) -> None:
    models = list(dict.fromkeys([draft.model, *known_models()]))
    st.selectbox("Model", models, key=draft.key("model"), accept_new_options=True, help="Or type a hub id or a folder.")


def _task(draft: Draft) -> str:
    return st.selectbox("Task", list(dict.fromkeys([draft.task, *task_names()])), key=draft.key("task"))


def _languages(draft: Draft, task: str) -> None:
    every = languages_of(task)
    start, key = fitting(draft.languages, every), draft.key("languages", task)
    st.multiselect("Languages", every, default=start, format_func=language_title, key=key)


def _method(draft: Draft) -> str:
    keys = list(METHODS)
    start = keys.index(draft.method)
    method = st.selectbox("Method", keys, index=start, format_func=_title, key=draft.key("method"))
    words = f"Cost: {METHODS[method].cost}."
    st.caption(f"{words} Caution: {text}." if (text := caution(method)) else words)
    options = METHODS[method].options
    names = main_options(method)
    for name in (n for n in names if options[n].choices):
        _option(draft, method, name)
    numbers = [n for n in names if not options[n].choices]
    for name, place in zip(numbers, st.columns(len(numbers)) if numbers else (), strict=True):
        with place:
            _option(draft, method, name)
    return method


def _title(method: str) -> str:
    return METHODS[method].title


def _option(draft: Draft, method: str, name: str) -> None:
    option_widget.draw(name, METHODS[method].options[name], draft.key("option", method, name))


def _curve(draft: Draft) -> None:
    st.selectbox("Accuracy on", SPLITS, key=draft.key("split"), help="The order comes from dev, so judge on test.")
    few = "At how many counts of heads gone; empty: at every one."
    st.number_input("Points", 2, 4096, None, placeholder="every one", key=draft.key("points"), help=few)


def _training(draft: Draft) -> None:
    _task(draft)
    st.number_input("Steps", 1, 20_000, STEPS, key=draft.key("steps"))
    with st.expander("More options"):
        rate = draft.key("rate")
        st.number_input("Learning rate, at its highest", 1e-6, 0.999, RATE, step=1e-4, format="%g", key=rate)
        _seed(draft)


def _seed(draft: Draft) -> None:
    st.number_input("Seed", 0, None, 0, step=1, key=draft.key("seed"))


def _place(draft: Draft) -> None:
    ray = supervisor().state().ray
    if ray:
        places = PLACES | {"ray": f"Ray ({ray})"}
        st.radio("Where it runs", list(places), format_func=places.__getitem__, horizontal=True, key=draft.key("place"))


def _trouble(spec: dict[str, Any]) -> str:
    """Why this job cannot be started, or empty."""
    if "method" not in spec:
        return ""
    if not spec["languages"]:
        return "Choose at least one language."
    try:
        METHODS[spec["method"]].resolve(spec["options"])
    except HeadlabError as error:
        return f"{error}."
    return refusal(Choice(spec["model"], spec["task"], tuple(spec["languages"]), spec["method"]))
