"""
What do heads do?
=================

Some heads look one token ahead or back, some from a verb to its subject or object, some at rare
words. A head has a role where its share is above chance, or above a fixed offset for syntax, by
more than noise explains.
"""

from headlab.charts.head_measures import measures_of_roles
from headlab.charts.matrices import shares_chart
from headlab.core import Report
from headlab.results import store_with_demo
from headlab.roles.report import read_roles

# %%
# Roles in English of the embedded model, on sentences with trees. They were computed before, by
# ``headlab roles --language en --data DIR``: treebanks do not come with headlab.

report = next(
    result.record
    for result in store_with_demo().listing(Report).results
    if result.record.name == "roles"
    and result.record.spec.model.name == "e5-small-intents"
    and result.record.spec.task.language == "en"
)
roles = read_roles(report)
for group, count in roles.counts.items():
    print(f"{group}: {count} heads")

# %%
# How often each head looks at the first token, where many heads look that have nothing to say, in
# percent of the tokens:

measure = measures_of_roles(roles, roles.grid, "en")["share of role first token"]()
shares = {tuple(head): value for head, value in zip(roles.grid.heads, measure.values, strict=True)}
chart = shares_chart("Looks at the first token", shares, "% of tokens")
