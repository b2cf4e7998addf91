"""Where else a head does that: the task's sentences by its strongest link of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from headlab.dashboard.frame import Choice, wait_for_result
from headlab.dashboard.names import count_words, head_from, language_title, plain
from headlab.dashboard.panels.heads import TASK_SENTENCES, label_examples_by_title, offered_examples
from headlab.dashboard.widgets import PageState, button, set_widget, uninterrupted
from headlab.plots.matrices import GIVEN, LINKS, Panel, strongest_link
from headlab.worker import AttentionRequest, Client

MAX_SENTENCES = 64
"""How many sentences of a language are looked through."""
MAX_LISTED = 20
"""How many of them are listed."""
LINKS_TABLE = "elsewhere-rows"
"""Widget key of the table of sentences."""
MAX_TEXT_LENGTH = 2000
"""Characters of a text that the worker takes."""


@dataclass
class SentenceSearch(PageState):
    """The search for sentences on the Attention page of one session.

    Attributes:
        query: Arguments of `read_sentences` that were asked for last; empty if none were.
    """

    key = "_elsewhere"
    query: tuple[str, ...] = ()


@st.cache_data(max_entries=32, show_spinner=False)
def read_sentences(
    _client: Client, fingerprint: str, model: str, task: str, language: str, head: str
) -> list[Panel | None]:
    """Attention of a head in the first sentences of a language.

    Args:
        _client: Of the worker.
        fingerprint: Of the model's weights; it only tells apart what is kept.
        model: Name of the model.
        task: Name of the task whose sentences they are.
        language: Code of the language.
        head: Key of the head.

    Returns:
        A panel for each sentence, with its text as title; None for a text that is too long.
    """
    panels = list[Panel | None]()
    for example in offered_examples(_client, task, language)[:MAX_SENTENCES]:
        if max(len(example.text), len(example.pair or "")) > MAX_TEXT_LENGTH:
            panels.append(None)
            continue
        request = AttentionRequest.model_construct(
            model=model,
            text=example.text,
            heads=[head_from(head)],
            pair=example.pair,
            words=example.words,
        )
        panels.append(
            Panel.from_attention(example.text, wait_for_result(partial(_client.attention, request)))
        )
    return panels


def draw_elsewhere(worker: Client, choice: Choice, fingerprint: str, head: str, name: str) -> None:
    """Draw the list of sentences, once it is asked for; a chosen row opens its sentence."""
    with st.expander("Where else does this head do that", icon=":material/search:"):
        language_place, kind_place = st.columns(2)
        language = language_place.selectbox(
            "In", choice.languages, format_func=language_title, key="elsewhere-language"
        )
        kind = kind_place.selectbox("Looks", LINKS, key="elsewhere-kind")
        token = (
            kind_place.text_input("Token looked at", key="elsewhere-token") if kind == GIVEN else ""
        )
        query = fingerprint, choice.model, choice.task, language, head
        if SentenceSearch.of_session().query != query:
            button(
                f"Look through the first {MAX_SENTENCES} sentences",
                key="elsewhere",
                on_press=_begin_search,
                args=(query,),
            )
            return
        if kind == GIVEN and not token.strip():
            st.caption("Type the token, as it is written in the sentences.")
            return
        with st.spinner("Asking the worker …"):
            panels = read_sentences(worker, *query)
        links = ranked_sentences(panels, head, kind, token)
        too_long = panels.count(None)
        too_long_note = ""
        if too_long:
            sentences = count_words(too_long, "sentence")
            too_long_note = f" {sentences} of over {MAX_TEXT_LENGTH:,} characters left out."
        if links.empty:
            st.caption(f"None of the first {len(panels)} sentences has such a link.{too_long_note}")
            return

        def open_ticked_row() -> None:
            for row_index in st.session_state[LINKS_TABLE]["selection"]["rows"]:
                open_sentence(worker, choice, language, int(links.index[row_index]))

        st.dataframe(
            links,
            hide_index=True,
            key=LINKS_TABLE,
            on_select=uninterrupted(open_ticked_row),
            selection_mode="single-row",
            column_config={"Weight": st.column_config.NumberColumn(format="%.3f")},
        )
        listed_words = (
            f"the {len(links)} of the first {len(panels)} sentences with its strongest link of "
            "this kind"
        )
        st.caption(
            f"{plain(name)}: {listed_words}.{too_long_note} Tick a row to open its sentence."
        )


def ranked_sentences(
    panels: Sequence[Panel | None], head: str, kind: str, token: str = ""
) -> pd.DataFrame:
    """The sentences with a head's strongest links of a kind, the strongest first.

    Args:
        panels: The sentences; None for one that was left out.
        head: Key of the head.
        kind: Of link, one of `LINKS`.
        token: The token looked at, for links to a given one.

    Returns:
        A row for each sentence; the index is its number.
    """
    rows = []
    sentence_numbers = []
    for sentence_number, panel in enumerate(panels):
        link = strongest_link(panel, head, kind, token) if panel else None
        if panel is None or link is None:
            continue
        rows.append((link.weight, panel.tokens[link.query], panel.tokens[link.key], panel.title))
        sentence_numbers.append(sentence_number)
    columns = ["Weight", "From", "To", "Sentence"]
    links = pd.DataFrame(rows, columns=columns, index=sentence_numbers)
    return links.sort_values("Weight", ascending=False, kind="stable").head(MAX_LISTED)


def _begin_search(query: tuple[str, ...]) -> None:
    SentenceSearch.of_session().query = query


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
