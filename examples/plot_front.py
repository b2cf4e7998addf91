"""
How small can a model be that is good enough everywhere?
========================================================

A front holds the models that no other beats in both size and accuracy in their weakest language.
The answer is the smallest whose loss stays within a limit in *every* language; it is chosen on dev
and confirmed on test.
"""

import headlab
from headlab.charts.report import study_drawings
from headlab.core import Report
from headlab.results import store_with_demo
from headlab.studies.pareto import chosen_mask

# %%
# The demo has the front of the embedded model in 15 languages, within one point by the estimate of
# each language's loss:

fronts = [
    result.record
    for result in store_with_demo().listing(Report).results
    if result.record.name == "front"
]
front = next(front for front in fronts if "by the estimate" in " ".join(front.notes))
for note in front.notes[1:3]:
    print("-", note)

# %%
# Its mask, as ``headlab front --out mask.json`` writes it:

model = headlab.load("e5-small-intents")
mask = chosen_mask(front, model.grid)
print(f"{len(mask.removed)} of {mask.grid.size} heads can go")

# %%
# Each dot is a model; the line joins those that no other beats.

chart = study_drawings(front)["front"]
