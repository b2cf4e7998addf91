"""
How many heads can go?
======================

Remove heads one after another, lowest value first, and watch the accuracy. Beside it: as many heads
in a random order, which is what a method has to beat.
"""

import headlab
from headlab.charts.curves import curves_chart
from headlab.results import store_with_demo

# %%
model = headlab.load("e5-small-intents")
task = headlab.task("intents", languages=["de"])
by_value = headlab.score(
    model, task, method="shapley", target=0.01, stop="width", store=store_with_demo()
)
at_random = headlab.score(model, task, method="random", seed=1)

# %%
# 64 test examples at seven counts of removed heads; without ``size`` and ``points`` it is all
# examples at every count.

curves = [
    headlab.prune_curve(model, task, scores=scores, split="test", size=64, points=7)
    for scores in (by_value, at_random)
]
for curve in curves:
    points = zip(curve.removed, curve.accuracy, strict=True)
    accuracies = ", ".join(f"{count}: {accuracy:.0%}" for count, accuracy in points)
    print(f"{curve.ordering}: {accuracies}")

# %%
chart = curves_chart(curves)
