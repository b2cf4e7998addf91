"""A head's card: its value in every language, how sure that is, and where to go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from headlab import plots
from headlab.records import Head, HeadGrid
from headlab.scores import HeadScores
from headlab.ui import figures
from headlab.ui.heads_maps import is_signed
from headlab.ui.heads_table import one_head, verdict
from headlab.ui.history import encode, history
from headlab.ui.links import page_link
from headlab.ui.names import head_key, head_words, language_title
from headlab.ui.results import spec_of
from headlab.value_functions import shown_unit


def _columns(sign: str) -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "language": st.column_config.TextColumn("Language", pinned=True),
        "value": number("Value", format=f"%{sign}.3f"),
        "low": number("From", format="%+.3f", help="Lower end of the interval"),
        "high": number("To", format="%+.3f", help="Upper end of the interval"),
        "half_width": number("Half-width", format="%.3f", help="Half the interval's length"),
        "rank": number("Rank", help="1 = the most useful head of this language"),
        "samples": number("Samples", format="localized"),
        "p": number("p", format="%.2g", help="Of “this head does nothing”, two-sided"),
        "p_holm": number("p (Holm)", format="%.2g", help="Adjusted for every head of every language shown"),
        "confidence": number("Confidence", format="%.2f", help="Mean of its largest attention weight"),
    }


def _sign(s: HeadScores) -> str:
    """A plus before positive values, where there are negative ones too."""
    return "+" if is_signed(s) else ""


def _without(grid: HeadGrid, head: Head) -> str:
    kept = np.ones(grid.size, bool)
    kept[grid.index(head)] = False
    return encode(kept)


def shown_value(s: HeadScores, head: Head) -> str:
    """A head's value with its interval, where there is one, in the unit shown."""
    i, (factor, unit) = s.grid.index(head), shown_unit(s.unit)
    # Seldom symmetric, so no ± here.
    ends = "" if s.low is None or s.high is None else f" [{factor * s.low[i]:+.2f}, {factor * s.high[i]:+.2f}]"
    return f"**{factor * s.values[i]:{_sign(s)}.2f} {unit}**{ends}"


def draw(scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head, focus: str) -> None:
    """The card of a head, with `focus` the language it was clicked in."""
    s = scores[focus]
    unit = shown_unit(s.unit)[1]
    table = one_head(scores, head, confidence).set_index("language", drop=False)
    st.subheader(head_words(head, several=len(s.grid.stacks) > 1))
    rank = f"rank {table['rank'].loc[focus]} of {s.grid.size}"
    st.markdown(f"In {language_title(focus)} {shown_value(s, head)}, {rank}; {verdict(s, head)}.")
    names = [str(name) for name in table.index]
    value, low, high = (table[column].to_numpy(float) for column in ("value", "low", "high"))
    figure = plots.across_languages(names, value, low, high, f"value ({unit})")
    name = f"head-{head_key(head)}"
    figures.figure(figure, name, key="head-figure", alt=f"Value of {head_key(head)} in every language")
    with st.container(horizontal=True, gap="medium"):
        page_link("attention", "What it attends to", {"heads": [head_key(head)]})
        link = _without(s.grid, head)
        history(str(spec_of(s, "model", "fingerprint")), s.grid).linked.discard(link)  # this one is meant
        page_link("prune", "Switch it off", {"m": link})


def details(scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head) -> None:
    """The card's figures as a table: the twin of its chart."""
    table = one_head(scores, head, confidence).dropna(axis="columns", how="all")
    st.dataframe(
        table, hide_index=True, column_config=_columns(_sign(next(iter(scores.values())))), height=_height(table)
    )
    if "p_holm" in table:
        tests = sum(s.grid.size for s in scores.values())
        st.caption(
            f"p (Holm) is adjusted for {tests:,} tests: every head in each of the {len(scores)} languages shown."
        )
    if "confidence" not in table:
        st.caption("Confidence is not cached for these languages: run method `confidence` to see it here.")


def _height(table: pd.DataFrame) -> int:
    return 38 + 35 * min(len(table), 20)
