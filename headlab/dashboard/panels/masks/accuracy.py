"""Accuracy of a mask on a page: drawn from known figures, redrawn as the worker sends more."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import pandas as pd
import streamlit as st

from headlab.core import ablation_title, replacement_of
from headlab.dashboard.frame import LatestValue, await_values, errors_as_sentences
from headlab.dashboard.names import plain
from headlab.dashboard.panels.masks.mask_figures import (
    NOTHING,
    AccuracyQuestion,
    KnownFigures,
    ablation_to_measure,
    accuracy_caption,
    accuracy_table,
    equal_texts_notes,
    figure_to_show,
    figures_known,
    interval_of_difference,
    omission_notes,
    progress_caption,
    share_measured,
    stand_in_caption,
    stream_figures,
    time_left_words,
)
from headlab.dashboard.panels.masks.suggestion import MEAN_OF_LANGUAGES
from headlab.dashboard.panels.masks.verdict import headline_title, mask_verdict
from headlab.dashboard.streamlit_private import Placeholder
from headlab.dashboard.widgets import PageState, button, redraw_every, set_widget, with_p_values
from headlab.masks import Mask
from headlab.worker import Client, Figure

FIRST_SECONDS = 1.5
"""A first figure that comes this soon is drawn by the run that asked for it.

To draw "…" and ask again takes longer.
"""
POLL_SECONDS = 0.4
PATIENT_SECONDS = 3.0
"""After this long, the worker is busy with other requests.

Polling less often leaves it the processor.
"""
SLOW_SECONDS = 1.0
MAX_UNFOLDED_LANGUAGES = 3
"""Languages that each have a large figure and a row in sight; of more, the others are folded."""
ROW_HEIGHT = 35
HEADER_HEIGHT = 38
COLUMN = 74
"""Width of a column of the table in pixels: eight fit beside the grid on 1440 pixels."""
SHADE = "rgba(128, 144, 160, 0.22)"
"""Behind the table's row of the headline, on a light page and on a dark one."""
ENDS_HELP = "end of the difference's 95 % interval, paired bootstrap, points"
MEAN_HELP = (
    "Points. The interval is the mean of the languages' 95 % intervals: at least as wide as that of "
    "the mean itself."
)


@dataclass
class FinalFigures(PageState):
    """The final figures that one session has seen, on any page.

    Attributes:
        by_key: By `AccuracyQuestion.key`.
    """

    key = "_figures"
    by_key: KnownFigures = field(default_factory=dict)


def session_figures() -> KnownFigures:
    """The final figures of this session, to be read and added to."""
    return FinalFigures.of_session().by_key


@dataclass
class LiveQuestion(PageState):
    """The question about a mask that one session has asked last.

    Attributes:
        question_keys: What it asks, one key a language.
        figures: What arrives of it; None if nothing is asked, or it is to be asked again.
    """

    key = "_live"
    question_keys: list[tuple[str, ...]] = field(default_factory=list)
    figures: LatestValue[dict[str, Figure]] | None = None


@dataclass(frozen=True)
class FigurePlaces:
    """Where on a page the figures of a mask are drawn.

    Attributes:
        verdict: What the mask does, in a sentence.
        headline: The accuracy in large type.
        table: All languages.
        notes: How far it is, and what is to be said of the figures.
    """

    verdict: Placeholder
    headline: Placeholder
    table: Placeholder
    notes: Placeholder


NUMBER_FORMATS = {
    "Difference": "+.1f",
    "Low": "+.1f",
    "High": "+.1f",
    "Now right": "d",
    "Now wrong": "d",
}
"""Of the table's columns of numbers that may be below 0, or thousands."""


def _column_config() -> dict[str, Any]:
    """Columns of one width, so that none is cut.

    static/page.css makes the table as wide as a whole number of them.
    """
    number = partial(st.column_config.NumberColumn, width=COLUMN)
    text = st.column_config.TextColumn
    return {
        "Language": text(width=COLUMN, pinned=True),
        "Accuracy %": number("Accuracy", format="%.1f %%"),
        "Difference": number(help="Points, on the same examples"),
        "Low": number("95 % low", help=f"Lower {ENDS_HELP}"),
        "High": number("95 % high", help=f"Upper {ENDS_HELP}"),
        "p": number(help="Two-sided, for this language alone"),
        "p (Holm)": number(help="Adjusted for testing all these languages"),
        "Now right": number(help="Predictions that became right"),
        "Now wrong": number(help="Predictions that became wrong"),
        "Unpruned %": number("Unpruned", format="%.1f %%"),
        "Examples": text(width=2 * COLUMN),
    }


