"""The first tab of the Prune page: the switches, what the current mask does, and how to choose one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from headlab.dashboard.frame import Choice, StoredScores, errors_as_sentences, worker_client
from headlab.dashboard.pages.prune.board import (
    HOW,
    draw_head_list,
    draw_suggestion,
    draw_switches,
    draw_toolbar,
    pick_scores,
)
from headlab.dashboard.pages.prune.changed_answers import draw_changed_answers
from headlab.dashboard.pages.prune.savings import draw_savings
from headlab.dashboard.pages.prune.state import PruneState
from headlab.dashboard.panels import accuracy
from headlab.dashboard.panels.accuracy import SIZES, Question
from headlab.dashboard.panels.history import History, write_link
from headlab.dashboard.panels.mask_files import draw_mask_files, with_measured_accuracies
from headlab.dashboard.panels.page_report import offer_page_report
from headlab.dashboard.widgets import heads_gated_together, keep_known_choice, remember_choice
from headlab.masks import Mask
from headlab.worker import JobRow, LoadedModel

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
