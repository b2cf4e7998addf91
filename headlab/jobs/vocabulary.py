"""The part of an export that cuts the vocabulary: to which languages, by which texts, at what price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from headlab.core import HeadlabError
from headlab.jobs.command import SUBJECT_FLAGS
from headlab.jobs.lab import Tick
from headlab.studies import CUT, VOCABULARY_CHOICES

if TYPE_CHECKING:
    from headlab.core import Evaluation
    from headlab.hooks import Model
    from headlab.masks import RecordedAccuracy
    from headlab.shrink import SmallerVocabulary
    from headlab.tasks import Task

SENTENCES = 1000
"""Texts of each language, at most, that models are compared on where the model has no task."""


class VocabularyOutcome(TypedDict, total=False):
    """What a smaller vocabulary is, in the outcome of an export; nothing where it was kept.

    Attributes:
        pieces_before: Rows of the embeddings before.
        pieces_after: Rows that stay.
        pieces_lost: By language, share of the pieces of held-out texts that are gone.
        texts_changed: By language, share of held-out texts that are split otherwise now.
        accuracy: By language, on the task's test, of the written model and of the untouched one;
            empty without a task of named answers.
    """

    pieces_before: int
    pieces_after: int
    pieces_lost: dict[str, float]
    texts_changed: dict[str, float]
    accuracy: dict[str, RecordedAccuracy]


def default_task(model: str) -> str | None:
    """The task of an export that cuts the vocabulary and names none.

    Args:
        model: Its name; the embedded classifier was trained on the embedded task.
    """
    is_embedded = model == SUBJECT_FLAGS["model"].default
    return str(SUBJECT_FLAGS["task"].default) if is_embedded else None


def restricted_to(task: Task, languages: Sequence[str]) -> Task | None:
    """The task in those of some languages that it has; None if it has none of them."""
    known_languages = [language for language in languages if language in task.languages]
    return task.with_languages(known_languages) if known_languages else None


def smaller_vocabulary(
    model: Model, task: Task, languages: Sequence[str], folder: Path | None, tick: Tick
) -> tuple[SmallerVocabulary, Task]:
    """A model's vocabulary cut to some languages, and texts to compare models on.

    Args:
        model: The original.
        task: Whose texts it is cut by; it need not have all languages.
        languages: Codes.
        folder: With more texts; None for none.
        tick: Called now and then; may raise to stop.

    Returns:
        The vocabulary, and a task without labels, of the texts that it covers.

    Raises:
        HeadlabError: As in `collect_texts` and `cut_by_texts`.
    """
    from headlab.shrink import (  # imports torch
        collect_texts,
        cut_by_texts,
        sentences_of,
    )

    texts = collect_texts(task, languages, folder)
    vocabulary = cut_by_texts(model, languages, texts, tick)
    return vocabulary, sentences_of(texts, SENTENCES)


def languages_with_test(task: Task) -> list[str]:
    """Those of a task's languages in which it has test examples."""
    from headlab.shrink import held_out_examples  # imports torch

    return [language for language in task.languages if held_out_examples(task, language, 1)]


def accuracy_by_language(
    untouched: Model, folder: Path, task: Task, size: int | None, tick: Tick
) -> dict[str, RecordedAccuracy]:
    """Accuracy on test of a written model, paired with that of the untouched one.

    Args:
        untouched: The original.
        folder: Of the written model.
        task: Of both.
        size: Test examples of each language, at most; None for all.
        tick: Called between batches.

    Returns:
        By language; empty for a task whose answers are tokens, as these are numbered otherwise.
    """
    import headlab
    from headlab.evaluation import recorded_accuracy  # imports torch

    figures: dict[str, RecordedAccuracy] = {}
    if not task.has_named_answers:  # the answers would be other tokens
        return figures
    device = str(untouched.device)
    written = headlab.load(str(folder), device=device, dtype=untouched.dtype)
    for language in languages_with_test(task):
        before = _accuracy(untouched, task, language, size, tick)
        written.orders.update(untouched.orders)  # which class is which label stays
        after = _accuracy(written, task, language, size, tick)
        figures[language] = recorded_accuracy(before, after)
    return figures


def _accuracy(model: Model, task: Task, language: str, size: int | None, tick: Tick) -> Evaluation:
    """Accuracy of a model on test in one language, as in `accuracy_by_language`."""
    from headlab.evaluation import Evaluator  # imports torch

    evaluator = Evaluator(model, task, language, "test", size)
    evaluator.tick = tick
    return evaluator.evaluate()


def outcome_of_vocabulary(
    vocabulary: SmallerVocabulary | None, accuracy: Mapping[str, RecordedAccuracy]
) -> VocabularyOutcome:
    """What a smaller vocabulary is; nothing where it was kept.

    Args:
        vocabulary: The vocabulary; None where it was kept.
        accuracy: Of the written model by language.
    """
    if vocabulary is None:
        return {}
    record = vocabulary.record()
    held_out = record["held_out"]
    return {
        "pieces_before": record["pieces_before"],
        "pieces_after": record["pieces_after"],
        "pieces_lost": {language: held_out[language]["pieces_lost"] for language in held_out},
        "texts_changed": {language: held_out[language]["texts_changed"] for language in held_out},
        "accuracy": dict(accuracy),
    }


def is_cut(vocabulary: str) -> bool:
    """Whether `--vocabulary` says that the vocabulary is cut.

    Args:
        vocabulary: What it says.

    Raises:
        HeadlabError: It is none of `VOCABULARY_CHOICES`.
    """
    if vocabulary not in VOCABULARY_CHOICES:
        raise HeadlabError(
            f"--vocabulary is {vocabulary!r:.40}; use {' or '.join(VOCABULARY_CHOICES)}",
            code="vocabulary.choice_unknown",
        )
    return vocabulary == CUT


def require_languages(languages: Sequence[str] | str) -> list[str]:
    """The languages that a vocabulary is to be cut to.

    Args:
        languages: Of the job; "all" names none.

    Raises:
        HeadlabError: None are named.
    """
    if isinstance(languages, str):
        raise HeadlabError(
            "--vocabulary cut needs the languages that stay, like --languages de,th",
            code="vocabulary.languages_missing",
        )
    return list(languages)
