"""The mask as a file: offered with what was seen of it, and taken back only if it belongs to this model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from headlab.errors import HeadlabError
from headlab.masks import Mask, mask_from_text, noted
from headlab.ui.history import History
from headlab.ui.mask_export import dialog, file_name, loaded_place
from headlab.ui.presses import uninterrupted
from headlab.ui.prune_figures import SIZES, Known, Question, evaluated

MESSAGE, TAKEN, UPLOAD = "_import_message", "_import_taken", "mask-upload"


def mask_text(mask: Mask, question: Question, known: Known, languages: Sequence[str]) -> str:
    """The mask file, with the final accuracies this session has seen of the mask on any split."""
    chosen = dict(mask.chosen)
    for split in SIZES:
        asked = replace(question, split=split)
        rows = {name: known[asked.key(name)] for name in languages if asked.key(name) in known}
        figures = evaluated(rows, asked).get("languages", {})
        chosen = noted(chosen, split, question.task, figures, size=asked.size, ablation="zero")
    return json.dumps(replace(mask, chosen=chosen).to_json(), ensure_ascii=False, indent=1)


def take(text: bytes, name: str, now: History, fingerprint: str) -> None:
    """Make an uploaded mask the present one. Raises HeadlabError, changing nothing, if it does not fit."""
    mask = mask_from_text(text, name)
    mask.check(now.grid, fingerprint)
    now.put(mask.kept, {key: value for key, value in mask.chosen.items() if key != "evaluated"} | {"imported": name})


def draw(mask: Mask, now: History, question: Question, known: Known, languages: Sequence[str]) -> None:
    """The ways out, as a file and for other tools, and the upload."""
    place = loaded_place(question.model, question.fingerprint)
    if place.architecture:
        mask = replace(mask, model={**mask.model, "architecture": dict(place.architecture)})
    with st.container(horizontal=True, gap="small"):
        # Made now, not when it is asked for: streamlit drops what is made then after two more runs of anybody's page,
        # maybe before the browser has it. Once the last figure has come, the page runs again.
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
    # A message stands until the mask changes; a click may have come in with the upload, so count from here.
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
        ok, text = False, f"Not imported, the mask stays as it was: {str(error).rstrip('.')}."
    st.session_state[MESSAGE] = {"ok": ok, "text": text}
