"""Which roles remain as heads are removed, lowest score first."""

from __future__ import annotations

import streamlit as st

from headlab.core import HeadlabError
from headlab.dashboard.frame import Choice, scores_of
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels.jobs import offer_missing_scores
from headlab.dashboard.panels.stored import StoredRoles, role_counts_by_size
from headlab.dashboard.widgets import draw_figure, show_table
from headlab.plots.heads import roles_by_size_figure
from headlab.studies.remaining import remaining

MAX_SIZES = 12
"""How many sizes are shown."""


def draw_remaining(choice: Choice, report: StoredRoles) -> None:
    """The roles left at each size by the chosen method's scores, or the offer to compute these.

    Args:
        choice: The sidebar's.
        report: The report of roles.
    """
    results = scores_of(choice)
    if not results.scores:
        st.info(
            f"The heads' order is that of their {choice.method} scores on task "
            f"{plain(choice.task)}, and none are cached for the chosen languages."
        )
        if results.missing:
            with st.container(border=True, key="offer"):
                # its progress is shown with the roles' own
                offer_missing_scores(choice, results.missing, is_folded=True)
        return
    languages = list(results.scores)
    default_index = languages.index(report.language) if report.language in languages else 0
    order_language = st.selectbox(
        "Remove heads by the scores of",
        languages,
        default_index,
        format_func=language_title,
        key=f"roles-order-{report.language}",
    )
    scores = results.scores[order_language]
    try:
        table = remaining(report.result.record, scores, shown_sizes(scores.grid.size))
    except HeadlabError as error:
        st.info(plain(f"These scores cannot order the heads of this report: {error}."))
        return
    heads_left, counts = role_counts_by_size(table)
    fig = roles_by_size_figure(heads_left, counts, "heads with the role")
    draw_figure(
        fig,
        f"roles-left-{report.language}",
        key="roles-left",
        alt="Heads left with each role, at every size",
        subject=(choice.model, report.source),
        subject_details=f"{language_title(report.language)}, {choice.method}",
    )
    st.caption(
        f"By {choice.method} scores of {plain(language_title(order_language))}. A head with "
        "several roles counts in each."
    )
    show_table(table, report.key)


def shown_sizes(heads: int) -> list[int]:
    """Distinct numbers of heads left, evenly spaced from all of them down."""
    return list(dict.fromkeys(round(heads * part / MAX_SIZES) for part in range(MAX_SIZES, 0, -1)))
