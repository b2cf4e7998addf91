"""Figures of a mask: its accuracy, language by language, as the worker sends it, and tables of them.

No streamlit here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from headlab.core import (
    HEADS,
    HeadlabError,
    ablation_title,
    canonical_json,
    duration_text,
    is_ablation,
    omission_fields,
    replacement_of,
)
from headlab.dashboard.names import language_title
from headlab.dashboard.panels.masks.suggestion import MEAN_OF_LANGUAGES
from headlab.masks import MIXED_ABLATION, Mask
from headlab.stats import holm
from headlab.tasks import notes_of_record
from headlab.worker import Client, EvaluateRequest, Figure

EXAMPLES_BY_SPLIT = {"dev": 512, "test": 1000}
"""How many examples of a split a question is on, unless it says otherwise."""
MAX_REMEMBERED = 3000
"""Final figures that a session keeps."""
MIN_COMPARED_EXAMPLES = 128
"""Examples before a difference is shown: it still moves by several points on fewer."""
SHOWN_SHARE = 0.25
"""Share of the examples before an accuracy is shown in large type: it still moves on fewer."""
PACED_SHARE = 0.05
PACED_SECONDS = 2.0
"""Of less, the time left is not foreseen; most of what takes no longer needs no word on it."""
NOTHING = "zero"
"""The ablation under which a removed head gives 0, which is measured unless a mask says otherwise."""
SUPERSEDED_CODE = "worker.request_superseded"


class AccuracyQuestion(EvaluateRequest):
    """A request for an accuracy that a page makes in several languages.

    Attributes:
        language: Empty until it is asked in one, with `in_language`.
        fingerprint: Of the model's weights; it is not sent.
        noun: What is switched; it is not sent.
    """

    language: str = ""
    fingerprint: str = Field(exclude=True)
    noun: str = Field(default=HEADS, exclude=True)

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
        noun: str = HEADS,
        ablation: str | None = None,
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
            noun: What is switched, where that is not heads.
            ablation: What stands in the place of a removed head; None: as the mask was chosen.
        """
        return AccuracyQuestion.model_construct(
            model=model,
            fingerprint=fingerprint,
            noun=noun,
            task=task,
            split=split,
            mask=mask,
            session=session,
            label_map=None if label_map is None else dict(label_map),
            size=EXAMPLES_BY_SPLIT[split] if examples is None else examples,
            ablation=ablation_to_measure(mask) if ablation is None else ablation,
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
            self.ablation if mask else NOTHING,
            language,
        )


def ablation_to_measure(mask: Mask | None) -> str:
    """The ablation of a mask's figures unless a person says otherwise: the one it was chosen under.

    It is zero where none or several are recorded, and for the unpruned model.
    """
    chosen = None if mask is None else mask.ablation
    return chosen if chosen is not None and is_ablation(chosen) else NOTHING


def stand_in_caption(question: AccuracyQuestion) -> str:
    """What stands in the place of what is off, in a sentence, and whether the mask was so chosen.

    Empty where that is 0, and nothing says that the mask was chosen otherwise.
    """
    mask = question.mask
    if mask is None or not mask.removed:
        return ""
    chosen = mask.ablation or NOTHING
    if question.ablation == chosen == NOTHING:
        return ""
    sentence = f"What is off gives {replacement_of(question.ablation)}"
    if question.ablation == chosen:
        return f"{sentence}, as when the mask was chosen."
    if chosen == MIXED_ABLATION:
        return f"{sentence}; the mask combines some chosen under several ablations."
    return f"{sentence}; the mask was chosen under {ablation_title(chosen)} ablation."


KnownFigures = MutableMapping[tuple[str, ...], Figure]
"""Final figures of a session, by `AccuracyQuestion.key`."""


