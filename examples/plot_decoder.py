"""
Which heads of a decoder repeat a text?
=======================================

A language model needs no fine-tuning to be asked: the task *repeats* gives it a list of words
twice, and it predicts the second time. Induction heads look at what came after the same word
before.
"""

from headlab.charts.head_map import head_map_chart
from headlab.pictures import map_of_scores
from headlab.results import HeadScores, store_with_demo

# %%
# The demo has scores of SmolLM2-135M, a decoder of 30 layers with 9 heads each. ``headlab score
# --model smollm2-135m --task repeats`` computes them, once ``make decoder`` has installed it.

scores = next(
    result.record
    for result in store_with_demo().listing(HeadScores).results
    if result.record.spec.model.name == "smollm2-135m"
    and result.record.spec.task.name == "repeats"
    and result.record.method == "leave-one-out"
)
order = scores.values.argsort()[::-1]
for index in order[:3]:
    head = scores.grid.heads[index]
    print(f"head {head.layer}.{head.head}: without it {100 * scores.values[index]:.1f} points less")
print(f"heads that help for sure: {scores.helpful.sum()} of {scores.grid.size}")

# %%
chart = head_map_chart("SmolLM2-135M repeats a list of words", map_of_scores(scores))
