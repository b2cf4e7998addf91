"""Which roles remain as heads are removed, lowest score first."""

from __future__ import annotations

import streamlit as st

from headlab.core import HeadlabError
from headlab.dashboard.frame import Choice, scores_of
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels import job_offer
from headlab.dashboard.panels.remaining_roles import counts_by_size
from headlab.dashboard.panels.stored_roles import StoredRoles
from headlab.dashboard.widgets import figure, show_table
from headlab.plots.heads import stacked
from headlab.studies.remaining import remaining

STEPS = 12  # sizes that are shown


def draw_remaining(choice: Choice, kept: StoredRoles) -> None:
    """The roles left at each size, by the scores of the sidebar's method; without scores, the offer to compute them."""
    results = scores_of(choice)
    if not results.scores:
        st.info(
            f"The heads' order is that of their {choice.method} scores on task {plain(choice.task)}, and none are "
            "cached for the chosen languages."
        )
        if results.missing:
            with st.container(border=True, key="offer"):
                job_offer.offer(
                    choice, results.missing, folded=True
                )  # its progress is shown with the roles' own
        return
    languages = list(results.scores)
    start = languages.index(kept.language) if kept.language in languages else 0
    chosen = st.selectbox(
        "Remove heads by the scores of",
        languages,
        start,
        format_func=language_title,
        key=f"roles-order-{kept.language}",
    )
    scores = results.scores[chosen]
    try:
        table = remaining(kept.result.record, scores, sizes(scores.grid.size))
    except HeadlabError as error:
        st.info(plain(f"These scores cannot order the heads of this report: {error}."))
        return
    left, counts = counts_by_size(table)
    fig = stacked(left, counts, "heads with the role")
    figure(
        fig,
        f"roles-left-{kept.language}",
        key="roles-left",
        alt="Heads left with each role, at every size",
        of=(choice.model, kept.source),
        about=f"{language_title(kept.language)}, {choice.method}",
    )
    st.caption(
        f"By {choice.method} scores of {plain(language_title(chosen))}. A head with several roles counts in each."
    )
    show_table(table, kept.key)


def sizes(heads: int) -> list[int]:
    """Distinct numbers of heads left, evenly spaced from all of them down."""
    return list(dict.fromkeys(round(heads * part / STEPS) for part in range(STEPS, 0, -1)))
