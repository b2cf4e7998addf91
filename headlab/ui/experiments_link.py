"""Which experiment and which report the page shows: in the link, and kept over page switches."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.studies.table import EXPERIMENTS

SHORT = 12  # of a report's key, enough to tell reports apart in a link
KEPT, WRITTEN = "_experiment", "_experiment_link"  # (experiment, report) of this session; what its link said last


def remember(experiment: str, report: str = "") -> None:
    """Let the page turn to this experiment and report, whatever its link says now."""
    st.session_state[KEPT] = (experiment, report[:SHORT])
    st.session_state[WRITTEN] = _asked()
    st.session_state.pop(f"report-{experiment}", None)
    st.session_state.pop("experiment", None)


def begin() -> None:
    """Put the experiment of a link that is new in place of the widget's, else what this session had."""
    asked = _asked()
    kept = st.session_state.get(KEPT, ("", ""))
    if asked[0] in EXPERIMENTS and asked != st.session_state.get(WRITTEN):
        st.session_state["experiment"] = asked[0]
        st.session_state[KEPT] = kept = asked
    elif asked[0] and asked != st.session_state.get(WRITTEN):
        named = ", ".join(EXPERIMENTS)
        st.warning(f"The link asks for experiment {asked[0][:80]!r}, which is not known here; choose from {named}.")
    if "experiment" not in st.session_state and kept[0] in EXPERIMENTS:
        st.session_state["experiment"] = kept[0]


def _asked() -> tuple[str, str]:
    return st.query_params.get("experiment", ""), st.query_params.get("report", "")


def report_of(experiment: str, keys: Sequence[str]) -> str | None:
    """The report that was asked for, by its whole key; None for the newest. One that is not there is said."""
    kept, short = st.session_state.get(KEPT, ("", ""))
    if kept != experiment or not short:
        return None
    fitting = [key for key in keys if key.startswith(short)]
    if not fitting:
        st.warning(f"The link asks for report {short[:80]!r}, which is not here for this model and task.")
    return fitting[0] if fitting else None


def write(experiment: str, report: str = "") -> None:
    """Keep what is shown, here and in the link. report: empty for the newest."""
    shown = experiment, report[:SHORT]
    st.session_state[KEPT] = st.session_state[WRITTEN] = shown
    if _asked() != shown:
        st.query_params["experiment"] = experiment
        if shown[1]:
            st.query_params["report"] = shown[1]
        else:
            st.query_params.pop("report", None)
