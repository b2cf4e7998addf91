"""Names and notes of the results on view: shown below the navigation, given under Share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from headlab.core import HeadlabError, as_sentence, content_key
from headlab.dashboard.frame import Choice, scores_of
from headlab.dashboard.names import count_words, plain
from headlab.dashboard.widgets import PageState, button, set_widget
from headlab.results import (
    MAX_NAME_LENGTH,
    MAX_NOTE_LENGTH,
    NO_LABEL,
    HeadScores,
    ResultLabel,
    store_with_demo,
)

NAME_WIDGET = "label-name"
NOTE_WIDGET = "label-note"


@dataclass
class LabelOutcome(PageState):
    """What came of the last name and note that one session saved.

    Attributes:
        problem: Why they were not saved, in a sentence; empty where they were.
        keys: Of the results that they are of.
    """

    key = "_label"
    problem: str = ""
    keys: tuple[str, ...] = ()


def keys_of(scores: Iterable[HeadScores]) -> list[str]:
    """The keys of stored scores.

    Args:
        scores: Of any languages.
    """
    return [content_key(dict(of_language.spec)) for of_language in scores]


def labels_of(keys: Sequence[str]) -> list[ResultLabel]:
    """The names and notes of some results, each once.

    Args:
        keys: Of the results.
    """
    store = store_with_demo()
    return list(dict.fromkeys(store.label(key) for key in keys))


def draw_label_line(choice: Choice) -> None:
    """Draw the names and notes of the results on view; nothing where they have none.

    Args:
        choice: The sidebar's, whose scores are on view.
    """
    store = store_with_demo()
    if not store.has_labels:  # mostly, and every page turn comes here
        return
    scores = scores_of(choice).scores
    languages_by_words: dict[str, list[str]] = {}
    for language, key in zip(scores, keys_of(scores.values()), strict=True):
        words = store.label(key).words
        if words:
            languages_by_words.setdefault(words, []).append(language)
    for words, languages in languages_by_words.items():
        subject = "" if len(languages) == len(scores) else f"{', '.join(languages)}: "
        st.caption(plain(f"{subject}{words}"))


def draw_label_form(scores: Mapping[str, HeadScores]) -> None:
    """Draw the fields for the name and note of the results on view, and their button.

    Args:
        scores: By language; without any, it is only said why the last name was not saved.
    """
    outcome = LabelOutcome.of_session()
    if not scores:
        if outcome.problem:
            st.error(plain(outcome.problem))
        return
    keys = keys_of(scores.values())
    labels = labels_of(keys)
    first_label = labels[0] if len(labels) == 1 else ResultLabel()
    # Other results are on view than before, or Share was folded, which drops its fields.
    if outcome.keys != tuple(keys) or NAME_WIDGET not in st.session_state:
        outcome.keys = tuple(keys)
        outcome.problem = ""
        set_widget(NAME_WIDGET, first_label.name)
        set_widget(NOTE_WIDGET, first_label.note)
    st.text_input("Name of these results", key=NAME_WIDGET, max_chars=MAX_NAME_LENGTH)
    st.text_area("Note", key=NOTE_WIDGET, max_chars=MAX_NOTE_LENGTH, height=80)
    button(
        "Save name and note",
        key="label-save",
        on_press=_save_label,
        args=(keys,),
        help="Kept in this cache, shown with these results and in their report",
    )
    if outcome.problem:
        st.error(plain(outcome.problem))
    if len(labels) > 1:
        subject = count_words(len(keys), "result")
        st.caption(f"These {subject} have different names or notes; saving gives all of them one.")
    elif len(keys) > 1:
        st.caption(f"One for all {len(keys)} languages on view.")


def _save_label(keys: Sequence[str]) -> None:
    """Keep what the fields hold as the name and note of results: the action of a press."""
    label = ResultLabel(
        str(st.session_state.get(NAME_WIDGET) or "").strip(),
        str(st.session_state.get(NOTE_WIDGET) or "").strip(),
    )
    outcome = LabelOutcome.of_session()
    outcome.problem = ""
    if label == NO_LABEL and len(labels_of(keys)) > 1:
        outcome.problem = (
            "Nothing was saved: these results have different names or notes, and empty fields would "
            "remove them all. Show one language to remove its own."
        )
        return
    store = store_with_demo()
    problems = []
    for key in keys:
        try:
            store.set_label(key, label)
        except HeadlabError as error:
            problems.append(as_sentence(error))
    if problems:
        saved_count = len(keys) - len(problems)
        outcome.problem = " ".join([f"Saved for {saved_count} of {len(keys)} results.", *problems])
