"""Heads as tables and as a card: every head in every language, and one head with its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from headlab import plots
from headlab.methods.costs import spec_of
from headlab.pictures import MINUS, adjusted, is_signed
from headlab.records import Floats, Head, HeadGrid
from headlab.scores import HeadScores, coarse
from headlab.tables import p_is
from headlab.ui import figures
from headlab.ui.attention_page import SIDE_BY_SIDE
from headlab.ui.history import encode, history
from headlab.ui.names import head_key, head_words, language_title, page_link, plain
from headlab.ui.results import sample_note
from headlab.value_functions import shown_unit

# Head scores as tables: every head in every language, or one head across languages.


def _column(values: np.ndarray[tuple[int], np.dtype[np.generic]] | None, size: int) -> Floats:
    return np.full(size, np.nan) if values is None else np.asarray(values, float)


def every_head(scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """One row per language and head, in the scores' own unit, as in the CSV file.

    Columns that a method does not provide (interval, samples, p) are left out.
    """
    holms = adjusted(scores)
    parts = [_one_language(name, s, holms.get(name)) for name, s in scores.items()]
    return pd.concat(parts, ignore_index=True).dropna(axis="columns", how="all") if parts else pd.DataFrame()


def _one_language(name: str, s: HeadScores, holms: Floats | None) -> pd.DataFrame:
    heads, n = s.grid.heads, s.grid.size
    return pd.DataFrame(
        {
            "language": name,
            "stack": [h.stack for h in heads],
            "layer": [h.layer for h in heads],
            "head": [h.head for h in heads],
            "value": s.values,
            "low": _column(s.low, n),
            "high": _column(s.high, n),
            "half_width": _column(s.half_width, n),
            "samples": s.samples if s.samples is not None else _column(None, n),
            "rank": s.ranks,
            "p": _column(s.p_values, n),
            "p_holm": _column(holms, n),
            "method": s.method,
            "estimand": s.estimand,
            "unit": s.unit,
        }
    )


def one_head(
    scores: Mapping[str, HeadScores], head: Head, confidence: Mapping[str, HeadScores] | None = None
) -> pd.DataFrame:
    """One row per language for a head, in the unit shown (accuracies in points).

    Columns: language, value, low, high, half_width, rank, samples, p, p_holm, confidence; NaN where
    a method or language lacks it.
    """
    holms, confidence = adjusted(scores), confidence or {}
    rows = []
    for name, s in scores.items():
        i, (factor, _) = s.grid.index(head), shown_unit(s.unit)
        at = {"low": s.low, "high": s.high, "half_width": s.half_width}
        sure = confidence.get(name)
        rows.append(
            {"language": name, "value": factor * s.values[i]}
            | {key: np.nan if column is None else factor * column[i] for key, column in at.items()}
            | {"rank": int(s.ranks[i]), "samples": np.nan if s.samples is None else int(s.samples[i])}
            | {
                "p": np.nan if s.p_values is None else s.p_values[i],
                "p_holm": holms[name][i] if name in holms else np.nan,
            }
            | {"confidence": np.nan if sure is None or sure.grid != s.grid else sure.values[i]}
        )
    return pd.DataFrame(rows)


def verdict(s: HeadScores, head: Head, among: Mapping[str, HeadScores] | None = None) -> str:
    """What a head's interval says about its effect, in a few words.

    among: all scores on view, for whose heads p is corrected; None where they are not final.
    """
    i = s.grid.index(head)
    if s.low is None or s.high is None:
        return "no interval: this method says nothing about its uncertainty"
    if not (s.harmful[i] or s.helpful[i]):
        return "undecided: its interval contains 0"
    side, end = ("harms", "below") if s.harmful[i] else ("helps", "above")
    holms, words = adjusted(among or {}), coarse((among or {}).values())
    if s.language not in holms or words:
        return f"{side}: its interval lies {end} 0" + (f" ({words.rstrip('.')})" if words else "")
    p, tests = holms[s.language][i], sum(map(len, holms.values()))
    corrected = f"after Holm's correction for {tests:,} tests ({p_is(p)})"
    if p <= 1 - s.level:
        return f"{side}: its interval lies {end} 0, and that holds {corrected}"
    return f"{side} by its own interval, which lies {end} 0, but not {corrected}"


# A head's card: its value in every language with its uncertainty, and links to other pages.


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
        "p": number("p", help="Of “this head does nothing”, two-sided"),
        "p_holm": number("p (Holm)", help="Adjusted for every head of every language shown"),
        "confidence": number("Confidence", format="%.2f", help="Mean of its largest attention weight"),
    }


def _sign(s: HeadScores) -> str:
    """The format flag for a plus before positive values, if there are negative ones too."""
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
    value = f"{factor * s.values[i]:{_sign(s)}.2f}"
    return f"**{value.replace('-', MINUS)} {plain(unit)}**{ends.replace('-', MINUS)}"


def draw(scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head, focus: str) -> None:
    """The card of a head. focus: the language it was clicked in."""
    s = scores[focus]
    unit = shown_unit(s.unit)[1]
    table = one_head(scores, head, confidence).set_index("language", drop=False)
    st.subheader(plain(head_words(head, several=len(s.grid.stacks) > 1)))
    rank = f"rank {table['rank'].loc[focus]} of {s.grid.size}"
    st.markdown(f"In {plain(language_title(focus))} {shown_value(s, head)}, {rank}; {verdict(s, head, scores)}.")
    names = [str(name) for name in table.index]
    value, low, high = (table[column].to_numpy(float) for column in ("value", "low", "high"))
    figure = plots.across_languages(names, value, low, high, f"value ({unit})")
    name = f"head-{head_key(head)}"
    figures.figure(
        figure,
        name,
        key="head-figure",
        alt=f"Value of {head_key(head)} in every language",
        about=f"{s.method}, estimand {s.estimand}. {sample_note(scores)}",
    )
    with st.container(horizontal=True, gap="medium"):
        side = [focus, *(name for name in scores if name != focus)][:SIDE_BY_SIDE]
        page_link("attention", "What it attends to", {"heads": [head_key(head)], "side": side})
        link = _without(s.grid, head)
        history(str(spec_of(s, "model", "fingerprint")), s.grid).linked.discard(link)  # this link must apply its mask
        page_link("prune", "Switch it off", {"m": link, "from": focus})


def details(scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head) -> None:
    """The card's figures as a table, the same as its chart."""
    table = one_head(scores, head, confidence).dropna(axis="columns", how="all")
    columns = _columns(_sign(next(iter(scores.values()))))
    st.dataframe(figures.with_p(table), hide_index=True, column_config=columns, height=_height(table))
    if "p_holm" in table:
        tests = sum(s.grid.size for s in scores.values())
        st.caption(
            f"p (Holm) is adjusted for {tests:,} tests: every head in each of the {len(scores)} languages shown."
        )
    if "confidence" not in table:
        st.caption("Confidence is not cached for these languages: run method `confidence` to see it here.")


def _height(table: pd.DataFrame) -> int:
    return 38 + 35 * min(len(table), 20)
