"""What does this head look at, in this sentence, and what does the model say without it?"""

import streamlit as st

from headlab.plots.matrices import Panel
from headlab.records import HeadGrid
from headlab.ui import attention_page, job_offer
from headlab.ui.attention_page import head_names, pick_heads, pick_options, pick_sentences
from headlab.ui.names import head_key
from headlab.ui.notices import remember, remembered
from headlab.ui.shell import client, found, page, waited


@st.cache_data(max_entries=128, show_spinner=False)
def attention(_client, model, fingerprint, text, pair, words, heads, task, label_map):
    return waited(lambda: _client.attention(model, text, heads, pair, words, task=task, label_map=label_map))


def body(choice, worker, loaded, heads, sentences, view, options):
    asked = [list(head) for head in heads]
    about = choice.task, choice.label_map
    answers = [
        attention(worker, choice.model, loaded["fingerprint"], s.text, s.pair, s.words, asked, *about)
        for s in sentences
    ]
    panels = [Panel.of(s.title, answer) for s, answer in zip(sentences, answers, strict=True)]
    names = head_names(HeadGrid.from_json(loaded["grid"]), heads)
    attention_page.draw(view, panels, names, options)
    attention_page.draw_told(sentences, answers, len(heads))
    attention_page.draw_special(panels, names)


with page("attention") as choice:
    worker = client()
    with st.spinner("Loading the model …"):
        loaded = waited(lambda: worker.model(choice.model))
    grid = HeadGrid.from_json(loaded["grid"])
    results = found(choice)
    view = st.radio("View", attention_page.VIEWS, horizontal=True, key="view", bind="query-params")
    picture, settings = st.container(), st.container()
    with settings:
        heads = pick_heads(grid, results)
        if heads and remembered("head") not in map(head_key, heads):
            remember("head", head_key(heads[0]))
        sentences = pick_sentences(worker, choice)
        options = pick_options(len(heads))
    with picture:
        if not heads:
            st.info("No head is chosen. Pick one or more below.")
        elif not sentences:
            st.info("No sentence is chosen. Pick a language below, or write a sentence.")
        else:
            body(choice, worker, loaded, heads, sentences, view, options)
    job_offer.panel(choice, results, "With them, this page starts at the strongest head of these languages.")
