"""Where else a head does that: the task's sentences by its strongest link of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from headlab.dashboard.frame import Choice, wait_for_result
from headlab.dashboard.names import counted, head_from, language_title, plain
from headlab.dashboard.panels.attended_sentences import TASK, by_title, examples_of
from headlab.dashboard.widgets import PageState, button, set_widget, uninterrupted
from headlab.plots.matrices import GIVEN, LINKS, Panel, strongest_link
from headlab.worker import AttentionRequest, Client

LOOKED, LISTED = 64, 20

LONGEST = 2000  # characters that the worker takes


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
    """Attention of a head in the first sentences of a language, whose titles are the texts; None for one too long."""
    panels = list[Panel | None]()
    for example in examples_of(_client, task, language)[:LOOKED]:
        if max(len(example.text), len(example.pair or "")) > LONGEST:
            panels.append(None)
            continue
        request = AttentionRequest.model_construct(
            model=model,
            text=example.text,
            heads=[head_from(head)],
            pair=example.pair,
            words=example.words,
        )
        panels.append(Panel.of(example.text, wait_for_result(partial(_client.attention, request))))
    return panels


def draw_elsewhere(worker: Client, choice: Choice, fingerprint: str, head: str, name: str) -> None:
    """Draw the list of sentences, once it is asked for; a chosen row opens its sentence."""
    with st.expander("Where else does this head do that", icon=":material/search:"):
        left, right = st.columns(2)
        language = left.selectbox(
            "In", choice.languages, format_func=language_title, key="elsewhere-language"
        )
        kind = right.selectbox("Looks", LINKS, key="elsewhere-kind")
        token = right.text_input("Token looked at", key="elsewhere-token") if kind == GIVEN else ""
        asked = fingerprint, choice.model, choice.task, language, head
        if SentenceSearch.of_session().query != asked:
            button(
                f"Look through the first {LOOKED} sentences",
                key="elsewhere",
                on_press=_look,
                args=(asked,),
            )
            return
        if kind == GIVEN and not token.strip():
            st.caption("Type the token, as it is written in the sentences.")
            return
        with st.spinner("Asking the worker …"):
            panels = read_sentences(worker, *asked)
        found, long = ranked_sentences(panels, head, kind, token), panels.count(None)
        over = (
            f" {counted(long, 'sentence')} of over {LONGEST:,} characters left out." if long else ""
        )
        if found.empty:
            st.caption(f"None of the first {len(panels)} sentences has such a link.{over}")
            return

        def opened() -> None:
            for row in st.session_state["elsewhere-rows"]["selection"]["rows"]:
                open_sentence(worker, choice, language, int(found.index[row]))

        st.dataframe(
            found,
            hide_index=True,
            key="elsewhere-rows",
            on_select=uninterrupted(opened),
            selection_mode="single-row",
            column_config={"Weight": st.column_config.NumberColumn(format="%.3f")},
        )
        which = f"the {len(found)} of the first {len(panels)} sentences with its strongest link of this kind"
        st.caption(f"{plain(name)}: {which}.{over} Tick a row to open its sentence.")


def ranked_sentences(
    panels: Sequence[Panel | None], head: str, kind: str, token: str = ""
) -> pd.DataFrame:
    """The sentences with a head's strongest links of a kind, the strongest first; the index is a sentence's number."""
    links = [
        (at, panel, strongest_link(panel, head, kind, token))
        for at, panel in enumerate(panels)
        if panel
    ]
    found = sorted(
        ((-link.weight, at, link, panel) for at, panel, link in links if link),
        key=lambda row: row[:2],
    )
    rows = [
        (link.weight, of.tokens[link.query], of.tokens[link.key], of.title)
        for _, _, link, of in found[:LISTED]
    ]
    index = [at for _, at, *_ in found[:LISTED]]
    return pd.DataFrame(rows, columns=["Weight", "From", "To", "Sentence"], index=index)


def _look(asked: tuple[str, ...]) -> None:
    SentenceSearch.of_session().query = asked


def open_sentence(worker: Client, choice: Choice, language: str, at: int) -> None:
    """Choose the sentence of this number in a language, as its widgets do."""
    example = examples_of(worker, choice.task, language)[at]
    shown = st.session_state.get("side", ())
    set_widget("source", TASK)
    set_widget("side", [*shown] if language in shown else [language])
    set_widget("row", at)
    if example.label is not None:
        set_widget("label", example.label)
    titles = by_title(examples_of(worker, choice.task, language), example.label)
    for title, other in titles.items():
        if (other.text, other.pair) == (example.text, example.pair):
            set_widget(f"sentence-{language}", title)
            break
