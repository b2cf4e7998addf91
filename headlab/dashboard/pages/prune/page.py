"""What does the model lose, or gain, when these heads are switched off?"""

from __future__ import annotations

import secrets
from functools import partial

import streamlit as st

from headlab.dashboard.frame import (
    draw_guide_below,
    errors_as_sentences,
    loaded_model,
    page,
    scores_of,
    worker_client,
)
from headlab.dashboard.names import PRUNE_TAB, PRUNE_TABS, plain
from headlab.dashboard.pages.prune import board as prune_page
from headlab.dashboard.pages.prune.changed_answers import draw_changed_answers
from headlab.dashboard.pages.prune.front import draw_fronts
from headlab.dashboard.panels import accuracy, contrast, job_actions, job_offer
from headlab.dashboard.panels.accuracy import SIZES, Question
from headlab.dashboard.panels.history import follow_link, history_of, write_link
from headlab.dashboard.panels.mask_files import draw_mask_files, with_measured_accuracies
from headlab.dashboard.panels.page_report import offer_page_report
from headlab.dashboard.widgets import heads_gated_together, keep_known_choice, remember_choice

AREAS = ("grid", "figures", "ways", "more")
SPLIT_HELP = (
    f"dev ({SIZES['dev']} examples) is for choosing heads, test ({SIZES['test']}) for reporting figures. A mask chosen "
    "while looking at test gives an optimistic estimate on test."
)
READING = (
    "Difference: accuracy with these heads off minus unpruned, in points, on the same examples; interval and p by "
    "resampling groups of examples. p (Holm) is corrected for testing several languages."
)


def pick_split():
    keep_known_choice("split", "examples", list(SIZES))
    split = st.radio(
        "Examples", list(SIZES), horizontal=True, key="split", bind="query-params", help=SPLIT_HELP
    )
    remember_choice("split", split)  # this is a fragment, which may run without the page
    return split


@st.fragment
def board(choice, loaded, history, results, measured):
    with errors_as_sentences():
        known = st.session_state.setdefault(accuracy.SEEN, {})
        with st.container(key="board"):  # laid out by static/page.css; in this order on a phone
            grid, figures, ways, more = (st.container(key=f"board-{name}") for name in AREAS)
        with figures:
            headline = st.container()
            split = pick_split()
            details, changed = st.container(), st.container()
        mask = history.mask
        asker = st.session_state.setdefault("_asker", secrets.token_hex(8))
        question = Question.of(
            choice.model,
            loaded.fingerprint,
            choice.task,
            split,
            mask if mask.removed else None,
            asker,
            choice.label_map,
        )
        with ways:
            st.caption(prune_page.HOW)
            scores = prune_page.pick_scores(results)
            on_test = partial(accuracy.on_test, question, choice.languages, known)
            prune_page.suggestion(history, results, scores, on_test)
            prune_page.twin(history)
            prune_page.savings(choice, loaded.costs, mask, measured)
        with grid:
            prune_page.switches(history, scores, heads_gated_together(loaded.fingerprint))
            prune_page.toolbar(history)
        with more:
            st.caption(READING)
            draw_mask_files(mask, history, loaded, question, known, choice.languages)
            masks = {}
            if mask.removed:
                measured_mask = with_measured_accuracies(mask, question, known, choice.languages)
                masks["Mask of the Prune page"] = measured_mask
            offer_page_report(choice, results.scores, masks)
        write_link(history)
        live = accuracy.running(worker_client(), question, choice.languages, known)
        with changed:
            draw_changed_answers(question, choice.languages, known)
        accuracy.show(headline, details, live, choice.languages, question)


@st.fragment
def smaller(choice, history, fingerprint):
    with errors_as_sentences():
        draw_fronts(choice, history, fingerprint)


def draw_page() -> None:
    """Draw the page."""
    with page("prune") as choice:
        with st.spinner("Loading the model …"):
            loaded = loaded_model(choice.model)
        history = history_of(loaded.fingerprint, loaded.grid, loaded.identity)
        # A widget's state is dropped with its page: without it, the user has just arrived.
        if sentence := follow_link(history, arrived=prune_page.GRID not in st.session_state):
            st.warning(plain(sentence))
        if loaded.note:
            st.caption(plain(loaded.note))
        if choice.languages:
            results = scores_of(choice)
            switch, find = st.tabs(PRUNE_TABS, key=PRUNE_TAB, bind="query-params")
            with switch:
                board(choice, loaded, history, results, prune_page.jobs())
                contrast.of_languages(results.scores)
                draw_guide_below("prune")
            with find:
                smaller(choice, history, loaded.fingerprint)
            job_offer.panel(
                choice, results, "They colour the heads and say which ones to switch off."
            )
            if not results.missing:
                job_actions.progress()  # otherwise the offer shows it
        else:
            st.info("No language is chosen. Pick some in the sidebar.")
