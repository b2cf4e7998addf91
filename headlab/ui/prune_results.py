"""The figures of the Prune page: drawn at once from what is known, then again as the worker sends more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from headlab.ui.background import polled
from headlab.ui.names import language_title
from headlab.ui.prune_figures import Asks, Figure, Known, Question, figures, mean_figure, progress_words, table

SINGLE_METRICS = 6
ROW, HEADER = 35, 38


def _columns() -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "Language": text(width=70, pinned=True),
        "Accuracy %": number(format="%.1f", width=80),
        "Difference": number(format="%+.1f", width=80, help="Points, on the same examples"),
        "95 % interval": text(width=95, help="Of the difference, paired bootstrap, points"),
        "p": number(format="%.3f", width=50, help="Two-sided, this language by itself"),
        "p (Holm)": number(format="%.3f", width=70, help="Adjusted for looking at all these languages"),
        "Now right": number(width=75, help="Predictions that became right"),
        "Now wrong": number(width=80, help="Predictions that became wrong"),
        "Unpruned %": number(format="%.1f", width=85),
        "Examples": text(width=85),
    }


def stream_into(
    headline: DeltaGenerator,
    details: DeltaGenerator,
    client: Asks,
    question: Question,
    languages: Sequence[str],
    known: Known,
) -> None:
    """Draw the figures into two places (`st.empty`), again with every answer of the worker."""

    def touch() -> object:
        return st.session_state.get("_figures")

    for rows in polled(lambda: figures(client, question, languages, known), touch):
        with headline.container():
            _metrics(rows, languages)
            st.caption(progress_words(rows, languages, question.split))
        height = HEADER + ROW * len(languages)
        details.dataframe(table(rows, languages), hide_index=True, column_config=_columns(), height=height)


def _metrics(rows: Mapping[str, Figure], languages: Sequence[str]) -> None:
    with st.container(horizontal=True, gap="medium"):
        if len(languages) > 1:
            complete = len(rows) == len(languages)
            _metric(f"Mean of {len(languages)} languages", *(mean_figure(rows) if complete else (None, None)))
        if len(languages) <= SINGLE_METRICS:
            for name in languages:
                row = rows.get(name)
                _metric(language_title(name), row.accuracy if row else None, row.difference if row else None)


def _metric(label: str, accuracy: float | None, difference: float | None) -> None:
    # Always two lines, so that nothing below moves under the pointer.
    if accuracy is None:
        st.metric(label, "…", "…", delta_color="gray", delta_arrow="off", width="content")
        return
    moved = 0.0 if difference is None else round(100 * difference, 1) + 0.0  # no -0.0
    colour: Literal["gray", "blue", "orange"] = "gray" if moved == 0 else "blue" if moved > 0 else "orange"
    delta = "unpruned" if difference is None else f"{moved:+.1f} points".replace("-", "−").replace("+0.0", "±0.0")
    st.metric(label, f"{100 * accuracy:.1f} %", delta, delta_color=colour, delta_arrow="off", width="content")
