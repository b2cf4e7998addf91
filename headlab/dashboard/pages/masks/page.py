"""Which heads do two masks share, and where do they differ?"""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.frame import page, scores_of
from headlab.dashboard.names import plain
from headlab.dashboard.panels import masks as mask_pages
from headlab.dashboard.panels import report


def sources(choice, results, target):
    with st.expander(
        "Where the masks come from", expanded=not results.scores, icon=":material/upload_file:"
    ):
        uploaded, problems = mask_pages.uploads()
        wanted = mask_pages.pick_rule(results)
    for problem in problems:
        st.error(plain(problem))
    return mask_pages.gather(choice, results, uploaded, wanted, target)


def draw_page() -> None:
    """Draw the page."""
    with page("masks") as choice:
        if not choice.languages:
            st.info(
                "No language is chosen. Pick some in the sidebar to see what their scores suggest; files work without."
            )
        results = scores_of(choice)
        target = mask_pages.target_of(choice, results)
        masks = sources(choice, results, target)
        if len(masks) < 2:
            st.info(
                f"There {'is one mask' if masks else 'are no masks'} to compare. Switch heads off on the Prune page, "
                "upload mask files, or choose languages whose heads have been scored."
            )
        if masks:
            a, b = mask_pages.pick_two(list(masks))
            apart = mask_pages.maps((a, b), masks[a], masks[b])
            mask_pages.openers(choice, {"A": masks[a], "B": masks[b]}, target)
            if apart is not None:
                mask_pages.tables(masks[a], masks[b], apart)
            report.save_view(choice, results.scores, {name: masks[name] for name in (a, b)})
        if len(masks) > 1:
            mask_pages.combiner(choice, masks, [a, b] if a != b else list(masks)[:2], target)
