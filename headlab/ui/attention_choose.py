"""What the Attention page shows: which heads, and which sentence in each language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from headlab.errors import HeadlabError
from headlab.records import Head, HeadGrid
from headlab.ui.attention_view import MAX_HEADS
from headlab.ui.names import head_from, head_key, head_words, language_title
from headlab.ui.prune_suggest import MEAN, pooled
from headlab.ui.results import Found
from headlab.ui.shell import Choice
from headlab.worker.client import Client

SIDE_BY_SIDE = 4
MAX_CHARACTERS = 400
SENTENCES = 500
TASK, OWN = "of the task", "my own"
KINDS = ("agnostic", "specific")


class Sentence(NamedTuple):
    """A text to look at and what to write above it. pair: the second text of a sentence pair."""

    title: str
    text: str
    pair: str | None = None


def heads_of_link(grid: HeadGrid, keys: Sequence[str]) -> tuple[list[Head], str | None]:
    """The heads a link names, and a sentence about those it names wrongly."""
    heads, wrong = [], []
    for key in keys:
        try:
            head = head_from(key)
            grid.index(head)
            heads.append(head)
        except HeadlabError as error:
            wrong.append(str(error))
    return heads[:MAX_HEADS], "; ".join(wrong) or None


def head_names(grid: HeadGrid, heads: Sequence[Head]) -> dict[str, str]:
    """How to write each chosen head; a link may say of which kind one is."""
    asked = {kind: st.query_params.get_all(kind) for kind in KINDS}
    names = {}
    for head in heads:
        key, name = head_key(head), head_words(head, len(grid.stacks) > 1)
        kinds = [f"language-{kind}" for kind, keys in asked.items() if key in keys]
        names[key] = f"{name} ({', '.join(kinds)})" if kinds else name
    return names


def strongest(grid: HeadGrid, found: Found) -> Head:
    """The head with the highest mean score of these languages; the first head where there are no scores."""
    scores = pooled(found.scores, MEAN)
    return (
        grid.heads[int(np.argmax(scores.values))]
        if scores is not None and scores.grid.to_json() == grid.to_json()
        else grid.heads[0]
    )


def pick_heads(grid: HeadGrid, found: Found) -> list[Head]:
    """The widget for heads; a link's heads, else the strongest one, to begin with."""
    keys = [head_key(head) for head in grid.heads]
    if "heads" not in st.session_state:
        named, wrong = heads_of_link(grid, [*st.query_params.get_all("heads"), *st.query_params.get_all("head")])
        if wrong:
            st.warning(f"The link names a head that cannot be shown: {wrong}.")
        st.session_state["heads"] = [head_key(head) for head in named or [strongest(grid, found)]]
    fitting = [key for key in st.session_state["heads"] if key in keys]
    if fitting != st.session_state["heads"]:  # another model has other heads
        st.session_state["heads"] = fitting
    several = len(grid.stacks) > 1
    chosen = st.multiselect(
        f"Heads (up to {MAX_HEADS})",
        keys,
        key="heads",
        max_selections=MAX_HEADS,
        format_func=lambda key: head_words(head_from(key), several),
    )
    st.query_params["heads"] = chosen
    st.query_params.pop("head", None)
    return [head_from(key) for key in chosen]


@st.cache_data(max_entries=64, show_spinner=False)
def _examples(_client: Client, task: str, language: str) -> list[dict[str, Any]]:
    return _client.sentences(task, language, n=SENTENCES)


def pick_sentences(client: Client, choice: Choice) -> list[Sentence]:
    """The widgets for sentences, and what they say."""
    source = st.radio("Sentence", [TASK, OWN], horizontal=True, key="source", bind="query-params")
    return _own() if source == OWN else _of_task(client, choice)


def _own() -> list[Sentence]:
    text = st.text_area(
        f"Text: one sentence a line, up to {SIDE_BY_SIDE} side by side",
        max_chars=MAX_CHARACTERS,
        key="text",
        bind="query-params",
        placeholder="Turn on the lights in the kitchen",
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > SIDE_BY_SIDE:
        st.caption(f"Showing the first {SIDE_BY_SIDE} of {len(lines)} lines.")
    return [
        Sentence(f"Line {i}" if len(lines) > 1 else "Your sentence", t) for i, t in enumerate(lines[:SIDE_BY_SIDE], 1)
    ]


def _of_task(client: Client, choice: Choice) -> list[Sentence]:
    shown = st.multiselect(
        f"Languages side by side (up to {SIDE_BY_SIDE})",
        choice.languages,
        default=choice.languages[:SIDE_BY_SIDE],
        max_selections=SIDE_BY_SIDE,
        key="side",
        bind="query-params",
    )
    examples = {language: _examples(client, choice.task, language) for language in shown}
    if not examples:
        return []
    aligned = {task["name"]: task["aligned"] for task in client.tasks()}.get(choice.task, False)
    return _aligned(examples) if aligned else _by_label(examples)


def _aligned(examples: Mapping[str, list[dict[str, Any]]]) -> list[Sentence]:
    """Row i means the same in every language: one choice for all."""
    first = next(iter(examples.values()))
    rows = min(map(len, examples.values()))
    row = st.selectbox("Sentence", range(rows), format_func=lambda i: first[i]["text"], key="row", bind="query-params")
    return [_sentence(language, every[row]) for language, every in examples.items()]


def _by_label(examples: Mapping[str, list[dict[str, Any]]]) -> list[Sentence]:
    """Rows mean different things: choose what is meant (the label), then a sentence of it in each language.

    Where words have labels, or a text is made, sentences have none: all can be chosen.
    """
    labels = sorted({e["label"] for every in examples.values() for e in every if e["label"] is not None})
    label = st.selectbox("What is meant (label)", labels, key="label", bind="query-params") if labels else None
    picked = []
    for language, place in zip(examples, st.columns(len(examples)), strict=True):
        fitting = {e["text"]: e for e in examples[language] if e["label"] == label}
        if not fitting:
            place.caption(f"{language_title(language)} has no sentence with this label among its first {SENTENCES}.")
            continue
        chosen = place.selectbox(
            language_title(language),
            list(fitting),
            key=f"sentence-{language}",
            bind="query-params",
        )
        picked.append(_sentence(language, fitting[chosen]))
    return picked


def _sentence(language: str, example: Mapping[str, Any]) -> Sentence:
    return Sentence(language_title(language), example["text"], example.get("pair"))
