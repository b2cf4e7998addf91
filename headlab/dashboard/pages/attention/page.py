"""What does this head look at, in this sentence, and what does the model say without it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from headlab.core import Head
from headlab.dashboard.frame import (
    Choice,
    loaded_model,
    page,
    scores_of,
    wait_for_result,
    worker_client,
)
from headlab.dashboard.names import head_key
from headlab.dashboard.pages.attention.answers import draw_answers
from headlab.dashboard.pages.attention.elsewhere import draw_elsewhere
from headlab.dashboard.pages.attention.heads import (
    head_names,
    head_to_show,
    pick_heads,
    settle_heads,
)
from headlab.dashboard.pages.attention.views import (
    ALL_HEADS,
    ViewOptions,
    draw_every_head,
    draw_special_tokens,
    draw_view,
    pick_view,
    pick_view_options,
)
from headlab.dashboard.panels.heads import ShownSentence, pick_sentences
from headlab.dashboard.panels.jobs import draw_missing_scores
from headlab.dashboard.widgets import group_sizes_of
from headlab.plots.matrices import Panel
from headlab.results import HeadScores
from headlab.worker import AttentionRequest, Client, LoadedModel, Weights


@st.cache_data(max_entries=128, show_spinner=False)
def attention(
    _client: Client,
    model: str,
    fingerprint: str,
    sentence: ShownSentence,
    heads: list[tuple[str, int, int]],
    task: str,
    label_map: Mapping[str, str] | None,
) -> Weights:
    """Attention of some heads in a sentence, and the model's answers with them on and off.

    Args:
        _client: Of the worker.
        model: Name of the model.
        fingerprint: Of its weights; it only tells apart what is kept.
        sentence: The sentence.
        heads: Each head's stack, layer and number.
        task: Whose labels the answers are.
        label_map: As in `Choice`.
    """
    request = AttentionRequest.model_construct(
        model=model,
        text=sentence.text,
        heads=heads,
        pair=sentence.second_text,
        words=list(sentence.words),
        task=task,
        label_map=label_map,
    )
    return wait_for_result(lambda: _client.attention(request))


@st.cache_data(max_entries=16, show_spinner=False)
def attention_of_every_head(
    _client: Client,
    model: str,
    fingerprint: str,
    sentence: ShownSentence,
    head: tuple[str, int, int],
) -> Weights:
    """Small attention maps of all heads in a sentence.

    Args:
        _client: Of the worker.
        model: Name of the model.
        fingerprint: Of its weights; it only tells apart what is kept.
        sentence: The sentence.
        head: Any head of the model, as a request names at least one.
    """
    request = AttentionRequest.model_construct(
        model=model,
        text=sentence.text,
        heads=[head],
        pair=sentence.second_text,
        words=list(sentence.words),
        maps=True,
    )
    return wait_for_result(lambda: _client.attention(request))


def draw_all_heads(
    worker: Client,
    model_name: str,
    model: LoadedModel,
    panels: Sequence[Panel],
    sentences: Sequence[ShownSentence],
    options: ViewOptions,
    scores: Mapping[str, HeadScores],
) -> None:
    """The view of every head, of one of the sentences.

    Args:
        worker: Client of the worker.
        model_name: Its name, as requests give it.
        model: The model.
        panels: Attention of the chosen heads, of each sentence.
        sentences: The sentences.
        options: What may be done to every view.
        scores: By language, for the frames of the maps.
    """
    position = 0
    if len(sentences) > 1:
        position = st.radio(
            "Of which sentence",
            range(len(sentences)),
            format_func=lambda index: sentences[index].title,
            horizontal=True,
            key="of",
        )
    sentence = sentences[position]
    panel = panels[position]
    first_head = model.grid.heads[0]
    weights = attention_of_every_head(
        worker,
        model_name,
        model.fingerprint,
        sentence,
        (first_head.stack, first_head.layer, first_head.head),
    )
    draw_every_head(
        panel,
        panel.of_maps(weights.maps),
        options,
        scores,
        sentence.language,
        model.grid,
        group_sizes_of(model.fingerprint),
    )


def draw_attention(
    worker: Client,
    choice: Choice,
    model: LoadedModel,
    heads: Sequence[Head],
    sentences: Sequence[ShownSentence],
    view: str,
    options: ViewOptions,
    scores: Mapping[str, HeadScores],
) -> None:
    """The chosen view of the sentences, the model's answers, and what special tokens get.

    Args:
        worker: Client of the worker.
        choice: The sidebar's.
        model: The model.
        heads: The chosen heads.
        sentences: The chosen sentences.
        view: One of `VIEWS`.
        options: What may be done to every view.
        scores: By language, for the frames of the maps.
    """
    panels: list[Panel] = []
    weights_of_sentences: list[Weights] = []
    requested_heads = [(head.stack, head.layer, head.head) for head in heads]
    for sentence in sentences:
        weights = attention(
            worker,
            choice.model,
            model.fingerprint,
            sentence,
            requested_heads,
            choice.task,
            choice.label_map,
        )
        weights_of_sentences.append(weights)
        panels.append(Panel.from_attention(sentence.title, weights))
    names = head_names(model.grid, heads)
    if view == ALL_HEADS:
        draw_all_heads(worker, choice.model, model, panels, sentences, options, scores)
    else:
        draw_view(view, panels, names, options)
    draw_answers(sentences, weights_of_sentences, len(heads))
    draw_special_tokens(panels, names)


def draw_page() -> None:
    """Draw the page."""
    with page("attention") as choice:
        worker = worker_client()
        model = loaded_model(choice.model)
        results = scores_of(choice)
        settle_heads(model.grid, results)
        controls = st.container(horizontal=True, gap="xsmall", key="attention-controls")
        sentence_boxes = st.container()
        with controls:
            view = pick_view()
            heads = pick_heads(model.grid)
            shown_head = head_to_show(model.grid, heads) if heads else None
            sentences = pick_sentences(worker, choice, sentence_boxes)
            options = pick_view_options(len(heads))
        if not heads:
            st.info("No head is chosen. Pick one or more above.")
        elif not sentences:
            st.info("No sentence is chosen. Pick a language above, or write a sentence.")
        else:
            draw_attention(worker, choice, model, heads, sentences, view, options, results.scores)
        if shown_head is not None and choice.languages:
            shown_key = head_key(shown_head)
            shown_name = head_names(model.grid, heads)[shown_key]
            draw_elsewhere(worker, choice, model.fingerprint, shown_key, shown_name)
        draw_missing_scores(
            choice, results, "With them, this page starts at the strongest head of these languages."
        )
