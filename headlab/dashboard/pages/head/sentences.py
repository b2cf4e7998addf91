"""The sentences of the task in which one head looks hardest at another token, tokens marked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import streamlit as st

from headlab.core import Head, is_same_model
from headlab.dashboard.frame import Choice, supervisor, worker_client
from headlab.dashboard.names import count_words, head_key, language_title, plain
from headlab.dashboard.panels.heads import (
    HeadData,
    ReadSentences,
    SentenceSource,
    draw_reading,
)
from headlab.dashboard.panels.stored import current_weights
from headlab.plots.matrices import MAX_SHOWN_TOKENS, Panel, with_visible_characters

LISTED_SENTENCES = 10
LOOKS = '<b style="border-bottom:2px solid currentColor">{}</b>'
LOOKED_AT = '<mark style="padding:0 .15em;border-radius:2px">{}</mark>'


class MarkedSentence(NamedTuple):
    """A sentence with the strongest link of a head between two of its words.

    Attributes:
        weight: Of the link, 0 to 1.
        words: Of the sentence, or its tokens where words are not known.
        query: Position of the word that looks.
        key: Position of the word that is looked at.
    """

    weight: float
    words: Sequence[str]
    query: int
    key: int

    @property
    def html(self) -> str:
        """The sentence with the looking word underlined and the other one marked."""
        parts = []
        for position, word in enumerate(self.words):
            text = escape(with_visible_characters(word))
            if position == self.key:
                text = LOOKED_AT.format(text)
            if position == self.query:
                text = LOOKS.format(text)
            parts.append(text)
        return " ".join(parts)


def draw_sentences(choice: Choice, data: HeadData, head: Head, language: str) -> None:
    """The button that reads all sentences of the task, and those with the strongest links.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        head: The head.
        language: Code of the language of the sentences.
    """
    st.subheader("Where it looks hardest")
    if not supervisor().is_connected:
        st.caption("The task's sentences can be looked through once the worker runs.")
        return
    weights = current_weights(choice.model) or data.fingerprint
    if not is_same_model(weights, data.fingerprint):
        st.caption(
            plain(
                f"The stored results are of other weights than {choice.model} has now, so its "
                "sentences are not looked through here."
            )
        )
        return
    key = head_key(head)
    source = SentenceSource(choice.model, weights, choice.task, language, key)

    def draw_strongest(sentences: ReadSentences) -> None:
        draw_marked(strongest_sentences(sentences.panels, key), sentences, language)

    draw_reading(worker_client(), source, draw_strongest, key="one-head-sentences")


def strongest_sentences(panels: Sequence[Panel | None], head: str) -> list[MarkedSentence]:
    """The sentences with a head's strongest links between two words, the strongest first.

    Args:
        panels: Of the sentences; None for one that was not read.
        head: Key of the head.
    """
    marked = []
    for panel in panels:
        sentence = None if panel is None else strongest_in(panel.in_words(), head)
        if sentence is not None:
            marked.append(sentence)
    marked.sort(key=lambda sentence: -sentence.weight)  # equal ones in the task's order
    return marked[:LISTED_SENTENCES]


def strongest_in(panel: Panel, head: str) -> MarkedSentence | None:
    """The strongest link between two different words; None for a sentence without two.

    Special tokens do not count, since many heads rest on them.

    Args:
        panel: The sentence, in words where they are known.
        head: Key of the head.
    """
    plain_panel = panel.without_special()
    word_count = len(plain_panel.tokens)
    if word_count < 2:
        return None
    weights = np.array(plain_panel.weights[head], np.float64)
    np.fill_diagonal(weights, -1.0)
    query, key = divmod(int(weights.argmax()), word_count)
    return MarkedSentence(float(weights[query, key]), plain_panel.tokens, query, key)


def draw_marked(marked: Sequence[MarkedSentence], sentences: ReadSentences, language: str) -> None:
    """The sentences as a list.

    Args:
        marked: The strongest, the first on top.
        sentences: All that were read.
        language: Code of their language.
    """
    if not marked:
        st.caption("None of the sentences read has two words.")
        return
    rows = [
        f'<tr><td style="padding:.15rem .8rem .15rem 0;vertical-align:top">'
        f"{100 * sentence.weight:.0f} %</td>"
        f'<td dir="auto" style="padding:.15rem 0">{sentence.html}</td></tr>'
        for sentence in marked
    ]
    st.html(f"<table>{''.join(rows)}</table>")
    read_count = len(sentences.panels) - sentences.too_long
    words = (
        f"The {count_words(len(marked), 'sentence')} of {read_count:,} in {language_title(language)} in "
        "which one word (underlined) gives another one (marked) the largest share of its attention."
    )
    if sentences.too_long:
        words += f" {count_words(sentences.too_long, 'text')} too long for the worker left out."
    if any(panel is not None and panel.is_cut for panel in sentences.panels):
        words += f" Of longer sentences only the first {MAX_SHOWN_TOKENS} tokens count."
    st.caption(plain(words))
