"""Which heads do two masks share, and where do they differ?"""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.frame import page, scores_of
from headlab.dashboard.names import plain
from headlab.dashboard.pages.masks.comparison import (
    draw_combiner,
    draw_maps,
    draw_openers,
    draw_tables,
    pick_two,
)
from headlab.dashboard.pages.masks.sources import gather_masks, pick_rule, target_of, uploaded_masks
from headlab.dashboard.panels.page_report import offer_page_report


def sources(choice, results, target):
    with st.expander(
        "Where the masks come from", expanded=not results.scores, icon=":material/upload_file:"
    ):
        uploaded, problems = uploaded_masks()
        wanted = pick_rule(results)
    for problem in problems:
        st.error(plain(problem))
    return gather_masks(choice, results, uploaded, wanted, target)


def draw_page() -> None:
    """Draw the page."""
    with page("masks") as choice:
        if not choice.languages:
            st.info(
                "No language is chosen. Pick some in the sidebar to see what their scores suggest; files work without."
            )
        results = scores_of(choice)
        target = target_of(choice, results)
        masks = sources(choice, results, target)
        if len(masks) < 2:
            st.info(
                f"There {'is one mask' if masks else 'are no masks'} to compare. Switch heads off on the Prune page, "
                "upload mask files, or choose languages whose heads have been scored."
            )
        if masks:
            a, b = pick_two(list(masks))
            apart = draw_maps((a, b), masks[a], masks[b])
            draw_openers(choice, {"A": masks[a], "B": masks[b]}, target)
            if apart is not None:
                draw_tables(masks[a], masks[b], apart)
            offer_page_report(choice, results.scores, {name: masks[name] for name in (a, b)})
        if len(masks) > 1:
            draw_combiner(choice, masks, [a, b] if a != b else list(masks)[:2], target)
