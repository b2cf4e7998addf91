"""Which heads are specific to some languages: their values there against those in the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import streamlit as st

from headlab.core import HEAD_COLUMNS, HEAD_FORMATS, Cell, Table, display_unit
from headlab.dashboard.names import count_words, head_number, languages_words, plain
from headlab.dashboard.panels.masks import MEAN_OF_LANGUAGES, pooled_scores
from headlab.dashboard.widgets import (
    draw_figure,
    notify_of_link,
    set_widget,
    show_table,
    unknown_in_link,
)
from headlab.pictures import value_format
from headlab.plots import across_languages
from headlab.results import Contrast, HeadScores, contrast

SUBJECT_PARAM = "specific"
"""Parameter of the link: the languages that heads are specific to."""
COUNT_PARAM = "most"
"""Parameter of the link: how many heads are shown."""
SHOWN_HEADS = 10
"""How many heads are shown at first."""
MAX_SHOWN_HEADS = 40


def draw_specific_to(scores: Mapping[str, HeadScores]) -> None:
    """The question with its widgets, a chart of the heads that differ most, and all in a table.

    Args:
        scores: By language, of two or more languages.
    """
    st.subheader("Which heads are specific to some languages?")
    languages_place, count_place = st.columns([3, 2])
    with languages_place:
        subject = pick_subject(list(scores))
    with count_place:
        count = st.slider(
            "At most this many heads",
            1,
            MAX_SHOWN_HEADS,
            SHOWN_HEADS,
            key=COUNT_PARAM,
            bind="query-params",
        )
    others = [language for language in scores if language not in subject]
    if not subject or not others:
        st.info("Choose at least one of the languages, and leave at least one for the comparison.")
        return
    subject_scores = pooled_scores({name: scores[name] for name in subject}, MEAN_OF_LANGUAGES)
    other_scores = pooled_scores({name: scores[name] for name in others}, MEAN_OF_LANGUAGES)
    assert subject_scores is not None
    assert other_scores is not None
    comparison = contrast(subject_scores, other_scores)
    if comparison.difference is None:
        st.info("These languages' values have different units, so they have no difference.")
        return
    order = order_of_differences(comparison)
    st.markdown(plain(sentence_on(comparison, subject, others)))
    _draw_chart(comparison, subject_scores, order[:count], subject)
    show_table(table_of_differences(comparison, subject_scores, other_scores, order), "specific")


def pick_subject(languages: Sequence[str]) -> list[str]:
    """Draw the widget for the languages that are asked about, and return them.

    Args:
        languages: Codes of those with scores.
    """
    chosen = st.session_state.get(SUBJECT_PARAM)
    sentence = None
    if chosen is None:
        sentence = unknown_in_link(SUBJECT_PARAM, "language", languages)
    elif not set(chosen) <= set(languages):  # the sidebar has other languages now
        set_widget(SUBJECT_PARAM, [code for code in chosen if code in languages])
    notify_of_link(SUBJECT_PARAM, sentence)
    return st.multiselect(
        "Specific to",
        languages,
        default=[languages[0]],
        format_func=str,
        key=SUBJECT_PARAM,
        bind="query-params",
        help="Their mean is compared with the mean of the other languages chosen in the sidebar",
    )


def order_of_differences(comparison: Contrast) -> list[int]:
    """Indices of the heads with a difference: the clear ones first, then by size.

    Args:
        comparison: Of the languages asked about with the others.
    """
    difference = comparison.difference
    assert difference is not None
    known = np.flatnonzero(np.isfinite(difference))
    ranked = sorted(known.tolist(), key=lambda index: -abs(difference[index]))
    return sorted(ranked, key=lambda index: not comparison.clear[index])


def sentence_on(comparison: Contrast, subject: Sequence[str], others: Sequence[str]) -> str:
    """How many heads differ, and what that rests on.

    Args:
        comparison: Of the languages asked about with the others.
        subject: Codes of the languages asked about.
        others: Codes of those that they are compared with.
    """
    subject_words = languages_words(subject)
    other_words = "the mean of " * (len(others) > 1) + languages_words(others)
    if comparison.low is None:
        return (
            f"{subject_words} against {other_words}: these values have no intervals, so it is not "
            "known which differences are noise."
        )
    clear_count = int(comparison.clear.sum())
    verb = "differs" if clear_count == 1 else "differ"
    sentence = (
        f"{subject_words} against {other_words}: {count_words(clear_count, 'head')} of "
        f"{len(order_of_differences(comparison))} {verb} by more than both intervals allow"
    )
    if len(subject) == len(others) == 1:
        sentence += f", each at a confidence of at least {100 * comparison.level:g} %"
    by_chance = " Among so many, some may be by chance." if clear_count else ""
    return f"{sentence}.{by_chance}"


def _draw_chart(
    comparison: Contrast, scores: HeadScores, indices: Sequence[int], subject: Sequence[str]
) -> None:
    """The differences of some heads with their intervals, the first on top."""
    assert comparison.difference is not None
    factor, unit = display_unit(scores.unit)
    names = [f"Head {head_number(scores.grid.heads[index], scores.grid)}" for index in indices]
    chosen = list(indices)
    no_bounds = np.full(len(chosen), np.nan)
    figure = across_languages(
        names,
        factor * comparison.difference[chosen],
        no_bounds if comparison.low is None else factor * comparison.low[chosen],
        no_bounds if comparison.high is None else factor * comparison.high[chosen],
        f"more there than elsewhere ({unit})",
        says_help=False,
    )
    draw_figure(
        figure,
        f"specific-{'-'.join(subject[:4])}",
        key="specific-figure",
        alt=f"Heads whose value in {languages_words(subject)} differs most from the others",
        subject_details=f"{scores.method}, estimand {scores.estimand}",
    )


def table_of_differences(
    comparison: Contrast, subject_scores: HeadScores, other_scores: HeadScores, order: Sequence[int]
) -> Table:
    """A row per head: its value in the languages asked about, in the others, and the difference.

    Args:
        comparison: Of the languages asked about with the others.
        subject_scores: The mean of the languages asked about.
        other_scores: The mean of the others.
        order: Indices of the heads, in the order of the rows.
    """
    factor, unit = display_unit(subject_scores.unit)
    number_format = value_format(subject_scores.unit) if subject_scores.signed else ".4g"
    columns = [
        (f"there, {unit}", subject_scores.tested_values),
        (f"elsewhere, {unit}", other_scores.tested_values),
        (f"difference, {unit}", comparison.difference),
        (f"low, {unit}", comparison.low),
        (f"high, {unit}", comparison.high),
    ]
    known_columns = [(name, column) for name, column in columns if column is not None]
    rows: list[tuple[Cell, ...]] = []
    for index in order:
        numbers = [factor * float(column[index]) for _, column in known_columns]
        rows.append((*subject_scores.grid.heads[index], *numbers))
    notes: tuple[str, ...] = ()
    if comparison.low is not None:
        notes = (
            "The interval of a difference holds whenever both sides' intervals do. That of a mean is "
            "the mean of its languages' intervals: it holds whenever all of these do.",
        )
    if subject_scores.sample_means is not None:
        notes += ("Values here are means of samples; maps of values lean on slopes too.",)
    return Table(
        "specific-heads-of-languages",
        "Every head, the surest and largest difference first",
        (*HEAD_COLUMNS, *(name for name, _ in known_columns)),
        (*HEAD_FORMATS, *(number_format for _ in known_columns)),
        tuple(rows),
        notes,
    )
