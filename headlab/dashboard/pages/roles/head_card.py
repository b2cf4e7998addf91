"""A head on the Roles page: its card, its sentences, and its roles in other languages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from headlab.charts.matrices import MOST_NUMBERS
from headlab.core import (
    HEAD_COLUMNS,
    HEAD_FORMATS,
    Bools,
    Cell,
    Floats,
    Head,
    HeadlabError,
    Table,
    part,
)
from headlab.dashboard.names import (
    count_words,
    head_in_full,
    head_key,
    head_number,
    head_words,
    language_title,
    page_link,
    plain,
)
from headlab.dashboard.panels.heads import side_by_side_params
from headlab.dashboard.widgets import draw_figure, show_named_values, show_table
from headlab.pictures import comparison_word, in_legend_order, look_of, parts_note, role_words
from headlab.plots.heads import roles_across_languages
from headlab.plots.matrices import with_visible_characters
from headlab.roles.report import EXAMPLE_TOKENS, EXAMPLES, HAS, NUMBERS, RoleResult, Roles, heads_of
from headlab.roles.table import NAME

# A head's card on the Roles page: its roles in words, where it looks, and every role with counts
# and intervals.

SHARES = ("separator share", "first-token share")
HOW_MEASURED = (
    "A role counts tokens: those whose largest weight lies there. The separator and first-token "
    "shares count weight: how much of all attention goes there."
)
ROLE_COLUMNS = ("role", HAS, *(name for name in NUMBERS if name != "p"))


def draw_card(roles: Roles, head: Head) -> None:
    """What the head does, and its attention measures."""
    st.subheader(plain(head_words(head, roles.grid)), help=head_in_full(head, roles.grid))
    roles_of_head = roles.roles_of(head)
    if not roles_of_head:
        st.markdown("It has none of the roles." if head in roles.measures else "It was not tested.")
        closest = roles.by_head.get(head, ())
        if closest:
            st.caption(plain(f"Closest: {role_line(closest[0])}."))
    for row in roles_of_head:
        look = look_of(row.group)
        swatch = f'<span style="background:{look.colour};color:{look.ink};padding:0 .4em;border-radius:2px">'
        st.html(f"{swatch}{escape(look.mark)}</span> {escape(role_line(row))}")
    measures = roles.measures.get(head, {})
    show_named_values(
        [(name.capitalize(), _measure_words(name, value)) for name, value in measures.items()]
    )
    if measures:
        st.caption(HOW_MEASURED)
    page_link("attention", "What it attends to", side_by_side_params([head_key(head)]))


def role_line(row: RoleResult) -> str:
    """A role with its share, interval, chance and counts."""
    line = role_words(row.role)
    share = row.numbers["share, %"]
    if share is not None:
        line += f": {share:.1f} %"
    low = row.numbers["low, %"]
    high = row.numbers["high, %"]
    if low is not None and high is not None:
        line += f" [{low:.1f}, {high:.1f}]"
    chance = row.numbers["chance, %"]
    if chance is not None:
        line += f", {comparison_word(row.role)} {chance:.1f} %"
    hits = row.numbers["hits"]
    tested_tokens = row.numbers["asked"]
    if hits is not None and tested_tokens is not None:
        line += f", {hits:,.0f} of {tested_tokens:,.0f}"
    return line


def _measure_words(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name in SHARES:
        return f"{100 * value:.1f} %"
    if name == "tokens":
        return f"{value:,.0f}"
    return f"{value:.3g}"


def draw_details(roles: Roles, head: Head, key: str) -> None:
    """Every role tested for the head, as a table to download."""
    table = roles_of_head_table(roles, head)
    if table.rows:
        show_table(table, key)


def roles_of_head_table(roles: Roles, head: Head) -> Table:
    """The rows of the report's table `roles` for a head, farthest above chance first."""
    table = roles.report.table(NAME)
    points_above_chance = table.column("above chance, points")

    def rank(row_index: int) -> float:
        points = points_above_chance[row_index]
        return math.inf if points is None else -points

    row_indices = [index for index, row_head in enumerate(heads_of(table)) if row_head == head]
    row_indices.sort(key=rank)
    column_indices = [table.columns.index(name) for name in ROLE_COLUMNS]
    rows = []
    for row_index in row_indices:
        row = table.rows[row_index]
        rows.append(tuple(row[column_index] for column_index in column_indices))
    formats = tuple(table.formats[column_index] for column_index in column_indices)
    title = f"Every role of head {head_number(head, roles.grid)}"
    return Table(f"roles-{head_key(head)}", title, ROLE_COLUMNS, formats, tuple(rows), table.notes)


