"""Learning gates: in which languages, at which weights, what that will take, Start, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.training.l0.options import OPTIONS
from headlab.ui import jobs_forecast, option_widget
from headlab.ui.form_values import entered, remembered
from headlab.ui.gates_plan import MAIN, WEIGHTS, Plan, command, key, others, trouble
from headlab.ui.gates_store import Shelf
from headlab.ui.jobs_do import asked_for, start
from headlab.ui.jobs_follow import asked, progress
from headlab.ui.jobs_words import spelled
from headlab.ui.names import language_title
from headlab.ui.presses import button
from headlab.ui.shell import Choice, languages_of

KEPT = "_gates_plan"  # values of widgets, kept over page switches: streamlit drops them with the page
WEIGHT_HELP = "The penalty in nats for an open gate; the higher, the fewer stay. Each weight is a run of its own."


def values() -> dict[str, Any]:
    """What the widgets say now, and what they said last where they are not drawn."""
    return remembered(KEPT, key(""))


def draw(choice: Choice, shelf: Shelf) -> None:
    """The form for the languages without a run; where all have some, folded, for others, weights or options."""
    if shelf.missing or not shelf.by_language:
        st.subheader("What will it cost?")
        with st.container(border=True, key="gates-plan"):
            _form(choice, shelf.missing)
    else:
        with st.expander("Other weights, languages or options"), st.container(key="gates-plan"):
            _form(choice, choice.languages)
    asked("Its gates appear on this page when it is done.")
    progress()


def _form(choice: Choice, languages: tuple[str, ...]) -> None:
    plan = Plan(choice, _languages(languages, choice))
    st.text_input("λ, one or several", _kept("weights", WEIGHTS), key=key("weights"), help=WEIGHT_HELP)
    for name, place in zip(MAIN, st.columns(len(MAIN)), strict=True):
        with place:
            _option(name)
    with st.expander("More options"):
        rest, places = [name for name in others() if name not in MAIN], st.columns(3)
        for number, name in enumerate(rest):
            with places[number % len(places)]:
                _option(name)
        with places[len(rest) % len(places)]:
            st.number_input("Seed", 0, None, _kept("seed", 0), step=1, key=key("seed"))
    if plan.languages:
        _begin(plan)
    else:
        st.info("No language is chosen. Pick some here, or in the sidebar.")


def _option(name: str) -> None:
    option_widget.draw(name, OPTIONS[name], key(name), _kept(name, OPTIONS[name].default))


def _kept(name: str, usual: Any) -> Any:
    return st.session_state.get(KEPT, {}).get(key(name), usual)


def _languages(start: Sequence[str], choice: Choice) -> tuple[str, ...]:
    """Languages to learn in, each by itself."""
    every, place = languages_of(choice.task), key(f"languages-{','.join(start)}")
    first = [name for name in start if name in every][:1]  # each takes a training a weight, so one is enough to begin
    return tuple(st.multiselect("Languages", every, default=first, format_func=language_title, key=place))


def _begin(plan: Plan) -> None:
    """What the job would do, its forecast and its button."""
    try:
        spec = plan.spec(values())
        wrong = trouble(spec)
    except HeadlabError as error:
        spec, wrong = {}, f"{error}."
    if wrong:
        st.warning(wrong)
    else:
        runs = len(spec["weights"]) * len(plan.languages)
        many = f"{runs} runs" if runs > 1 else "one run"
        at = ", ".join(f"{weight:g}" for weight in spec["weights"])
        st.markdown(
            f"**{spelled(plan.languages)}**: {many} of {spec['options']['steps']} steps, one after another; λ = {at}."
        )
        jobs_forecast.draw("gates", spec, "What it will take:", "")
    button(
        "Start",
        kind="primary",
        icon="play_arrow",
        key="gates-start",
        disabled=bool(wrong),
        on_press=_start,
        args=(plan,),
        form=key(""),
    )
    if not wrong:
        with st.expander("The same from a terminal"):
            st.code(command(spec), language="bash", wrap_lines=True)


def _start(plan: Plan, typed: Mapping[str, str] | None) -> None:
    try:
        spec = plan.spec(entered(values(), typed))  # as the widgets are now, not as they were when the button was drawn
    except HeadlabError as error:
        asked_for().forget(str(error))
        return
    start("gates", spec)
