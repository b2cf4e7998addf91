"""Two reports of roles side by side: what changed for each head."""

from __future__ import annotations

import numpy as np
import streamlit as st

from headlab.core import HEAD, HEAD_FORMATS, Cell, Head, Table, content_key
from headlab.dashboard.names import language_title
from headlab.dashboard.panels import stored_roles
from headlab.dashboard.panels.contrast import (
    HEADING,
    NOTHING,
    SHORT,
    Click,
    bare_scores,
    compare,
    pick,
)
from headlab.dashboard.panels.shelf import Shelf
from headlab.dashboard.panels.stored_roles import StoredRoles
from headlab.dashboard.widgets import show_table
from headlab.results import HeadScores
from headlab.roles import HAS, Found, Roles


def compare_reports(
    shelf: Shelf[StoredRoles], shown: StoredRoles, head: Head, on_click: Click
) -> None:
    """Two reports of roles on the same heads: both maps, a measure of attention, and the roles that differ."""
    every = [kept for rows in shelf.by_language.values() for kept in rows]
    there = {
        kept.key[:SHORT]: kept
        for kept in every
        if kept.key != shown.key and kept.roles.grid == shown.roles.grid
    }
    if not there:
        return
    st.subheader(HEADING)
    labels = {key: stored_roles.label(kept, shelf.weights) for key, kept in there.items()}
    key = pick(labels, "roles", f"roles-{shown.key[:SHORT]}", [kept.key for kept in every])
    if key == NOTHING:
        return
    other, names = there[key], (stored_roles.label(shown, shelf.weights), labels[key])
    for at, (kept, place) in enumerate(
        zip((shown, other), st.columns(2, gap="large"), strict=True)
    ):
        with place:
            stored_roles.role_map(
                kept.roles,
                key=f"contrast-roles-{at}",
                title=language_title(kept.language),
                selected=head,
                on_click=on_click,
            )
    turned = roles_that_differ(shown.roles, other.roles, names)
    if turned.rows:
        show_table(turned, content_key(["roles", shown.key, key]))
    else:
        st.info("Every head has the same roles in both.")
    pairs = {
        name: (one, two)
        for name, one in measures(shown).items()
        if (two := measures(other).get(name))
    }
    if pairs:
        st.markdown("##### How they attend")
        measure = st.selectbox(
            "Measure", list(pairs), format_func=str.capitalize, key="contrast-measure"
        )
        told = tuple(
            f"{side}: {name}." for side, name in zip(("Shown", "Other"), names, strict=True)
        )
        titles = (f"{language_title(shown.language)} (shown)", language_title(other.language))
        compare(
            *pairs[measure], titles, told, content_key([measure, shown.key, key]), head, on_click
        )


def measures(kept: StoredRoles) -> dict[str, HeadScores]:
    """What a report measures of the attention of every head, by the measure's name; not what some heads lack."""
    roles, found = kept.roles, dict[str, HeadScores]()
    for name in next(iter(roles.measures.values())):
        values = [roles.measures.get(head, {}).get(name) for head in roles.grid.heads]
        if name != "tokens" and None not in values:
            found[name] = bare_scores(roles.grid, kept.language, name, np.array(values, float))
    return found


def roles_that_differ(shown: Roles, other: Roles, names: tuple[str, str]) -> Table:
    """A row for each head and role that it has in one of two reports only, the largest difference of shares first."""
    of = [{(row.head, row.role): row for row in roles.rows} for roles in (shown, other)]
    rows = [_role_row(at, of[0].get(at), of[1].get(at)) for at in dict.fromkeys([*of[0], *of[1]])]
    kept = sorted((row for row in rows if row[4] != row[5]), key=lambda row: -abs(row[8] or 0.0))  # type: ignore[arg-type]
    columns = (
        *HEAD,
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
        tuple(kept),
        notes,
    )


def _role_row(at: tuple[Head, str], one: Found | None, two: Found | None) -> tuple[Cell, ...]:
    def number(row: Found | None, name: str) -> float | None:
        return None if row is None else row.numbers[name]

    def less(mine: str, theirs: str) -> float | None:
        left, right = number(one, mine), number(two, theirs)
        return None if left is None or right is None else left - right

    has = (one is not None and one.has, two is not None and two.has)
    share = "share, %"
    between = (less(share, share), less("low, %", "high, %"), less("high, %", "low, %"))
    return (*at[0], at[1], *has, number(one, share), number(two, share), *between)
