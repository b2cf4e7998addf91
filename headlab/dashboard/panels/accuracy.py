"""Accuracy of a mask, language by language, redrawn as the worker sends more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import streamlit as st
from pydantic import Field

from headlab.core import HeadlabError, canonical_json, omission_fields
from headlab.dashboard.frame import LatestValue, await_values, errors_as_sentences
from headlab.dashboard.names import count_words, language_title, plain
from headlab.dashboard.streamlit_private import Placeholder
from headlab.dashboard.widgets import PageState, button, redraw_every, set_widget, with_p_values
from headlab.masks import Mask
from headlab.stats import holm
from headlab.tasks import notes_of_record
from headlab.worker import Client, EvaluateRequest, Figure

# Accuracy of a mask, language by language, as the worker sends it, and tables of it. No streamlit
# here.

EXAMPLES_BY_SPLIT = {"dev": 512, "test": 1000}
"""How many examples of a split a question is on, unless it says otherwise."""
MAX_REMEMBERED = 3000
"""Final figures that a session keeps."""
MIN_COMPARED_EXAMPLES = 128
"""Examples before a difference is shown: it still moves by several points on fewer."""
SUPERSEDED_CODE = "worker.request_superseded"


class AccuracyQuestion(EvaluateRequest):
    """A request for an accuracy that a page makes in several languages.

    Attributes:
        language: Empty until it is asked in one, with `in_language`.
        fingerprint: Of the model's weights; it is not sent.
    """

    language: str = ""
    fingerprint: str = Field(exclude=True)

    @staticmethod
    def unchecked(
        model: str,
        fingerprint: str,
        task: str,
        split: str,
        mask: Mask | None,
        session: str | None = None,
        label_map: Mapping[str, str] | None = None,
        examples: int | None = None,
    ) -> AccuracyQuestion:
        """A question whose fields the worker checks, not this process.

        Args:
            model: Name of the model.
            fingerprint: Of its weights.
            task: Name of the task.
            split: "dev" or "test".
            mask: None for the unpruned model.
            session: Who asks; a newer question of the same session cancels this one.
            label_map: {label: class of the model}, where it is stated.
            examples: How many; None: as many as its split's `SIZES`.
        """
        return AccuracyQuestion.model_construct(
            model=model,
            fingerprint=fingerprint,
            task=task,
            split=split,
            mask=mask,
            session=session,
            label_map=None if label_map is None else dict(label_map),
            size=EXAMPLES_BY_SPLIT[split] if examples is None else examples,
        )

    def in_language(self, language: str) -> AccuracyQuestion:
        """The question in one language, which can be sent."""
        return self.model_copy(update={"language": language})

    def on_split(self, split: str) -> AccuracyQuestion:
        """The question on a split, on as many examples as that split's `SIZES`."""
        return self.model_copy(update={"split": split, "size": EXAMPLES_BY_SPLIT[split]})

    def key(self, language: str) -> tuple[str, ...]:
        """Cache key: questions with equal keys have equal answers."""
        mask = self.mask.digest if self.mask else ""
        return (
            self.fingerprint,
            self.task,
            canonical_json(self.label_map),
            self.split,
            str(self.size),
            mask,
            language,
        )


KnownFigures = MutableMapping[tuple[str, ...], Figure]
"""Final figures of a session, by `AccuracyQuestion.key`."""


def stream_figures(
    client: Client,
    question: AccuracyQuestion,
    languages: Sequence[str],
    known_figures: KnownFigures,
    is_wanted: Callable[[], bool] = lambda: False,
) -> Generator[dict[str, Figure]]:
    """Yield all figures so far as they are refined.

    Each language's first figure comes before any language's second.

    Args:
        client: Of the worker.
        question: What is asked.
        languages: In which languages.
        known_figures: Final figures of this session, read and added to; these are yielded at once.
        is_wanted: Whether the question is still asked, where another of the session took its
            place: an older one may have been on its way when this one was asked, and reach the
            worker later. The question is then asked once more.
    """
    figures_by_language = figures_known(question, languages, known_figures)
    yield dict(figures_by_language)
    with ExitStack() as stack:
        streams: dict[str, Generator[Figure]] = {}
        for language in languages:
            if language not in figures_by_language:
                stream = _figures_in_language(client, question, language, is_wanted)
                streams[language] = stack.enter_context(closing(stream))
        while streams:
            for language, stream in list(streams.items()):
                figure = next(stream, None)
                if figure is None or figure.done:
                    del streams[language]
                if figure is None:
                    continue
                figures_by_language[language] = figure
                if figure.done:
                    _remember_figure(known_figures, question.key(language), figure)
                yield {
                    name: figures_by_language[name]
                    for name in languages
                    if name in figures_by_language
                }


