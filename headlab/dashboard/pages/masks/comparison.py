"""Two masks side by side: maps, tables, combining them, and opening one on the Prune page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import streamlit as st

from headlab.core import Floats, Head, HeadlabError, as_sentence, content_key, players_of
from headlab.dashboard.frame import Choice, open_page
from headlab.dashboard.names import HEAD_NUMBER_HELP, head_number, plain
from headlab.dashboard.panels.masks import (
    TargetModel,
    choice_without_accuracies,
    history_of,
    mask_file_name,
    offer_mask_file,
    offer_written_model,
    removal_warning,
    why_not_openable,
)
from headlab.dashboard.widgets import button, draw_map, show_table
from headlab.masks import (
    COMBINATIONS,
    Mask,
    MaskDifference,
    accuracy_notes,
    accuracy_table,
    combine_masks,
    compare_masks,
    removed_by_layer,
    removed_by_stack,
)
from headlab.pictures import APART, SWITCHES, head_map

READING = "Rows are layers, columns are {}, both counted from 0."


def draw_maps(names: tuple[str, str], mask_a: Mask, mask_b: Mask) -> MaskDifference | None:
    """Maps and counts of two masks, and of their difference.

    For masks of different grids there are only the maps, with the reason.

    Args:
        names: What the masks are called.
        mask_a: The first.
        mask_b: The second.

    Returns:
        The difference; None for different grids.
    """
    try:
        difference = compare_masks(mask_a, mask_b)
    except HeadlabError as error:
        difference = None
        st.warning(plain(f"{error}."))
    columns = st.columns(2 if difference is None else 3, gap="medium")
    with columns[0]:
        _draw_mask_map("A", names[0], mask_a)
    with columns[-1]:
        _draw_mask_map("B", names[1], mask_b)
    if difference is not None:
        with columns[1]:
            _draw_difference_map(difference)
        st.caption(READING.format(difference.grid.noun))
        _draw_counts(difference)
    return difference


def _draw_mask_map(letter: str, name: str, mask: Mask) -> None:
    kept_heads = mask.kept.astype(np.float64)
    tips = ["kept" if is_kept else "off" for is_kept in mask.kept]
    title = f"{letter}: {len(mask.removed)} of {mask.grid.size} off"
    head_values = head_map(
        kept_heads,
        mask.grid,
        limit=1.0,
        signed=False,
        tips=tips,
        named=((1, "kept"), (0, "off")),
        own_scale=SWITCHES,
    )
    draw_map(head_values, key=f"masks-map-{letter}", title=title, compact=True)
    st.caption(plain(name))


DIFFERENCE_WORDS = (
    (-1.0, "only A switches it off"),
    (1.0, "only B switches it off"),
    (0.0, "both keep it"),
    (float("nan"), "both switch it off"),
)
"""What the values of `difference_values` mean."""


def _draw_difference_map(difference: MaskDifference) -> None:
    values = difference_values(difference)
    tips = [_words_of_difference(value) for value in values]
    title = f"Different: {len(difference.only_a) + len(difference.only_b)}"
    head_values = head_map(
        values,
        difference.grid,
        limit=1.0,
        tips=tips,
        named=DIFFERENCE_WORDS,
        own_scale=APART,
    )
    draw_map(head_values, key="masks-map-apart", title=title, compact=True)


def _words_of_difference(value: float) -> str:
    for code, words in DIFFERENCE_WORDS:
        if code == value or np.isnan([code, value]).all():
            return words
    raise ValueError(value)


def difference_values(difference: MaskDifference) -> Floats:
    """What two masks do with each head, as values of a map.

    Returns:
        Float [head]: -1 where only A removes, 1 where only B does, 0 where both keep, NaN where
        both remove.
    """
    return np.where(
        difference.removed_by_a & difference.removed_by_b,
        np.nan,
        difference.removed_by_b.astype(np.float64) - difference.removed_by_a,
    )


def _draw_counts(difference: MaskDifference) -> None:
    with st.container(horizontal=True, gap="medium"):
        values = (
            str(len(difference.only_a)),
            str(len(difference.only_b)),
            str(len(difference.removed_by_both)),
            f"{difference.jaccard:.2f}",
        )
        for (label, help_text), value in zip(HELP_BY_COUNT.items(), values, strict=True):
            help_words = help_text.replace("Heads", difference.grid.noun.capitalize())
            st.metric(label, value, width="content", help=help_words)


HELP_BY_COUNT = {
    "Only A": "Heads that A switches off and B keeps",
    "Only B": "Heads that B switches off and A keeps",
    "Both": "Heads that both switch off",
    "Jaccard": "Both, as a share of what either switches off: 1 = the same mask",
}


def draw_tables(mask_a: Mask, mask_b: Mask, difference: MaskDifference) -> None:
    """What only one of two masks removes, by head, layer and stack, and their accuracies."""
    masks = {"A": mask_a, "B": mask_b}
    accuracies = accuracy_table(masks)
    if accuracies.rows:
        show_table(accuracies, "masks")
        for note in accuracy_notes(masks):
            st.caption(plain(note))
    else:
        st.caption(
            "Neither mask holds accuracies. Open one on the Prune page, which measures it, and "
            "come back."
        )
    show_table(removed_by_layer(difference), "masks")
    if len(difference.grid.stacks) > 1:
        show_table(removed_by_stack(difference), "masks")
    _draw_head_list("Only A switches off", difference.only_a, difference)
    _draw_head_list("Only B switches off", difference.only_b, difference)


def _draw_head_list(title: str, heads: tuple[Head, ...], difference: MaskDifference) -> None:
    head_list = ", ".join(head_number(head, difference.grid) for head in heads) or "none"
    with st.expander(f"{title}: {len(heads)}"):
        is_of_heads = difference.grid.has_only_heads
        st.markdown(plain(f"{head_list}."), help=HEAD_NUMBER_HELP if is_of_heads else None)


# What to do with compared masks: open one on the Prune page, combine several, export the result.


def draw_openers(choice: Choice, masks: Mapping[str, Mask], target: TargetModel) -> None:
    """Buttons for each mask: to open it on the Prune page, or why it cannot, and to write a model.

    Args:
        choice: The sidebar's.
        masks: By letter.
        target: The model that the masks should be of.
    """
    troubles = {}
    with st.container(horizontal=True, gap="small"):
        for letter, mask in masks.items():
            troubles[why_not_openable(mask, target)] = letter
            _draw_opener(
                choice, f"Open {letter} on the Prune page", f"masks-open-{letter}", mask, target
            )
            if not why_not_openable(mask, target) and mask.grid.has_only_heads:
                offer_written_model(f"Write {letter} as a model", choice, mask, f"masks-{letter}")
    for sentence in filter(None, troubles):
        st.caption(plain(sentence))


def _draw_opener(choice: Choice, label: str, key: str, mask: Mask, target: TargetModel) -> None:
    button(
        label,
        key=key,
        icon="content_cut",
        disabled=bool(why_not_openable(mask, target)),
        on_press=_open_mask,
        args=(choice, mask, target.fingerprint),
    )


def _open_mask(choice: Choice, mask: Mask, fingerprint: str) -> None:
    history_of(fingerprint, mask.grid).set_mask(mask.kept, choice_without_accuracies(mask))
    players = str(players_of(mask.grid))
    if players != choice.players:
        choice = replace(choice, players=players, variant="")
    open_page("prune", choice)


def _captions_of_ways(masks: Mapping[str, Mask]) -> list[str]:
    """What each way to combine masks keeps, in the noun of what they switch."""
    nouns = {mask.grid.noun for mask in masks.values()}
    noun = nouns.pop() if len(nouns) == 1 else "players"
    return [words.replace("heads", noun) for words in COMBINATIONS.values()]


def draw_combiner(
    choice: Choice, masks: Mapping[str, Mask], default_names: list[str], target: TargetModel
) -> None:
    """Combine several masks into one, to open or export.

    Args:
        choice: The sidebar's.
        masks: By name.
        default_names: Names that are chosen to begin with.
        target: The model that the masks should be of.
    """
    st.subheader("Combine several masks into one")
    options = list(masks)
    names = st.multiselect(
        "Masks", options, default=default_names, key=f"masks-several-{content_key(options)[:12]}"
    )
    way = st.radio(
        "Way",
        list(COMBINATIONS),
        captions=_captions_of_ways(masks),
        key="masks-way",
        horizontal=True,
    )
    try:
        combined_mask = combine_masks([masks[name] for name in names], way)
    except HeadlabError as error:
        st.info(plain(f"{as_sentence(error)[:1].upper()}{as_sentence(error)[1:]}"))
        return
    st.markdown(
        f"**{len(combined_mask.removed)} of {combined_mask.grid.size} {combined_mask.grid.noun}** "
        "would be off."
    )
    note = combined_mask.chosen.get("note")
    if note:
        st.caption(plain(f"{note}."))
    warning = removal_warning(combined_mask.kept, combined_mask.grid)
    if warning:
        st.warning(warning)
    with st.container(horizontal=True, gap="small"):
        _draw_opener(
            choice, "Open it on the Prune page", "masks-open-combined", combined_mask, target
        )
        name = mask_file_name(combined_mask, str(combined_mask.model.get("name") or "model"))
        offer_mask_file("Export it (JSON)", combined_mask, name, key="masks-export")
    reason = why_not_openable(combined_mask, target)
    if reason:
        st.caption(plain(reason))
