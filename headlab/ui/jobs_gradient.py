"""Gradient scores as live requests: they take seconds a language and go ahead of jobs."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import streamlit as st

from headlab.methods.table import METHODS
from headlab.ui.background import Latest
from headlab.ui.jobs_do import ask, asked_for
from headlab.ui.live import follow
from headlab.ui.names import language_title
from headlab.ui.presses import button
from headlab.ui.shell import guarded
from headlab.worker.client import Client

LIVE = "_gradient"
SECONDS = 0.5
ASKED = ("form", "normalise")  # the options that a live request knows


def fits(spec: Mapping[str, Any]) -> bool:
    """Whether a live request gives exactly what this job would."""
    if spec["method"] != "gradient" or (spec.get("seed"), spec.get("ablation")) != (0, "zero"):
        return False
    usual = {name: option.default for name, option in METHODS["gradient"].options.items()}
    return all(value == usual[name] for name, value in spec["options"].items() if name not in ASKED)


def ask_all(worker: Client, spec: Mapping[str, Any]) -> Generator[str]:
    """Ask for each language in turn; gives its name before, and an empty one at the end."""
    options = {name: value for name, value in spec["options"].items() if name in ASKED}
    for language in spec["languages"]:
        yield language
        worker.gradient(spec["model"], spec["task"], language, **options)
    yield ""


def draw(spec: Mapping[str, Any], label: str) -> None:
    """The button, or how far the scores are that it asked for."""
    held: tuple[Mapping[str, Any], Latest[str]] | None = st.session_state.get(LIVE)
    if held is None or not _same(held[0], spec):
        # Another choice's request ends when this one is begun.
        button(label, kind="primary", key="compute", on_press=_begin, args=(spec,))
        return
    with st.container(horizontal=True, vertical_alignment="center", key="gradient-bar"):
        with st.container():
            follow(_look, SECONDS)(held[0]["languages"], held[1])
        button("Stop", key="gradient-stop", on_press=_stop, help="Finished work is kept.")


def _same(begun: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether a request under way is of this choice; the languages it has done are not missing any more."""
    return _about(begun) == _about(spec) and set(spec["languages"]) <= set(begun["languages"])


def _about(spec: Mapping[str, Any]) -> dict[str, Any]:
    """All but the languages; once one is done the spec is made like it, with every option written out."""
    options = METHODS[spec["method"]].resolve(spec["options"])
    return {name: value for name, value in spec.items() if name != "languages"} | {"options": options}


def _begin(spec: Mapping[str, Any]) -> None:
    def do(worker: Client) -> None:
        _stop()
        st.session_state[LIVE] = (spec, Latest(lambda: ask_all(worker, spec)))

    ask(do)


def _stop() -> None:
    _, live = st.session_state.pop(LIVE, (None, None))
    if live is not None:
        live.stop()


def _look(languages: Sequence[str], live: Latest[str]) -> None:
    with guarded():
        if live.done:
            if live.error is not None:
                asked_for().said = str(live.error)
            st.session_state.pop(LIVE, None)
            st.rerun()
        at = languages[0] if live.value is None else live.value or languages[-1]
        done = languages.index(at)
        st.progress(done / len(languages), f"{language_title(at)}, {done} of {len(languages)} done")
