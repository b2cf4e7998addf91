"""Which languages rank the heads alike, which heads they share, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from headlab.charts.studies.agreement import agreement_matrix, dendrogram
from headlab.core import Table, display_unit
from headlab.dashboard.frame import (
    Choice,
    errors_as_sentences,
    page,
    samples_note,
    scores_of,
    task_languages,
)
from headlab.dashboard.names import language_title, page_link, plain
from headlab.dashboard.pages.languages.agreement import compared_languages, noise_note
from headlab.dashboard.pages.languages.specific import draw_specific_to
from headlab.dashboard.panels.heads import link_to_attention
from headlab.dashboard.panels.jobs import draw_missing_scores
from headlab.dashboard.widgets import draw_figure, set_widget, show_table
from headlab.methods import remarks
from headlab.results import HeadScores
from headlab.studies import HeadKind, Records, agreement, heads
from headlab.studies.heads import HeadPositiveInFew, SharedHead, SpecificHead, has_intervals

CHART = (
    "Spearman correlations of head scores, language by language; the tab Pairs has the same figures"
)
TREE = "Tree of languages by how alike they rank the heads; the tab Clusters has the same figures"
TOP_HEADS = 20
"""How many of a language's heads count as its top, to begin with."""
FEW_LANGUAGES = 3
"""In how many languages a head for a few helps at most, to begin with."""

ScoresByLanguage = Mapping[str, HeadScores]


def draw_agreement(scores: ScoresByLanguage) -> None:
    """How alike the languages rank the heads: a matrix, a tree, and their tables."""
    st.subheader("Do languages rank the heads alike?")
    comparison = compared_languages(scores)
    result = agreement.agreement_result(comparison)
    pairs, languages, clusters, *_ = result.tables()
    st.caption(f"Spearman ρ over {comparison.heads} heads.")
    for sentence in result.notes:
        st.markdown(plain(sentence))
    if comparison.statistics.noise is None:
        st.info(f"{noise_note(scores)} {agreement.no_halves_note()}")
    first_scores = next(iter(scores.values()))
    caption = (
        f"{first_scores.method}, estimand {first_scores.estimand}, {len(scores)} languages. "
        f"{samples_note(scores)}"
    )
    tabs = ["Chart", "Tree", "Pairs", "Each language", "Clusters"]
    chart_tab, tree_tab, *table_tabs = st.tabs(tabs, key="tab", bind="query-params")
    with chart_tab:
        by_similarity = st.toggle("Order by similarity", key="clustered", bind="query-params")
        draw_figure(
            agreement_matrix(result, similar=by_similarity),
            "agreement",
            alt=CHART,
            subject_details=caption,
        )
    with tree_tab:
        tree_figure = dendrogram(result.merges.rows, result.languages.rows)
        draw_figure(tree_figure, "agreement-clusters", alt=TREE, subject_details=caption)
        st.caption(
            "Where two clusters meet: the share of resamples of heads that have the cluster; blue "
            "from 80 %."
        )
    for tab, table in zip(table_tabs, (pairs, languages, clusters), strict=True):
        with tab:
            show_table(table, "languages")


def lower_slider(key: str, maximum: int) -> None:
    """Lower a slider's value that another model or more languages made too high.

    Streamlit rejects a value above the maximum.

    Args:
        key: Of the slider.
        maximum: Of its values now.
    """
    if st.session_state.get(key, 0) > maximum >= 1:
        set_widget(key, maximum)


def draw_shared_heads(scores: ScoresByLanguage) -> tuple[int, Records[SharedHead]]:
    """The heads among the top of every language.

    Returns:
        How many heads of a language are its top, and the heads.
    """
    st.subheader("Heads that every language needs")
    size = next(iter(scores.values())).grid.size
    lower_slider("top", size)
    top = st.slider("Among the top", 1, size, min(TOP_HEADS, size), key="top", bind="query-params")
    shared_heads = heads.shared_heads(scores, top)
    table = heads.shared_table(shared_heads)
    show_table_or(f"No head is among the top {top} of every language.", table)
    return top, shared_heads


def draw_specific_heads(
    scores: ScoresByLanguage,
) -> tuple[int, list[Sequence[SpecificHead | HeadPositiveInFew]]]:
    """The heads that help in a few languages only, and those that help in one and harm in another.

    Returns:
        In how many languages at most a head of the first table helps, and the heads of both tables,
        the more certain first.
    """
    st.subheader("Heads for a few languages")
    maximum = len(scores) - 1
    lower_slider("few", maximum)
    max_languages = 1
    if maximum > 1:
        max_languages = st.slider(
            "Positive in at most",
            1,
            maximum,
            min(FEW_LANGUAGES, maximum),
            key="few",
            bind="query-params",
        )
    few_heads = heads.heads_positive_in_few(scores, max_languages)
    few_table = heads.few_table(few_heads)
    show_table_or("No head is positive in so few languages and negative in all others.", few_table)
    specific_heads = heads.specific_heads(scores)
    if has_intervals(scores):
        show_table_or(
            "No head has an interval above 0 in one language and below 0 in another.",
            heads.specific_table(specific_heads),
        )
    return max_languages, [specific_heads.rows, few_heads.rows]


def show_table_or(sentence: str, table: Table) -> None:
    """The table, or a sentence below its title if it has no rows."""
    if table.rows:
        show_table(table, "languages")
    else:
        st.markdown(f"##### {plain(table.title)}")
        st.info(sentence)


def draw_comparison(scores: ScoresByLanguage) -> None:
    """The page where two languages or more have scores."""
    first_scores = next(iter(scores.values()))
    names = ", ".join(map(language_title, scores))
    unit = display_unit(first_scores.unit)[1]
    st.caption(f"{len(scores)} languages: {plain(names)}. {samples_note(scores)} Values in {unit}.")
    for remark in remarks(scores.values()):
        st.caption(f"Caution: {plain(remark)}.")
    with errors_as_sentences():  # the rest stands where not all heads were sampled
        draw_agreement(scores)
    draw_specific_to(scores)
    top, shared_heads = draw_shared_heads(scores)
    if first_scores.signed:
        max_languages, specific_lists = draw_specific_heads(scores)
        st.subheader("How many heads, and how certain")
        show_table(heads.count_table(scores, top, max_languages), "languages")
        link_to_attention(
            {HeadKind.AGNOSTIC: [shared_heads.rows], HeadKind.SPECIFIC: specific_lists}
        )
    else:
        st.info(
            "This method has no signs, so no head can be positive in one language and negative in "
            "another."
        )


def say_too_few(choice: Choice, languages_with_scores: int) -> None:
    """Why there is nothing to compare, and where to go.

    Args:
        choice: The sidebar's.
        languages_with_scores: How many of the chosen languages have scores: none or one.
    """
    task_codes = task_languages(choice.task)
    if len(task_codes) == 1:
        language = language_title(task_codes[0])
        st.info(plain(f"This page compares languages, and task {choice.task} has one: {language}."))
        page_link("heads", "The heads of this language")
        return
    st.info(
        f"A comparison needs two languages with {choice.method} results; of those chosen, "
        f"{languages_with_scores or 'none'} has any."
    )
    page_link("overview", "Choose another method on the overview")


def draw_page() -> None:
    """Draw the page."""
    with page("languages") as choice:
        results = scores_of(choice)
        languages_with_scores = len(results.scores)
        if languages_with_scores < 2:
            say_too_few(choice, languages_with_scores)
        else:
            draw_comparison(results.scores)
        if len(task_languages(choice.task)) != 1:
            draw_missing_scores(
                choice, results, "With them, these languages can be compared as well."
            )