def figures_known(
    question: AccuracyQuestion, languages: Sequence[str], known_figures: KnownFigures
) -> dict[str, Figure]:
    """The final figures of a question that this session has, by language."""
    figures_by_language: dict[str, Figure] = {}
    for language in languages:
        key = question.key(language)
        if key in known_figures:
            figures_by_language[language] = known_figures[key]
    return figures_by_language


def _figures_in_language(
    client: Client, question: AccuracyQuestion, language: str, is_wanted: Callable[[], bool]
) -> Generator[Figure]:
    """Yield a language's figures as the worker refines them; arguments as in `stream_figures`."""
    try:
        yield from _send_question(client, question, language)
    except HeadlabError as error:
        if error.code != SUPERSEDED_CODE or not is_wanted():
            raise
        yield from _send_question(client, question, language)


def _send_question(client: Client, question: AccuracyQuestion, language: str) -> Generator[Figure]:
    figures = client.evaluate(question.in_language(language))
    try:
        yield from figures
    finally:
        if close := getattr(figures, "close", None):  # ends the work at the worker's next batch
            close()


def _remember_figure(known_figures: KnownFigures, key: tuple[str, ...], figure: Figure) -> None:
    """Add a figure to those of its session, and forget the first of too many.

    Several threads of a session write here. A dict takes that; a library's cache needs a lock.
    """
    known_figures[key] = figure
    while len(known_figures) > MAX_REMEMBERED:
        known_figures.pop(next(iter(known_figures)))


def accuracy_table(
    figures_by_language: Mapping[str, Figure], languages: Sequence[str]
) -> pd.DataFrame:
    """One row per language, in percent and points, with p adjusted for several languages (Holm).

    A row that is not final has no test, and no difference before `MIN_COMPARED_EXAMPLES` examples.
    """
    frame = pd.DataFrame([_table_row(name, figures_by_language.get(name)) for name in languages])
    p_values = []
    for language in languages:
        figure = figures_by_language.get(language)
        if figure is not None and figure.done and figure.p is not None:
            p_values.append(figure.p)
    has_several_languages = len(languages) > 1
    if has_several_languages and len(p_values) == len(languages):
        frame["p (Holm)"] = holm(np.array(p_values, float))
    columns = ["Language", "Accuracy %"]
    if any(figure.difference is not None for figure in figures_by_language.values()):
        columns += ["Difference", "Low", "High"]
        # The p that counts comes first: the table beside the grid has room for no more.
        columns += ["p (Holm)"] if has_several_languages else ["p"]
        columns += ["Now right", "Now wrong"]
        columns += ["p"] if has_several_languages else []
        columns.append("Unpruned %")
    return frame.reindex(columns=[*columns, "Examples"])


def _table_row(language: str, figure: Figure | None) -> dict[str, Any]:
    if figure is None:
        return {"Language": language, "Examples": "…"}
    difference = None
    low = None
    high = None
    if has_enough_examples(figure):
        difference = figure.difference
        low, high = interval_of_difference(figure) or (None, None)
    return {
        "Language": language,
        "Accuracy %": 100 * figure.accuracy,
        "Difference": _points(difference),
        "Low": _points(low),
        "High": _points(high),
        "p": figure.p if figure.done else None,
        "Now right": figure.flipped_right,
        "Now wrong": figure.flipped_wrong,
        "Unpruned %": _points(figure.baseline),
        "Examples": f"{figure.n:,}" if figure.done else f"{figure.n:,} of {figure.total:,} …",
    }


def interval_of_difference(figure: Figure) -> tuple[float, float] | None:
    """The 95 % interval of the difference to the unpruned model; None of that model itself."""
    if figure.difference is None:
        return None
    return (figure.low, figure.high)


