"""The first tab of the Prune page: the switches, and what the current mask does.

It also offers ways to choose one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from headlab.dashboard.frame import Choice, StoredScores, errors_as_sentences, worker_client
from headlab.dashboard.pages.prune.board import (
    draw_head_list,
    draw_suggestion,
    draw_switches,
    draw_toolbar,
    how_to_switch,
    pick_scores,
)
from headlab.dashboard.pages.prune.savings import draw_savings
from headlab.dashboard.pages.prune.state import PruneState
from headlab.dashboard.panels.heads import draw_changed_answers
from headlab.dashboard.panels.masks import (
    EXAMPLES_BY_SPLIT,
    MAX_UNFOLDED_LANGUAGES,
    MEAN_OF_LANGUAGES,
    AccuracyQuestion,
    FigurePlaces,
    MaskHistory,
    arriving_figures,
    draw_arriving_figures,
    draw_mask_files,
    draw_test_verdict,
    pick_stand_in,
    players_of_model,
    session_figures,
    show_masks_in_report,
    with_measured_accuracies,
    write_mask_link,
)
from headlab.dashboard.streamlit_private import Placeholder
from headlab.dashboard.widgets import group_sizes_of, keep_known_choice, remember_choice
from headlab.masks import Mask
from headlab.results import HeadScores
from headlab.worker import JobRow, LoadedModel

SPLIT_HELP = (
    f"dev ({EXAMPLES_BY_SPLIT['dev']} examples) is for choosing, test ({EXAMPLES_BY_SPLIT['test']}) for reporting "
    "figures. A mask chosen while looking at test gives an optimistic estimate on test."
)
READING = (
    "Difference: accuracy with these {} off minus unpruned, in points, on the same examples; "
    "interval and p by resampling groups of examples. p (Holm) is corrected for testing several "
    "languages."
)


def headline_of(scores: HeadScores | None, languages: Sequence[str]) -> str:
    """The language that the page speaks of first: that of the colours, else the mean of all.

    Args:
        scores: That colour the grid; None for none.
        languages: Codes of the languages chosen in the sidebar.
    """
    if len(languages) == 1:
        return languages[0]
    if scores is not None and scores.language in languages:
        return scores.language
    return MEAN_OF_LANGUAGES


def table_title(headline: str, language_count: int) -> str:
    """What the fold with the table of all languages is called."""
    if headline == MEAN_OF_LANGUAGES:
        return f"Each of {language_count} languages"
    return f"Also in {language_count - 1} languages"


def pick_split() -> str:
    """Draw the choice of examples and return the split: dev or test."""
    keep_known_choice("split", "examples", list(EXAMPLES_BY_SPLIT))
    split = st.radio(
        "Examples",
        list(EXAMPLES_BY_SPLIT),
        horizontal=True,
        key="split",
        bind="query-params",
        help=SPLIT_HELP,
    )
    remember_choice("split", split)  # this is a fragment, which may run without the page
    return split


@st.fragment
def draw_board(
    choice: Choice,
    model: LoadedModel,
    history: MaskHistory,
    results: StoredScores,
    measured_jobs: Sequence[JobRow],
) -> None:
    """The switches, what the current mask does, and how to choose one.

    Args:
        choice: The sidebar's.
        model: Its model.
        history: Of the mask of this model.
        results: The stored scores of the choice.
        measured_jobs: Jobs that measure the speed of a mask.
    """
    with errors_as_sentences():
        known_figures = session_figures()
        with st.container(key="board"):  # laid out by static/page.css
            verdict_area = st.container(key="board-verdict")
            grid_area = st.container(key="board-grid")
            with st.container(key="board-side"):
                figures_area = st.container(key="board-figures")
                below_area = st.container(key="board-more")
            ways_area = st.container(key="board-ways")
        with ways_area:
            st.caption(how_to_switch(history.grid))
            scores = pick_scores(results)
        headline = headline_of(scores, choice.languages)
        languages = [*choice.languages]
        if headline in languages:  # measured first, and in the first row
            languages.remove(headline)
            languages.insert(0, headline)
        with figures_area:
            headline_area = st.container()
            split = pick_split()
            ablation = pick_stand_in(history.mask)
            notes_area = st.container()
            if len(languages) > MAX_UNFOLDED_LANGUAGES:
                table_area: Placeholder = st.expander(table_title(headline, len(languages)))
            else:
                table_area = st.container()
            answers_area = st.container()
        mask = history.mask
        question = AccuracyQuestion.unchecked(
            choice.model,
            model.fingerprint,
            choice.task,
            split,
            mask if mask.removed else None,
            PruneState.of_session().asker,
            choice.label_map,
            noun=history.grid.noun,
            ablation=ablation,
        )
        with ways_area:
            draw_on_test = partial(draw_test_verdict, question, languages, known_figures, headline)
            draw_suggestion(history, results, scores, draw_on_test)
            draw_head_list(history)
        with grid_area:
            draw_switches(history, scores, group_sizes_of(model.fingerprint), len(results.scores))
            draw_toolbar(history)
        # After the switches: the first time, the worker may take a moment to answer.
        players = players_of_model(choice.model, model, history.grid)
        with ways_area:
            draw_savings(choice, players, mask, measured_jobs)
        with below_area:
            draw_mask_files(mask, history, players, question, known_figures, choice)
            reported_masks: dict[str, Mask] = {}
            if mask.removed:
                reported_masks["Mask of the Prune page"] = with_measured_accuracies(
                    mask, question, known_figures, choice.languages
                )
            show_masks_in_report(reported_masks)
        write_mask_link(history)
        running_figures = arriving_figures(
            worker_client(), question, languages, known_figures, headline
        )
        with answers_area:
            draw_changed_answers(question, choice.languages, known_figures)
        places = FigurePlaces(verdict_area, headline_area, table_area, notes_area)
        draw_arriving_figures(places, running_figures, languages, question, headline)
        with table_area:
            st.caption(READING.format(history.grid.noun))
