"""From tables of heads to their attention: a language-agnostic and a language-specific head, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.core import Head, Table
from headlab.dashboard.names import head_from, head_key, head_words, page_link
from headlab.dashboard.panels.attended_sentences import KINDS
from headlab.plots.report import heads_by_row

AGNOSTIC, SPECIFIC = KINDS

# The tables that list heads of each kind, the more certain first.
TABLES = {AGNOSTIC: ("heads-agnostic",), SPECIFIC: ("heads-specific", "heads-few")}


def heads_by_kind(tables: Sequence[Table]) -> dict[str, list[Head]]:
    """Heads by kind, from the first table of that kind that lists any."""
    found: dict[str, list[Head]] = {}
    for kind, names in TABLES.items():
        heads = (
            list(dict.fromkeys(heads_by_row(t))) for name in names for t in tables if t.name == name
        )
        if first := next(filter(None, heads), None):
            found[kind] = first
    return found


def link_to_attention(tables: Sequence[Table]) -> None:
    """Widgets to choose a head of each kind, and a link to their attention; nothing if the tables list no heads."""
    kinds = heads_by_kind(tables)
    if not kinds:
        return
    st.markdown("##### What do they look at?")
    chosen: dict[str, str] = {}
    for (kind, heads), place in zip(kinds.items(), st.columns(len(kinds)), strict=True):
        keys = [head_key(head) for head in heads]
        chosen[kind] = place.selectbox(
            f"A language-{kind} head", keys, format_func=_words, key=f"look-{kind}"
        )
    what = "Their attention, side by side" if len(chosen) > 1 else "Its attention"
    named = languages_of_head(tables, chosen.get(SPECIFIC, ""))
    side = [name for name in named if name in st.session_state.get("langs", ())]
    more = {"side": side} if side else {}
    page_link(
        "attention", what, {"heads": list(chosen.values()), "apart": "true", **chosen, **more}
    )


def languages_of_head(tables: Sequence[Table], key: str) -> list[str]:
    """Two languages at most in which a head helps by these tables, then two in which it harms."""
    sides = ("positive languages", "negative languages")
    for table in tables:
        if table.name in TABLES[SPECIFIC] and all(side in table.columns for side in sides):
            for head, *named in zip(
                heads_by_row(table), *(table.column(side) for side in sides), strict=True
            ):
                if head_key(head) == key:
                    return [name for names in named for name in str(names).split(", ")[:2] if name]
    return []


def _words(key: str) -> str:
    return head_words(head_from(key))
