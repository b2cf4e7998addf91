"""Accuracy of a model that was just made, on dev, in every language."""

from __future__ import annotations

from collections.abc import Callable

from headlab.evaluator import Evaluator
from headlab.gates import Model
from headlab.records import Evaluation
from headlab.tasks.base import DEV_SIZE, Task

Tick = Callable[[str, int], None]


def on_dev(
    task: Task, size: int = DEV_SIZE, tick: Tick = lambda language, done: None
) -> Callable[[Model], dict[str, Evaluation]]:
    """A function from a model to its evaluations by language.

    tick: called between batches with the language and how many examples of it were begun; may raise to stop.
    Raises HeadlabError at once if a language has no dev examples, rather than after the training.
    """
    for language in task.languages:
        task.examples(language, "dev", size)

    def measure(model: Model) -> dict[str, Evaluation]:
        return {language: _one(model, task, language, size, tick) for language in task.languages}

    return measure


def _one(model: Model, task: Task, language: str, size: int, tick: Tick) -> Evaluation:
    evaluator = Evaluator(model, task, language, "dev", size, state_bytes=0)  # one pass: nothing to resume from
    evaluator.tick = lambda: tick(language, evaluator.forwards)
    tick(language, 0)
    return evaluator.evaluate()