def has_enough_examples(figure: Figure) -> bool:
    """Whether a difference on so many examples is worth showing."""
    return figure.done or figure.n >= MIN_COMPARED_EXAMPLES


def signed_points(share: float) -> str:
    """A share as points with a sign: +4.7, −0.3, ±0.0."""
    points = round(100 * share, 1)
    if points == 0:
        return "±0.0"
    return f"{points:+.1f}".replace("-", "−")


def _points(value: float | None) -> float | None:
    return None if value is None else 100 * value


def mean_figure(figures_by_language: Mapping[str, Figure]) -> Figure:
    """The mean over the languages; counts are of languages, all and with a final figure.

    Ends of the interval are the means of the languages' ends: the standard error of a mean is at
    most the mean of the standard errors, however the languages depend on each other, so for normal
    errors it is never too narrow.
    """
    language_figures = list(figures_by_language.values())
    differences = [
        figure.difference for figure in language_figures if figure.difference is not None
    ]
    is_known = len(differences) == len(language_figures) and all(
        map(has_enough_examples, language_figures)
    )
    final_count = sum(figure.done for figure in language_figures)
    accuracy = float(np.mean([figure.accuracy for figure in language_figures]))
    difference = float(np.mean(differences)) if is_known else None
    return Figure(
        language="mean",
        n=final_count,
        total=len(language_figures),
        accuracy=accuracy,
        low=float(np.mean([figure.low for figure in language_figures])),
        high=float(np.mean([figure.high for figure in language_figures])),
        done=final_count == len(language_figures),
        difference=difference,
    )


def counted_unit(figures_by_language: Mapping[str, Figure], question: AccuracyQuestion) -> str:
    """What figures count: examples, or answers where an example has several.

    Answers are one a word or a token.
    """
    has_several_answers = any(
        figure.total > question.size for figure in figures_by_language.values()
    )
    if has_several_answers:
        return "answers"
    return "examples"


def progress_caption(
    figures_by_language: Mapping[str, Figure], languages: Sequence[str], question: AccuracyQuestion
) -> str:
    """What the figures are based on so far: the number of heads off and of examples."""
    final_count = sum(figure.done for figure in figures_by_language.values())
    removed_count = len(question.mask.removed) if question.mask else 0
    heads_off = f"{count_words(removed_count, 'head')} off" if removed_count else "All heads on"
    if not figures_by_language:
        return f"{heads_off}: waiting for the first {question.split} examples …"
    unit = f"{question.split} {counted_unit(figures_by_language, question)}"
    if final_count == len(languages):
        sizes = sorted({figure.n for figure in figures_by_language.values()})
        counts = f"{sizes[0]}–{sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
        return f"{heads_off}: final, {counts} {unit} a language."
    if len(languages) == 1:
        figure = next(iter(figures_by_language.values()))
        return f"{heads_off}: {figure.n} of {figure.total} {unit} so far …"
    figure_count = f"{len(figures_by_language)} of {len(languages)} languages have a figure so far"
    return f"{heads_off}: {figure_count}, {final_count} a final one …"


def accuracies_for_mask_file(
    figures_by_language: Mapping[str, Figure], question: AccuracyQuestion
) -> dict[str, Any]:
    """The final accuracies as the mask file stores them; empty while there are none."""
    stored_figures = {
        language: _stored_figure(figure, question.split)
        for language, figure in figures_by_language.items()
        if figure.done
    }
    if not stored_figures:
        return {}
    return {
        "task": question.task,
        "split": question.split,
        "size": question.size,
        "languages": stored_figures,
    }


STORED_INTERVAL_FIELDS = ("low", "high")
STORED_FIGURE_FIELDS = (
    "n",
    "accuracy",
    "baseline",
    "difference",
    *STORED_INTERVAL_FIELDS,
    "p",
    "flipped_right",
    "flipped_wrong",
)


def _stored_figure(figure: Figure, split: str) -> dict[str, Any]:
    """A final figure as the mask file stores it.

    What was counted of equal texts is part of its note.
    """
    is_compared = figure.difference is not None
    field_names = [
        name for name in STORED_FIGURE_FIELDS if is_compared or name not in STORED_INTERVAL_FIELDS
    ]
    values_by_field = {name: getattr(figure, name) for name in field_names}
    notes = (figure.note, *notes_of_record({"equal_texts": figure.equal_texts}, split))
    values_by_field["note"] = "; ".join(filter(None, notes))
    stored_values = {
        name: value for name, value in values_by_field.items() if value not in (None, "")
    }
    return stored_values | omission_fields(figure.omissions)


