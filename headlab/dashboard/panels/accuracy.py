"""Accuracy of a mask, language by language: drawn from known figures, and redrawn as the worker sends more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import streamlit as st
from pydantic import Field

from headlab.core import HeadlabError, canonical_json, omission_fields
from headlab.dashboard.frame import LatestValue, await_values, errors_as_sentences
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.streamlit_private import Placeholder
from headlab.dashboard.widgets import button, redraw_every, set_widget, with_p_values
from headlab.masks import Mask
from headlab.stats import holm
from headlab.tasks import notes_of_record
from headlab.worker import Client, EvaluateRequest, Figure

# Accuracy of a mask, language by language, as the worker sends it, and tables of it. No streamlit here.

SIZES = {"dev": 512, "test": 1000}
REMEMBERED = 3000
LEAST = 128  # examples before a difference is shown: it still moves by several points on fewer
SUPERSEDED = "worker.request_superseded"


class Question(EvaluateRequest):
    """A request for an accuracy that a page makes in several languages.

    Attributes:
        language: Empty until it is asked in one, with `in_language`.
        fingerprint: Of the model's weights; it is not sent.
    """

    language: str = ""
    fingerprint: str = Field(exclude=True)

    @staticmethod
    def of(
        model: str,
        fingerprint: str,
        task: str,
        split: str,
        mask: Mask | None,
        session: str | None = None,
        label_map: Mapping[str, str] | None = None,
        examples: int | None = None,
    ) -> Question:
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
        return Question.model_construct(
            model=model,
            fingerprint=fingerprint,
            task=task,
            split=split,
            mask=mask,
            session=session,
            label_map=None if label_map is None else dict(label_map),
            size=SIZES[split] if examples is None else examples,
        )

    def in_language(self, language: str) -> Question:
        """The question in one language, which can be sent."""
        return self.model_copy(update={"language": language})

    def on(self, split: str) -> Question:
        """The question on a split, on as many examples as that split's `SIZES`."""
        return self.model_copy(update={"split": split, "size": SIZES[split]})

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


Known = MutableMapping[tuple[str, ...], Figure]


def figures(
    client: Client,
    question: Question,
    languages: Sequence[str],
    known: Known,
    is_wanted: Callable[[], bool] = lambda: False,
) -> Generator[dict[str, Figure]]:
    """Yield all figures so far as they are refined: each language's first before any language's second.

    Args:
        client: Of the worker.
        question: What is asked.
        languages: In which languages.
        known: Final figures of this session, read and added to; these are yielded at once.
        is_wanted: Whether the question is still asked, where another of the session took its
            place: an older one may have been on its way when this one was asked, and reach the
            worker later. The question is then asked once more.
    """
    now = {name: known[question.key(name)] for name in languages if question.key(name) in known}
    yield dict(now)
    with ExitStack() as stack:
        missing = [name for name in languages if name not in now]
        streams = {
            name: stack.enter_context(closing(_ask(client, question, name, is_wanted)))
            for name in missing
        }
        while streams:
            for name, stream in list(streams.items()):
                figure = next(stream, None)
                if figure is None or figure.done:
                    del streams[name]
                if figure is None:
                    continue
                now[name] = figure
                if figure.done:
                    _remember(known, question.key(name), figure)
                yield {n: now[n] for n in languages if n in now}


def _ask(
    client: Client, question: Question, language: str, is_wanted: Callable[[], bool]
) -> Generator[Figure]:
    """Yield a language's figures as the worker refines them; arguments as in `figures`."""
    try:
        yield from _answers(client, question, language)
    except HeadlabError as error:
        if error.code != SUPERSEDED or not is_wanted():
            raise
        yield from _answers(client, question, language)


def _answers(client: Client, question: Question, language: str) -> Generator[Figure]:
    answers = client.evaluate(question.in_language(language))
    try:
        yield from answers
    finally:
        if close := getattr(answers, "close", None):  # ends the work at the worker's next batch
            close()


def _remember(known: Known, key: tuple[str, ...], figure: Figure) -> None:
    """Add a figure to those of its session, and forget the first of too many.

    Several threads of a session write here. A dict takes that; a library's cache needs a lock.
    """
    known[key] = figure
    while len(known) > REMEMBERED:
        known.pop(next(iter(known)))


