"""Roles of the heads that stay open, run by run (Voita et al. 2019, figure 8)."""

from __future__ import annotations

import streamlit as st

from headlab.errors import HeadlabError
from headlab.experiments.remaining import remaining
from headlab.plots.heads_roles import stacked
from headlab.tables import Report, Table
from headlab.ui import roles_store
from headlab.ui.experiments_report import show
from headlab.ui.figures import figure
from headlab.ui.gates_read import Sweep, as_scores
from headlab.ui.links import page_link
from headlab.ui.names import language_title
from headlab.ui.roles_remaining import stacks
from headlab.ui.shell import Choice


def draw(choice: Choice, sweep: Sweep) -> None:
    """The roles left at each λ, by a report of the same language; where there is none, the way to one."""
    language = sweep.first.language
    reports = roles_store.shelf(choice).by_language.get(language, [])
    if not reports:
        st.info(f"There is no report yet on what the heads of {choice.model} do in {language_title(language)}.")
        page_link("roles", "Find their roles")
        return
    try:
        table = roles_left(sweep, reports[0].result.report)
    except HeadlabError as error:
        st.info(f"These gates cannot be laid beside this report of roles: {error}.")
        return
    left, counts = stacks(of_each_size(table))
    fig = stacked(left, counts, "heads with the role")
    figure(fig, f"gates-{language}-roles", key="gates-roles", alt="Heads kept with each role, by how many are kept")
    along = " The roles are those before the training, in which the model changed too." if sweep.along else ""
    st.caption(
        "The first bar is the whole model. Of runs that keep equally many heads the lowest λ is drawn. A head with "
        f"several roles counts in each.{along}"
    )
    show(table, f"gates-roles-{language}")


def roles_left(sweep: Sweep, report: Report) -> Table:
    """A row a run and role: how many of the heads that have it are kept, and how many would be by chance.

    Raises HeadlabError for a report of other heads.
    """
    first, rows = remaining(report, as_scores(sweep.first), [sweep.first.grid.size]), []
    rows += [(None, *row) for row in first.rows]
    for run in sweep.runs:
        own = remaining(report, as_scores(run.gates), [int(run.gates.kept.sum())])
        rows += [(run.gates.weight, *row) for row in own.rows]
    title = "Roles of the heads that each λ keeps"
    return Table("gates-roles", title, ("λ", *first.columns), ("g", *first.formats), tuple(rows), first.notes)


def of_each_size(table: Table) -> Table:
    """The rows of the first run of each size, the largest size first."""
    weight, left = table.columns.index("λ"), table.columns.index("heads left")
    first: dict[object, object] = {}
    for row in table.rows:
        first.setdefault(row[left], row[weight])
    rows = [row for row in table.rows if first[row[left]] == row[weight]]
    rows.sort(key=lambda row: -int(row[left] or 0))
    return Table(table.name, table.title, table.columns, table.formats, tuple(rows))