def omission_notes(figures_by_language: Mapping[str, Figure]) -> list[str]:
    """A sentence for each language with final figures from which something was left out.

    Examples were cut, or words have no answer.
    """
    notes = []
    for language, figure in figures_by_language.items():
        if figure.done and figure.omissions is not None and figure.omissions.sentence:
            notes.append(f"{language_title(language)}: {figure.omissions.sentence}.")
    return notes


# The figures of the Prune page: drawn from known ones, then redrawn as the worker sends more.

FIRST_SECONDS = 1.5
"""A first figure that comes this soon is drawn by the run that asked for it.

To draw "…" and ask again takes longer.
"""
POLL_SECONDS = 0.2
PATIENT_SECONDS = 3.0
"""After this long, the worker is busy with other requests.

Polling less often leaves it the processor.
"""
SLOW_SECONDS = 1.0
SINGLE_METRICS = 3
"""Languages with a figure of their own in the headline; the table has all."""
ROW_HEIGHT = 35
HEADER_HEIGHT = 38
COLUMN = 74
"""Width of a column of the table in pixels: eight fit beside the grid on 1440 pixels."""
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


def _column_config() -> dict[str, Any]:
    """Columns of one width, so that none is cut.

    static/page.css makes the table as wide as a whole number of them.
    """
    number = partial(st.column_config.NumberColumn, width=COLUMN)
    text = st.column_config.TextColumn
    return {
        "Language": text(width=COLUMN, pinned=True),
        "Accuracy %": number("Accuracy", format="%.1f %%"),
        "Difference": number(format="%+.1f", help="Points, on the same examples"),
        "Low": number("95 % low", format="%+.1f", help=f"Lower {ENDS_HELP}"),
        "High": number("95 % high", format="%+.1f", help=f"Upper {ENDS_HELP}"),
        "p": number(help="Two-sided, for this language alone"),
        "p (Holm)": number(help="Adjusted for testing all these languages"),
        "Now right": number(format="%d", help="Predictions that became right"),
        "Now wrong": number(format="%d", help="Predictions that became wrong"),
        "Unpruned %": number("Unpruned", format="%.1f %%"),
        "Examples": text(width=2 * COLUMN),
    }


def arriving_figures(
    client: Client,
    question: AccuracyQuestion,
    languages: Sequence[str],
    known_figures: KnownFigures,
) -> LatestValue[dict[str, Figure]]:
    """The figures of a question as they arrive; started now unless this session has done so."""
    question_keys = [question.key(name) for name in languages]
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
        ),
        stop_event=replaced_event,
    )
    live_question.question_keys = question_keys
    live_question.figures = live
    return live


def draw_arriving_figures(
    headline_place: Placeholder,
    table_place: Placeholder,
    live: LatestValue[dict[str, Figure]],
    languages: Sequence[str],
    question: AccuracyQuestion,
) -> None:
    """Draw the figures into two containers, redrawn until they are final."""
    await_values(live, 2, FIRST_SECONDS)  # the first value holds what was already known
    is_polling = not live.done
    is_slow = live.age > PATIENT_SECONDS
    poll_seconds = SLOW_SECONDS if is_slow else POLL_SECONDS

    def draw_figures_so_far() -> None:
        figures_by_language = live.value or {}
        with headline_place, errors_as_sentences():
            if live.error is None or figures_by_language:
                _draw_metrics(figures_by_language, languages, question.mask is not None)
            if live.error is not None:
                raise live.error
        with errors_as_sentences(), table_place:
            _draw_table(figures_by_language, languages, question, is_lost=live.error is not None)
        if is_polling and (live.done or (live.age > PATIENT_SECONDS) != is_slow):
            st.rerun()  # one full run, which ends the timer or sets a slower one

    redraw_every(draw_figures_so_far, poll_seconds if is_polling else None)()
    if live.error is not None:
        with table_place:
            button("Ask again", key="prune-again", icon="refresh", on_press=_ask_again)


