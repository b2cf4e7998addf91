"""
Do two languages need the same heads?
=====================================

Each head has a value in each language. If languages used their heads alike, all points would lie
near the diagonal. Some of the scatter is noise: ``headlab experiment agreement`` takes it off.
"""

import numpy as np

import headlab
from headlab.charts.head_measures import value_measure
from headlab.charts.scatter import groups_by_sign, scatter_chart
from headlab.pictures import head_in_words
from headlab.results import store_with_demo
from headlab.stats import spearman

# %%
model = headlab.load("e5-small-intents")
store = store_with_demo()
scores = {
    language: headlab.score(
        model,
        headlab.task("intents", languages=[language]),
        method="shapley",
        target=0.01,
        stop="width",
        store=store,
    )
    for language in ("de", "th")
}
rho = spearman(np.stack([scores["de"].tested_values, scores["th"].tested_values]))
print(f"rank correlation of German and Thai: {rho[0, 1]:.2f}")

# %%
# Colours are those of Thai: which heads help or harm there.

chart = scatter_chart(
    value_measure(scores["de"], "value in German"),
    value_measure(scores["th"], "value in Thai"),
    groups_by_sign(scores["th"]),
    [head_in_words(head) for head in model.grid.heads],
)
