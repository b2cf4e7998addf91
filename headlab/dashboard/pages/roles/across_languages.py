"""Roles by language: does what a head does in one language hold in the others?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import streamlit as st

from headlab.charts.matrices import MOST_NUMBERS
from headlab.core import (
    HEAD_COLUMNS,
    HEAD_FORMATS,
    Bools,
    Cell,
    Floats,
    Table,
    part,
)
from headlab.dashboard.names import (
    count_words,
    language_title,
    plain,
)
from headlab.dashboard.widgets import draw_figure, show_table
from headlab.pictures import in_legend_order, role_words
from headlab.plots.heads import roles_across_languages
from headlab.roles.report import RoleResult, Roles

FIRST_KIND = "nsubj"
"""The kind of role that is shown first, as readers of the paper ask about it."""


class RolesAcrossLanguages(NamedTuple):
    """Heads with a role in one language, and what they do in every language.

    Attributes:
        rows: The heads and roles in the chosen language, the clearest first.
        languages: Their codes, the chosen one first.
        share: Float [row, language], in percent; NaN where the head was not tested for this role.
        above: Float [row, language], points above chance; NaN where `share` is.
        has: Bool [row, language], whether the head has the role.
    """

    rows: list[RoleResult]
    languages: list[str]
    share: Floats
    above: Floats
    has: Bools

    @property
    def only_tested(self) -> RolesAcrossLanguages:
        """The same without the languages whose reports have no value for any of these heads."""
        column_indices = np.flatnonzero(~np.isnan(self.share).all(axis=0))
        return RolesAcrossLanguages(
            self.rows,
            [self.languages[column_index] for column_index in column_indices],
            self.share[:, column_indices],
            self.above[:, column_indices],
            self.has[:, column_indices],
        )


def draw_languages(reports: Mapping[str, Roles], focus: str) -> None:
    """The heads with a kind of role in `focus`, in every language that has a report."""
    counts = reports[focus].counts
    kinds = in_legend_order([kind for kind, heads in counts.items() if heads])
    if not kinds:
        st.info(f"No head has a role in {plain(language_title(focus))}.")
        return
    default_index = kinds.index(FIRST_KIND) if FIRST_KIND in kinds else 0
    kind = st.selectbox(
        "Role",
        kinds,
        index=default_index,
        key="roles-kind",
        format_func=lambda name: f"{name} ({count_words(counts[name], 'head')})",
    )
    roles_across = compare_languages(reports, focus, kind)
    if len(reports) > 1:
        names = [f"{row.head} {_short_role(row.role)}" for row in roles_across.rows]
        tested_roles = roles_across.only_tested
        spec = reports[focus].report.spec
        draw_figure(
            roles_across_languages(
                tested_roles.above,
                tested_roles.share,
                tested_roles.has,
                names,
                tested_roles.languages,
            ),
            f"roles-{kind}-by-language".replace(" ", "-"),
            key="roles-across",
            alt=f"Heads with role {kind}",
            subject=(str(part(spec, "model", "name")), str(part(spec, "task", "name"))),
            subject_details=f"heads with it in {language_title(focus)}",
        )
        st.caption(plain(reading_caption(roles_across)))
    else:
        st.info(
            f"Only {plain(language_title(focus))} has a report; choose more languages, and find "
            "their roles below."
        )
    show_table(across_table(roles_across, focus, kind), f"across-{focus}-{kind}")


def reading_caption(roles_across: RolesAcrossLanguages) -> str:
    """How to read the figure, and which languages it leaves out and why."""
    drawn_languages = roles_across.only_tested.languages
    shares = "Point at a cell for its share"
    if len(drawn_languages) <= MOST_NUMBERS:
        shares = "Numbers are shares in percent"
    caption = (
        f"{shares}; a dot: the head has the role there. Blue lies above chance; for syntax, above "
        "the baseline of the most frequent offset."
    )
    left_out = [name for name in roles_across.languages if name not in drawn_languages]
    if left_out:
        caption += f" Reports without a value for these heads are not drawn: {', '.join(left_out)}."
    return caption


def _short_role(role: str) -> str:
    """A role without its kind: its direction or offset, short enough for a phone."""
    return role_words(role).partition(": ")[2].replace(" to ", " → ") or role_words(role)


def compare_languages(reports: Mapping[str, Roles], focus: str, kind: str) -> RolesAcrossLanguages:
    """The heads with a role of this kind in one language, in all languages.

    Args:
        reports: By language.
        focus: Code of the language whose heads they are.
        kind: Of the roles.
    """
    roles_of_kind = [row for row in reports[focus].rows if row.has and row.group == kind]
    rows = sorted(roles_of_kind, key=lambda row: -row.points_above_chance)
    languages = [focus, *(name for name in reports if name != focus)]
    shape = (len(rows), len(languages))
    share = np.full(shape, np.nan)
    points_above = np.full(shape, np.nan)
    has = np.zeros(shape, bool)
    for language_index, language in enumerate(languages):
        roles_there = {(row.head, row.role): row for row in reports[language].rows}
        for row_index, row in enumerate(rows):
            other_role = roles_there.get((row.head, row.role))
            if other_role is None:
                continue
            share[row_index, language_index] = _nan_if_none(other_role.numbers["share, %"])
            points_above[row_index, language_index] = _nan_if_none(
                other_role.numbers["above chance, points"]
            )
            has[row_index, language_index] = other_role.has
    return RolesAcrossLanguages(rows, languages, share, points_above, has)


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else value


def across_table(roles_across: RolesAcrossLanguages, focus: str, kind: str) -> Table:
    """Roles across languages as a table: a row per head and role, a column per language."""
    rows: list[tuple[Cell, ...]] = []
    for row_index, row in enumerate(roles_across.rows):
        shares = [
            None if np.isnan(value) else float(value) for value in roles_across.share[row_index]
        ]
        rows.append((*row.head, row.role, int(roles_across.has[row_index].sum()), *shares))
    languages = roles_across.languages
    return Table(
        f"roles-{kind}-{focus}".replace(" ", "-"),
        f"Heads with the role {kind} in {language_title(focus)}, and their share in every language",
        (*HEAD_COLUMNS, "role", "languages with it", *(f"{name}, %" for name in languages)),
        (*HEAD_FORMATS, "", "d", *(".1f" for _ in languages)),
        tuple(rows),
        (
            "No value: the head's best offset differs in that language, or its sentences have no "
            "such pair.",
        ),
    )
