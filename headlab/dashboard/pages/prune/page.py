"""What does the model lose, or gain, when these heads are switched off?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from headlab.dashboard.frame import (
    Choice,
    StoredScores,
    draw_guide_below,
    errors_as_sentences,
    loaded_model,
    page,
    scores_of,
    worker_client,
)
from headlab.dashboard.names import PRUNE_TAB, PRUNE_TABS, plain
from headlab.dashboard.pages.prune.board import (
    GRID,
    HOW,
    draw_head_list,
    draw_suggestion,
    draw_switches,
    draw_toolbar,
    pick_scores,
)
from headlab.dashboard.pages.prune.changed_answers import draw_changed_answers
from headlab.dashboard.pages.prune.front import draw_fronts
from headlab.dashboard.pages.prune.savings import draw_savings, measuring_jobs
from headlab.dashboard.pages.prune.state import PruneState
from headlab.dashboard.panels import accuracy, contrast, job_actions, job_offer
from headlab.dashboard.panels.accuracy import SIZES, Question
from headlab.dashboard.panels.history import History, follow_link, history_of, write_link
from headlab.dashboard.panels.mask_files import draw_mask_files, with_measured_accuracies
from headlab.dashboard.panels.page_report import offer_page_report
from headlab.dashboard.widgets import heads_gated_together, keep_known_choice, remember_choice
from headlab.masks import Mask
from headlab.worker.schemas import JobRow, LoadedModel

AREAS = ("grid", "figures", "ways", "more")
SPLIT_HELP = (
    f"dev ({SIZES['dev']} examples) is for choosing heads, test ({SIZES['test']}) for reporting "
    "figures. A mask chosen while looking at test gives an optimistic estimate on test."
)
READING = (
    "Difference: accuracy with these heads off minus unpruned, in points, on the same examples; "
    "interval and p by resampling groups of examples. p (Holm) is corrected for testing several "
    "languages."
)


def pick_split() -> str:
    """Draw the choice of examples and return the split: dev or test."""
    keep_known_choice("split", "examples", list(SIZES))
    split = st.radio(
        "Examples", list(SIZES), horizontal=True, key="split", bind="query-params", help=SPLIT_HELP
    )
    remember_choice("split", split)  # this is a fragment, which may run without the page
    return split


@st.fragment
def draw_board(
    choice: Choice,
    loaded: LoadedModel,
    history: History,
    results: StoredScores,
    measured_jobs: Sequence[JobRow],
) -> None:
    """The switches, what the current mask does, and how to choose one.

    Args:
        choice: The sidebar's.
        loaded: Its model.
        history: Of the mask of this model.
        results: The stored scores of the choice.
        measured_jobs: Jobs that measure the speed of a mask.
    """
    with errors_as_sentences():
        known_figures = st.session_state.setdefault(accuracy.SEEN, {})
        with st.container(key="board"):  # laid out by static/page.css; in this order on a phone
            grid, figures, ways, more = (st.container(key=f"board-{name}") for name in AREAS)
        with figures:
            headline = st.container()
            split = pick_split()
            details = st.container()
            changed = st.container()
        mask = history.mask
        question = Question.of(
            choice.model,
            loaded.fingerprint,
            choice.task,
            split,
            mask if mask.removed else None,
            PruneState.of_session().asker,
            choice.label_map,
        )
        with ways:
            st.caption(HOW)
            scores = pick_scores(results)
            on_test = partial(accuracy.on_test, question, choice.languages, known_figures)
            draw_suggestion(history, results, scores, on_test)
            draw_head_list(history)
            draw_savings(choice, loaded.costs, mask, measured_jobs)
        with grid:
            draw_switches(history, scores, heads_gated_together(loaded.fingerprint))
            draw_toolbar(history)
        with more:
            st.caption(READING)
            draw_mask_files(mask, history, loaded, question, known_figures, choice.languages)
            reported_masks: dict[str, Mask] = {}
            if mask.removed:
                reported_masks["Mask of the Prune page"] = with_measured_accuracies(
                    mask, question, known_figures, choice.languages
                )
            offer_page_report(choice, results.scores, reported_masks)
        write_link(history)
        live = accuracy.running(worker_client(), question, choice.languages, known_figures)
        with changed:
            draw_changed_answers(question, choice.languages, known_figures)
        accuracy.show(headline, details, live, choice.languages, question)


@st.fragment
def draw_smaller_models(choice: Choice, history: History, fingerprint: str) -> None:
    """Pareto fronts: requesting one, and the points of the stored one that is shown.

    Args:
        choice: The sidebar's.
        history: Of the mask of its model, which a point becomes.
        fingerprint: Of the model.
    """
    with errors_as_sentences():
        draw_fronts(choice, history, fingerprint)


def draw_page() -> None:
    """Draw the page."""
    with page("prune") as choice:
        with st.spinner("Loading the model …"):
            loaded = loaded_model(choice.model)
        history = history_of(loaded.fingerprint, loaded.grid, loaded.identity)
        # A widget's state is dropped with its page: without it, the user has just arrived.
        if sentence := follow_link(history, arrived=GRID not in st.session_state):
            st.warning(plain(sentence))
        if loaded.note:
            st.caption(plain(loaded.note))
        if choice.languages:
            results = scores_of(choice)
            switch_tab, smaller_tab = st.tabs(PRUNE_TABS, key=PRUNE_TAB, bind="query-params")
            with switch_tab:
                draw_board(choice, loaded, history, results, measuring_jobs())
                contrast.of_languages(results.scores)
                draw_guide_below("prune")
            with smaller_tab:
                draw_smaller_models(choice, history, loaded.fingerprint)
            job_offer.panel(
                choice, results, "They colour the heads and say which ones to switch off."
            )
            if not results.missing:
                job_actions.progress()  # otherwise the offer shows it
        else:
            st.info("No language is chosen. Pick some in the sidebar.")
