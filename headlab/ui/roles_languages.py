"""Roles by language: does what a head does in one language hold in the others?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import streamlit as st

from headlab.plots.heads import in_order, roles_across_languages
from headlab.records import Bools, Floats
from headlab.tables import Cell, Table
from headlab.ui.experiments_report import show
from headlab.ui.figures import figure
from headlab.ui.names import language_title
from headlab.ui.roles_map import words
from headlab.ui.roles_read import Found, Roles

FIRST = "nsubj"  # the question of the paper's readers


class Across(NamedTuple):
    """Heads with a role in one language, and what they do in every language.

    rows: of the language asked about, the clearest first.  share, above: float [row, language] in percent and in
    points above chance, NaN where the head was not asked for this role.  has: bool [row, language].
    """

    rows: list[Found]
    languages: list[str]
    share: Floats
    above: Floats
    has: Bools


def draw(reports: Mapping[str, Roles], focus: str) -> None:
    """The heads of a kind of role in `focus`, in every language that has a report."""
    counts = reports[focus].counts
    kinds = in_order([kind for kind, heads in counts.items() if heads])
    if not kinds:
        st.info(f"No head has a role in {language_title(focus)}.")
        return
    start = kinds.index(FIRST) if FIRST in kinds else 0
    kind = st.selectbox("Role", kinds, index=start, key="roles-kind", format_func=lambda k: f"{k} ({many(counts[k])})")
    found = across(reports, focus, kind)
    if len(reports) > 1:
        names = [f"{row.head} {_short(row.role)}" for row in found.rows]
        fig = roles_across_languages(found.above, found.share, found.has, names, found.languages)
        figure(fig, f"roles-{kind}-by-language".replace(" ", "-"), key="roles-across", alt=f"Heads with role {kind}")
        st.caption(
            "Numbers are shares in percent; a dot: the head has the role there. Blue lies above chance; for syntax, "
            "above the baseline of the most frequent offset."
        )
    else:
        st.info(f"Only {language_title(focus)} has a report; choose more languages, and find their roles below.")
    show(table_of(found, focus, kind), f"across-{focus}-{kind}")


def many(heads: int) -> str:
    """'1 head', '2 heads'."""
    return f"{heads} head{'' if heads == 1 else 's'}"


def _short(role: str) -> str:
    """A role whose kind is known: its direction or its offset, as a phone has room for."""
    return words(role).partition(": ")[2].replace(" to ", " → ") or words(role)


def across(reports: Mapping[str, Roles], focus: str, kind: str) -> Across:
    """The heads that have a role of this kind in a language, in all. reports: {language: its report}."""
    every = [row for row in reports[focus].rows if row.has and row.kind == kind]
    rows = sorted(every, key=lambda row: -row.above)
    languages = [focus, *(name for name in reports if name != focus)]
    shape = len(rows), len(languages)
    share, above, has = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, bool)
    for column, language in enumerate(languages):
        there = {(row.head, row.role): row for row in reports[language].rows}
        for at, row in enumerate(rows):
            other = there.get((row.head, row.role))
            if other is None:
                continue
            share[at, column], above[at, column] = (
                np.nan if value is None else value
                for value in (other.numbers["share, %"], other.numbers["above chance, points"])
            )
            has[at, column] = other.has
    return Across(rows, languages, share, above, has)


def table_of(found: Across, focus: str, kind: str) -> Table:
    """The same as a table: a row a head and role, a column a language."""
    rows: list[tuple[Cell, ...]] = []
    for at, row in enumerate(found.rows):
        shares = [None if np.isnan(value) else float(value) for value in found.share[at]]
        rows.append((*row.head, row.role, int(found.has[at].sum()), *shares))
    languages = found.languages
    return Table(
        f"roles-{kind}-{focus}".replace(" ", "-"),
        f"Heads with the role {kind} in {language_title(focus)}, and their share in every language",
        ("stack", "layer", "head", "role", "languages with it", *(f"{name}, %" for name in languages)),
        ("", "d", "d", "", "d", *(".1f" for _ in languages)),
        tuple(rows),
        ("No value: the head's best offset is another in that language, or its sentences have no such pair.",),
    )
