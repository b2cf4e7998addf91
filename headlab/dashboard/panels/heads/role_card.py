"""What a report on roles says of one head: its roles in words, its numbers, its sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import streamlit as st

from headlab.core import (
    Head,
    HeadlabError,
    Table,
)
from headlab.dashboard.names import (
    head_in_full,
    head_key,
    head_number,
    head_words,
    page_link,
    plain,
)
from headlab.dashboard.panels.heads.attended_sentences import side_by_side_params
from headlab.dashboard.widgets import show_named_values, show_table
from headlab.pictures import comparison_word, look_of, parts_note, role_words
from headlab.plots.matrices import with_visible_characters
from headlab.roles.report import EXAMPLE_TOKENS, EXAMPLES, HAS, NUMBERS, RoleResult, Roles, heads_of
from headlab.roles.table import NAME

# The card: roles in words, where the head looks, and every role with counts and intervals.

SHARES = ("separator share", "first-token share")
HOW_MEASURED = (
    "A role counts tokens: those whose largest weight lies there. The separator and first-token "
    "shares count weight: how much of all attention goes there."
)
ROLE_COLUMNS = ("role", HAS, *(name for name in NUMBERS if name != "p"))


def draw_role_card(roles: Roles, head: Head) -> None:
    """The head's name, what it does, its attention measures, and a link to what it attends to."""
    st.subheader(plain(head_words(head, roles.grid)), help=head_in_full(head, roles.grid))
    draw_roles_of_head(roles, head)
    page_link("attention", "What it attends to", side_by_side_params([head_key(head)]))


def draw_roles_of_head(roles: Roles, head: Head) -> None:
    """What the head does, and its attention measures."""
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


def draw_role_details(roles: Roles, head: Head, key: str) -> None:
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


def draw_role_examples(roles: Roles, head: Head, *, of_head_alone: bool = False) -> None:
    """Draw the choice of a head's role, the selected head's first, and its sentences.

    Args:
        roles: The report.
        head: The selected head.
        of_head_alone: Whether only its own roles can be chosen.
    """
    table = roles.table(EXAMPLES)
    if table is None:
        st.caption(
            "This report was made without examples of sentences. The form at the end of the Roles page "
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
        if role_head == head or not of_head_alone:
            key_by_name[f"{head_key(role_head)} · {role}"] = (role, role_head)
    if not key_by_name:
        st.caption("No sentences were kept.")
        return
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
