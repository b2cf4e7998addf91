"""Two reports of roles side by side: what changed for each head."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import streamlit as st

from headlab.core import HEAD_COLUMNS, HEAD_FORMATS, Cell, Head, Table, content_key
from headlab.dashboard.names import language_title
from headlab.dashboard.panels.heads import (
    COMPARED_KEY_LENGTH,
    COMPARISON_HEADING,
    NO_COMPARISON,
    HeadAction,
    draw_comparison,
    pick_compared_result,
    unitless_scores,
)
from headlab.dashboard.panels.stored import (
    StoredByLanguage,
    StoredRoles,
    draw_role_map,
    roles_report_label,
)
from headlab.dashboard.widgets import show_table
from headlab.results import HeadScores
from headlab.roles import HAS, RoleResult, Roles


def compare_reports(
    stored_reports: StoredByLanguage[StoredRoles],
    shown_report: StoredRoles,
    head: Head,
    on_click: HeadAction,
) -> None:
    """Two reports of roles on the same heads: both maps, a measure, and roles that differ.

    Args:
        stored_reports: The stored reports.
        shown_report: The one that the page shows.
        head: The selected head.
        on_click: What a click on a head does.
    """
    report_keys = []
    comparable_reports = {}
    labels = {}
    for reports in stored_reports.by_language.values():
        for report in reports:
            report_keys.append(report.key)
            if report.key != shown_report.key and report.roles.grid == shown_report.roles.grid:
                short_key = report.key[:COMPARED_KEY_LENGTH]
                comparable_reports[short_key] = report
                labels[short_key] = roles_report_label(report, stored_reports.weights)
    if not comparable_reports:
        return
    st.subheader(COMPARISON_HEADING)
    key = pick_compared_result(
        labels, "roles", f"roles-{shown_report.key[:COMPARED_KEY_LENGTH]}", report_keys
    )
    if key == NO_COMPARISON:
        return
    other_report = comparable_reports[key]
    names = (roles_report_label(shown_report, stored_reports.weights), labels[key])
    both_reports = (shown_report, other_report)
    columns = st.columns(2, gap="large")
    for index, (report, column) in enumerate(zip(both_reports, columns, strict=True)):
        with column:
            draw_role_map(
                report.roles,
                key=f"contrast-roles-{index}",
                title=language_title(report.language),
                selected_head=head,
                on_click=on_click,
            )
    differing_roles = roles_that_differ(shown_report.roles, other_report.roles, names)
    if differing_roles.rows:
        show_table(differing_roles, content_key(["roles", shown_report.key, key]))
    else:
        st.info("Every head has the same roles in both.")
    shown_scores = measures_of_attention(shown_report)
    other_scores = measures_of_attention(other_report) if shown_scores else {}
    measures = [name for name in shown_scores if name in other_scores]
    if measures:
        st.markdown("##### How they attend")
        measure = st.selectbox(
            "Measure", measures, format_func=str.capitalize, key="contrast-measure"
        )
        titles = (
            f"{language_title(shown_report.language)} (shown)",
            language_title(other_report.language),
        )
        draw_comparison(
            shown_scores[measure],
            other_scores[measure],
            titles,
            (f"Shown: {names[0]}.", f"Other: {names[1]}."),
            content_key([measure, shown_report.key, key]),
            head,
            on_click,
        )


def measures_of_attention(report: StoredRoles) -> dict[str, HeadScores]:
    """What a report measures of the attention of every head, by the measure's name.

    A measure that some heads lack is left out.
    """
    roles = report.roles
    scores_by_measure: dict[str, HeadScores] = {}
    for name in next(iter(roles.measures.values())):
        values = [roles.measures.get(head, {}).get(name) for head in roles.grid.heads]
        if name != "tokens" and None not in values:
            scores_by_measure[name] = unitless_scores(
                roles.grid, report.language, name, np.array(values, float)
            )
    return scores_by_measure


class RolePair(NamedTuple):
    """A role of a head in two reports.

    Attributes:
        head: The head.
        role: The role.
        shown_role: What the shown report says of it; None if it did not test the head for the role.
        other_role: What the other report says of it.
    """

    head: Head
    role: str
    shown_role: RoleResult | None
    other_role: RoleResult | None

    @property
    def shown_has_it(self) -> bool:
        """Whether the head has the role in the shown report."""
        return self.shown_role is not None and self.shown_role.has

    @property
    def other_has_it(self) -> bool:
        """Whether the head has the role in the other report."""
        return self.other_role is not None and self.other_role.has

    def difference(self, shown_number: str, other_number: str) -> float | None:
        """A number of the shown report minus one of the other; None where either lacks it."""
        minuend = _number(self.shown_role, shown_number)
        subtrahend = _number(self.other_role, other_number)
        if minuend is None or subtrahend is None:
            return None
        return minuend - subtrahend

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The row of the table `roles-that-differ`."""
        return (
            *self.head,
            self.role,
            self.shown_has_it,
            self.other_has_it,
            _number(self.shown_role, "share, %"),
            _number(self.other_role, "share, %"),
            self.difference("share, %", "share, %"),
            self.difference("low, %", "high, %"),
            self.difference("high, %", "low, %"),
        )


def _number(role: RoleResult | None, name: str) -> float | None:
    if role is None:
        return None
    return role.numbers[name]


def roles_that_differ(shown_roles: Roles, other_roles: Roles, names: tuple[str, str]) -> Table:
    """A row for each head and role that only one of two reports gives it.

    The largest difference of shares comes first.

    Args:
        shown_roles: Of the report that the page shows.
        other_roles: Of the other one.
        names: Of the two reports.
    """
    shown_by_key = {(row.head, row.role): row for row in shown_roles.rows}
    other_by_key = {(row.head, row.role): row for row in other_roles.rows}
    differing_pairs = []
    for key in dict.fromkeys([*shown_by_key, *other_by_key]):
        pair = RolePair(*key, shown_by_key.get(key), other_by_key.get(key))
        if pair.shown_has_it != pair.other_has_it:
            differing_pairs.append(pair)
    differing_pairs.sort(key=lambda pair: -abs(pair.difference("share, %", "share, %") or 0.0))
    columns = (
        *HEAD_COLUMNS,
        "role",
        HAS,
        "has it there",
        "share, %",
        "share there, %",
        "difference, points",
        "low, points",
        "high, points",
    )
    notes = (
        f"Shown: {names[0]}.",
        f"There: {names[1]}.",
        "low, high: at least 90 %, as both shares lie in their own "
        "intervals of 95 %. A role that a report did not test the head for has no share there.",
    )
    formats = (*HEAD_FORMATS, "", "", "", ".1f", ".1f", "+.1f", "+.1f", "+.1f")
    return Table(
        "roles-that-differ",
        "Roles that a head has in one of the two",
        columns,
        formats,
        tuple(pair.cells for pair in differing_pairs),
        notes,
    )
