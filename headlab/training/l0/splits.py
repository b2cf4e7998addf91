"""The split that gates are learned on; pages and jobs ask it too, and it needs no model."""

from __future__ import annotations

from headlab.tasks.base import Example, Split, Task


def learned_on(task: Task, language: str, split: str, size: int | None) -> tuple[Split, tuple[Example, ...]]:
    """The split and its examples, `size` of them or all; auto: train, and dev where a task has no train split.

    Raises HeadlabError for a language or split that the task does not have, and for examples that cannot be read.
    """
    if split == "auto":
        task.check(language, "train")
        rows = tuple(task.read(language, "train", task.seed))  # empty where there is none; torn files raise
        return ("train", rows[:size]) if rows else ("dev", task.examples(language, "dev", size))
    return split, task.examples(language, split, size)  # type: ignore[return-value, arg-type] # an option's choice
