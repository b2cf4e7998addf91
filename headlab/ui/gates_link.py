"""Which run the Gates page turns to when another page names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from headlab.ui.gates_read import Sweep

ASKED = "_gates_run"


def remember(run: str) -> None:
    """Let the page open at the run of this key, whatever was shown before."""
    st.session_state[ASKED] = run


def begin(by_language: Mapping[str, Sequence[Sweep]]) -> None:
    """Put the run that was asked for in place of the widgets' values, once; one that is not here changes nothing."""
    asked = st.session_state.pop(ASKED, None)
    for language, every in by_language.items():
        for sweep in every:
            for run, weight in zip(sweep.runs, sweep.weights, strict=True):
                if run.key == asked:
                    st.session_state["focus"], st.session_state["weight"] = language, weight
                    st.session_state[sweep_key(language, every)] = sweep.runs[0].key


def sweep_key(language: str, every: Sequence[Sweep]) -> str:
    """Key of the widget that chooses one of a language's sweeps."""
    return f"gates-sweep-{language}-{len(every)}"
