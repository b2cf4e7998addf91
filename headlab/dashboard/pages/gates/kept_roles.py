"""Roles of the heads that a run keeps, by its weight (Voita et al. 2019, figure 8)."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.core import HeadlabError, Report, Table, fingerprint_of
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import language_title, page_link, plain
from headlab.dashboard.panels.stored import (
    StoredRoles,
    Sweep,
    role_counts_by_size,
    stored_roles_reports,
    sweep_fingerprint,
)
from headlab.dashboard.widgets import draw_figure, show_table
from headlab.plots.heads import roles_by_size_figure
from headlab.studies.remaining import COLUMNS, FORMATS, check_same_model, heads_by_role, role_counts

NOTE = (
    "All numbers are of heads with a gate: heads with the role among those that are kept, and "
    "among all. A head may have several roles. by chance: what as many heads drawn at random from "
    "those with a gate would hold, with the range that holds at least 95 % of draws, separately "
    "for each row."
)


def draw_roles(choice: Choice, sweep: Sweep) -> None:
    """The roles left at each λ, from a report on the same language, or a link to make one."""
    language = sweep.first_gates.language
    reports = stored_roles_reports(choice).by_language.get(language, [])
    if not reports:
        subject = f"the heads of {choice.model} do in {language_title(language)}"
        st.info(f"There is no report yet on what {plain(subject)}.")
        page_link("roles", "Find their roles")
        return
    try:
        best_report = _best_report(reports, sweep)
        table = kept_roles_table(sweep, best_report.result.record)
    except HeadlabError as error:
        st.info(plain(f"These gates cannot be compared with this report of roles: {error}."))
        return
    heads_left, counts = role_counts_by_size(first_run_of_each_size(table))
    draw_figure(
        roles_by_size_figure(heads_left, counts, "heads with the role"),
        f"gates-{language}-roles",
        key="gates-roles",
        alt="Heads kept with each role, by how many are kept",
        subject_details=language,
    )
    training_note = ""
    if sweep.is_trained_jointly:
        training_note = " The roles were found before the training, which changed the model too."
    st.caption(
        "The first bar is all heads with a gate. Of runs that keep equally many heads the lowest "
        f"λ is drawn. A head with several roles counts in each.{training_note}"
    )
    show_table(table, f"gates-roles-{language}")


def _best_report(reports: Sequence[StoredRoles], sweep: Sweep) -> StoredRoles:
    """The best report on the sweep's weights; if there is none, the best of all, which is rejected.

    Args:
        reports: In the sweep's language, the best one first; at least one.
        sweep: The runs.
    """
    for report in reports:
        if fingerprint_of(report.result.record.spec) == sweep_fingerprint(sweep):
            return report
    return reports[0]


def kept_roles_table(sweep: Sweep, report: Report) -> Table:
    """A row per run and role: how many heads that have it are kept, and how many by chance.

    Raises:
        HeadlabError: For a report on another model.
    """
    check_same_model(report, sweep.first_gates.spec, "gates")
    heads_of_roles = heads_by_role(report, sweep.first_gates.grid)
    gated_heads = sweep.first_gates.has_gate
    kept_by_weight = [
        (None, gated_heads),
        *((run.record.weight, run.record.kept & gated_heads) for run in sweep.runs),
    ]
    rows = []
    for weight, kept_heads in kept_by_weight:
        for stay in role_counts(heads_of_roles, kept_heads, gated_heads):
            rows.append((weight, int(kept_heads.sum()), *stay.cells))
    title = "Roles of the heads that each λ keeps"
    return Table("gates-roles", title, ("λ", *COLUMNS), ("g", *FORMATS), tuple(rows), (NOTE,))


def first_run_of_each_size(table: Table) -> Table:
    """The rows of the first run of each size, the largest size first."""
    weight_index = table.columns.index("λ")
    size_index = table.columns.index("heads left")
    first_weights: dict[object, object] = {}
    for row in table.rows:
        first_weights.setdefault(row[size_index], row[weight_index])
    rows = [row for row in table.rows if first_weights[row[size_index]] == row[weight_index]]
    rows.sort(key=lambda row: -int(row[size_index] or 0))
    return Table(table.name, table.title, table.columns, table.formats, tuple(rows))
