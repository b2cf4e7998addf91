"""A mask as a file: for headlab, for code without headlab, and imported only if it belongs to this model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.masks import FORMS, Mask, Place, convert_out, mask_from_text, noted, snippet
from headlab.ui.history import History
from headlab.ui.presses import uninterrupted
from headlab.ui.prune_figures import SIZES, Known, Question, evaluated
from headlab.ui.shell_worker import client

# A mask for code without headlab: a script, a smaller model, and the forms of other tools.

FOREIGN = [form for form in FORMS if form != "headlab"]


def loaded_place(model: str, fingerprint: str) -> Place:
    """Where the worker's model has its output projections. Raises HeadlabError if the worker cannot be reached."""
    answer = told_of(client(), model, fingerprint)
    source, revision = answer.get("source"), answer.get("revision")
    return Place(answer.get("projections", ()), answer.get("architecture", {}), source, revision, model)


@st.cache_data(max_entries=8, show_spinner=False)
def told_of(_client: Any, model: str, fingerprint: str) -> dict[str, Any]:
    """The worker's description of its model; the fingerprint makes the cache distinguish weights."""
    found: dict[str, Any] = _client.model(model)
    return found


def file_name(mask: Mask, model: str) -> str:
    """A file name for the mask that any system accepts."""
    return f"mask-{plain_name(model)}-{len(mask.removed)}-off.json"


def plain_name(name: str) -> str:
    """A name without characters that file systems may reject."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[-60:]


def shrink_command(model: str, file: str) -> str:
    """The command that writes a smaller model from a mask file."""
    return shlex.join(["headlab", "shrink", "--model", model, "--mask", file, "--out", "FOLDER"])


def dialog(mask: Mask, model: str, place: Place) -> None:
    """How to use a mask outside headlab; a popover."""
    with st.popover("Use it elsewhere", icon=":material/output:", width="content"):
        if not mask.removed:
            st.markdown("All heads are on: there is nothing to switch off elsewhere.")
            return
        script, smaller, others = st.tabs(["PyTorch script", "Smaller model", "Other tools"])
        with script:
            _script(mask, place)
        with smaller:
            st.markdown("A mask alone makes no model smaller. This removes the heads from the weights permanently:")
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
    st.caption(
        "Layers and heads count from 0. Only the heads are exported, not the model, the method or the accuracies."
    )


# The mask as a file: exported with the accuracies seen, and imported only if it belongs to this model.

MESSAGE, TAKEN, UPLOAD = "_import_message", "_import_taken", "mask-upload"


def mask_text(mask: Mask, question: Question, known: Known, languages: Sequence[str]) -> str:
    """The mask file, with the final accuracies this session has seen for the mask on any split."""
    chosen = dict(mask.chosen)
    for split in SIZES:
        asked = replace(question, split=split)
        rows = {name: known[asked.key(name)] for name in languages if asked.key(name) in known}
        figures = evaluated(rows, asked).get("languages", {})
        chosen = noted(chosen, split, question.task, figures, size=asked.size, ablation="zero")
    return json.dumps(replace(mask, chosen=chosen).to_json(), ensure_ascii=False, indent=1)


def take(text: bytes, name: str, now: History, fingerprint: str) -> None:
    """Make an uploaded mask the current one. Raises HeadlabError, changing nothing, if it does not fit."""
    mask = mask_from_text(text, name)
    mask.check(now.grid, fingerprint)
    now.put(mask.kept, {key: value for key, value in mask.chosen.items() if key != "evaluated"} | {"imported": name})


def draw(mask: Mask, now: History, question: Question, known: Known, languages: Sequence[str]) -> None:
    """The exports, as a file and for other tools, and the import."""
    place = loaded_place(question.model, question.fingerprint)
    if place.architecture:
        mask = replace(mask, model={**mask.model, "architecture": dict(place.architecture)})
    with st.container(horizontal=True, gap="small"):
        # Built now, not on download: streamlit drops a deferred file after two more runs of any session, possibly
        # before the browser has it. Once the last figure has arrived, the page reruns.
        st.download_button(
            "Export the mask (JSON)",
            data=mask_text(mask, question, known, languages),
            file_name=file_name(mask, question.model),
            mime="application/json",
            on_click="ignore",
            icon=":material/download:",
        )
        dialog(mask, question.model, place)
    st.file_uploader(
        "Import a mask", type="json", key=UPLOAD, on_change=uninterrupted(_uploaded), args=(now, question.fingerprint)
    )
    message = st.session_state.get(MESSAGE)
    if not message:
        return
    # A message stays until the mask changes; a click may have arrived with the upload, so count from here.
    message.setdefault("when", (now.at, now.stamp))
    if message["when"] == (now.at, now.stamp):
        (st.success if message["ok"] else st.error)(message["text"])


def _uploaded(now: History, fingerprint: str) -> None:
    file = st.session_state.get(UPLOAD)
    if file is None or file.file_id == st.session_state.get(TAKEN):
        return
    st.session_state[TAKEN] = file.file_id
    try:
        take(file.getvalue(), file.name, now, fingerprint)
        ok, text = True, f"Imported {file.name}: {int((~now.kept).sum())} of {now.grid.size} heads are off."
    except HeadlabError as error:
        ok, text = False, f"Not imported, the mask is unchanged: {str(error).rstrip('.')}."
    st.session_state[MESSAGE] = {"ok": ok, "text": text}
