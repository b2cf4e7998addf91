"""Roles of the heads that stay open, run by run (Voita et al. 2019, figure 8)."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.errors import HeadlabError
from headlab.plots.heads import stacked
from headlab.studies.remaining import COLUMNS, FORMATS, heads_by_role, same_model, staying
from headlab.tables import Report, Table
from headlab.ui import roles_store
from headlab.ui.experiments_report import show
from headlab.ui.experiments_store import part
from headlab.ui.figures import figure
from headlab.ui.gates_read import Sweep
from headlab.ui.gates_store import fingerprint
from headlab.ui.links import page_link
from headlab.ui.names import language_title
from headlab.ui.roles_remaining import stacks
from headlab.ui.roles_store import Kept
from headlab.ui.shell import Choice

NOTE = (
    "All numbers are of heads with a gate: heads with the role among those that are kept, and among all. A head may "
    "have several roles. by chance: what as many heads drawn at random from those with a gate would hold, with the "
    "range that holds at least 95 % of draws, each row for itself."
)


def draw(choice: Choice, sweep: Sweep) -> None:
    """The roles left at each λ, by a report of the same language; where there is none, the way to one."""
    language = sweep.first.language
    reports = roles_store.shelf(choice).by_language.get(language, [])
    if not reports:
        st.info(f"There is no report yet on what the heads of {choice.model} do in {language_title(language)}.")
        page_link("roles", "Find their roles")
        return
    try:
        table = roles_left(sweep, _fitting(sweep, reports).result.report)
    except HeadlabError as error:
        st.info(f"These gates cannot be laid beside this report of roles: {error}.")
        return
    left, counts = stacks(of_each_size(table))
    fig = stacked(left, counts, "heads with the role")
    figure(fig, f"gates-{language}-roles", key="gates-roles", alt="Heads kept with each role, by how many are kept")
    along = " The roles are those before the training, in which the model changed too." if sweep.along else ""
    st.caption(
        "The first bar is all heads with a gate. Of runs that keep equally many heads the lowest λ is drawn. A head "
        f"with several roles counts in each.{along}"
    )
    show(table, f"gates-roles-{language}")


def _fitting(sweep: Sweep, reports: Sequence[Kept]) -> Kept:
    """The best report of the sweep's own weights; where there is none, the best of all, which says so."""
    own = fingerprint(sweep)
    same = (kept for kept in reports if part(kept.result.report.spec, "model", "fingerprint") == own)
    return next(same, reports[0])


def roles_left(sweep: Sweep, report: Report) -> Table:
    """A row a run and role: how many of the heads that have it are kept, and how many would be by chance.

    Raises HeadlabError for a report of other heads.
    """
    same_model(report, sweep.first.spec, "gates")
    having, gated = heads_by_role(report, sweep.first.grid), sweep.first.gated
    every = [(None, gated), *((run.gates.weight, run.gates.kept & gated) for run in sweep.runs)]
    rows = tuple(
        (weight, int(kept.sum()), *stay.cells) for weight, kept in every for stay in staying(having, kept, gated)
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
