"""What does this head look at, in this sentence?"""

import streamlit as st

from headlab.records import HeadGrid
from headlab.ui import attention_page, job_offer, shell
from headlab.ui.attention_page import Panel, head_names, pick_heads, pick_sentences
from headlab.ui.names import head_key
from headlab.ui.notices import remember, remembered
from headlab.ui.shell import client, found, page, waited


@st.cache_data(max_entries=128, show_spinner=False)
def attention(_client, model, fingerprint, text, pair, heads):
    return waited(lambda: _client.attention(model, text, heads, pair))


with page("attention") as choice:
    worker = client()
    with st.spinner("Loading the model …"):
        loaded = shell.loaded(choice.model)
    grid = HeadGrid.from_json(loaded["grid"])
    results = found(choice)
    heads = pick_heads(grid, results)
    if heads and remembered("head") not in map(head_key, heads):
        remember("head", head_key(heads[0]))
    sentences = pick_sentences(worker, choice)
    view = st.radio("View", attention_page.VIEWS, horizontal=True, key="view", bind="query-params")
    if not heads:
        st.info("No head is chosen. Pick one or more above.")
    elif not sentences:
        st.info("No sentence is chosen. Pick a language above, or write a sentence.")
    else:
        asked = [list(head) for head in heads]
        answers = [attention(worker, choice.model, loaded["fingerprint"], s.text, s.pair, asked) for s in sentences]
        panels = [Panel.of(s.title, answer) for s, answer in zip(sentences, answers, strict=True)]
        attention_page.draw(view, panels, head_names(grid, heads))
    job_offer.panel(choice, results, "With them, this page starts at the strongest head of these languages.")
