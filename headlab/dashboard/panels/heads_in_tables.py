"""From lists of heads to their attention: a language-agnostic and a language-specific head, side by side."""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.names import head_from, head_key, head_words, page_link
from headlab.studies import HeadKind, HeadLists, heads_by_kind, languages_that_differ


def link_to_attention(lists: HeadLists) -> None:
    """Widgets to choose a head of each kind, and a link to their attention; nothing if the lists have no heads."""
    kinds = heads_by_kind(lists)
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
    side: list[str] = []
    if HeadKind.SPECIFIC in chosen:
        specific_head = head_from(chosen[HeadKind.SPECIFIC])
        languages = languages_that_differ(lists[HeadKind.SPECIFIC], specific_head)
        side = [name for name in languages if name in st.session_state.get("langs", ())]
    more = {"side": side} if side else {}
    page_link(
        "attention", what, {"heads": list(chosen.values()), "apart": "true", **chosen, **more}
    )


def _words(key: str) -> str:
    return head_words(head_from(key))
