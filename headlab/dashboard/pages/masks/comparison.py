"""Two masks side by side: maps, tables, combining them, and opening one on the Prune page."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st

from headlab.core import Floats, Head, HeadlabError, as_sentence, content_key, is_same_model
from headlab.dashboard.frame import Choice, open_page
from headlab.dashboard.names import head_words, plain
from headlab.dashboard.pages.masks.sources import Target
from headlab.dashboard.panels.history import history_of
from headlab.dashboard.panels.mask_files import _without_accuracies, mask_file_name, offer_mask_file
from headlab.dashboard.panels.suggestion import removal_warning
from headlab.dashboard.widgets import button, draw_map, show_table
from headlab.masks import (
    WAYS,
    Difference,
    Mask,
    accuracy_notes,
    accuracy_table,
    by_layer_table,
    by_stack_table,
    combine,
    compare,
)
from headlab.pictures import head_map

READING = "Rows are layers, columns are heads, both counted from 0."


def draw_maps(names: tuple[str, str], a: Mask, b: Mask) -> Difference | None:
    """Maps and counts of two masks, and their difference; for different grids only the maps, with the reason."""
    try:
        found = compare(a, b)
    except HeadlabError as error:
        found = None
        st.warning(plain(f"{error}."))
    places = st.columns(2 if found is None else 3, gap="medium")
    with places[0]:
        _map("A", names[0], a)
    with places[-1]:
        _map("B", names[1], b)
    if found is not None:
        with places[1]:
            _difference(found)
        st.caption(READING)
        _counts(found)
    return found


def _map(letter: str, name: str, mask: Mask) -> None:
    kept = mask.kept.astype(np.float64)
    tips = ["kept" if on else "off" for on in mask.kept]
    title = f"{letter}: {len(mask.removed)} of {mask.grid.size} off"
    shown = head_map(
        kept, mask.grid, limit=1.0, signed=False, tips=tips, named=((1, "kept"), (0, "off"))
    )
    draw_map(shown, key=f"masks-map-{letter}", title=title, compact=True)
    st.caption(plain(name))


APART = (
    (-1.0, "only A switches it off"),
    (1.0, "only B switches it off"),
    (0.0, "both keep it"),
    (float("nan"), "both switch it off"),
)


def _difference(found: Difference) -> None:
    values = difference_values(found)
    tips = [
        next(words for of, words in APART if of == value or np.isnan([of, value]).all())
        for value in values
    ]
    title = f"Different: {len(found.only_a) + len(found.only_b)}"
    shown = head_map(values, found.grid, limit=1.0, tips=tips, named=APART)
    draw_map(shown, key="masks-map-apart", title=title, compact=True)


def difference_values(found: Difference) -> Floats:
    """Float [head]: -1 where only A removes, 1 where only B does, 0 where both keep, NaN where both remove."""
    return np.where(found.a & found.b, np.nan, found.b.astype(np.float64) - found.a)


def _counts(found: Difference) -> None:
    with st.container(horizontal=True, gap="medium"):
        values = (
            *(str(len(heads)) for heads in (found.only_a, found.only_b, found.both)),
            f"{found.jaccard:.2f}",
        )
        for (label, about), value in zip(HELP.items(), values, strict=True):
            st.metric(label, value, width="content", help=about)


HELP = {
    "Only A": "Heads that A switches off and B keeps",
    "Only B": "Heads that B switches off and A keeps",
    "Both": "Heads that both switch off",
    "Jaccard": "Both, as a share of what either switches off: 1 = the same mask",
}


def draw_tables(a: Mask, b: Mask, found: Difference) -> None:
    """What only one of two masks removes, by head, layer and stack, and their accuracies."""
    accuracies = accuracy_table({"A": a, "B": b})
    if accuracies.rows:
        show_table(accuracies, "masks")
        for note in accuracy_notes([a, b]):
            st.caption(plain(note))
    else:
        st.caption(
            "Neither mask holds accuracies. Open one on the Prune page, which measures it, and come back; or measure a "
            "file with headlab evaluate."
        )
    show_table(by_layer_table(found), "masks")
    if len(found.grid.stacks) > 1:
        show_table(by_stack_table(found), "masks")
    _only("Only A switches off", found.only_a, found)
    _only("Only B switches off", found.only_b, found)


def _only(words: str, heads: tuple[Head, ...], found: Difference) -> None:
    several = len(found.grid.stacks) > 1
    listed = "; ".join(head_words(head, several) for head in heads) or "none"
    with st.expander(f"{words}: {len(heads)}"):
        st.markdown(plain(f"{listed}."))


# What to do with compared masks: open one on the Prune page, combine several, export the result.


def draw_openers(choice: Choice, masks: Mapping[str, Mask], target: Target) -> None:
    """A button for each mask (by letter) that opens it on the Prune page, or the reason why it cannot."""
    troubles = {}
    with st.container(horizontal=True, gap="small"):
        for letter, mask in masks.items():
            troubles[open_trouble(mask, target)] = letter
            _opener(
                choice, f"Open {letter} on the Prune page", f"masks-open-{letter}", mask, target
            )
    for sentence in filter(None, troubles):
        st.caption(plain(sentence))


def _opener(choice: Choice, label: str, key: str, mask: Mask, target: Target) -> None:
    button(
        label,
        key=key,
        icon="content_cut",
        disabled=bool(open_trouble(mask, target)),
        on_press=_open,
        args=(choice, mask, target.fingerprint),
    )


def open_trouble(mask: Mask, target: Target) -> str:
    """Why a mask cannot be opened on the Prune page of the chosen model; empty where it can."""
    made_for = mask.model.get("fingerprint")
    if target.fingerprint is None or (target.grid is None and not made_for):
        return "The chosen model is not known here yet: open the Prune page once, or wait for the worker."
    if made_for and not is_same_model(made_for, target.fingerprint):
        name = str(mask.model.get("name") or "another model")
        return f"A mask made for {name} ({str(made_for)[:12]}) opens once that model is chosen in the sidebar."
    if target.grid is not None and mask.grid != target.grid:
        return f"A mask of {mask.grid} does not fit the chosen model, which has {target.grid}."
    return ""


def _open(choice: Choice, mask: Mask, fingerprint: str) -> None:
    history_of(fingerprint, mask.grid).put(mask.kept, _without_accuracies(mask))
    open_page("prune", choice)


def draw_combiner(
    choice: Choice, masks: Mapping[str, Mask], first: list[str], target: Target
) -> None:
    """Combine several masks into one, to open or export. first: names chosen initially."""
    st.subheader("Combine several masks into one")
    options = list(masks)
    names = st.multiselect(
        "Masks", options, default=first, key=f"masks-several-{content_key(options)[:12]}"
    )
    how = st.radio(
        "Way", list(WAYS), captions=list(WAYS.values()), key="masks-way", horizontal=True
    )
    try:
        made = combine([masks[name] for name in names], how)
    except HeadlabError as error:
        st.info(plain(f"{as_sentence(error)[:1].upper()}{as_sentence(error)[1:]}"))
        return
    st.markdown(f"**{len(made.removed)} of {made.grid.size} heads** would be off.")
    if note := made.chosen.get("note"):
        st.caption(plain(f"{note}."))
    if sentence := removal_warning(made.kept):
        st.warning(sentence)
    with st.container(horizontal=True, gap="small"):
        _opener(choice, "Open it on the Prune page", "masks-open-combined", made, target)
        name = mask_file_name(made, str(made.model.get("name") or "model"))
        offer_mask_file("Export it (JSON)", made, name, key="masks-export")
    if sentence := open_trouble(made, target):
        st.caption(plain(sentence))
