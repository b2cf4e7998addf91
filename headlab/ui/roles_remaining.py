"""Which roles the heads have that are left when the others go, lowest score first, at each size."""

from __future__ import annotations

import streamlit as st

from headlab.errors import HeadlabError
from headlab.plots.heads import stacked
from headlab.studies.remaining import remaining
from headlab.tables import Table
from headlab.ui import jobs_offer
from headlab.ui.experiments_report import show
from headlab.ui.figures import figure
from headlab.ui.names import language_title
from headlab.ui.roles_store import Kept
from headlab.ui.shell import Choice, found

STEPS = 12  # sizes that are shown


def draw(choice: Choice, kept: Kept) -> None:
    """The roles left at each size, by the scores of the sidebar's method; where there are none, how to have some."""
    results = found(choice)
    if not results.scores:
        st.info(
            f"The heads' order is that of their {choice.method} scores on task {choice.task}, and none are cached for "
            "the chosen languages."
        )
        if results.missing:
            with st.container(border=True, key="offer"):
                jobs_offer.offer(choice, results.missing, folded=True)  # its progress is shown with the roles' own
        return
    languages = list(results.scores)
    start = languages.index(kept.language) if kept.language in languages else 0
    chosen = st.selectbox(
        "Heads leave by the scores of", languages, start, format_func=language_title, key=f"roles-order-{kept.language}"
    )
    scores = results.scores[chosen]
    try:
        table = remaining(kept.result.report, scores, sizes(scores.grid.size))
    except HeadlabError as error:
        st.info(f"These scores cannot order the heads of this report: {error}.")
        return
    left, counts = stacks(table)
    fig = stacked(left, counts, "heads with the role")
    figure(fig, f"roles-left-{kept.language}", key="roles-left", alt="Heads left with each role, at every size")
    st.caption(f"By {choice.method} scores of {language_title(chosen)}. A head with several roles counts in each.")
    show(table, kept.key)


def sizes(heads: int) -> list[int]:
    """Counts of heads that are left, evenly from all of them down, each once."""
    return list(dict.fromkeys(round(heads * part / STEPS) for part in range(STEPS, 0, -1)))


def stacks(table: Table) -> tuple[list[int], dict[str, list[float]]]:
    """Sizes, and {role: heads with it at each size}."""
    left, roles, heads = (table.column(name) for name in ("heads left", "role", "heads"))
    every = list(dict.fromkeys(left))
    counts = {role: [0.0] * len(every) for role in roles}
    for size, role, count in zip(left, roles, heads, strict=True):
        counts[role][every.index(size)] = count
    return every, counts
