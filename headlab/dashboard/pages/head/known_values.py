"""Every value of one head: by each method, in each language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st

from headlab.core import Cell, Head, Table
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import count_words, head_key, head_number, plain
from headlab.dashboard.panels.heads import HeadData
from headlab.dashboard.widgets import show_table

VALUE_PREFIX = "value by "
"""How the names of measures begin that are values of scores."""
RANK_PREFIX = "rank by "
COLUMNS = ("method", "language", "value", "low", "high", "unit", "rank")
FORMATS = ("", "", ".4g", ".4g", ".4g", "", "d")


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
    for name, known in data.measures.items():
        if not name.startswith(VALUE_PREFIX):
            continue
        method = name.removeprefix(VALUE_PREFIX)
        ranks = data.measures[RANK_PREFIX + method].by_language
        languages = sorted(known.by_language, key=lambda code: code not in choice.languages)
        for language in languages:
            measure = known.by_language[language]()
            rank = ranks[language]().values[index]
            rows.append(
                (
                    method,
                    language,
                    _cell(measure.values[index]),
                    None if measure.low is None else _cell(measure.low[index]),
                    None if measure.high is None else _cell(measure.high[index]),
                    measure.unit,
                    None if np.isnan(rank) else int(rank),
                )
            )
    title = f"Values of head {head_number(head, data.grid)}"
    return Table(
        f"values-{head_key(head)}",
        title,
        COLUMNS,
        FORMATS,
        tuple(rows),
        (f"Rank 1 is the highest value of {count_words(data.grid.size, 'head')}.",),
    )


def _cell(value: float) -> float | None:
    """A number for a table; None where it is not known."""
    return float(value) if np.isfinite(value) else None