def arriving_figures(
    client: Client,
    question: AccuracyQuestion,
    languages: Sequence[str],
    known_figures: KnownFigures,
    headline: str = MEAN_OF_LANGUAGES,
) -> LatestValue[dict[str, Figure]]:
    """The figures of a question as they arrive; started now unless this session has done so.

    Args:
        client: Of the worker.
        question: What is asked.
        languages: In which languages.
        known_figures: Final figures of this session, read and added to.
        headline: The language to measure first; `MEAN_OF_LANGUAGES` for none.
    """
    question_keys = [question.key(name) for name in (headline, *languages)]
    live_question = LiveQuestion.of_session()
    if live_question.figures is not None:
        if live_question.question_keys == question_keys:
            return live_question.figures
        live_question.figures.stop()
    replaced_event = threading.Event()
    live = LatestValue(
        lambda: stream_figures(
            client,
            question,
            languages,
            known_figures,
            is_wanted=lambda: not replaced_event.is_set(),
            headline=headline,
        ),
        stop_event=replaced_event,
    )
    live_question.question_keys = question_keys
    live_question.figures = live
    return live


def draw_arriving_figures(
    places: FigurePlaces,
    live: LatestValue[dict[str, Figure]],
    languages: Sequence[str],
    question: AccuracyQuestion,
    headline: str,
) -> None:
    """Draw the figures, redrawn until they are final.

    Args:
        places: Where they are drawn.
        live: The figures as they arrive.
        languages: All that were asked for, in the order of the table.
        question: What the figures answer.
        headline: The language that is judged first, or `MEAN_OF_LANGUAGES`.
    """
    await_values(live, 2, FIRST_SECONDS)  # the first value holds what was already known
    is_polling = not live.done
    is_slow = live.age > PATIENT_SECONDS
    poll_seconds = SLOW_SECONDS if is_slow else POLL_SECONDS

    def draw_figures_so_far() -> None:
        figures_by_language = live.value or {}
        is_lost = live.error is not None
        with places.headline, errors_as_sentences():
            if figures_by_language or not is_lost:
                _draw_headline(figures_by_language, languages, question, headline)
            if live.error is not None:
                raise live.error
        with errors_as_sentences():
            with places.verdict:
                if not is_lost:
                    words = mask_verdict(figures_by_language, languages, question, headline)
                    st.markdown(f"**{plain(words)}**")
            with places.table:
                if figures_by_language or not is_lost:
                    _draw_table(figures_by_language, languages, headline)
            with places.notes:
                time_left = time_left_words(
                    live.first_value or {}, figures_by_language, languages, live.age
                )
                _draw_notes(
                    figures_by_language, languages, question, is_lost=is_lost, time_left=time_left
                )
        if is_polling and (live.done or (live.age > PATIENT_SECONDS) != is_slow):
            st.rerun()  # one full run, which ends the timer or sets a slower one

    redraw_every(draw_figures_so_far, poll_seconds if is_polling else None)()
    if live.error is not None:
        with places.notes:
            button("Ask again", key="prune-again", icon="refresh", on_press=_ask_again)


def _draw_table(
    figures_by_language: Mapping[str, Figure], languages: Sequence[str], headline: str
) -> None:
    """Draw the accuracies as a table whose row of the headline is shaded.

    Args:
        figures_by_language: Those that have arrived.
        languages: All that were asked for.
        headline: The language of the row to shade.
    """
    accuracies = accuracy_table(figures_by_language, languages)
    rows = with_p_values(accuracies, NUMBER_FORMATS, "…")
    if headline in languages and len(languages) > 1:
        shaded_row = pd.IndexSlice[[list(languages).index(headline)], :]
        styled_rows = accuracies.style if isinstance(rows, pd.DataFrame) else rows
        rows = styled_rows.set_properties(subset=shaded_row, **{"background-color": SHADE})
    with st.container(key="whole-columns"):
        st.dataframe(
            rows,
            hide_index=True,
            column_config=_column_config(),
            height=HEADER_HEIGHT + ROW_HEIGHT * len(languages),
            placeholder="…",
        )
    if "Difference" in accuracies:
        st.caption("The table scrolls sideways.")


def pick_stand_in(mask: Mask) -> str:
    """Draw the choice of what is off gives, if the mask was not chosen under zero ablation.

    Args:
        mask: The mask whose accuracy is measured.

    Returns:
        The ablation to measure.
    """
    own = ablation_to_measure(mask)
    if own == NOTHING or not mask.removed:
        return own
    key = f"stand-in-{own}"
    chosen = st.radio(
        "What is off gives",
        [own, NOTHING],
        format_func=replacement_of,
        horizontal=True,
        key=key,
        help=f"The mask was chosen under {ablation_title(own)} ablation.",
    )
    return str(chosen)


