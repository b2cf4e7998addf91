"""What the Roles page shows for a head: its card, sentences, and whether its roles hold in other languages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from headlab.charts.matrices import MOST_NUMBERS
from headlab.errors import HeadlabError
from headlab.pictures import against, in_order, look_of, parts_note, role_words
from headlab.plots.heads import roles_across_languages
from headlab.plots.matrices import visible
from headlab.records import HEAD, HEAD_FORMATS, Bools, Floats, Head, part
from headlab.roles.report import EXAMPLE_TOKENS, EXAMPLES, HAS, NUMBERS, Found, Roles, heads_of
from headlab.roles.table import NAME
from headlab.tables import Cell, Table
from headlab.ui.figures import figure, named_values, show
from headlab.ui.names import counted, head_key, head_words, language_title, page_link, plain

# A head's card on the Roles page: its roles in words, where it looks, and every role with counts and intervals.

SHARES = ("separator share", "first-token share")
MEASURED = (
    "A role counts tokens: those whose largest weight lies there. The separator and first-token shares count weight: "
    "how much of all attention goes there."
)
COLUMNS = ("role", HAS, *(name for name in NUMBERS if name != "p"))


def draw_card(roles: Roles, head: Head) -> None:
    """What the head does, and its attention measures."""
    several = len(roles.grid.stacks) > 1
    st.subheader(plain(head_words(head, several=several)))
    own = roles.having(head)
    if not own:
        st.markdown("It has none of the roles." if head in roles.measures else "It was not tested.")
        closest = roles.by_head.get(head, ())
        if closest:
            st.caption(plain(f"Closest: {role_line(closest[0])}."))
    for row in own:
        look = look_of(row.group)
        swatch = f'<span style="background:{look.colour};color:{look.ink};padding:0 .4em;border-radius:2px">'
        st.html(f"{swatch}{escape(look.mark)}</span> {escape(role_line(row))}")
    measures = roles.measures.get(head, {})
    named_values([(name.capitalize(), _value(name, value)) for name, value in measures.items()])
    if measures:
        st.caption(MEASURED)
    page_link("attention", "What it attends to", {"heads": [head_key(head)]})


def role_line(row: Found) -> str:
    """A role with its share, interval, chance and counts."""
    n = row.numbers
    share = "" if n["share, %"] is None else f": {n['share, %']:.1f} %"
    ends = (
        ""
        if n["low, %"] is None or n["high, %"] is None
        else f" [{n['low, %']:.1f}, {n['high, %']:.1f}]"
    )
    chance = "" if n["chance, %"] is None else f", {against(row.role)} {n['chance, %']:.1f} %"
    counts = (
        ""
        if n["hits"] is None or n["asked"] is None
        else f", {n['hits']:,.0f} of {n['asked']:,.0f}"
    )
    return f"{role_words(row.role)}{share}{ends}{chance}{counts}"


def _value(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name in SHARES:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if name == "tokens" else f"{value:.3g}"


def details(roles: Roles, head: Head, key: str) -> None:
    """Every role tested for the head, as a table to download."""
    table = of_head(roles, head)
    if table.rows:
        show(table, key)


def of_head(roles: Roles, head: Head) -> Table:
    """The rows of the report's table `roles` for a head, farthest above chance first."""
    table = roles.report.table(NAME)
    at = [row for row, other in enumerate(heads_of(table)) if other == head]
    above = table.column("above chance, points")
    at.sort(key=lambda row: math.inf if above[row] is None else -above[row])
    columns = [table.columns.index(name) for name in COLUMNS]
    rows = tuple(tuple(table.rows[row][column] for column in columns) for row in at)
    formats = tuple(table.formats[column] for column in columns)
    title = f"Every role of {head_words(head, several=len(roles.grid.stacks) > 1).lower()}"
    return Table(f"roles-{head_key(head)}", title, COLUMNS, formats, rows, table.notes)


# Sentences in which a head does what its role says, and sentences in which it does not.

TEXTS = ("role", "sentence", *EXAMPLE_TOKENS)
SIDES = {True: "It does it", False: "It does not"}
Row = Mapping[str, Any]


def draw_examples(roles: Roles, head: Head) -> None:
    """A widget to choose a role of a head, the chosen head's first, and its sentences side by side."""
    table = roles.table(EXAMPLES)
    if table is None:
        st.caption(
            "This report was made without examples of sentences. The form at the end of this page makes one with them."
        )
        return
    try:
        found = examples(table)
    except HeadlabError as error:
        st.warning(plain(f"The examples cannot be shown: {error}."))
        return
    keys = sorted(found, key=lambda key: key[1] != head)
    names = {f"{head_key(other)} · {role}": (role, other) for role, other in keys}
    key, options = f"roles-example-{head_key(head)}", list(names)
    chosen = st.selectbox(
        "Role and head", options, format_func=lambda name: _title(names[name], roles), key=key
    )
    for right, place in zip(SIDES, st.columns(2, gap="large"), strict=True):
        with place:
            st.markdown(f"###### {SIDES[right]}")
            _list([row for row in found[names[chosen]] if row["right"] is right])
    if parts := parts_note(row[name] for row in found[names[chosen]] for name in EXAMPLE_TOKENS):
        st.caption(plain(parts))


