"""What does this head look at, in this sentence, and what does the model say without it?"""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.frame import loaded_model, page, scores_of, wait_for_result, worker_client
from headlab.dashboard.names import head_key
from headlab.dashboard.pages.attention.answers import draw_answers
from headlab.dashboard.pages.attention.elsewhere import draw_elsewhere
from headlab.dashboard.pages.attention.heads import head_names, pick_heads
from headlab.dashboard.pages.attention.views import (
    EVERY,
    VIEWS,
    draw_every_head,
    draw_special_tokens,
    draw_view,
    pick_view_options,
)
from headlab.dashboard.panels import job_offer
from headlab.dashboard.panels.attended_sentences import pick_sentences
from headlab.dashboard.widgets import heads_gated_together, remember_choice, remembered_choice
from headlab.plots.matrices import Panel
from headlab.worker.schemas import AttentionRequest


@st.cache_data(max_entries=128, show_spinner=False)
def attention(_client, model, fingerprint, text, pair, words, heads, task, label_map):
    request = AttentionRequest.model_construct(
        model=model,
        text=text,
        heads=heads,
        pair=pair,
        words=list(words),
        task=task,
        label_map=label_map,
    )
    return wait_for_result(lambda: _client.attention(request))


@st.cache_data(max_entries=16, show_spinner=False)
def maps(_client, model, fingerprint, text, pair, words, head):
    request = AttentionRequest.model_construct(
        model=model, text=text, heads=[head], pair=pair, words=list(words), maps=True
    )
    return wait_for_result(lambda: _client.attention(request)).maps


def every_head(panels, sentences, options, asked, grid, scores):
    at, title = 0, [s.title for s in sentences].__getitem__
    if len(sentences) > 1:
        at = st.radio(
            "Of which sentence", range(len(sentences)), format_func=title, horizontal=True, key="of"
        )
    s, panel = sentences[at], panels[at]
    every = panel.of_maps(maps(*asked, s.text, s.pair, s.words, list(grid.heads[0])))
    draw_every_head(panel, every, options, scores, s.language, grid, heads_gated_together(asked[2]))


def body(choice, asked, grid, heads, sentences, view, options, scores):
    panels, answers = [], []
    for sentence in sentences:
        weights = attention(
            *asked,
            sentence.text,
            sentence.pair,
            sentence.words,
            [list(head) for head in heads],
            choice.task,
            choice.label_map,
        )
        answers.append(weights)
        panels.append(Panel.of(sentence.title, weights))
    names = head_names(grid, heads)
    if view == EVERY:
        every_head(panels, sentences, options, asked, grid, scores)
    else:
        draw_view(view, panels, names, options)
    draw_answers(sentences, answers, len(heads))
    draw_special_tokens(panels, names)


def draw_page() -> None:
    """Draw the page."""
    with page("attention") as choice:
        worker = worker_client()
        with st.spinner("Loading the model …"):
            loaded = loaded_model(choice.model)
        grid = loaded.grid
        results = scores_of(choice)
        view = st.radio("View", VIEWS, horizontal=True, key="view", bind="query-params")
        picture, settings = st.container(), st.container()
        with settings:
            heads = pick_heads(grid, results)
            if heads and remembered_choice("head") not in map(head_key, heads):
                remember_choice("head", head_key(heads[0]))
            sentences = pick_sentences(worker, choice)
            options = pick_view_options(len(heads))
        with picture:
            if not heads:
                st.info("No head is chosen. Pick one or more below.")
            elif not sentences:
                st.info("No sentence is chosen. Pick a language below, or write a sentence.")
            else:
                asked = worker, choice.model, loaded.fingerprint
                body(choice, asked, grid, heads, sentences, view, options, results.scores)
        if heads and choice.languages:
            shown = remembered_choice("head")
            draw_elsewhere(
                worker, choice, loaded.fingerprint, shown, head_names(grid, heads)[shown]
            )
        job_offer.panel(
            choice, results, "With them, this page starts at the strongest head of these languages."
        )
