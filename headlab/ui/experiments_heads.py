"""From tables of heads to what these look at: a head of every language and one of few, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import streamlit as st

from headlab.records import Head
from headlab.tables import Table
from headlab.ui.attention_choose import KINDS
from headlab.ui.links import page_link
from headlab.ui.names import head_from, head_key, head_words

AGNOSTIC, SPECIFIC = KINDS
# The tables of heads of a kind, the surer ones first.
TABLES = {AGNOSTIC: ("heads-agnostic",), SPECIFIC: ("heads-specific", "heads-few")}


def heads_of(table: Table) -> Iterator[Head]:
    """The heads that a table is about, each once, in its order."""
    names = ("stack", "layer", "head")
    if all(name in table.columns for name in names):
        rows = zip(*(table.column(name) for name in names), strict=True)
        yield from dict.fromkeys(Head(str(stack), int(layer), int(head)) for stack, layer, head in rows)


def kinds_in(tables: Sequence[Table]) -> dict[str, list[Head]]:
    """Heads by kind: those of the first table of the kind that holds any."""
    found: dict[str, list[Head]] = {}
    for kind, names in TABLES.items():
        heads = (list(heads_of(table)) for name in names for table in tables if table.name == name)
        if first := next(filter(None, heads), None):
            found[kind] = first
    return found


def draw(tables: Sequence[Table]) -> None:
    """A head of each kind to choose, and a link to their attention; nothing where the tables name none."""
    kinds = kinds_in(tables)
    if not kinds:
        return
    st.markdown("##### What do they look at?")
    chosen: dict[str, str] = {}
    for (kind, heads), place in zip(kinds.items(), st.columns(len(kinds)), strict=True):
        keys = [head_key(head) for head in heads]
        chosen[kind] = place.selectbox(f"A language-{kind} head", keys, format_func=_words, key=f"look-{kind}")
    what = "Their attention, side by side" if len(chosen) > 1 else "Its attention"
    page_link("attention", what, {"heads": list(chosen.values()), "apart": "true", **chosen})


def _words(key: str) -> str:
    return head_words(head_from(key))
