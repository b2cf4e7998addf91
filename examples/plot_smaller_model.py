"""
Does the smaller model answer as the masked one?
================================================

``shrink_model`` takes the heads out of the weights. The smaller model must answer as the masked
model does: the same logits up to the last bits.
"""

import numpy as np
import torch

import headlab
from headlab.charts.chart import Axis, Chart, Points, Rule
from headlab.pictures import LINE_COLOURS
from headlab.results import store_with_demo
from headlab.shrink import shrink_model

# %%
model = headlab.load("e5-small-intents")
task = headlab.task("intents", languages=["de"])
scores = headlab.score(
    model, task, method="shapley", target=0.01, stop="width", store=store_with_demo()
)
mask = scores.mask("bottom", k=48)
shrunk = shrink_model(model, mask)

# %%
# Both on 64 test sentences, the masked model inside ``headlab.gated``:

texts = [example.text for example in task.examples("de", "test")[:64]]
inputs = model.tokenizer(texts, return_tensors="pt", padding=True)
with torch.no_grad():
    with headlab.gated(model, mask):
        masked = model.module(**inputs).logits.numpy()
    smaller = shrunk.module(**inputs).logits.numpy()
print(f"largest difference of {masked.size:,} logits: {np.abs(masked - smaller).max():.1e}")
print(f"answers that differ: {np.count_nonzero(masked.argmax(-1) != smaller.argmax(-1))} of 64")

# %%
chart = Chart(
    title="Logits of the masked and of the smaller model",
    x=Axis("masked model"),
    y=Axis("smaller model, 48 heads removed from the weights"),
    series=[
        Points(
            "logits",
            masked.ravel(),
            smaller.ravel(),
            LINE_COLOURS[0],
            "circle",
            [False] * masked.size,
            sizes=5.0,
        )
    ],
    rules=[Rule("x", 0.0, "dot"), Rule("y", 0.0, "dot")],
)
