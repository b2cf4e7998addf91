"""One head: its values by every method, its roles, what changes without it, and masks without it."""

from __future__ import annotations

from functools import partial

import streamlit as st

from headlab.core import Head
from headlab.dashboard.frame import Choice, draw_no_language, errors_as_sentences, page, scores_of
from headlab.dashboard.names import head_number, language_title, plain
from headlab.dashboard.pages.head.known_values import draw_known_values
from headlab.dashboard.pages.head.masks import draw_masks_without
from headlab.dashboard.pages.head.pairs import draw_pairs
from headlab.dashboard.pages.head.sentences import draw_sentences
from headlab.dashboard.pages.head.without import draw_without
from headlab.dashboard.panels.heads import (
    HEAD_PARAM,
    HeadData,
    confidence_scores,
    draw_card,
    draw_details,
    draw_role_examples,
    draw_roles_of_head,
    head_data_of,
    pick_head,
)
from headlab.dashboard.panels.jobs import offer_missing_scores
from headlab.dashboard.widgets import (
    draw_map,
    group_sizes_of,
    keep_known_choice,
    set_widget,
)
from headlab.pictures import maps_of_scores


def first_head_of(data: HeadData) -> Head:
    """The head that is shown where none was chosen: the most useful one, or else the first.

    Args:
        data: What is stored of the heads.
    """
    scores = data.scores.first_scores
    if scores is None:
        return data.grid.heads[0]
    return data.grid.heads[int(scores.values.argmax())]


def pick_language_and_head(choice: Choice, data: HeadData) -> tuple[str, Head]:
    """Draw the widgets for the head and the language that is spoken of.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
    """
    head_place, language_place = st.columns(2)
    with head_place:
        head = pick_head(data.grid, first_head_of(data))
    keep_known_choice("focus", "language", list(choice.languages))
    language = language_place.selectbox(
        "Language", choice.languages, format_func=str, key="focus", bind="query-params"
    )
    return language, head


def select_head(data: HeadData, head: Head) -> None:
    """Show another head: the action of a click in the map."""
    set_widget(HEAD_PARAM, head_number(head, data.grid))


def draw_values(choice: Choice, data: HeadData, language: str, head: Head) -> None:
    """The head in the map of one language, its card, and its values by every method.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        language: Code of the language that is spoken of.
        head: The head.
    """
    results = scores_of(choice)
    scores = {
        name: language_scores
        for name, language_scores in results.scores.items()
        if language_scores.grid == data.grid
    }
    if language in scores:
        with st.container(key="map-and-card"):
            map_column, card_column = st.columns([10, 11], gap="large")
        confidence = confidence_scores(choice)
        with map_column:
            draw_map(
                maps_of_scores(scores)[language],
                key="one-head-map",
                title=language_title(language),
                selected_head=head,
                on_click=partial(select_head, data),
                group_sizes=group_sizes_of(scores[language]),
            )
        with card_column:
            draw_card(scores, confidence, head, language, has_links=False)
        with st.expander("The same in numbers", icon=":material/table:"):
            draw_details(scores, confidence, head)
    else:
        st.info(
            plain(
                f"No {choice.method} scores of {language_title(language)} are cached. What else is "
                "known of this head stands below."
            )
        )
    if results.missing:
        offer_missing_scores(choice, results.missing, results.template)
    draw_known_values(choice, data, head)


def draw_roles(data: HeadData, language: str, head: Head) -> None:
    """The head's roles, in the language that is spoken of or else in another one.

    Args:
        data: What is stored of the heads.
        language: Code of the language that is spoken of.
        head: The head.
    """
    st.subheader("What it does")
    report = data.roles.get(language) or next(iter(data.roles.values()), None)
    if report is None:
        st.caption("No report on roles is cached. The Roles page makes one.")
        return
    if report.language != language:
        other_title = plain(language_title(report.language))
        st.caption(
            f"There is no report on {plain(language_title(language))}: this is {other_title}."
        )
    draw_roles_of_head(report.roles, head)
    if report.roles.roles_of(head):
        with st.expander("Sentences in which it does, and does not", icon=":material/notes:"):
            draw_role_examples(report.roles, head, of_head_alone=True)


def draw_head(choice: Choice, data: HeadData) -> None:
    """The page where something is stored of the heads.

    Args:
        choice: The sidebar's.
        data: What is stored.
    """
    language, head = pick_language_and_head(choice, data)
    draw_values(choice, data, language, head)
    draw_roles(data, language, head)
    with errors_as_sentences():
        draw_pairs(choice, data, head, language)
    with errors_as_sentences():  # each its own, so that one that fails leaves the others
        draw_sentences(choice, data, head, language)
    with errors_as_sentences():
        draw_without(choice, data, head, language)
    with errors_as_sentences():
        draw_masks_without(choice, data, head)


def draw_page() -> None:
    """Draw the page."""
    with page("head") as choice:
        data = head_data_of(choice)
        if not choice.languages:
            draw_no_language(choice)
        elif data is None:
            st.info(
                plain(
                    f"Nothing is cached of the heads of {choice.model} yet. Start with its scores."
                )
            )
            offer_missing_scores(choice, scores_of(choice).missing)
        else:
            draw_head(choice, data)
