"""
Which heads matter in a language?
=================================

A map has a row for each layer and a cell for each head. Blue heads help: without them accuracy
falls. Orange heads do harm. A sign stands where the head's 95 % interval leaves 0.
"""

import headlab
from headlab.charts.head_map import head_map_chart
from headlab.pictures import map_of_scores
from headlab.results import store_with_demo

# %%
# The demo's scores of the embedded model are there, so this takes a second; without ``store`` the
# same call computes them, in some minutes.

model = headlab.load("e5-small-intents")
task = headlab.task("intents", languages=["de"])
scores = headlab.score(
    model, task, method="shapley", target=0.01, stop="width", store=store_with_demo()
)
print(f"{scores.helpful.sum()} heads help, {scores.harmful.sum()} do harm, of {scores.grid.size}")

# %%
# The head that German would miss most, by layer and head, both counted from 0:

best = scores.values.argmax()
head = scores.grid.heads[best]
print(f"head {head.layer}.{head.head}: {100 * scores.values[best]:+.1f} points of accuracy")
print(f"95 % interval {100 * scores.low[best]:+.1f} to {100 * scores.high[best]:+.1f}")

# %%
chart = head_map_chart("What each head is worth in German", map_of_scores(scores))