# Sentences in which a head does what its role says, and sentences in which it does not.

EXAMPLE_TEXTS = ("role", "sentence", *EXAMPLE_TOKENS)
EXAMPLE_SIDES = {True: "It does it", False: "It does not"}
ExampleRow = Mapping[str, Any]


def draw_examples(roles: Roles, head: Head) -> None:
    """Draw the choice of a head's role, the selected head's first, and its sentences."""
    table = roles.table(EXAMPLES)
    if table is None:
        st.caption(
            "This report was made without examples of sentences. The form at the end of this page "
            "makes one with them."
        )
        return
    try:
        examples_by_role = examples_by_role_and_head(table)
    except HeadlabError as error:
        st.warning(plain(f"The examples cannot be shown: {error}."))
        return
    key_by_name = {}
    for role, role_head in sorted(examples_by_role, key=lambda key: key[1] != head):
        key_by_name[f"{head_key(role_head)} · {role}"] = (role, role_head)
    selected_name = st.selectbox(
        "Role and head",
        list(key_by_name),
        format_func=lambda name: _title(key_by_name[name], roles),
        key=f"roles-example-{head_key(head)}",
    )
    examples = examples_by_role[key_by_name[selected_name]]
    for is_right, column in zip(EXAMPLE_SIDES, st.columns(2, gap="large"), strict=True):
        with column:
            st.markdown(f"###### {EXAMPLE_SIDES[is_right]}")
            _draw_list([example for example in examples if example["right"] is is_right])
    note = parts_note(example[name] for example in examples for name in EXAMPLE_TOKENS)
    if note:
        st.caption(plain(note))


def examples_by_role_and_head(table: Table) -> dict[tuple[str, Head], list[ExampleRow]]:
    """The examples of each role and head.

    Raises:
        HeadlabError: For malformed ones.
    """
    columns = {name: table.column(name) for name in (*EXAMPLE_TEXTS, "right")}
    examples_by_role: dict[tuple[str, Head], list[ExampleRow]] = {}
    for at, head in enumerate(heads_of(table)):
        row = {}
        for name, column in columns.items():
            row[name] = "" if column[at] is None else column[at]
        texts_are_valid = all(isinstance(row[name], str) for name in EXAMPLE_TEXTS)
        if not isinstance(row["right"], bool) or not texts_are_valid:
            raise HeadlabError(
                f"row {at + 1} of table {table.name} is not an example",
                code="roles.example_malformed",
            )
        examples_by_role.setdefault((str(row["role"]), head), []).append(row)
    return examples_by_role


def _title(key: tuple[str, Head], roles: Roles) -> str:
    role, head = key
    return f"{head_words(head, roles.grid)}: {role_words(role)}"


def _draw_list(rows: Sequence[ExampleRow]) -> None:
    if not rows:
        st.caption("No such sentence was kept.")
    for row in rows:
        st.html(example_html(row))


def example_html(row: ExampleRow) -> str:
    """An example as HTML; its words come from external text, so all of it is escaped."""
    sentence = escape(row["sentence"])
    token, attended_token, right_token = (
        escape(with_visible_characters(row[name])) for name in EXAMPLE_TOKENS
    )
    correction = ""
    if right_token and not row["right"]:
        correction = f" (should be <b>{right_token}</b>)"
    return (
        f"<div><b>{token}</b> looks at <b>{attended_token}</b>{correction}</div>"
        f'<div dir="auto" style="opacity:.75;margin-bottom:.6em">{sentence}</div>'
    )


# Roles by language: does what a head does in one language hold in the others?

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
