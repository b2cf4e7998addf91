"""What the model says of the sentences with the chosen heads on, and with them off."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from headlab.core import CHANGE_KINDS, EMPTY_CELL, percent_text
from headlab.dashboard.names import CHANGE_WORDS, count_words, error_words, plain
from headlab.dashboard.pages.attention.next_tokens import draw_next_tokens
from headlab.dashboard.panels.heads import ShownSentence
from headlab.pictures import MINUS
from headlab.plots.matrices import with_visible_characters
from headlab.worker import Answer, Weights

SAME_LABEL = "same label"


def answer_rows(
    sentences: Sequence[ShownSentence], answers: Sequence[Sequence[Answer]], heads: int
) -> pd.DataFrame:
    """A row per sentence: its label, the model's answers with heads on and off, the change.

    Args:
        sentences: What the model was asked about.
        answers: The model's, by sentence; none for a sentence that gets no row.
        heads: How many heads are off.
    """
    plural = "s" * (heads != 1)
    columns = ["Sentence", "Right", f"Head{plural} on", f"Head{plural} off", "What changes"]
    rows = []
    for sentence, sentence_answers in zip(sentences, answers, strict=True):
        if not sentence_answers:
            continue
        cells_of = _text_cells if sentence_answers[0].word is None else _word_cells
        rows.append([sentence.title, *cells_of(sentence, sentence_answers)])
    return pd.DataFrame(rows, columns=columns)


def _text_cells(sentence: ShownSentence, answers: Sequence[Answer]) -> list[str]:
    (answer,) = answers
    right_label = sentence.labels[0] if sentence.labels else EMPTY_CELL
    return [
        right_label,
        _with_heads_on(answer),
        _with_heads_off(answer),
        _change_words(answer, right_label),
    ]


def _with_heads_on(answer: Answer) -> str:
    return f"{answer.on} {percent_text(answer.p_on, 1)}"


def _with_heads_off(answer: Answer) -> str:
    return f"{answer.off} {percent_text(answer.p_off, 1)}"


def _change_words(answer: Answer, right_label: str) -> str:
    if answer.on == answer.off:
        points = round(100 * (answer.p_off - answer.p_on), 1) + 0.0  # no -0.0
        return f"{SAME_LABEL}, {points:+.1f} points".replace("-", MINUS)
    if right_label == EMPTY_CELL:
        return "another label"
    now_right, now_wrong, still_wrong = CHANGE_KINDS
    if answer.off == right_label:
        return CHANGE_WORDS[now_right]
    return CHANGE_WORDS[now_wrong if answer.on == right_label else still_wrong]


def _word_cells(sentence: ShownSentence, answers: Sequence[Answer]) -> list[str]:
    """How many words get their right label, and each that gets another one."""
    words = count_words(len(answers), "word")
    changes = []
    if len(sentence.labels) != len(answers):  # of a longer sentence the rest has no answers
        for answer in answers:
            if answer.on != answer.off:
                changes.append(_word_change(answer))
        return ["a label per word", words, words, "; ".join(changes) or "no word's label"]
    right_on = 0
    right_off = 0
    for answer, right_label in zip(answers, sentence.labels, strict=True):
        right_on += answer.on == right_label
        right_off += answer.off == right_label
        if answer.on != answer.off:
            changes.append(f"{_word_change(answer)} (right: {right_label})")
    return [
        "a label per word",
        f"{right_on} of {words} right",
        f"{right_off} of {words} right",
        "; ".join(changes) or "no word's label",
    ]


def _word_change(answer: Answer) -> str:
    return f"{with_visible_characters(answer.word or '')}: {_with_heads_on(answer)} → {_with_heads_off(answer)}"


def draw_answers(
    sentences: Sequence[ShownSentence], attention: Sequence[Weights], heads: int
) -> None:
    """Draw the answers with the heads on and off, or a sentence on why there are none.

    A decoder's answers are its next tokens.

    Args:
        sentences: What is shown.
        attention: Of each sentence, with the model's answers.
        heads: How many heads are off.
    """
    if any(weights.next_tokens for weights in attention):
        draw_next_tokens(sentences, attention, heads)
        return
    notes = dict.fromkeys(plain(error_words(weights.note)) for weights in attention if weights.note)
    unanswered_titles = []
    for sentence, weights in zip(sentences, attention, strict=True):
        if not weights.answers:
            unanswered_titles.append(sentence.title)
    rows = answer_rows(sentences, [weights.answers for weights in attention], heads)
    if rows.empty:
        st.caption(f"The model's answers without these heads are not shown: {'; '.join(notes)}.")
        return
    st.markdown(
        f"##### Answers with {'this head' if heads == 1 else f'these {heads} heads'} on and off"
    )
    st.table(rows.map(plain), border="horizontal", hide_index=True)
    unanswered_note = (
        f" No answers: {plain(', '.join(unanswered_titles))}." if unanswered_titles else ""
    )
    cut_note = ""
    if any(weights.truncated for weights in attention):
        cut_note = " Answers are to whole sentences, also where the picture is cut."
    st.caption(
        "; ".join(
            ["Off: the heads' output is 0. Probabilities are among the task's labels", *notes]
        )
        + f".{cut_note}{unanswered_note}"
    )
