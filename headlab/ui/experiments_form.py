"""Putting an experiment together: its options, what it will cost before it starts, and Start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from headlab.methods.costs import caution
from headlab.methods.table import METHODS
from headlab.report.commands import shell_lines
from headlab.tasks.base import DEV_SIZE
from headlab.ui import form_values, job_actions
from headlab.ui.experiments import ABLATIONS, Plan, remember
from headlab.ui.form_values import entered, remembered
from headlab.ui.job_actions import asked, progress, start
from headlab.ui.job_offer import refusal
from headlab.ui.presses import button

PREFIX = "plan-"  # of the keys of its widgets
KEPT = "_plan"  # values of widgets, kept over page switches: streamlit drops them with the page
DEV_HELP = "Examples that heads are chosen on."
TEST_HELP = "Examples that accuracy is reported on; empty: all there are."


def values() -> dict[str, Any]:
    """What the widgets say now, and what they said last where they are not drawn."""
    return remembered(KEPT, PREFIX)


def draw(plan: Plan) -> dict[str, Any]:
    """The form; returns the details of the job as they stand."""
    kept = st.session_state.get(KEPT, {})
    with st.container(border=True, key="plan"):
        _options(plan, kept)
        with st.expander("More options"):
            _more(plan, kept)
        spec = plan.spec(values())
        _begin(plan, spec)
        with st.expander("The same from a terminal"):
            st.caption("It can be interrupted; run the same command again to resume:")
            st.code(shell_lines("experiment", spec), language="bash", wrap_lines=True)
    return spec


def _options(plan: Plan, kept: dict[str, Any]) -> None:
    """The experiment's own options, side by side."""
    names = plan.own_options()
    for name, place in zip(names, st.columns(len(names)) if names else (), strict=True):
        with place:
            key, option = plan.option_key(name), plan.about.options[name]
            form_values.draw(name, option, key, kept.get(key, option.default))


def _more(plan: Plan, kept: dict[str, Any]) -> None:
    def key(name: str) -> str:
        return plan.key(name)

    left, middle, right = st.columns(3)
    size = kept.get(key("dev_size"), DEV_SIZE)
    left.number_input("Examples of dev, at most", 1, 100_000, size, key=key("dev_size"), help=DEV_HELP)
    st.session_state.setdefault(key("test_size"), kept.get(key("test_size")))
    middle.number_input(
        "Examples of test, at most", 1, 100_000, None, placeholder="all", key=key("test_size"), help=TEST_HELP
    )
    right.number_input("Seed", 0, None, kept.get(key("seed"), 0), step=1, key=key("seed"))
    at = ABLATIONS.index(kept.get(key("ablation"), ABLATIONS[0]))
    st.selectbox("A removed head gives", ABLATIONS, index=at, key=key("ablation"), help="Zero, or its mean output.")
    method = METHODS[plan.choice.method]
    if plan.method_options():
        st.markdown(f"###### {method.title}")
    for name in plan.method_options():
        option, its = method.options[name], plan.method_key(name)
        form_values.draw(name, option, its, kept.get(its, option.default))


def _begin(plan: Plan, spec: dict[str, Any]) -> None:
    """The forecast, the button, jobs under way, and what became of the last click."""
    trouble = plan.trouble(spec) or (refusal(plan.choice) if plan.uses_method else "")
    if trouble:
        st.warning(trouble)
    else:
        text = caution(plan.choice.method) if plan.uses_method else ""
        job_actions.draw("experiment", spec, f"{f'Caution: {text}. ' if text else ''}What it will take:", "")
    button(
        "Start", kind="primary", icon="play_arrow", key="plan-start", disabled=bool(trouble), on_press=_start,
        args=(plan,), form=PREFIX,
    )  # fmt: skip
    asked("Its report appears below when it is done.")
    progress()


def _start(plan: Plan, typed: Mapping[str, str] | None) -> None:
    remember(plan.experiment)  # its report is the newest one
    # As the widgets are now, not as they were when the button was drawn.
    start("experiment", plan.spec(entered(values(), typed)))