def _draw_notes(
    figures_by_language: Mapping[str, Figure],
    languages: Sequence[str],
    question: AccuracyQuestion,
    *,
    is_lost: bool,
    time_left: str = "",
) -> None:
    """Draw what the figures are based on, and what is to be said of them.

    Args:
        figures_by_language: Those that have arrived.
        languages: All that were asked for.
        question: What they answer.
        is_lost: Whether no more will arrive.
        time_left: How long it still takes, in words; empty where that is not known.
    """
    if not is_lost:
        caption = progress_caption(figures_by_language, languages, question)
        if time_left:
            caption += f" {time_left.capitalize()}."
        # In one element: a second one that a later run lacks would stay on the page.
        st.caption(" ".join(filter(None, [caption, plain(stand_in_caption(question))])))
    notes = [figure.note for figure in figures_by_language.values() if figure.note]
    for note in dict.fromkeys(notes):
        st.caption(plain(note))
    if omissions := omission_notes(figures_by_language):
        st.caption(plain(" ".join(omissions)))
    for note in equal_texts_notes(figures_by_language, question.split):
        st.caption(plain(note))


def _ask_again() -> None:
    LiveQuestion.of_session().figures = None


def _draw_headline(
    figures_by_language: Mapping[str, Figure],
    languages: Sequence[str],
    question: AccuracyQuestion,
    headline: str,
) -> None:
    """Draw the accuracy of the headline, of the others if they are few, and how far it is.

    Args:
        figures_by_language: Those that have arrived.
        languages: All that were asked for.
        question: What they answer.
        headline: A language, or `MEAN_OF_LANGUAGES`.
    """
    is_pruned = question.mask is not None
    share = share_measured(figures_by_language, languages, headline)
    names_shown = [headline]
    if len(languages) <= MAX_UNFOLDED_LANGUAGES:
        names_shown += [name for name in (*languages, MEAN_OF_LANGUAGES) if name != headline]
    with st.container(horizontal=True):
        for name in names_shown:
            if name == MEAN_OF_LANGUAGES and len(languages) == 1:
                continue
            figure = figure_to_show(figures_by_language, languages, name)
            is_mean = name == MEAN_OF_LANGUAGES
            _draw_metric(
                name,
                plain(headline_title(name, len(languages))),
                figure,
                is_pruned,
                "languages" if is_mean else "",
                MEAN_HELP if is_mean else None,
            )
    st.progress(share)


def _draw_metric(
    key: str,
    label: str,
    figure: Figure | None,
    is_pruned: bool,
    unit: str = "",
    help_text: str | None = None,
) -> None:
    # Always two lines, so that nothing below moves under the pointer.
    if figure is None:
        st.metric(
            label, "…", "…", delta_color="gray", delta_arrow="off", width="content", help=help_text
        )
        return
    interval = interval_of_difference(figure)
    colour: Literal["gray", "blue", "orange"] = "gray"
    if figure.done and interval is not None:
        low, high = interval
        if low > 0:
            colour = "blue"
        elif high < 0:
            colour = "orange"
    state = "final" if figure.done else "provisional"
    # static/page.css greys what is provisional.
    with st.container(key=f"{state}-{key}", width="content"):
        st.metric(
            label,
            f"{100 * figure.accuracy:.1f} %",
            accuracy_caption(figure, is_pruned, unit),
            delta_color=colour,
            delta_arrow="off",
            width="content",
            help=help_text,
        )


def draw_test_verdict(
    question: AccuracyQuestion,
    languages: Sequence[str],
    known_figures: KnownFigures,
    headline: str,
) -> None:
    """What the mask does on test in a sentence, or the button that measures it.

    The button stands there until this session has seen the figures. Nothing where the page shows
    test already.

    Args:
        question: That the page asks now.
        languages: In which languages.
        known_figures: Final figures of this session.
        headline: The language that is judged first, or `MEAN_OF_LANGUAGES`.
    """
    test_question = question.on_split("test")
    figures_by_language = figures_known(test_question, languages, known_figures)
    is_complete = len(figures_by_language) == len(languages)
    if question.split == "test":
        return  # the sentence above the grid says it
    if not is_complete:
        button(
            "What does it do on test?",
            key="prune-test",
            icon="science",
            on_press=set_widget,
            args=("split", "test"),
            help="Switches the examples above to test",
        )
        return
    st.markdown(plain(mask_verdict(figures_by_language, languages, test_question, headline)))
