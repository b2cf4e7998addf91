"""What can be done with several heads that were chosen together: off, looked at, saved as a mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from headlab.core import (
    Head,
    HeadGrid,
    Json,
    JsonLike,
    JsonRecord,
    fingerprint_of,
    is_same_model,
    part,
)
from headlab.dashboard.frame import Choice, StoredScores, known_grid, open_page
from headlab.dashboard.names import count_words, head_key, page_link, plain
from headlab.dashboard.panels.heads.attended_sentences import MAX_HEADS, side_by_side_params
from headlab.dashboard.panels.masks import (
    TargetModel,
    histories_by_fingerprint,
    history_of,
    mask_file_name,
    offer_mask_file,
    target_of,
    why_not_openable,
)
from headlab.dashboard.panels.masks.history import BY_HAND
from headlab.dashboard.widgets import Button, button_row
from headlab.masks import Mask
from headlab.results import kept_heads_without


def draw_head_actions(
    choice: Choice,
    results: StoredScores,
    heads: Sequence[Head],
    spec: Mapping[str, Json],
    origin: JsonRecord,
    *,
    key: str,
    colour_language: str = "",
) -> None:
    """Buttons for some heads: switch them off on Prune, look at them, save them as a mask.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
        heads: The chosen ones, in the model's order; at least one.
        spec: Of the result that they were chosen by, which names its model.
        origin: How they were chosen, as in a mask file.
        key: Of the widgets.
        colour_language: Code of the language whose scores colour the heads on Prune; empty for the
            usual one.
    """
    target = target_of(choice, results)
    fingerprint = str(fingerprint_of(spec))
    grid = known_grid(fingerprint)
    if grid is None and is_same_model(fingerprint, target.fingerprint):
        grid = target.grid
    mask = mask_without(heads, grid, spec, origin)
    if mask is None:
        st.caption(
            "This report may not have all heads of the model. Open the Prune page once, which "
            "loads it, and these heads can be switched off."
        )
        page_link("prune", "Open the Prune page")
    else:
        _draw_switches(mask, target, key, colour_language)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if mask is not None:
            name = mask_file_name(mask, choice.model)
            offer_mask_file("Save as a mask (JSON)", mask, name, key=f"{key}-mask")
        look_words = "What they attend to" if len(heads) > 1 else "What it attends to"
        if len(heads) > MAX_HEADS:
            look_words = f"What the first {count_words(MAX_HEADS, 'head')} attend to"
        shown_keys = [head_key(head) for head in heads[:MAX_HEADS]]
        page_link("attention", look_words, side_by_side_params(shown_keys))


def mask_without(
    heads: Sequence[Head], grid: HeadGrid | None, spec: Mapping[str, Json], origin: JsonRecord
) -> Mask | None:
    """The mask that removes some heads and no others; None where the grid is unknown or lacks one.

    Args:
        heads: To be removed.
        grid: All heads of the model; None if they are not known.
        spec: Of the result that they were chosen by, which names its model.
        origin: How they were chosen, as in a mask file.
    """
    if grid is None or not set(heads) <= set(grid.heads):
        return None
    removed_indices = np.array([grid.index(head) for head in heads])
    kept_heads = kept_heads_without(removed_indices, grid.size)
    return Mask(grid, kept_heads, model_record(spec), {"rule": BY_HAND, **origin})


def model_record(spec: Mapping[str, Json]) -> dict[str, JsonLike]:
    """What a mask file says of the model that a result is of.

    Args:
        spec: Of the result.
    """
    model = part(spec, "model")
    record: dict[str, JsonLike] = {}
    for name in ("name", "revision", "dtype"):
        value = part(model, name)
        if value is not None:
            record[name] = value
    record["fingerprint"] = fingerprint_of({"model": model})
    return record


def _draw_switches(mask: Mask, target: TargetModel, key: str, colour_language: str) -> None:
    """The buttons that switch heads off, or why that cannot be done.

    Args:
        mask: Without the chosen heads and no others.
        target: The model that the Prune page would load.
        key: Of the widgets.
        colour_language: As in `draw_head_actions`.
    """
    count = len(mask.removed)
    reason = why_not_openable(mask, target)
    history = histories_by_fingerprint().get(str(target.fingerprint))
    other_heads: set[Head] = set()
    new_heads = set(mask.removed)
    if history is not None and history.grid == mask.grid:
        other_heads = set(history.mask.removed) - set(mask.removed)
        new_heads -= set(history.mask.removed)
    words = "this head" if count == 1 else f"these {count} heads"
    label = f"Switch {words} off"
    help_text = "Opens Prune, where the accuracy without them is measured"
    if other_heads:
        label = f"Switch only {words} off"
        help_text += f"; {count_words(len(other_heads), 'other head')} are switched on again"
    arguments = (str(target.fingerprint), mask, colour_language)
    buttons = [
        Button(
            label,
            f"{key}-off",
            switch_off,
            arguments,
            "primary",
            icon="content_cut",
            help=help_text,
            disabled=bool(reason),
        )
    ]
    if other_heads and new_heads and not reason:
        add_label = f"Add to the {count_words(len(other_heads), 'other head')} that are off"
        buttons.append(Button(add_label, f"{key}-add", switch_off_too, arguments))
    button_row(*buttons)
    if reason:
        st.caption(plain(reason))


def switch_off(fingerprint: str, mask: Mask, colour_language: str) -> None:
    """Make a mask the current one of its model and open the Prune page: the action of a click.

    Args:
        fingerprint: Of the model.
        mask: To be the current one.
        colour_language: As in `draw_head_actions`.
    """
    history_of(fingerprint, mask.grid).set_mask(mask.kept, mask.chosen)
    open_page("prune", link_params={"from": colour_language} if colour_language else {})


def switch_off_too(fingerprint: str, mask: Mask, colour_language: str) -> None:
    """Switch a mask's heads off besides those that are off: the action of a click.

    Args:
        fingerprint: Of the model.
        mask: Without the heads that are added.
        colour_language: As in `draw_head_actions`.
    """
    current_mask = history_of(fingerprint, mask.grid).mask
    added = {name: value for name, value in mask.chosen.items() if name != "rule"}
    origin: dict[str, JsonLike] = {"rule": BY_HAND, "added": added}
    if current_mask.chosen:
        origin["started_from"] = dict(current_mask.chosen)
    union = replace(mask, kept=mask.kept & current_mask.kept, chosen=origin)
    switch_off(fingerprint, union, colour_language)
