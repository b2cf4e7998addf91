"""What every session of the dashboard runs: the frame, the navigation, and the page it is on."""

from __future__ import annotations

import streamlit as st

LABELLED_PAGES = ("", "heads", "head", "scatter", "languages", "prune")
"""The pages, by the last part of their address, that show the scores of the choice."""


def run_session() -> None:
    """Draw the page that the browser is on."""
    # On a fresh server these imports take seconds, and a page switch may end this run meanwhile and
    # lose the link.
    st.session_state.setdefault(
        "_link", {key: st.query_params.get_all(key) for key in st.query_params}
    )

    from headlab.dashboard.frame import (
        FIRST_MODULES,
        LATER_MODULES,
        choice_on_page,
        current_choice,
        draw_navigation,
        draw_sidebar,
        errors_as_sentences,
        icon_path,
        warm_up,
    )
    from headlab.dashboard.names import PAGES
    from headlab.dashboard.panels.masks import draw_share, place_share
    from headlab.dashboard.panels.stored import draw_label_line
    from headlab.dashboard.widgets import presses

    st.set_page_config(page_title="headlab", page_icon=icon_path(), layout="wide")
    warm_up(FIRST_MODULES)

    pages = st.navigation(
        [
            st.Page(f"pages/{name}.py", title=title, icon=icon, default=name == "overview")
            for name, (title, icon) in PAGES.items()
        ],
        position="hidden",  # `draw_navigation` shows all pages at every width
    )
    with errors_as_sentences():
        presses.draw_log_root(pages.url_path, list(PAGES))
        with draw_navigation():
            share_place = place_share()
        draw_sidebar()
        if pages.url_path in LABELLED_PAGES:
            with errors_as_sentences():  # its own, so that the page comes whatever happens here
                choice = current_choice()
                if choice is not None:
                    draw_label_line(choice_on_page(choice, pages.url_path))
        pages.run()
        draw_share(share_place)
        presses.mark_page_drawn()
        warm_up(LATER_MODULES)
