"""Asking for a front: the question, its options, what it will cost, and Start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from headlab.studies.pareto import BOUND, ESTIMATE, ORDERS
from headlab.tasks.base import DEV_SIZE
from headlab.ui import jobs_forecast
from headlab.ui.form_values import Values, held, pressed
from headlab.ui.jobs_follow import asked
from headlab.ui.jobs_offer import refusal
from headlab.ui.presses import button
from headlab.ui.prune_front_read import command
from headlab.ui.prune_worth import ASKED, begin
from headlab.ui.shell import Choice

SMALLEST, BEST = "Smallest model within d points in every language", "Best model with k heads"
BY = {BOUND: "by its lower bound (conservative)", ESTIMATE: "by the estimate"}
PREFIX = "front-"  # of the keys of its widgets
LOST, KEPT_HEADS = 1.0, 0.75  # what is asked at first: points, and the share of heads kept
DEV_HELP = "Examples that heads are chosen on. More examples tell smaller losses apart."


def ask(choice: Choice, heads: int) -> None:
    """The form. heads: of the model."""
    with st.container(border=True, key="front-ask"):
        question = st.radio("Question", [SMALLEST, BEST], horizontal=True, key="front-question")
        left, right = st.columns([1, 1])
        with left:
            if question == SMALLEST:
                st.number_input("d, points that may be lost", 0.0, 100.0, LOST, step=0.5, key="front-within")
            else:
                st.number_input("k, heads to keep", 0, heads, round(KEPT_HEADS * heads), key="front-heads")
        if question == SMALLEST:
            right.selectbox("Accept a loss based on", [BOUND, ESTIMATE], format_func=lambda by: BY[by], key="front-by")
        with st.expander("More options"):
            _more()
        _begin(choice, heads)


def _more() -> None:
    st.multiselect("Orders in which heads leave", list(ORDERS), ["mean", "weakest", "cost"], key="front-orders",
                   format_func=lambda name: f"{name}: {ORDERS[name]}")  # fmt: skip
    left, middle, right = st.columns(3)
    left.number_input("Sizes to try", 2, 4096, 25, key="front-points", help="Evenly spaced counts of heads off.")
    middle.number_input("Examples of dev, at most", 1, 100_000, DEV_SIZE, key="front-dev", help=DEV_HELP)
    right.number_input("Examples of test, at most", 1, 100_000, None, key="front-test", placeholder="all")


def spec_of(choice: Choice, heads: int, state: Mapping[str, Any]) -> dict[str, Any]:
    """The job's spec. state: values of the widgets."""
    smallest = state.get("front-question", SMALLEST) == SMALLEST
    options = {
        "orders": ",".join(state.get("front-orders") or ["mean"]),
        "points": min(int(state.get("front-points", 25)), heads + 1),
        "within": float(state.get("front-within", LOST)) if smallest else None,
        "heads": None if smallest else int(state.get("front-heads", round(KEPT_HEADS * heads))),
        "by": state.get("front-by", BOUND) if smallest else BOUND,
    }
    return {
        "model": choice.model, "task": choice.task, "languages": list(choice.languages), "method": choice.method,
        "options": options, "dev_size": state.get("front-dev", DEV_SIZE), "test_size": state.get("front-test"),
    }  # fmt: skip


def _begin(choice: Choice, heads: int) -> None:
    """The forecast, the button, and what became of the last click."""
    values = held(PREFIX)
    spec, trouble = spec_of(choice, heads, values), refusal(choice)
    if trouble:
        st.warning(trouble)
    else:
        jobs_forecast.draw("front", spec, "What it will take:", "")
    button(
        "Start", kind="primary", icon="play_arrow", key="front-start", disabled=bool(trouble), on_press=_start,
        args=(choice, heads, values), form=PREFIX,
    )  # fmt: skip
    if st.session_state.get(ASKED) == "front":
        asked("Its front appears below when it is done.")
    with st.expander("The same from a terminal"):
        st.code(command(spec), language="bash", wrap_lines=True)


def _start(choice: Choice, heads: int, drawn: Values, typed: Mapping[str, str] | None) -> None:
    st.session_state.pop("front-shown", None)  # the newest one
    begin("front", spec_of(choice, heads, pressed(PREFIX, drawn, typed)))