def _draw_table(
    figures_by_language: Mapping[str, Figure],
    languages: Sequence[str],
    question: AccuracyQuestion,
    *,
    is_lost: bool,
) -> None:
    """Draw the accuracies as a table, and what is to be said of them.

    Args:
        figures_by_language: Those that have arrived.
        languages: All that were asked for.
        question: What they answer.
        is_lost: Whether no more will arrive.
    """
    accuracies = accuracy_table(figures_by_language, languages)
    if figures_by_language or not is_lost:
        with st.container(key="whole-columns"):
            st.dataframe(
                with_p_values(accuracies),
                hide_index=True,
                column_config=_column_config(),
                height=HEADER_HEIGHT + ROW_HEIGHT * len(languages),
                placeholder="…",
            )
    if not is_lost:
        scroll_hint = " The table scrolls sideways." if "Difference" in accuracies else ""
        st.caption(progress_caption(figures_by_language, languages, question) + scroll_hint)
    notes = [figure.note for figure in figures_by_language.values() if figure.note]
    for note in dict.fromkeys(notes):
        st.caption(plain(note))
    if omissions := omission_notes(figures_by_language):
        st.caption(plain(" ".join(omissions)))
    for note in equal_texts_notes(figures_by_language, question.split):
        st.caption(plain(note))


def equal_texts_notes(figures_by_language: Mapping[str, Figure], split: str) -> list[str]:
    """What was counted of texts that are in dev and test, language by language."""
    return [
        f"{language_title(language)}: {note}."
        for language, figure in figures_by_language.items()
        for note in notes_of_record({"equal_texts": figure.equal_texts}, split)
    ]


def _ask_again() -> None:
    LiveQuestion.of_session().figures = None


def _draw_metrics(
    figures_by_language: Mapping[str, Figure], languages: Sequence[str], is_pruned: bool
) -> None:
    with st.container(horizontal=True):
        if len(languages) > 1:
            has_all = len(figures_by_language) == len(languages)
            mean = mean_figure(figures_by_language) if has_all else None
            _draw_metric(
                "mean",
                f"Mean of {len(languages)} languages",
                mean,
                is_pruned,
                "languages",
                MEAN_HELP,
            )
        if len(languages) <= SINGLE_METRICS:
            for language in languages:
                _draw_metric(
                    language,
                    plain(language_title(language)),
                    figures_by_language.get(language),
                    is_pruned,
                )


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


def accuracy_caption(figure: Figure, is_pruned: bool, unit: str = "") -> str:
    """The line below an accuracy: difference and interval, on how many, and whether that is final.

    Args:
        figure: With the accuracy.
        is_pruned: Whether heads are off.
        unit: What is counted, if not examples.
    """
    parts = [] if is_pruned else ["unpruned"]
    if figure.difference is not None and (unit or has_enough_examples(figure)):
        parts = [
            f"{signed_points(figure.difference)} [{signed_points(figure.low)}, {signed_points(figure.high)}]"
        ]
    if unit and not figure.done:
        return " · ".join([*parts, f"{figure.n or 'none'} of {figure.total:,} {unit} final so far"])
    progress = f"{figure.n:,} of {figure.total:,}" + (f" {unit}" if unit else "")
    return " · ".join([*parts, progress, "final" if figure.done else "so far"])


def draw_test_accuracies(
    question: AccuracyQuestion, languages: Sequence[str], known_figures: KnownFigures
) -> None:
    """What the mask does on test, or the button that measures it.

    The button stands there until this session has seen the figures.
    """
    test_question = question.on_split("test")
    figures_by_language = figures_known(test_question, languages, known_figures)
    is_complete = len(figures_by_language) == len(languages)
    if not is_complete and question.split == "test":
        st.caption("Being measured on test …")
        return
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
    captions: dict[str, str] = {}
    if len(figures_by_language) > 1:
        mean = mean_figure(figures_by_language)
        captions[f"mean of {len(figures_by_language)} languages"] = accuracy_caption(
            mean, True, "languages"
        )
    for language, figure in figures_by_language.items():
        captions[language] = accuracy_caption(figure, True)
    lines = [f"- {plain(language_title(name))}: {caption}" for name, caption in captions.items()]
    st.markdown("\n".join(["On test, in points:", *lines]))