def table(rows: Mapping[str, Figure], languages: Sequence[str]) -> pd.DataFrame:
    """One row per language, in percent and points, with p adjusted for several languages (Holm).

    A row that is not final has no test, and no difference before `LEAST` examples.
    """
    frame = pd.DataFrame([_row(name, rows.get(name)) for name in languages])
    p = np.array(
        [rows[n].p for n in languages if n in rows and rows[n].done and rows[n].p is not None],
        float,
    )
    if len(languages) > 1 and len(p) == len(languages):
        frame["p (Holm)"] = holm(p)
    compared = any(row.difference is not None for row in rows.values())
    p_first, p_last = (
        (["p (Holm)"], ["p"]) if len(languages) > 1 else (["p"], [])
    )  # what fits beside the grid first
    shown = (
        ["Difference", "Low", "High", *p_first, "Now right", "Now wrong", *p_last, "Unpruned %"]
        if compared
        else []
    )
    return frame.reindex(columns=["Language", "Accuracy %", *shown, "Examples"])


def _row(name: str, row: Figure | None) -> dict[str, Any]:
    if row is None:
        return {"Language": name, "Examples": "…"}
    low, high = interval_of_difference(row) or (None, None)
    return {
        "Language": name,
        "Accuracy %": 100 * row.accuracy,
        "Difference": _points(row.difference) if enough(row) else None,
        "Low": _points(low) if enough(row) else None,
        "High": _points(high) if enough(row) else None,
        "p": row.p if row.done else None,
        "Now right": row.flipped_right,
        "Now wrong": row.flipped_wrong,
        "Unpruned %": _points(row.baseline),
        "Examples": f"{row.n:,}" if row.done else f"{row.n:,} of {row.total:,} …",
    }


def interval_of_difference(row: Figure) -> tuple[float, float] | None:
    """The 95 % interval of the difference to the unpruned model; None of that model itself."""
    return None if row.difference is None else (row.low, row.high)


def enough(row: Figure) -> bool:
    """Whether a difference on so many examples is worth showing."""
    return row.done or row.n >= LEAST


def signed(share: float) -> str:
    """A share as points with a sign: +4.7, −0.3, ±0.0."""
    points = round(100 * share, 1)
    return "±0.0" if points == 0 else f"{points:+.1f}".replace("-", "−")


def _points(value: float | None) -> float | None:
    return None if value is None else 100 * value


def mean_figure(rows: Mapping[str, Figure]) -> Figure:
    """The mean over the languages; counts are of languages, all and with a final figure.

    Ends of the interval are the means of the languages' ends: the standard error of a mean is at most the mean of the
    standard errors, however the languages depend on each other, so for normal errors it is never too narrow.
    """
    every = list(rows.values())
    differences = [row.difference for row in every if row.difference is not None]
    is_known = len(differences) == len(every) and all(map(enough, every))
    final = sum(row.done for row in every)
    accuracy = float(np.mean([row.accuracy for row in every]))
    difference = float(np.mean(differences)) if is_known else None
    return Figure(
        language="mean",
        n=final,
        total=len(every),
        accuracy=accuracy,
        low=float(np.mean([row.low for row in every])),
        high=float(np.mean([row.high for row in every])),
        done=final == len(every),
        difference=difference,
    )


def counted_in(rows: Mapping[str, Figure], question: Question) -> str:
    """What figures are counted in: examples, or answers where an example has several, such as one a word or token."""
    return "answers" if any(row.total > question.size for row in rows.values()) else "examples"


def progress_words(rows: Mapping[str, Figure], languages: Sequence[str], question: Question) -> str:
    """What the figures are based on so far: how many heads are off, and how many examples have arrived."""
    done, split = sum(row.done for row in rows.values()), question.split
    off = len(question.mask.removed) if question.mask else 0
    mask = f"{off} head{'s' * (off != 1)} off" if off else "All heads on"
    if not rows:
        return f"{mask}: waiting for the first {split} examples …"
    if done == len(languages):
        sizes = sorted({row.n for row in rows.values()})
        counts = "–".join(map(str, sizes[:: len(sizes) - 1 or 1]))
        return f"{mask}: final, {counts} {split} {counted_in(rows, question)} a language."
    if len(languages) == 1:
        row = next(iter(rows.values()))
        return f"{mask}: {row.n} of {row.total} {split} {counted_in(rows, question)} so far …"
    return f"{mask}: {len(rows)} of {len(languages)} languages have a figure so far, {done} a final one …"


