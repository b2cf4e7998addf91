"""
Which heads hurt a language?
============================

A head does harm where its whole interval lies below 0: the model answers better without it. Among
144 heads some intervals miss 0 by chance; Holm's correction says which claims survive that.
"""

import numpy as np

import headlab
from headlab.charts.dots import Dots, dots_chart
from headlab.results import store_with_demo

# %%
model = headlab.load("e5-small-intents")
task = headlab.task("intents", languages=["vi"])
scores = headlab.score(
    model, task, method="shapley", target=0.01, stop="width", store=store_with_demo()
)
harmful = scores.mask("harmful")
corrected = scores.mask("harmful", correction="holm")
print(f"harmful by their own interval: {len(harmful.removed)}")
print(f"after Holm's correction for {scores.grid.size} heads: {len(corrected.removed)}")

# %%
# The twelve lowest heads with their intervals, in points of accuracy. Filled: the interval lies
# below 0.

lowest = np.argsort(scores.tested_values)[:12]
names = [f"{scores.grid.heads[i].layer}.{scores.grid.heads[i].head}" for i in lowest]
dots = Dots(
    100 * scores.tested_values[lowest],
    100 * scores.low[lowest],
    100 * scores.high[lowest],
    scores.harmful[lowest],
)
chart = dots_chart("Vietnamese: the twelve lowest heads", names, {"95 % interval": dots}, "points")
