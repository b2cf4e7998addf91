"""Where else a head does that: the task's sentences by its strongest link of a kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd
import streamlit as st

from headlab.dashboard.frame import Choice
from headlab.dashboard.names import count_words, language_title, plain
from headlab.dashboard.panels.heads import (
    MAX_TEXT_LENGTH,
    TASK_SENTENCES,
    RankedSentence,
    ReadSentences,
    SentenceSource,
    draw_reading,
    label_examples_by_title,
    offered_examples,
    rank_sentences,
    ranks_by_mean,
)
from headlab.dashboard.widgets import set_widget, uninterrupted
from headlab.plots.matrices import GIVEN, LINKS
from headlab.worker import Client

MAX_LISTED = 20
"""How many sentences are listed."""
LINKS_TABLE = "elsewhere-rows"
"""Widget key of the table of sentences."""
MEAN = "Mean weight"
STRONGEST = "Strongest link"
"""Columns of that table."""


def draw_elsewhere(worker: Client, choice: Choice, fingerprint: str, head: str, name: str) -> None:
    """Draw the list of sentences, once it is asked for; a chosen row opens its sentence."""
    with st.expander("Where else does this head do that", icon=":material/search:"):
        language_place, kind_place = st.columns(2)
        language = language_place.selectbox(
            "In", choice.languages, format_func=language_title, key="elsewhere-language"
        )
        kind = kind_place.selectbox("Looks", LINKS, key="elsewhere-kind")
        token = ""
        if kind == GIVEN:
            token = kind_place.text_input("Token looked at", key="elsewhere-token")
        source = SentenceSource(choice.model, fingerprint, choice.task, language, head)

        def open_ticked_row(links: pd.DataFrame) -> None:
            for row_index in st.session_state[LINKS_TABLE]["selection"]["rows"]:
                open_sentence(worker, choice, language, int(links.index[row_index]))

        def draw_sentences(sentences: ReadSentences) -> None:
            if kind == GIVEN and not token.strip():
                st.caption("Type the token, as it is written in the sentences.")
                return
            ranked = rank_sentences(sentences.panels, head, kind, token)
            links = links_table(ranked[:MAX_LISTED], ranks_by_mean(kind))
            if not links.empty:
                _draw_table(links, None if sentences.is_reading else open_ticked_row)
            st.caption(links_caption(sentences, len(ranked), kind, name))

        draw_reading(worker, source, draw_sentences, key="elsewhere")


def _draw_table(
    links: pd.DataFrame, open_ticked_row: Callable[[pd.DataFrame], None] | None
) -> None:
    """Draw the list of sentences.

    Args:
        links: The list.
        open_ticked_row: The action of a tick; None where rows cannot be ticked yet.
    """
    column_config = dict.fromkeys((MEAN, STRONGEST), st.column_config.NumberColumn(format="%.3f"))
    if open_ticked_row is None:
        st.dataframe(links, hide_index=True, column_config=column_config)
        return
    st.dataframe(
        links,
        hide_index=True,
        key=LINKS_TABLE,
        on_select=uninterrupted(partial(open_ticked_row, links)),
        selection_mode="single-row",
        column_config=column_config,
    )


def links_table(ranked: Sequence[RankedSentence], has_means: bool) -> pd.DataFrame:
    """A row for each sentence with its strongest link; the index is the sentence's number.

    Args:
        ranked: The sentences.
        has_means: Whether to give the mean over the tokens that look, and their number, too.
    """
    rows = []
    for _, panel, links in ranked:
        strongest = links.strongest
        row: dict[str, object] = {}
        if has_means:
            row |= {MEAN: links.mean, "Tokens": links.looking_tokens}
        row |= {
            STRONGEST: strongest.weight,
            "From": panel.tokens[strongest.query],
            "To": panel.tokens[strongest.key],
            "Sentence": panel.title,
        }
        rows.append(row)
    return pd.DataFrame(rows, index=[sentence.number for sentence in ranked])


def links_caption(sentences: ReadSentences, ranked_count: int, kind: str, head_name: str) -> str:
    """What the list shows, and of how many sentences.

    Args:
        sentences: Those read.
        ranked_count: How many of them have such a link.
        kind: Of link.
        head_name: Of the head.
    """
    searched = sentences.total_words
    if not sentences.is_complete:
        searched = f"{len(sentences.panels):,} of {sentences.total:,} sentences"
    note = ""
    if sentences.too_long:
        left_out = count_words(sentences.too_long, "sentence")
        note = f" {left_out} of over {MAX_TEXT_LENGTH:,} characters left out."
    if not ranked_count:
        return f"Searched {searched}: none has such a link.{note}"
    order = "by its strongest link"
    if ranks_by_mean(kind):
        order = "by the mean over the tokens that have one"
    listed = f"{min(MAX_LISTED, ranked_count)} of the {ranked_count:,} with such a link"
    tick = "" if sentences.is_reading else " Tick a row to open its sentence."
    return f"{plain(head_name)}: searched {searched}; {listed}, {order}.{note}{tick}"


def open_sentence(worker: Client, choice: Choice, language: str, sentence_number: int) -> None:
    """Choose the sentence of this number in a language, as its widgets do."""
    example = offered_examples(worker, choice.task, language)[sentence_number]
    side_by_side = st.session_state.get("side", ())
    set_widget("source", TASK_SENTENCES)
    set_widget("side", [*side_by_side] if language in side_by_side else [language])
    set_widget("row", sentence_number)
    if example.label is not None:
        set_widget("label", example.label)
    titles = label_examples_by_title(offered_examples(worker, choice.task, language), example.label)
    for title, other_example in titles.items():
        if (other_example.text, other_example.pair) == (example.text, example.pair):
            set_widget(f"sentence-{language}", title)
            break
