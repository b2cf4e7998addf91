"""Roles of the heads that a run keeps, by its weight (Voita et al. 2019, figure 8)."""

from __future__ import annotations

import streamlit as st

from headlab.core import HeadlabError, Report, Table, fingerprint_of
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import language_title, page_link, plain
from headlab.dashboard.panels import stored_roles
from headlab.dashboard.panels.remaining_roles import counts_by_size
from headlab.dashboard.panels.stored_gates import Sweep, fingerprint
from headlab.dashboard.widgets import figure, show_table
from headlab.plots.heads import stacked
from headlab.studies.remaining import COLUMNS, FORMATS, heads_by_role, same_model, staying

NOTE = (
    "All numbers are of heads with a gate: heads with the role among those that are kept, and among all. A head may "
    "have several roles. by chance: what as many heads drawn at random from those with a gate would hold, with the "
    "range that holds at least 95 % of draws, separately for each row."
)


def draw_roles(choice: Choice, sweep: Sweep) -> None:
    """The roles left at each λ, from a report on the same language; if there is none, a link to make one."""
    language = sweep.first.language
    reports = stored_roles.shelf(choice).by_language.get(language, [])
    if not reports:
        where = f"the heads of {choice.model} do in {language_title(language)}"
        st.info(f"There is no report yet on what {plain(where)}.")
        page_link("roles", "Find their roles")
        return
    try:
        # The best report on the sweep's weights; if there is none, the best of all, which is rejected.
        same = (
            kept
            for kept in reports
            if fingerprint_of(kept.result.record.spec) == fingerprint(sweep)
        )
        table = roles_left(sweep, next(same, reports[0]).result.record)
    except HeadlabError as error:
        st.info(plain(f"These gates cannot be compared with this report of roles: {error}."))
        return
    left, counts = counts_by_size(of_each_size(table))
    fig = stacked(left, counts, "heads with the role")
    figure(
        fig,
        f"gates-{language}-roles",
        key="gates-roles",
        alt="Heads kept with each role, by how many are kept",
        about=language,
    )
    along = (
        " The roles were found before the training, which changed the model too."
        if sweep.along
        else ""
    )
    st.caption(
        "The first bar is all heads with a gate. Of runs that keep equally many heads the lowest λ is drawn. A head "
        f"with several roles counts in each.{along}"
    )
    show_table(table, f"gates-roles-{language}")


def roles_left(sweep: Sweep, report: Report) -> Table:
    """A row per run and role: how many of the heads that have it are kept, and how many would be by chance.

    Raises HeadlabError for a report on another model.
    """
    same_model(report, sweep.first.spec, "gates")
    having, gated = heads_by_role(report, sweep.first.grid), sweep.first.gated
    every = [(None, gated), *((run.record.weight, run.record.kept & gated) for run in sweep.runs)]
    rows = tuple(
        (weight, int(kept.sum()), *stay.cells)
        for weight, kept in every
        for stay in staying(having, kept, gated)
    )
    title = "Roles of the heads that each λ keeps"
    return Table("gates-roles", title, ("λ", *COLUMNS), ("g", *FORMATS), rows, (NOTE,))


def of_each_size(table: Table) -> Table:
    """The rows of the first run of each size, the largest size first."""
    weight, left = table.columns.index("λ"), table.columns.index("heads left")
    first: dict[object, object] = {}
    for row in table.rows:
        first.setdefault(row[left], row[weight])
    rows = [row for row in table.rows if first[row[left]] == row[weight]]
    rows.sort(key=lambda row: -int(row[left] or 0))
    return Table(table.name, table.title, table.columns, table.formats, tuple(rows))
