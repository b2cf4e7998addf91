"""
What would removing the heads save?
===================================

A mask alone saves nothing: a head that is off is computed and multiplied by 0. Removing heads from
the weights saves little of a multilingual model, since most of it is vocabulary. Ask before you do
it.
"""

from dataclasses import replace

import numpy as np

import headlab
from headlab.charts.dots import Dots, dots_chart
from headlab.results import store_with_demo
from headlab.shrink import shrink_model

# %%
model = headlab.load("e5-small-intents")
scores = headlab.score(
    model,
    headlab.task("intents", languages=["de"]),
    method="shapley",
    target=0.01,
    stop="width",
    store=store_with_demo(),
)


def millions(module) -> float:
    """Parameters of a module in millions."""
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


# %%
# From none to 72 of 144 heads:

counts = [0, 24, 48, 72]
sizes = [millions(model.module)]
for count in counts[1:]:
    shrunk = shrink_model(model, scores.mask("bottom", k=count))
    sizes.append(millions(shrunk.module))
vocabulary = millions(model.module.get_input_embeddings())
for count, size in zip(counts, sizes, strict=True):
    print(f"without {count:2} heads: {size:.1f} M parameters, {vocabulary:.1f} M in the vocabulary")

# %%
nothing = np.full(len(counts), np.nan)
series = {
    "all parameters": Dots(np.array(sizes), nothing, nothing, np.ones(4, bool)),
    "vocabulary": Dots(np.full(4, vocabulary), nothing, nothing, np.ones(4, bool)),
}
rows = [f"{count} heads gone" for count in counts]
dots = dots_chart("Most of the model is its vocabulary", rows, series, "million parameters")
chart = replace(dots, x=replace(dots.x, has_zero=True))
