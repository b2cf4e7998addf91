"""What the Attention page shows: sentences by language, and heads that lists link to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import streamlit as st

from headlab.dashboard.frame import Choice
from headlab.dashboard.names import head_from, head_key, language_title, page_link
from headlab.dashboard.streamlit_private import Placeholder
from headlab.studies import HeadKind, HeadLists, heads_by_kind, languages_that_differ
from headlab.worker import Client, ExampleCard

# d3's category10, in the order in which BertViz assigns them to heads.
HEAD_COLOURS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)

MAX_HEADS = len(HEAD_COLOURS)
MAX_SIDE_BY_SIDE = 4
"""Sentences that are shown side by side at most."""
MAX_TEXT_CHARACTERS = 1200
"""Of the text that a person types."""
MAX_OFFERED_SENTENCES = 1000
"""Sentences of a task that are offered, in each language: as many as the worker gives."""
TASK_SENTENCES = "of the task"
OWN_SENTENCES = "my own"
PAIR_SEPARATOR = " ||| "
"""Between the two texts of a pair."""
HEAD_KINDS = tuple(HeadKind)
BERTVIZ = "BertViz"
"""The view of the Attention page that draws several heads and sentences side by side."""

# Widths of widgets in pixels, in a row of controls that is to fit into a screen of 1440.
SOURCE_WIDTH = 105
LANGUAGES_WIDTH = 265
LABEL_WIDTH = 147
TEXT_WIDTH = 420
TEXT_HEIGHT = 80


class ShownSentence(NamedTuple):
    """A text to show and its heading.

    Attributes:
        title: The heading.
        text: The text, or the first one of a pair.
        second_text: The second text of a sentence pair.
        words: Of a task that labels words.
        labels: Its label, or its words' labels; empty where it has none.
        language: Code of its language; empty where it is not known.
    """

    title: str
    text: str
    second_text: str | None = None
    words: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    language: str = ""


@st.cache_resource(max_entries=64, show_spinner=False)
def offered_examples(_client: Client, task: str, language: str) -> Sequence[ExampleCard]:
    """The first examples of a language, the same objects for every session."""
    return _client.sentences(task, language, n=MAX_OFFERED_SENTENCES)


def pick_sentences(
    client: Client, choice: Choice, sentence_boxes: Placeholder
) -> list[ShownSentence]:
    """Draw the widgets for sentences, in a row of controls, and return the sentences chosen.

    Args:
        client: Of the worker.
        choice: The sidebar's.
        sentence_boxes: Below the row, where sentences of the task are chosen.
    """
    source = st.radio(
        "Sentence",
        [TASK_SENTENCES, OWN_SENTENCES],
        key="source",
        bind="query-params",
        width=SOURCE_WIDTH,
    )
    if source == OWN_SENTENCES:
        return _typed_sentences()
    return _sentences_of_task(client, choice, sentence_boxes)


def _typed_sentences() -> list[ShownSentence]:
    """Draw the field for a person's own text, and return its sentences, one a line."""
    text = st.text_area(
        f"Text: one sentence a line, up to {MAX_SIDE_BY_SIDE}; a pair as A{PAIR_SEPARATOR}B",
        max_chars=MAX_TEXT_CHARACTERS,
        key="text",
        bind="query-params",
        placeholder="Turn on the lights in the kitchen",
        height=TEXT_HEIGHT,
        width=TEXT_WIDTH,
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > MAX_SIDE_BY_SIDE:
        st.caption(f"Showing the first {MAX_SIDE_BY_SIDE} of {len(lines)} lines.")
    if len(lines) == 1:
        return [typed_sentence("Your sentence", lines[0])]
    sentences = []
    for number, line in enumerate(lines[:MAX_SIDE_BY_SIDE], start=1):
        sentences.append(typed_sentence(f"Line {number}", line))
    return sentences


def typed_sentence(title: str, line: str) -> ShownSentence:
    """A line as a sentence, or as a pair where PAIR_SEPARATOR divides it."""
    text, separator, pair = (part.strip() for part in line.partition(PAIR_SEPARATOR.strip()))
    if separator and text and pair:
        return ShownSentence(title, text, pair)
    return ShownSentence(title, line)


def _sentences_of_task(
    client: Client, choice: Choice, sentence_boxes: Placeholder
) -> list[ShownSentence]:
    languages = st.multiselect(
        f"Languages (up to {MAX_SIDE_BY_SIDE})",
        choice.languages,
        default=choice.languages[:MAX_SIDE_BY_SIDE],
        max_selections=MAX_SIDE_BY_SIDE,
        key="side",
        bind="query-params",
        width=LANGUAGES_WIDTH,
    )
    examples = {language: offered_examples(client, choice.task, language) for language in languages}
    if not examples:
        return []
    card = next((card for card in client.tasks() if card.name == choice.task), None)
    if card is not None and card.aligned:
        return _pick_aligned(examples, sentence_boxes)
    has_labels = card is not None and card.labels
    label_box_title = "What is meant (label)" if has_labels else "Answer"
    return _pick_by_label(examples, label_box_title, sentence_boxes)


def _pick_aligned(
    examples: Mapping[str, Sequence[ExampleCard]], sentence_boxes: Placeholder
) -> list[ShownSentence]:
    """Row i means the same in every language: one choice for all."""
    examples_to_name = next(iter(examples.values()))
    row_count = min(map(len, examples.values()))
    row = sentence_boxes.selectbox(
        "The sentence, in each of these languages" if len(examples) > 1 else "The sentence",
        range(row_count),
        format_func=lambda i: examples_to_name[i].text,
        key="row",
        bind="query-params",
    )
    return [_sentence_of_example(language, cards[row]) for language, cards in examples.items()]


def _pick_by_label(
    examples: Mapping[str, Sequence[ExampleCard]],
    label_box_title: str,
    sentence_boxes: Placeholder,
) -> list[ShownSentence]:
    """Rows differ between languages: a label is chosen, then a sentence with it in each language.

    In tasks that label words or generate text, sentences have no label, so all can be chosen.

    Args:
        examples: By language.
        label_box_title: Of the box with the labels.
        sentence_boxes: Where the boxes with the sentences stand.
    """
    labels: set[str] = set()
    for cards in examples.values():
        labels.update(card.label for card in cards if card.label is not None)
    label = None
    if labels:
        label = st.selectbox(
            label_box_title, sorted(labels), key="label", bind="query-params", width=LABEL_WIDTH
        )
    sentences = []
    columns = sentence_boxes.columns(len(examples))
    for language, column in zip(examples, columns, strict=True):
        fitting = label_examples_by_title(examples[language], label)
        if not fitting:
            title = language_title(language)
            column.caption(
                f"{title} has no sentence with this label among its first {MAX_OFFERED_SENTENCES:,}."
            )
            continue
        chosen_title = column.selectbox(
            language_title(language),
            list(fitting),
            key=f"sentence-{language}",
            bind="query-params",
        )
        sentences.append(_sentence_of_example(language, fitting[chosen_title]))
    return sentences


def label_examples_by_title(
    examples: Sequence[ExampleCard], label: str | None
) -> dict[str, ExampleCard]:
    """The examples with a label by their text.

    Of several with one text, all but the first are named by both of their texts.
    """
    examples_by_title: dict[str, ExampleCard] = {}
    for example in examples:
        if example.label != label:
            continue
        title = example.text
        if example.pair and title in examples_by_title:
            title = f"{example.text}{PAIR_SEPARATOR}{example.pair}"
        examples_by_title.setdefault(title, example)
    return examples_by_title


def _sentence_of_example(language: str, example: ExampleCard) -> ShownSentence:
    labels = tuple(example.labels)
    if not labels and example.label is not None:
        labels = (example.label,)
    return ShownSentence(
        title=language_title(language),
        text=example.text,
        second_text=example.pair,
        words=tuple(example.words),
        labels=labels,
        language=language,
    )


def side_by_side_params(
    head_keys: Sequence[str], languages: Sequence[str] = ()
) -> dict[str, str | list[str]]:
    """Parameters of a link to the Attention page that shows these heads' lines side by side.

    Args:
        head_keys: Of the heads, at most `MAX_HEADS`.
        languages: Codes of the languages to show; empty for those chosen in the sidebar.
    """
    params: dict[str, str | list[str]] = {"heads": list(head_keys), "view": BERTVIZ}
    if languages:
        params["side"] = list(languages)
    return params


def link_to_attention(lists: HeadLists) -> None:
    """Draw widgets to choose a head of each kind, and a link to their attention.

    Nothing if there are no heads.
    """
    kinds = heads_by_kind(lists)
    if not kinds:
        return
    st.markdown("##### What do they look at?")
    head_key_by_kind: dict[str, str] = {}
    stacks = {head.stack for heads in kinds.values() for head in heads}

    def number_of_key(key: str) -> str:
        """As `head_number`, by the stacks of these heads, as their model's grid is not at hand."""
        head = head_from(key)
        return key if len(stacks) > 1 else f"{head.layer}.{head.head}"

    for (kind, heads), column in zip(kinds.items(), st.columns(len(kinds)), strict=True):
        head_keys = [head_key(head) for head in heads]
        head_key_by_kind[kind] = column.selectbox(
            f"A language-{kind} head", head_keys, format_func=number_of_key, key=f"look-{kind}"
        )
    link_text = "Their attention, side by side" if len(head_key_by_kind) > 1 else "Its attention"
    languages_side_by_side: list[str] = []
    if HeadKind.SPECIFIC in head_key_by_kind:
        specific_head = head_from(head_key_by_kind[HeadKind.SPECIFIC])
        languages = languages_that_differ(lists[HeadKind.SPECIFIC], specific_head)
        chosen_languages = st.session_state.get("langs", ())
        languages_side_by_side = [name for name in languages if name in chosen_languages]
    params = side_by_side_params(list(head_key_by_kind.values()), languages_side_by_side)
    params |= {"apart": "true", **head_key_by_kind}
    page_link("attention", link_text, params)
