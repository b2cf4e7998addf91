"""A head's card: its value in every language with its uncertainty, and links to other pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import streamlit as st

from headlab import plots
from headlab.core import Head, HeadGrid, fingerprint_of, shown_unit
from headlab.dashboard.frame import samples_note
from headlab.dashboard.names import head_key, head_words, language_title, page_link, plain
from headlab.dashboard.pages.heads.tables import table_of_languages
from headlab.dashboard.panels.attended_sentences import SIDE_BY_SIDE
from headlab.dashboard.panels.history import encode, history_of
from headlab.dashboard.panels.sharpening_map import shown_value, sign_flag, verdict
from headlab.dashboard.widgets import figure, table_height, with_p_values
from headlab.results import HeadScores


def _columns(sign: str) -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "language": st.column_config.TextColumn("Language", pinned=True),
        "value": number("Value", format=f"%{sign}.3f"),
        "low": number("From", format=f"%{sign}.3f", help="Lower end of the interval"),
        "high": number("To", format=f"%{sign}.3f", help="Upper end of the interval"),
        "half_width": number("Half-width", format="%.3f", help="Half the interval's length"),
        "rank": number("Rank", help="1 = the most useful head of this language"),
        "samples": number("Samples", format="localized"),
        "p": number("p", help="Of “this head does nothing”, two-sided"),
        "p_holm": number("p (Holm)", help="Adjusted for every head of every language shown"),
        "confidence": number(
            "Confidence", format="%.2f", help="Mean of its largest attention weight"
        ),
    }


def _without(grid: HeadGrid, head: Head) -> str:
    kept = np.ones(grid.size, bool)
    kept[grid.index(head)] = False
    return encode(kept)


def draw_card(
    scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head, focus: str
) -> None:
    """The card of a head. focus: the language it was clicked in."""
    s = scores[focus]
    unit = shown_unit(s.unit)[1]
    table = table_of_languages(scores, head, confidence).set_index("language", drop=False)
    st.subheader(plain(head_words(head, several=len(s.grid.stacks) > 1)))
    rank = f"rank {table['rank'].loc[focus]} of {s.grid.size}"
    st.markdown(
        f"In {plain(language_title(focus))} {shown_value(s, head)}, {rank}; {verdict(s, head, scores)}."
    )
    names = [str(name) for name in table.index]
    value, low, high = (table[column].to_numpy(float) for column in ("value", "low", "high"))
    chart = plots.across_languages(names, value, low, high, f"value ({unit})")
    name = f"head-{head_key(head)}"
    figure(
        chart,
        name,
        key="head-figure",
        alt=f"Value of {head_key(head)} in every language",
        about=f"{s.method}, estimand {s.estimand}. {samples_note(scores)}",
    )
    with st.container(horizontal=True, gap="medium"):
        side = [focus, *(name for name in scores if name != focus)][:SIDE_BY_SIDE]
        page_link("attention", "What it attends to", {"heads": [head_key(head)], "side": side})
        link = _without(s.grid, head)
        history_of(str(fingerprint_of(s.spec)), s.grid).linked.discard(
            link
        )  # this link must apply its mask
        page_link("prune", "Switch it off", {"m": link, "from": focus})


def draw_details(
    scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head
) -> None:
    """The card's figures as a table, the same as its chart."""
    table = table_of_languages(scores, head, confidence).dropna(axis="columns", how="all")
    columns = _columns(sign_flag(next(iter(scores.values()))))
    height = table_height(len(table), 738)
    st.dataframe(with_p_values(table), hide_index=True, column_config=columns, height=height)
    if "p_holm" in table:
        tests = sum(s.grid.size for s in scores.values())
        where = f"each of the {len(scores)} languages" if len(scores) > 1 else "the language"
        st.caption(f"p (Holm) is adjusted for {tests:,} tests: every head in {where} shown.")
    if "confidence" not in table:
        st.caption(
            "Confidence is not cached for these languages: run method `confidence` to see it here."
        )
