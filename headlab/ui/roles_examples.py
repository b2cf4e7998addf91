"""Sentences in which a head does what its role says, and sentences in which it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.records import Head
from headlab.tables import Table
from headlab.ui.names import head_from, head_key, head_words
from headlab.ui.roles_map import words
from headlab.ui.roles_read import Roles, heads_of

TABLE = "role-examples"
TEXTS = ("role", "sentence", "word", "looks at", "should look at")
SIDES = {True: "It does it", False: "It does not"}
Row = Mapping[str, Any]


def draw(roles: Roles, head: Head) -> None:
    """A role of a head to choose, the chosen head's own first, and its sentences side by side."""
    table = roles.table(TABLE)
    if table is None:
        st.caption(
            "This report was made without examples of sentences. The form at the end of this page makes one with them."
        )
        return
    try:
        found = examples(table)
    except HeadlabError as error:
        st.warning(f"The examples cannot be shown: {error}.")
        return
    keys = sorted(found, key=lambda key: key[1] != head)
    names = {f"{head_key(other)} · {role}": (role, other) for role, other in keys}
    key, options = f"roles-example-{head_key(head)}", list(names)
    chosen = st.selectbox("Role and head", options, format_func=lambda name: _title(names[name], roles), key=key)
    for right, place in zip(SIDES, st.columns(2, gap="large"), strict=True):
        with place:
            st.markdown(f"###### {SIDES[right]}")
            _list([row for row in found[names[chosen]] if row["right"] is right])


def examples(table: Table) -> dict[tuple[str, Head], list[Row]]:
    """{(role, head): its examples}. Raises HeadlabError for cells that are none."""
    columns = {name: table.column(name) for name in (*TEXTS, "right")}
    out: dict[tuple[str, Head], list[Row]] = {}
    for at, head in enumerate(heads_of(table)):
        row = {name: "" if column[at] is None else column[at] for name, column in columns.items()}
        if not isinstance(row["right"], bool) or not all(isinstance(row[name], str) for name in TEXTS):
            raise HeadlabError(f"row {at + 1} of table {table.name} is not an example", code="roles.example_malformed")
        out.setdefault((str(row["role"]), head), []).append(row)
    return out


def _title(key: tuple[str, Head], roles: Roles) -> str:
    role, head = key
    return f"{head_words(head_from(head_key(head)), several=len(roles.grid.stacks) > 1)}: {words(role)}"


def _list(rows: Sequence[Row]) -> None:
    if not rows:
        st.caption("No such sentence was kept.")
    for row in rows:
        st.html(markup(row))


def markup(row: Row) -> str:
    """An example as HTML; the words are of somebody's text, so nothing of it is markup."""
    sentence, word, looks, should = (escape(row[name]) for name in TEXTS[1:])
    instead = f" (should be <b>{should}</b>)" if should and not row["right"] else ""
    return (
        f"<div><b>{word}</b> looks at <b>{looks}</b>{instead}</div>"
        f'<div dir="auto" style="opacity:.75;margin-bottom:.6em">{sentence}</div>'
    )
