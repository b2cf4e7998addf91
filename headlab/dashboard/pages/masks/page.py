"""Which heads do two masks share, and where do they differ?"""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.frame import Choice, StoredScores, page, scores_of
from headlab.dashboard.names import plain
from headlab.dashboard.pages.masks.comparison import (
    draw_combiner,
    draw_maps,
    draw_openers,
    draw_tables,
)
from headlab.dashboard.pages.masks.pair import pick_two
from headlab.dashboard.pages.masks.sources import (
    gather_masks,
    pick_rule,
    uploaded_masks,
)
from headlab.dashboard.panels.masks import TargetModel, show_masks_in_report, target_of
from headlab.masks import Mask


def masks_to_compare(choice: Choice, results: StoredScores, target: TargetModel) -> dict[str, Mask]:
    """Draw where the masks come from, and return them by name.

    Args:
        choice: The sidebar's.
        results: Its stored scores, which suggest masks.
        target: The model that the masks should be of.
    """
    with st.expander(
        "Where the masks come from", expanded=not results.scores, icon=":material/upload_file:"
    ):
        uploaded_by_name, problems = uploaded_masks()
        rule = pick_rule(results)
    for problem in problems:
        st.error(plain(problem))
    return gather_masks(choice, results, uploaded_by_name, rule, target)


def draw_page() -> None:
    """Draw the page."""
    with page("masks") as choice:
        if not choice.languages:
            st.info(
                "No language is chosen. Pick some in the sidebar to see what their scores "
                "suggest; files work without."
            )
        results = scores_of(choice)
        target = target_of(choice, results)
        masks = masks_to_compare(choice, results, target)
        if len(masks) < 2:
            advice = "choose languages whose heads have been scored"
            if results.first_scores is not None and not results.first_scores.chooses_heads:
                advice = f"choose another method: scores by {choice.method} are for looking only"
            st.info(
                f"There {'is one mask' if masks else 'are no masks'} to compare. Switch heads off "
                f"on the Prune page, upload mask files, or {advice}."
            )
        if masks:
            first_name, second_name = pick_two(list(masks))
            difference = draw_maps((first_name, second_name), masks[first_name], masks[second_name])
            draw_openers(choice, {"A": masks[first_name], "B": masks[second_name]}, target)
            if difference is not None:
                draw_tables(masks[first_name], masks[second_name], difference)
            pair = {name: masks[name] for name in (first_name, second_name)}
            show_masks_in_report(pair)
        if len(masks) > 1:
            default_names = (
                [first_name, second_name] if first_name != second_name else list(masks)[:2]
            )
            draw_combiner(choice, masks, default_names, target)