def evaluated(rows: Mapping[str, Figure], question: Question) -> dict[str, Any]:
    """The final accuracies as the mask file stores them; empty while there are none."""
    final = {name: _stored_figure(row, question.split) for name, row in rows.items() if row.done}
    return (
        {"task": question.task, "split": question.split, "size": question.size, "languages": final}
        if final
        else {}
    )


STORED_INTERVAL = ("low", "high")
STORED = (
    "n",
    "accuracy",
    "baseline",
    "difference",
    *STORED_INTERVAL,
    "p",
    "flipped_right",
    "flipped_wrong",
)


def _stored_figure(row: Figure, split: str) -> dict[str, Any]:
    """A final figure as the mask file stores it; what was counted of equal texts is part of its note."""
    is_compared = row.difference is not None
    names = [name for name in STORED if is_compared or name not in STORED_INTERVAL]
    numbers = {name: getattr(row, name) for name in names}
    notes = (row.note, *notes_of_record({"equal_texts": row.equal_texts}, split))
    numbers["note"] = "; ".join(filter(None, notes))
    stored = {name: value for name, value in numbers.items() if value not in (None, "")}
    return stored | omission_fields(row.omissions)


def omission_notes(rows: Mapping[str, Figure]) -> list[str]:
    """A sentence for each language with a final figure in which examples were cut or words have no answer."""
    notes = []
    for language, row in rows.items():
        if row.done and row.omissions is not None and row.omissions.sentence:
            notes.append(f"{language_title(language)}: {row.omissions.sentence}.")
    return notes


# The figures of the Prune page: drawn from known ones, then redrawn as the worker sends more.

LIVE, SEEN = "_live", "_figures"  # the question being asked, and the final figures of this session
# A first figure that comes this soon is drawn by the run that asked for it: to draw "…" and ask again takes longer.
POLL_SECONDS, FIRST_SECONDS = 0.2, 1.5
# After this long, the worker is busy with other requests: polling less often leaves it the processor.
PATIENT_SECONDS, SLOW_SECONDS = 3.0, 1.0
SINGLE_METRICS = 3  # languages with a figure of their own in the headline; the table has all
ROW, HEADER = 35, 38
COLUMN = 74  # pixels of a column of the table: eight beside the grid on 1440 pixels
ENDS_HELP = "end of the difference's 95 % interval, paired bootstrap, points"
MEAN_HELP = "Points. The interval is the mean of the languages' 95 % intervals: at least as wide as that of the mean itself."


def _columns() -> dict[str, Any]:
    """Columns of one width: static/page.css makes the table as wide as a whole number of them, so none is cut."""
    number, text = partial(st.column_config.NumberColumn, width=COLUMN), st.column_config.TextColumn
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


def running(
    client: Client, question: Question, languages: Sequence[str], known: Known
) -> LatestValue[dict[str, Figure]]:
    """The figures of a question as they arrive; started now unless this session has done so."""
    key = [question.key(name) for name in languages]
    held: tuple[list[tuple[str, ...]], LatestValue[dict[str, Figure]]] | None = (
        st.session_state.get(LIVE)
    )
    if held is not None and held[0] == key:
        return held[1]
    if held is not None:
        held[1].stop()
    replaced = threading.Event()
    begun = LatestValue(
        lambda: figures(
            client, question, languages, known, is_wanted=lambda: not replaced.is_set()
        ),
        stopped=replaced,
    )
    st.session_state[LIVE] = (key, begun)
    return begun


def show(
    headline: Placeholder,
    details: Placeholder,
    live: LatestValue[dict[str, Figure]],
    languages: Sequence[str],
    question: Question,
) -> None:
    """Draw the figures into two containers, redrawn until they are final."""
    await_values(live, 2, FIRST_SECONDS)  # the first value holds what was already known
    polling, patient = not live.done, live.age > PATIENT_SECONDS
    every = SLOW_SECONDS if patient else POLL_SECONDS

    def look() -> None:
        rows = live.value or {}
        with headline, errors_as_sentences():
            if live.error is None or rows:
                _metrics(rows, languages, question.mask is not None)
            if live.error is not None:
                raise live.error
        with errors_as_sentences(), details:
            _details(rows, languages, question, lost=live.error is not None)
        if polling and (live.done or (live.age > PATIENT_SECONDS) != patient):
            st.rerun()  # one full run, which ends the timer or sets a slower one

    redraw_every(look, every if polling else None)()
    if live.error is not None:
        with details:
            button("Ask again", key="prune-again", icon="refresh", on_press=_forget)


