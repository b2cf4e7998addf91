"""What the model says without one head: its accuracy, and the sentences whose answer changes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import streamlit as st

from headlab.core import Head, is_same_model
from headlab.dashboard.frame import Choice, loaded_model, worker_client
from headlab.dashboard.names import head_key, plain
from headlab.dashboard.panels.heads import (
    HeadData,
    draw_changed_answers,
    draw_head_actions,
    mask_without,
)
from headlab.dashboard.panels.masks import (
    AccuracyQuestion,
    FigurePlaces,
    arriving_figures,
    draw_arriving_figures,
    session_figures,
)
from headlab.dashboard.widgets import PageState, button

SPLIT = "dev"
"""The examples that a head is looked at on; test is for what is reported, on the Prune page."""


@dataclass
class MeasuredHead(PageState):
    """The head without which the page of one session measures the model.

    Attributes:
        head: Its key, the model's fingerprint and the task; empty if none is measured.
        asker: Tells the worker which of its questions about masks are this page's: a new one
            replaces the last.
    """

    key = "_measured_head"
    head: tuple[str, ...] = ()
    asker: str = field(default_factory=lambda: secrets.token_hex(8))


def draw_without(choice: Choice, data: HeadData, head: Head, language: str) -> None:
    """Buttons for the head, and what the model says without it once that is asked for.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        head: The head.
        language: Code of the language that is measured first.
    """
    st.subheader("What the model says without it")
    draw_head_actions(
        choice, data.scores, [head], data.spec, {}, key="one-head", colour_language=language
    )
    state = MeasuredHead.of_session()
    measured = (head_key(head), data.fingerprint, choice.task)
    if state.head != measured:
        button(
            "Measure its accuracy without this head",
            key="one-head-measure",
            icon="speed",
            on_press=_measure,
            args=(measured,),
            help="On dev, in the chosen languages; takes some seconds a language",
        )
        return
    draw_accuracy_without(choice, data, head, language)


def _measure(measured: tuple[str, ...]) -> None:
    MeasuredHead.of_session().head = measured


def draw_accuracy_without(choice: Choice, data: HeadData, head: Head, language: str) -> None:
    """The accuracy without the head, language by language, and the answers that change.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        head: The head.
        language: Code of the language that is measured first.
    """
    model = loaded_model(choice.model)
    mask = mask_without([head], model.grid, data.spec, {})
    if mask is None or not is_same_model(model.fingerprint, data.fingerprint):
        st.warning(
            plain(
                f"The stored results are of other weights than {choice.model} has now, so it is "
                "not measured without this head."
            )
        )
        return
    question = AccuracyQuestion.unchecked(
        choice.model,
        model.fingerprint,
        choice.task,
        SPLIT,
        mask,
        MeasuredHead.of_session().asker,
        choice.label_map,
    )
    languages = [language, *(name for name in choice.languages if name != language)]
    known_figures = session_figures()
    verdict_area = st.container()
    headline_area = st.container()
    table_area = st.container()
    notes_area = st.container()
    running_figures = arriving_figures(
        worker_client(), question, languages, known_figures, language
    )
    draw_changed_answers(question, languages, known_figures)
    places = FigurePlaces(verdict_area, headline_area, table_area, notes_area)
    draw_arriving_figures(places, running_figures, languages, question, language)
