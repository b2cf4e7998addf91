"""What does the model lose, or gain, when these heads, or other players, are switched off?"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.core import HEADS, noun_of
from headlab.dashboard.frame import (
    Choice,
    draw_no_language,
    errors_as_sentences,
    loaded_model,
    page,
    players_grid,
    scores_of,
)
from headlab.dashboard.names import PRUNE_TAB, PRUNE_TABS, plain
from headlab.dashboard.pages.prune.board import GRID
from headlab.dashboard.pages.prune.front import draw_fronts
from headlab.dashboard.pages.prune.savings import measuring_jobs
from headlab.dashboard.pages.prune.switch_tab import draw_board
from headlab.dashboard.panels.heads import draw_comparison_by_language
from headlab.dashboard.panels.jobs import draw_live_jobs, draw_missing_scores
from headlab.dashboard.panels.masks import MaskHistory, apply_mask_link, history_of
from headlab.worker import JobRow, LoadedModel


@st.fragment
def draw_smaller_models(
    choice: Choice, history: MaskHistory, model: LoadedModel, jobs: Sequence[JobRow]
) -> None:
    """Pareto fronts: requesting one, and the points of the stored one that is shown.

    Args:
        choice: The sidebar's.
        history: Of the mask of its model, which a point becomes.
        model: The worker's description of the model.
        jobs: Jobs that measure the speed of a mask.
    """
    with errors_as_sentences():
        draw_fronts(choice, history, model, jobs)


def draw_page() -> None:
    """Draw the page."""
    with page("prune") as choice:
        model = loaded_model(choice.model)
        grid = model.grid
        if choice.players != HEADS:
            grid = players_grid(choice) or model.grid
        history = history_of(model.fingerprint, grid, model.identity)
        # A widget's state is dropped with its page: without it, the user has just arrived.
        sentence = apply_mask_link(history, is_arrival=GRID not in st.session_state)
        if sentence:
            st.warning(plain(sentence))
        if model.note:
            st.caption(plain(model.note))
        if choice.languages:
            results = scores_of(choice)
            speed_jobs = measuring_jobs()
            switch_tab, smaller_tab = st.tabs(PRUNE_TABS, key=PRUNE_TAB, bind="query-params")
            with switch_tab:
                draw_board(choice, model, history, results, speed_jobs)
                draw_comparison_by_language(results.scores)
            with smaller_tab:
                if grid.has_only_heads == (choice.players == HEADS):
                    draw_smaller_models(choice, history, model, speed_jobs)
                else:
                    st.info(
                        f"Scores say which {noun_of(choice.players)} leave first: compute some below."
                    )
            draw_missing_scores(
                choice, results, f"They colour the {grid.noun} and say which ones to switch off."
            )
            if not results.missing:
                draw_live_jobs()  # otherwise the offer shows it
        else:
            draw_no_language(choice)
