"""From lists of heads to their attention: a language-agnostic and a language-specific head, side by side."""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.names import head_from, head_key, head_words, page_link
from headlab.studies import HeadKind, HeadLists, heads_by_kind, languages_that_differ


def link_to_attention(lists: HeadLists) -> None:
    """Draw widgets to choose a head of each kind, and a link to their attention; nothing if there are no heads."""
    kinds = heads_by_kind(lists)
    if not kinds:
        return
    st.markdown("##### What do they look at?")
    head_key_by_kind: dict[str, str] = {}
    for (kind, heads), column in zip(kinds.items(), st.columns(len(kinds)), strict=True):
        head_keys = [head_key(head) for head in heads]
        head_key_by_kind[kind] = column.selectbox(
            f"A language-{kind} head", head_keys, format_func=_head_words_of_key, key=f"look-{kind}"
        )
    link_text = "Their attention, side by side" if len(head_key_by_kind) > 1 else "Its attention"
    languages_side_by_side: list[str] = []
    if HeadKind.SPECIFIC in head_key_by_kind:
        specific_head = head_from(head_key_by_kind[HeadKind.SPECIFIC])
        languages = languages_that_differ(lists[HeadKind.SPECIFIC], specific_head)
        chosen_languages = st.session_state.get("langs", ())
        languages_side_by_side = [name for name in languages if name in chosen_languages]
    params: dict[str, str | list[str]] = {
        "heads": list(head_key_by_kind.values()),
        "apart": "true",
        **head_key_by_kind,
    }
    if languages_side_by_side:
        params["side"] = languages_side_by_side
    page_link("attention", link_text, params)


def _head_words_of_key(key: str) -> str:
    return head_words(head_from(key))