def _details(
    rows: Mapping[str, Figure], languages: Sequence[str], question: Question, *, lost: bool
) -> None:
    height = HEADER + ROW * len(languages)
    shown = table(rows, languages)
    if rows or not lost:
        with st.container(key="whole-columns"):
            st.dataframe(
                with_p_values(shown),
                hide_index=True,
                column_config=_columns(),
                height=height,
                placeholder="…",
            )
    if not lost:
        more = " The table scrolls sideways." if "Difference" in shown else ""
        st.caption(progress_words(rows, languages, question) + more)
    for note in dict.fromkeys(row.note for row in rows.values() if row.note):
        st.caption(plain(note))
    if omitted := omission_notes(rows):
        st.caption(plain(" ".join(omitted)))
    for note in equal_texts_of(rows, question.split):
        st.caption(plain(note))


def equal_texts_of(rows: Mapping[str, Figure], split: str) -> list[str]:
    """What was counted of texts that are in dev and test, language by language."""
    return [
        f"{language_title(language)}: {note}."
        for language, row in rows.items()
        for note in notes_of_record({"equal_texts": row.equal_texts}, split)
    ]


def _forget() -> None:
    st.session_state.pop(LIVE, None)


def _metrics(rows: Mapping[str, Figure], languages: Sequence[str], pruned: bool) -> None:
    with st.container(horizontal=True):
        if len(languages) > 1:
            mean = mean_figure(rows) if len(rows) == len(languages) else None
            _metric(
                "mean", f"Mean of {len(languages)} languages", mean, pruned, "languages", MEAN_HELP
            )
        if len(languages) <= SINGLE_METRICS:
            for name in languages:
                _metric(name, plain(language_title(name)), rows.get(name), pruned)


def _metric(
    key: str, label: str, row: Figure | None, pruned: bool, of: str = "", about: str | None = None
) -> None:  # fmt: skip
    # Always two lines, so that nothing below moves under the pointer.
    if row is None:
        st.metric(
            label, "…", "…", delta_color="gray", delta_arrow="off", width="content", help=about
        )
        return
    interval = interval_of_difference(row)
    colour: Literal["gray", "blue", "orange"] = "gray"
    if row.done and interval is not None:
        low, high = interval
        if low > 0:
            colour = "blue"
        elif high < 0:
            colour = "orange"
    state = "final" if row.done else "provisional"
    with st.container(
        key=f"{state}-{key}", width="content"
    ):  # static/page.css greys what is provisional
        st.metric(
            label, f"{100 * row.accuracy:.1f} %", headline(row, pruned, of), delta_color=colour, delta_arrow="off",
            width="content", help=about,
        )  # fmt: skip


def headline(row: Figure, pruned: bool, of: str = "") -> str:
    """The line below an accuracy: difference and interval, on how many, and whether that is final.

    pruned: whether heads are off.  of: what is counted, if not examples.
    """
    words = [] if pruned else ["unpruned"]
    if row.difference is not None and (of or enough(row)):
        words = [f"{signed(row.difference)} [{signed(row.low)}, {signed(row.high)}]"]
    if of and not row.done:
        return " · ".join([*words, f"{row.n or 'none'} of {row.total:,} {of} final so far"])
    counted = f"{row.n:,} of {row.total:,}" + (f" {of}" if of else "")
    return " · ".join([*words, counted, "final" if row.done else "so far"])


def on_test(question: Question, languages: Sequence[str], known: Known) -> None:
    """What the mask does on test, where this session has seen it; else the button that measures it."""
    asked = question.on("test")
    rows = {name: known[asked.key(name)] for name in languages if asked.key(name) in known}
    if len(rows) < len(languages) and question.split == "test":
        st.caption("Being measured on test …")
        return
    if len(rows) < len(languages):
        button(
            "What does it do on test?", key="prune-test", icon="science", on_press=set_widget, args=("split", "test"),
            help="Switches the examples above to test",
        )  # fmt: skip
        return
    told = {name: headline(row, True) for name, row in rows.items()}
    if len(rows) > 1:
        told = {
            f"mean of {len(rows)} languages": headline(mean_figure(rows), True, "languages")
        } | told
    st.markdown(
        "On test, in points:\n"
        + "\n".join(f"- {plain(language_title(n))}: {w}" for n, w in told.items())
    )
