"""The known masks that switch one head off."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from headlab.core import Head, is_same_model
from headlab.dashboard.frame import Choice, scores_of
from headlab.dashboard.names import count_words, plain
from headlab.dashboard.panels.heads import HeadData, switch_off
from headlab.dashboard.panels.masks import (
    Suggestion,
    masks_of_fronts,
    masks_of_gates,
    masks_of_prune_page,
    suggested_masks,
    target_of,
    usual_removed_count,
    why_not_openable,
)
from headlab.dashboard.widgets import table_height, uninterrupted
from headlab.masks import Mask

TABLE = "masks-without"
"""Widget key of the table."""


def masks_without(choice: Choice, data: HeadData, head: Head) -> tuple[dict[str, Mask], int]:
    """The known masks that switch a head off, by name, and how many masks were looked through.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        head: The head.
    """
    results = scores_of(choice)
    lowest_count = usual_removed_count(data.grid.size)
    masks: Mapping[str, Mask] = {
        **masks_of_prune_page(choice, data.fingerprint),
        **suggested_masks(results, Suggestion("harmful")),
        **suggested_masks(results, Suggestion("bottom", k=lowest_count)),
        **masks_of_fronts(data.grid, data.fingerprint),
        **masks_of_gates(choice),
    }
    masks_of_model = {}
    for name, mask in masks.items():
        if mask.grid == data.grid and is_same_model(
            str(mask.model.get("fingerprint")), data.fingerprint
        ):
            masks_of_model[name] = mask
    without_head = {name: mask for name, mask in masks_of_model.items() if head in mask.removed}
    return without_head, len(masks_of_model)


def draw_masks_without(choice: Choice, data: HeadData, head: Head) -> None:
    """The table of these masks; a ticked one opens on the Prune page.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        head: The head.
    """
    st.subheader("Masks that switch it off")
    masks, looked_through = masks_without(choice, data, head)
    lowest_count = usual_removed_count(data.grid.size)
    sources = (
        "the mask of the Prune page, those of stored fronts and of learned gates, and for each "
        f"chosen language the heads that surely harm and the {lowest_count} lowest"
    )
    if not masks:
        st.caption(f"None of the {looked_through} known masks does. Looked at: {sources}.")
        return
    names = list(masks)
    target = target_of(choice, data.scores)
    reason = why_not_openable(masks[names[0]], target)

    def open_ticked_mask() -> None:
        for row in st.session_state[TABLE]["selection"]["rows"]:
            if not reason:
                switch_off(str(target.fingerprint), masks[names[row]], "")

    table = pd.DataFrame(
        {"Mask": names, "Heads off": [len(mask.removed) for mask in masks.values()]}
    )
    st.dataframe(
        table,
        hide_index=True,
        key=TABLE,
        on_select=uninterrupted(open_ticked_mask),
        selection_mode="single-row",
        height=table_height(len(names)),
    )
    st.caption(
        plain(
            f"{len(names)} of {count_words(looked_through, 'known mask')}. Looked at: {sources}. "
            f"{reason or 'Tick one to open it on the Prune page.'}"
        )
    )
