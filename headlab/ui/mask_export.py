"""A mask for code without headlab: a script, a smaller model, and the forms of other tools."""

from __future__ import annotations

import shlex
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.masks import FORMS, Mask, Place, convert_out, snippet
from headlab.ui.shell import client

FOREIGN = [form for form in FORMS if form != "headlab"]


def loaded_place(model: str, fingerprint: str) -> Place:
    """Where the worker's model has its output projections. Raises HeadlabError where the worker cannot be asked."""
    answer = told_of(client(), model, fingerprint)
    source, revision = answer.get("source"), answer.get("revision")
    return Place(answer.get("projections", ()), answer.get("architecture", {}), source, revision, model)


@st.cache_data(max_entries=8, show_spinner=False)
def told_of(_client: Any, model: str, fingerprint: str) -> dict[str, Any]:
    """What the worker says of its model; the fingerprint makes another answer of other weights."""
    found: dict[str, Any] = _client.model(model)
    return found


def file_name(mask: Mask, model: str) -> str:
    """A name for the mask's file that any system takes."""
    return f"mask-{plain_name(model)}-{len(mask.removed)}-off.json"


def plain_name(name: str) -> str:
    """A name without what file systems may not take."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[-60:]


def shrink_command(model: str, file: str) -> str:
    """The command that writes a smaller model under a mask's file."""
    return shlex.join(["headlab", "shrink", "--model", model, "--mask", file, "--out", "FOLDER"])


def dialog(mask: Mask, model: str, place: Place) -> None:
    """What to do with a mask outside of headlab; opens over the page."""
    with st.popover("Use it elsewhere", icon=":material/output:", width="content"):
        if not mask.removed:
            st.markdown("All heads are on: there is nothing to switch off elsewhere.")
            return
        script, smaller, others = st.tabs(["PyTorch script", "Smaller model", "Other tools"])
        with script:
            _script(mask, place)
        with smaller:
            st.markdown("A mask alone makes no model smaller. This takes the heads out of the weights for good:")
            st.code(shrink_command(model, file_name(mask, model)), language="bash", wrap_lines=True)
        with others:
            _others(mask)


def _script(mask: Mask, place: Place) -> None:
    try:
        text = snippet(mask, place)
    except HeadlabError as error:
        st.markdown(f"There is no script for this mask: {error}.")
        return
    st.markdown("Torch and transformers 5 are enough; headlab is not needed where it runs.")
    st.download_button(
        "Download the script", text, "apply_mask.py", "text/x-python", key="mask-script", on_click="ignore",
        icon=":material/download:",
    )  # fmt: skip
    st.code(text, language="python", height=320)


def _others(mask: Mask) -> None:
    form = st.selectbox("Form", FOREIGN, format_func=lambda name: f"{name}: {FORMS[name]}", key="mask-form")
    try:
        written = convert_out(mask, form)
    except HeadlabError as error:
        st.markdown(f"{error}.")
        return
    st.code(written.decode().strip(), language=None, wrap_lines=True, height=160)
    st.caption("Layers and heads count from 0. Only the heads go along: the model, the method and accuracies do not.")