def stream_figures(
    client: Client,
    question: AccuracyQuestion,
    languages: Sequence[str],
    known_figures: KnownFigures,
    is_wanted: Callable[[], bool] = lambda: False,
    headline: str = MEAN_OF_LANGUAGES,
) -> Generator[dict[str, Figure]]:
    """Yield all figures so far as they are refined.

    The language of the headline is measured to its end first. Of the others, each one's first
    figure comes before any one's second.

    Args:
        client: Of the worker.
        question: What is asked.
        languages: In which languages.
        known_figures: Final figures of this session, read and added to; these are yielded at once.
        is_wanted: Whether the question is still asked, where another of the session took its
            place: an older one may have been on its way when this one was asked, and reach the
            worker later. The question is then asked once more.
        headline: The language to measure first; `MEAN_OF_LANGUAGES` for none.
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
            languages_in_turn = [headline] if headline in streams else list(streams)
            for language in languages_in_turn:
                figure = next(streams[language], None)
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


def headline_figure(
    figures_by_language: Mapping[str, Figure], languages: Sequence[str], headline: str
) -> Figure | None:
    """The figure of the headline; None while it is not known.

    Args:
        figures_by_language: Those that have arrived.
        languages: All that were asked for.
        headline: A language, or `MEAN_OF_LANGUAGES`, whose figure is known once every language
            has one.
    """
    if headline != MEAN_OF_LANGUAGES:
        return figures_by_language.get(headline)
    if len(figures_by_language) < len(languages):
        return None
    return mean_figure(figures_by_language)


def share_measured(
    figures_by_language: Mapping[str, Figure], languages: Sequence[str], headline: str
) -> float:
    """The share of the headline's examples that are measured, 0 to 1; arguments as above."""
    measured_languages = languages if headline == MEAN_OF_LANGUAGES else [headline]
    shares = []
    for language in measured_languages:
        figure = figures_by_language.get(language)
        shares.append(0.0 if figure is None or not figure.total else figure.n / figure.total)
    return min(1.0, float(np.mean(shares)))


def time_left_words(
    figures_at_start: Mapping[str, Figure],
    figures_by_language: Mapping[str, Figure],
    languages: Sequence[str],
    seconds: float,
) -> str:
    """How long the figures of all languages still take, at the pace so far: 'about 20 s left'.

    It is rounded up to 5 seconds, so that it does not change with every figure.

    Args:
        figures_at_start: Those that were known when the measuring began.
        figures_by_language: Those that have arrived.
        languages: All that were asked for.
        seconds: Since the measuring began.

    Returns:
        Empty before `PACED_SHARE` of the examples is measured in at least `PACED_SECONDS`, and
        once all are.
    """
    share_at_start = share_measured(figures_at_start, languages, MEAN_OF_LANGUAGES)
    share = share_measured(figures_by_language, languages, MEAN_OF_LANGUAGES)
    share_since = share - share_at_start
    is_paced = share_since >= PACED_SHARE and seconds >= PACED_SECONDS
    if not is_paced or share >= 1:
        return ""
    seconds_left = seconds * (1 - share) / share_since
    return f"about {duration_text(5 * math.ceil(seconds_left / 5))} left"


def figure_to_show(
    figures_by_language: Mapping[str, Figure], languages: Sequence[str], headline: str
) -> Figure | None:
    """The figure of the headline, once it rests on `SHOWN_SHARE` of its examples; else None."""
    if share_measured(figures_by_language, languages, headline) < SHOWN_SHARE:
        return None
    return headline_figure(figures_by_language, languages, headline)


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
    heads_off = f"All {question.noun} on"
    if question.mask and removed_count:
        heads_off = f"{question.mask.grid.count_words(removed_count)} off"
    if not figures_by_language:
        return f"{heads_off}: waiting for the first {question.split} examples …"
    unit = f"{question.split} {counted_unit(figures_by_language, question)}"
    if final_count == len(languages):
        sizes = sorted({figure.n for figure in figures_by_language.values()})
        counts = f"{sizes[0]:,}–{sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}"
        return f"{heads_off}: final, {counts} {unit} a language."
    if len(languages) == 1:
        figure = next(iter(figures_by_language.values()))
        return f"{heads_off}: {figure.n:,} of {figure.total:,} {unit} so far …"
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


def equal_texts_notes(figures_by_language: Mapping[str, Figure], split: str) -> list[str]:
    """What was counted of texts that are in dev and test, language by language."""
    return [
        f"{language_title(language)}: {note}."
        for language, figure in figures_by_language.items()
        for note in notes_of_record({"equal_texts": figure.equal_texts}, split)
    ]


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
