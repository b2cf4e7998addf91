"""A head's card on the Roles page: its roles in words, where it looks, and every role with counts and intervals."""

from __future__ import annotations

import math

import pandas as pd
import streamlit as st

from headlab.plots.heads import look_of
from headlab.records import Head
from headlab.tables import Table
from headlab.ui.experiments_report import show
from headlab.ui.links import page_link
from headlab.ui.names import head_key, head_words
from headlab.ui.roles_map import against, words
from headlab.ui.roles_read import HAS, ROLES, Found, Roles, heads_of

SHARES = ("separator share", "first-token share")
COLUMNS = (
    "role", HAS, "share, %", "low, %", "high, %", "chance, %", "above chance, points", "low, points", "high, points",
    "hits", "asked", "sentences", "p (Benjamini-Hochberg)",
)  # fmt: skip


def draw(roles: Roles, head: Head) -> None:
    """What the head does, and where it looks."""
    several = len(roles.grid.stacks) > 1
    st.subheader(head_words(head, several=several))
    own = roles.having(head)
    if not own:
        st.markdown("It has none of the roles." if head in roles.measures else "It was not looked at.")
        closest = roles.by_head.get(head, ())
        if closest:
            st.caption(f"Closest: {told(closest[0])}.")
    for row in own:
        look = look_of(row.kind)
        swatch = f'<span style="background:{look.colour};color:{look.ink};padding:0 .4em;border-radius:2px">'
        st.html(f"{swatch}{look.mark}</span> {told(row)}")
    measures = roles.measures.get(head, {})
    rows = [(name.capitalize(), _value(name, value)) for name, value in measures.items()]
    st.table(pd.DataFrame(rows, columns=["measure", "value"]), border="horizontal", hide_index=True, hide_header=True)
    page_link("attention", "What it attends to", {"heads": [head_key(head)]})


def told(row: Found) -> str:
    """A role with its share, interval, chance and counts."""
    n = row.numbers
    share = "" if n["share, %"] is None else f": {n['share, %']:.1f} %"
    ends = "" if n["low, %"] is None or n["high, %"] is None else f" [{n['low, %']:.1f}, {n['high, %']:.1f}]"
    chance = "" if n["chance, %"] is None else f", {against(row.role)} {n['chance, %']:.1f} %"
    counts = "" if n["hits"] is None or n["asked"] is None else f", {n['hits']:,.0f} of {n['asked']:,.0f}"
    return f"{words(row.role)}{share}{ends}{chance}{counts}"


def _value(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name in SHARES:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if name == "tokens" else f"{value:.3g}"


def details(roles: Roles, head: Head, key: str) -> None:
    """Every role that was looked for in the head, as a table to download."""
    table = of_head(roles, head)
    if table.rows:
        show(table, key)


def of_head(roles: Roles, head: Head) -> Table:
    """The rows of the report's table `roles` that are about a head, what is farthest above chance first."""
    table = roles.report.table(ROLES)
    at = [row for row, other in enumerate(heads_of(table)) if other == head]
    above = table.column("above chance, points")
    at.sort(key=lambda row: math.inf if above[row] is None else -above[row])
    columns = [table.columns.index(name) for name in COLUMNS]
    rows = tuple(tuple(table.rows[row][column] for column in columns) for row in at)
    formats = tuple(table.formats[column] for column in columns)
    title = f"Every role of {head_words(head, several=len(roles.grid.stacks) > 1).lower()}"
    return Table(f"roles-{head_key(head)}", title, COLUMNS, formats, rows, table.notes)
