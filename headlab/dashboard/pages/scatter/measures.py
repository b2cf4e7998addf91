"""Which measures of a model's heads are on the axes."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.charts.head_measures import HeadMeasure
from headlab.dashboard.frame import Choice
from headlab.dashboard.panels.heads import HeadData
from headlab.dashboard.panels.stored import StoredRoles
from headlab.dashboard.widgets import keep_known_choice
from headlab.methods import ATTENTION_METHOD
from headlab.results import HeadScores

NO_LANGUAGE = "–"
"""The option of the widget for languages where a measure is of the model alone."""


def first_axes(choice: Choice, data: HeadData) -> tuple[tuple[str, str], tuple[str, str]]:
    """Name and language of the measures that the axes show at first.

    The values in two languages where there are two, else values against confidence, else the first
    two measures.

    Args:
        choice: The sidebar's.
        data: What is stored of its heads.
    """
    names = list(data.measures)
    first_name = names[0]
    known_languages = list(data.measures[first_name].by_language)
    chosen = [language for language in choice.languages if language in known_languages]
    languages = [*chosen, *(name for name in known_languages if name not in chosen)]
    if len(chosen) > 1:
        return (first_name, chosen[0]), (first_name, chosen[1])
    second_name = f"value by {ATTENTION_METHOD}"
    if second_name == first_name or second_name not in names:
        second_name = names[min(1, len(names) - 1)]
    return (first_name, languages[0]), (second_name, languages[0])


def pick_measure(
    data: HeadData, axis: str, label: str, first_name: str, first_language: str
) -> HeadMeasure:
    """Draw the widgets for one axis and return its measure.

    Args:
        data: What is stored of the heads.
        axis: "across" or "upwards": the parameter of the link.
        label: Of the widget.
        first_name: Of the measure shown at first.
        first_language: Of its language.
    """
    names = list(data.measures)
    name_place, language_place = st.columns([3, 1])
    keep_known_choice(axis, "measure", names)
    with name_place:
        name = st.selectbox(
            label, names, index=names.index(first_name), key=axis, bind="query-params"
        )
    makers = data.measures[name].by_language
    languages = [language or NO_LANGUAGE for language in makers]
    language_key = f"{axis}lang"
    keep_known_choice(language_key, "language", languages)
    with language_place:
        language = st.selectbox(
            f"Language {axis}",
            languages,
            index=languages.index(first_language) if first_language in languages else 0,
            format_func=str,
            key=language_key,
            bind="query-params",
        )
    return makers["" if language == NO_LANGUAGE else language]()


def report_of_colours(data: HeadData, languages: Sequence[str]) -> StoredRoles | None:
    """The report whose roles colour the heads; None if there is none.

    Args:
        data: What is stored of the heads.
        languages: Codes of the axes' languages, of which the first with a report has it.
    """
    for language in (*languages, *data.roles):
        if language in data.roles:
            return data.roles[language]
    return None


def scores_of_colours(data: HeadData, languages: Sequence[str]) -> HeadScores | None:
    """The scores whose signs colour the heads; None if there are none with intervals.

    Args:
        data: What is stored of the heads.
        languages: Codes of the axes' languages, of which the first with such scores has them.
    """
    for language in (*languages, *data.scores.scores):
        scores = data.scores.scores.get(language)
        if scores is not None and scores.signed and scores.low is not None:
            return scores
    return None
