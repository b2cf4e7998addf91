"""
What does a head look at?
=========================

Attention weights of one head in one sentence: each row is a token that asks, each column a token it
looks at. Weights say where a head looks, not whether the model needs it.
"""

import numpy as np

import headlab
from headlab.charts.chart import Axis, Cells, Chart
from headlab.core import Head
from headlab.hooks import attention_of_heads
from headlab.pictures import UPWARDS

# %%
model = headlab.load("e5-small-intents")
text = "Schalte bitte das Licht in der Küche aus"
inputs = dict(model.tokenizer(text, return_tensors="pt"))
tokens = model.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())

# %%
# Two heads; layers and heads count from 0.

heads = [Head("encoder", 2, 6), Head("encoder", 10, 6)]
weights = attention_of_heads(model, inputs, heads)
for head in heads:
    offsets = weights[head].numpy().argmax(-1) - np.arange(len(tokens))
    print(f"{head} looks one token ahead at {np.mean(offsets == 1):.0%} of tokens")

# %%
values = weights[heads[0]].numpy()
chart = Chart(
    title="Head 2.6 in a German sentence",
    x=Axis("looked at", is_on_top=True),
    y=Axis("asking"),
    series=[
        Cells(
            rows=tokens,
            columns=tokens,
            values=values,
            texts=[[f"{value:.2f}" if value > 0.2 else "" for value in row] for row in values],
            low=0.0,
            high=1.0,
            scale=UPWARDS,
            scale_title="attention weight",
            scale_step=0.25,
        )
    ],
)
