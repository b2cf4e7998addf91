"""The figures of the Prune page: drawn from what is known, then again as the worker sends more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from headlab.ui.background import Latest
from headlab.ui.live import follow
from headlab.ui.names import language_title
from headlab.ui.presses import button
from headlab.ui.prune_figures import Asks, Figure, Known, Question, figures, mean_figure, progress_words, table
from headlab.ui.shell import guarded

LIVE = "_live"
POLL_SECONDS, FIRST_SECONDS = 0.2, 0.4
# Whoever has waited so long waits for others too: looking less often leaves the processor to the figures.
PATIENT_SECONDS, SLOW_SECONDS = 3.0, 1.0
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


def running(client: Asks, question: Question, languages: Sequence[str], known: Known) -> Latest[dict[str, Figure]]:
    """The figures of a question as they come in; begun now unless this session began it before."""
    key = [question.key(name) for name in languages]
    held: tuple[list[tuple[str, ...]], Latest[dict[str, Figure]]] | None = st.session_state.get(LIVE)
    if held is not None and held[0] == key:
        return held[1]
    if held is not None:
        held[1].stop()
    begun = Latest(lambda: figures(client, question, languages, known))
    st.session_state[LIVE] = (key, begun)
    return begun


def keep_room(place: DeltaGenerator, languages: Sequence[str]) -> None:
    """Draw the headline without its figures, so that what stands below does not move when they come."""
    with place.container():
        _metrics({}, languages)


def show(
    headline: DeltaGenerator,
    details: DeltaGenerator,
    live: Latest[dict[str, Figure]],
    languages: Sequence[str],
    question: Question,
) -> None:
    """Draw the figures into two containers, again and again until they are final."""
    live.wait(2, FIRST_SECONDS)  # the first value is what was known before
    polling, patient = not live.done, live.age > PATIENT_SECONDS
    every = SLOW_SECONDS if patient else POLL_SECONDS

    def look() -> None:
        with guarded():
            _draw(headline, details, live, languages, question)
        if polling and (live.done or (live.age > PATIENT_SECONDS) != patient):
            st.rerun()  # one full run, which ends the timer or sets a slower one

    follow(look, every if polling else None)()
    if live.error is not None:
        with details:
            button("Ask again", key="prune-again", icon="refresh", on_press=_forget)
        with guarded():
            raise live.error


def _draw(
    headline: DeltaGenerator,
    details: DeltaGenerator,
    live: Latest[dict[str, Figure]],
    languages: Sequence[str],
    question: Question,
) -> None:
    rows = live.value or {}
    with headline:
        _metrics(rows, languages)
    with details:
        height = HEADER + ROW * len(languages)
        st.dataframe(table(rows, languages), hide_index=True, column_config=_columns(), height=height, placeholder="…")
        st.caption(progress_words(rows, languages, question) if live.error is None else "The worker gave no answer.")


def _forget() -> None:
    st.session_state.pop(LIVE, None)


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
