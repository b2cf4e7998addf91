"""Which experiment and report the Experiments page shows: in its link, and across page switches."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.dashboard.frame import (
    task_languages,
)
from headlab.dashboard.names import SHORT_KEY, plain
from headlab.dashboard.widgets import (
    notify_of_link,
    set_first_value,
    set_widget,
)
from headlab.studies.table import offered_experiments

KEPT, WRITTEN = (
    "_experiment",
    "_experiment_link",
)  # (experiment, report) of this session; those last put in its link


def show_report_next(experiment: str, report: str = "") -> None:
    """Make the page show this experiment and report next, whatever its link says now."""
    st.session_state[KEPT] = (experiment, report[:SHORT_KEY])
    st.session_state[WRITTEN] = _linked_report()
    st.session_state.pop(f"report-{experiment}", None)
    st.session_state.pop("experiment", None)


def choose_experiment(task: str) -> None:
    """Set the experiment widget: from a new link, from this session, or to one that the task has languages for."""
    asked, sentence = _linked_report(), None
    offered = offered_experiments()
    kept = st.session_state.get(KEPT, ("", ""))
    if asked[0] in offered and asked != st.session_state.get(WRITTEN):
        set_widget("experiment", asked[0])
        st.session_state[KEPT] = kept = asked
    elif asked[0] and asked != st.session_state.get(WRITTEN):
        named = ", ".join(offered)
        sentence = f"The link asks for experiment {asked[0][:80]!r}, which is unknown here; choose from {named}."
    notify_of_link("experiment", sentence)
    linked = asked[0] != "" and asked == kept != st.session_state.get(WRITTEN)
    fits = [
        key
        for key, about in offered.items()
        if about.least_languages <= max(1, len(task_languages(task)))
    ]
    set_first_value("experiment", kept[0] if linked or kept[0] in fits else fits[0])


def _linked_report() -> tuple[str, str]:
    return st.query_params.get("experiment", ""), st.query_params.get("report", "")


def requested_report(experiment: str, keys: Sequence[str]) -> str | None:
    """Full key of the report asked for; None for the newest. Warns if it does not exist."""
    kept, short = st.session_state.get(KEPT, ("", ""))
    if kept != experiment or not short:
        return None
    fitting = [key for key in keys if key.startswith(short)]
    if not fitting:
        st.warning(
            plain(
                f"The link asks for report {short[:80]!r}, which does not exist for this model and task."
            )
        )
    return fitting[0] if fitting else None


def write_report_link(experiment: str, report: str = "") -> None:
    """Store what is shown in the session and in the link. report: empty for the newest."""
    shown = experiment, report[:SHORT_KEY]
    st.session_state[KEPT] = st.session_state[WRITTEN] = shown
    if _linked_report() != shown:
        st.query_params["experiment"] = experiment
        if shown[1]:
            st.query_params["report"] = shown[1]
        else:
            st.query_params.pop("report", None)
