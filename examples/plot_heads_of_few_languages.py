"""
Which heads matter in a few languages only?
===========================================

Most heads do the same everywhere, or nothing. Some help in one language and harm in another: what a
mask for all languages must not touch.
"""

import headlab
from headlab.charts.matrices import signs_chart
from headlab.results import store_with_demo

# %%
# Signs of all heads in the demo's 15 languages, each by its own 95 % interval:

model = headlab.load("e5-small-intents")
store = store_with_demo()
languages = list(headlab.task("intents").languages)
scores = {
    language: headlab.score(
        model,
        headlab.task("intents", languages=[language]),
        method="shapley",
        target=0.01,
        stop="width",
        store=store,
    )
    for language in languages
}

# %%
# Heads that do harm somewhere:

helps = {}
harms = {}
for index, head in enumerate(model.grid.heads):
    name = f"{head.layer}.{head.head}"
    helps[name] = [code for code in languages if scores[code].helpful[index]]
    harms[name] = [code for code in languages if scores[code].harmful[index]]
named = [name for name in harms if harms[name]]
both = [name for name in named if helps[name]]
print(f"{len(named)} heads harm in at least one language; {len(both)} of them help in another")

# %%
chart = signs_chart(
    "Heads that harm somewhere",
    [helps[name] for name in named],
    [harms[name] for name in named],
    named,
    languages,
)
