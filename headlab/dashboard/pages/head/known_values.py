"""Every value of one head: by each method, in each language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st

from headlab.core import Cell, Head, Table
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import count_words, head_key, head_number, plain
from headlab.dashboard.panels.heads import HeadData, rank_name
from headlab.dashboard.widgets import show_table

COLUMNS = ("method", "language", "value", "low", "high", "unit", "rank", "mean of samples", "basis")
FORMATS = ("", "", ".4g", ".4g", ".4g", "", "d", ".4g", "")


def draw_known_values(choice: Choice, data: HeadData, head: Head) -> None:
    """A sentence on the signs of the head in all languages, and the table of its values.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        head: The head.
    """
    signs = signs_in_words(data, head)
    if signs:
        st.markdown(plain(signs))
    table = table_of_values(data, head, choice)
    if table.rows:
        with st.expander("By every method, in every language", icon=":material/table_rows:"):
            show_table(table, f"values-{data.fingerprint}")


def signs_in_words(data: HeadData, head: Head) -> str:
    """In how many languages the head helps and harms by the choice's scores; empty where unknown.

    Args:
        data: What is stored of the heads.
        head: The head.
    """
    index = data.grid.index(head)
    helped = []
    harmed = []
    tested = 0
    for language, scores in data.scores.scores.items():
        if not scores.signed or scores.low is None or scores.grid != data.grid:
            continue
        tested += 1
        if scores.helpful[index]:
            helped.append(language)
        elif scores.harmful[index]:
            harmed.append(language)
    if tested < 2:
        return ""
    parts = [
        f"{verb} in {_share_words(languages, tested)}"
        for verb, languages in (("helps", helped), ("harms", harmed))
        if languages
    ]
    number = head_number(head, data.grid)
    languages_with_scores = count_words(tested, "language")
    if not parts:
        return f"In none of {languages_with_scores} with scores does head {number} help or harm for sure."
    return (
        f"Of {languages_with_scores} with scores, head {number} {' and '.join(parts)}, each by its "
        "own interval: among so many, one may be chance."
    )


def _share_words(languages: Sequence[str], tested: int) -> str:
    """Which of the tested languages these are: 'all 15', or '2 (bg, vi)'."""
    if len(languages) == tested:
        return f"all {tested}"
    return f"{len(languages)} ({', '.join(languages)})"


def table_of_values(data: HeadData, head: Head, choice: Choice) -> Table:
    """A row per method and language, the choice's languages first.

    Args:
        data: What is stored of the heads.
        head: The head.
        choice: The sidebar's.
    """
    index = data.grid.index(head)
    rows: list[tuple[Cell, ...]] = []
    leans_on_slopes = False
    for known in data.measures.values():
        if not known.method or known.is_of_other_model:
            continue
        ranks = data.measures[rank_name(known.method)].by_language
        languages = sorted(known.by_language, key=lambda code: code not in choice.languages)
        for language in languages:
            measure = known.by_language[language]()
            rank = ranks[language]().values[index]
            sampled_values = measure.sampled_values
            leans_on_slopes |= sampled_values is not None
            rows.append(
                (
                    known.method,
                    language,
                    _cell(measure.values[index]),
                    None if measure.low is None else _cell(measure.low[index]),
                    None if measure.high is None else _cell(measure.high[index]),
                    measure.unit,
                    None if np.isnan(rank) else int(rank),
                    None if sampled_values is None else _cell(sampled_values[index]),
                    measure.basis,
                )
            )
    notes = [f"Rank 1 is the highest value of {count_words(data.grid.size, 'head')}."]
    if leans_on_slopes:
        notes.append("Intervals are of the mean of samples; such a value leans on slopes too.")
    return Table(
        f"values-{head_key(head)}",
        f"Values of head {head_number(head, data.grid)}",
        COLUMNS,
        FORMATS,
        tuple(rows),
        tuple(notes),
    )


def _cell(value: float) -> float | None:
    """A number for a table; None where it is not known."""
    return float(value) if np.isfinite(value) else None
