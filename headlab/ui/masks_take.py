"""What to do with compared masks: open one on the Prune page, make one of several, take it as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping

import streamlit as st

from headlab.errors import HeadlabError
from headlab.masks import WAYS, Mask, combine
from headlab.records import content_key
from headlab.ui.history import history
from headlab.ui.mask_export import file_name
from headlab.ui.masks_sources import Target
from headlab.ui.plain import plain
from headlab.ui.presses import button
from headlab.ui.prune_suggest import risk
from headlab.ui.shell import Choice, go


def openers(choice: Choice, masks: Mapping[str, Mask], target: Target) -> None:
    """A button for each mask (by letter) that turns to the Prune page with it, and why one cannot."""
    troubles = {}
    with st.container(horizontal=True, gap="small"):
        for letter, mask in masks.items():
            troubles[trouble(mask, target)] = letter
            _opener(choice, f"Open {letter} on the Prune page", f"masks-open-{letter}", mask, target)
    for sentence in filter(None, troubles):
        st.caption(sentence)


def _opener(choice: Choice, label: str, key: str, mask: Mask, target: Target) -> None:
    button(
        label, key=key, icon="content_cut", disabled=bool(trouble(mask, target)), on_press=_open,
        args=(choice, mask, target.fingerprint),
    )  # fmt: skip


def trouble(mask: Mask, target: Target) -> str:
    """Why a mask cannot be opened on the Prune page of the chosen model; empty where it can."""
    made_for = mask.model.get("fingerprint")
    if target.fingerprint is None or (target.grid is None and not made_for):
        return "The chosen model is not known here yet: open the Prune page once, or wait for the worker."
    if made_for and made_for != target.fingerprint:
        name = plain(str(mask.model.get("name") or "another model"))
        return f"A mask made for {name} ({str(made_for)[:12]}) opens once that model is chosen in the sidebar."
    if target.grid is not None and mask.grid != target.grid:
        return f"A mask of {mask.grid} does not fit the chosen model, which has {target.grid}."
    return ""


def _open(choice: Choice, mask: Mask, fingerprint: str) -> None:
    chosen = {name: part for name, part in mask.chosen.items() if name != "evaluated"}
    history(fingerprint, mask.grid).put(mask.kept, chosen)
    go("prune", choice)


def combiner(choice: Choice, masks: Mapping[str, Mask], first: list[str], target: Target) -> None:
    """One mask of several, with its ways out. first: names that are chosen to begin with."""
    st.subheader("Make one mask of several")
    options = list(masks)
    names = st.multiselect("Masks", options, default=first, key=f"masks-several-{content_key(options)[:12]}")
    how = st.radio("Way", list(WAYS), captions=list(WAYS.values()), key="masks-way", horizontal=True)
    try:
        made = combine([masks[name] for name in names], how)
    except HeadlabError as error:
        st.info(f"{str(error)[:1].upper()}{str(error)[1:].rstrip('.')}.")
        return
    st.markdown(f"**{len(made.removed)} of {made.grid.size} heads** would be off.")
    if note := made.chosen.get("note"):
        st.caption(f"{note}.")
    if sentence := risk(made.kept):
        st.warning(sentence)
    with st.container(horizontal=True, gap="small"):
        _opener(choice, "Open it on the Prune page", "masks-open-combined", made, target)
        st.download_button(
            "Export it (JSON)", json.dumps(made.to_json(), ensure_ascii=False, indent=1),
            file_name(made, str(made.model.get("name") or "model")), "application/json", key="masks-export",
            on_click="ignore", icon=":material/download:",
        )  # fmt: skip
    if sentence := trouble(made, target):
        st.caption(sentence)