def examples(table: Table) -> dict[tuple[str, Head], list[Row]]:
    """{(role, head): its examples}. Raises HeadlabError for malformed ones."""
    columns = {name: table.column(name) for name in (*TEXTS, "right")}
    out: dict[tuple[str, Head], list[Row]] = {}
    for at, head in enumerate(heads_of(table)):
        row = {name: "" if column[at] is None else column[at] for name, column in columns.items()}
        if not isinstance(row["right"], bool) or not all(
            isinstance(row[name], str) for name in TEXTS
        ):
            raise HeadlabError(
                f"row {at + 1} of table {table.name} is not an example",
                code="roles.example_malformed",
            )
        out.setdefault((str(row["role"]), head), []).append(row)
    return out


def _title(key: tuple[str, Head], roles: Roles) -> str:
    role, head = key
    return f"{head_words(head, several=len(roles.grid.stacks) > 1)}: {role_words(role)}"


def _list(rows: Sequence[Row]) -> None:
    if not rows:
        st.caption("No such sentence was kept.")
    for row in rows:
        st.html(markup(row))


def markup(row: Row) -> str:
    """An example as HTML; its words come from external text, so all of it is escaped."""
    sentence = escape(row["sentence"])
    word, looks, should = (escape(visible(row[name])) for name in EXAMPLE_TOKENS)
    instead = f" (should be <b>{should}</b>)" if should and not row["right"] else ""
    return (
        f"<div><b>{word}</b> looks at <b>{looks}</b>{instead}</div>"
        f'<div dir="auto" style="opacity:.75;margin-bottom:.6em">{sentence}</div>'
    )


# Roles by language: does what a head does in one language hold in the others?

FIRST = "nsubj"  # the role that readers of the paper ask about


class Across(NamedTuple):
    """Heads with a role in one language, and what they do in every language.

    rows: of the chosen language, the clearest first.  share, above: float [row, language] in percent and in
    points above chance, NaN where the head was not tested for this role.  has: bool [row, language].
    """

    rows: list[Found]
    languages: list[str]
    share: Floats
    above: Floats
    has: Bools

    @property
    def tested(self) -> Across:
        """The same without the languages whose reports have no value for any of these heads."""
        at = np.flatnonzero(~np.isnan(self.share).all(axis=0))
        names = [self.languages[column] for column in at]
        return Across(self.rows, names, self.share[:, at], self.above[:, at], self.has[:, at])


def draw_languages(reports: Mapping[str, Roles], focus: str) -> None:
    """The heads with a kind of role in `focus`, in every language that has a report."""
    counts = reports[focus].counts
    kinds = in_order([kind for kind, heads in counts.items() if heads])
    if not kinds:
        st.info(f"No head has a role in {plain(language_title(focus))}.")
        return
    start = kinds.index(FIRST) if FIRST in kinds else 0
    kind = st.selectbox(
        "Role",
        kinds,
        index=start,
        key="roles-kind",
        format_func=lambda k: f"{k} ({counted(counts[k], 'head')})",
    )
    found = across(reports, focus, kind)
    if len(reports) > 1:
        names = [f"{row.head} {_short(row.role)}" for row in found.rows]
        drawn = found.tested
        fig = roles_across_languages(drawn.above, drawn.share, drawn.has, names, drawn.languages)
        spec = reports[focus].report.spec
        of = tuple(str(part(spec, about, "name")) for about in ("model", "task"))
        name, about = (
            f"roles-{kind}-by-language".replace(" ", "-"),
            f"heads with it in {language_title(focus)}",
        )
        figure(fig, name, key="roles-across", alt=f"Heads with role {kind}", of=of, about=about)
        st.caption(plain(reading(found)))
    else:
        st.info(
            f"Only {plain(language_title(focus))} has a report; choose more languages, and find their roles below."
        )
    show(table_of(found, focus, kind), f"across-{focus}-{kind}")


def reading(found: Across) -> str:
    """How to read the figure, and which languages it leaves out and why."""
    drawn = found.tested.languages
    shares = (
        "Numbers are shares in percent"
        if len(drawn) <= MOST_NUMBERS
        else "Point at a cell for its share"
    )
    told = (
        f"{shares}; a dot: the head has the role there. Blue lies above chance; for syntax, above the baseline of the "
        "most frequent offset."
    )
    left = [name for name in found.languages if name not in drawn]
    return (
        f"{told} Reports without a value for these heads are not drawn: {', '.join(left)}."
        if left
        else told
    )


def _short(role: str) -> str:
    """A role without its kind: its direction or offset, short enough for a phone."""
    return role_words(role).partition(": ")[2].replace(" to ", " → ") or role_words(role)


def across(reports: Mapping[str, Roles], focus: str, kind: str) -> Across:
    """The heads with a role of this kind in `focus`, in all languages. reports: {language: its report}."""
    every = [row for row in reports[focus].rows if row.has and row.group == kind]
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
    """The same as a table: a row per head and role, a column per language."""
    rows: list[tuple[Cell, ...]] = []
    for at, row in enumerate(found.rows):
        shares = [None if np.isnan(value) else float(value) for value in found.share[at]]
        rows.append((*row.head, row.role, int(found.has[at].sum()), *shares))
    languages = found.languages
    return Table(
        f"roles-{kind}-{focus}".replace(" ", "-"),
        f"Heads with the role {kind} in {language_title(focus)}, and their share in every language",
        (*HEAD, "role", "languages with it", *(f"{name}, %" for name in languages)),
        (*HEAD_FORMATS, "", "d", *(".1f" for _ in languages)),
        tuple(rows),
        (
            "No value: the head's best offset differs in that language, or its sentences have no such pair.",
        ),
    )
