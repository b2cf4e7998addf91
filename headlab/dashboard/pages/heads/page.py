"""One map per language on one scale, one head in every language, and what is being computed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import streamlit as st

from headlab.core import HEADS, Head, nouns_of_kinds, players_phrase
from headlab.dashboard.frame import (
    Choice,
    StoredScores,
    draw_no_language,
    page,
    scores_of,
)
from headlab.dashboard.names import (
    head_key,
    head_number,
    head_words,
    language_title,
    page_link,
    plain,
)
from headlab.dashboard.pages.heads.sharpening import (
    draw_sharpening,
    in_place_of_maps,
    offer_sharper,
)
from headlab.dashboard.panels.heads import (
    HEAD_PARAM,
    confidence_scores,
    draw_card,
    draw_comparison_section,
    draw_details,
    draw_every_head,
    pick_head,
    table_of_heads,
)
from headlab.dashboard.panels.jobs import offer_missing_scores
from headlab.dashboard.widgets import (
    download_button,
    draw_map,
    draw_small_maps,
    file_stem_of,
    group_sizes_of,
    keep_known_choice,
    maps_details,
    maps_title,
    pick_scale,
    set_widget,
)
from headlab.pictures import maps_of_scores
from headlab.results import HeadScores

TABLE = "every-head"
"""Widget key of the table of every head in every language."""

ScoresByLanguage = Mapping[str, HeadScores]


def select_head(scores: ScoresByLanguage, language: str, head: Head) -> None:
    """Show this head, in this language if it is among those shown: the action of a click."""
    grids = [scores_of_language.grid for scores_of_language in scores.values()]
    set_widget(HEAD_PARAM, head_number(head, grids[0]) if grids else head_key(head))
    if language in scores and language != st.session_state.get("focus"):
        set_widget("focus", language)


def pick_language_and_head(scores: ScoresByLanguage) -> tuple[str, Head]:
    """The widgets that match a click: language and head by name."""
    first_scores = next(iter(scores.values()))
    grid = first_scores.grid
    keep_known_choice("focus", "language", list(scores))
    language_place, head_place = st.columns(2)
    language = language_place.selectbox(
        "Language", list(scores), format_func=str, key="focus", bind="query-params"
    )
    with head_place:
        head = pick_head(grid, grid.heads[int(first_scores.values.argmax())])
    return language, head


def draw_tables(
    choice: Choice, scores: ScoresByLanguage, confidence: ScoresByLanguage, head: Head
) -> None:
    """The selected head in numbers, and every head in every language, also as a file."""
    grid = next(iter(scores.values())).grid
    st.subheader(f"{plain(head_words(head, grid))} in numbers")
    draw_details(scores, confidence, head)
    one = nouns_of_kinds(grid.kinds)[0]
    st.subheader(f"Every {one}")
    table = table_of_heads(scores)
    subject = (choice.model, choice.task, choice.method)
    file_name = f"{file_stem_of(grid.noun.replace(' ', '-'), subject)}.csv"
    download_button(
        f"Download every {one} as CSV", table.to_csv(index=False), file_name, "text/csv"
    )
    draw_every_head(scores, TABLE, partial(select_head, scores))


def draw_scores(choice: Choice, results: StoredScores, confidence: ScoresByLanguage) -> None:
    """The page where there are scores.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
        confidence: Mean of each head's largest attention weight, by language, where it is stored.
    """
    scores = results.scores
    select = partial(select_head, scores)
    sharpening_area = st.container()
    with st.container(key="map-and-card"):
        map_column, card_column = st.columns([10, 11], gap="large")
    maps_area = st.container()
    with maps_area:
        st.subheader("Language by language")
        maps = maps_of_scores(scores, common=pick_scale(len(scores)))
    with map_column:
        language, head = pick_language_and_head(scores)
        draw_map(
            maps[language],
            key="large",
            title=language_title(language),
            selected_head=head,
            on_click=partial(select, language),
            group_sizes=group_sizes_of(scores[language]),
        )
        offer_sharper(choice, scores[language])
    with card_column:
        draw_card(scores, confidence, head, language)
        if scores[language].grid.has_only_heads:
            page_link("head", "All that is known of it")
    with sharpening_area:
        draw_sharpening(choice, scores, head, select)
    draw_small_maps(
        maps,
        key="small",
        selected_head=head,
        on_click=select,
        group_sizes=group_sizes_of(scores[language]),
        missing=in_place_of_maps(choice, results),
    )
    with st.expander("What colours and marks mean", icon=":material/palette:"):
        st.markdown(maps_details(scores))
    if results.missing:
        st.caption(f"Not cached: {plain(', '.join(map(language_title, results.missing)))}.")
        offer_missing_scores(choice, results.missing, results.template)
    for note in results.notes:
        st.caption(f"{plain(note)}.")
    draw_comparison_section(scores, language, head, partial(select, language))
    draw_tables(choice, scores, confidence, head)


def draw_without_scores(choice: Choice, results: StoredScores) -> None:
    """The page without scores: what is being computed, and the offer to compute them."""
    players = "" if choice.players == HEADS else f" on {players_phrase(choice.players)}"
    st.info(
        plain(
            f"No {choice.method} results{players} of {choice.model} on {choice.task} are cached for "
            "these languages."
        )
    )
    linked_head = st.session_state.get(HEAD_PARAM)
    draw_sharpening(choice, {}, linked_head, partial(select_head, {}))
    draw_small_maps({}, key="small", missing=in_place_of_maps(choice, results))
    offer_missing_scores(choice, results.missing)


def draw_page() -> None:
    """Draw the page."""
    with page("heads") as choice:
        results = scores_of(choice)
        if not choice.languages:
            draw_no_language(choice)
        elif not results.scores:
            draw_without_scores(choice, results)
        else:
            st.markdown(maps_title(results.scores))
            draw_scores(choice, results, confidence_scores(choice))
