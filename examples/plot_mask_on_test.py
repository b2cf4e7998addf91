"""
Does a mask help on examples it has not seen?
=============================================

Heads are chosen on *dev*; whether that was a good choice only *test* can say. Both models answer
the same examples, and whole groups of examples are resampled, so the interval is of the difference.
"""

import numpy as np

import headlab
from headlab.charts.dots import Dots, dots_chart
from headlab.results import store_with_demo

# %%
# The ten lowest heads of Vietnamese, by dev:

model = headlab.load("e5-small-intents")
scores = headlab.score(
    model,
    headlab.task("intents", languages=["vi"]),
    method="shapley",
    target=0.01,
    stop="width",
    store=store_with_demo(),
)
mask = scores.mask("bottom", k=10)

# %%
# Judged on test, in Vietnamese and in two languages for which it was not made:

languages = ["vi", "de", "en"]
task = headlab.task("intents", languages=languages)
report = headlab.evaluate(model, task, mask, split="test", size=150)
print(report)

# %%
rows = [report[language] for language in languages]
difference, low, high = (
    np.array([100 * getattr(row, name) for row in rows]) for name in ("difference", "low", "high")
)
dots = Dots(difference, low, high, (low > 0) | (high < 0))
chart = dots_chart("Without ten heads, on test", languages, {"95 % interval": dots}, "points")
