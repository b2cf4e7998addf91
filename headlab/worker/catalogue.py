"""What can be asked for: models, tasks, sentences, jobs. Needs no device, so it never waits for one."""

from __future__ import annotations

import threading

from headlab.errors import HeadlabError
from headlab.methods.table import METHODS
from headlab.studies.table import EXPERIMENTS
from headlab.tasks import TASKS, names, source, task
from headlab.tasks.base import Example, Task
from headlab.worker.schemas import ExampleCard, ModelCard, SentencesRequest, TaskCard

# One thread at a time imports torch and its kin: two at once see each other's modules half made, and fail.

IMPORTING = threading.Lock()


def read_entry_points() -> None:
    """Read what installed packages add, once and before requests come: their modules may import torch."""
    with IMPORTING:
        for registry in (METHODS, EXPERIMENTS, TASKS):
            tuple(registry)


def models() -> list[ModelCard]:
    """The embedded models; hub ids and folders can be asked for as well."""
    with IMPORTING:  # the device's thread may be at it
        from headlab.models.embedded import EMBEDDED  # imports torch, which may take seconds

    return [
        ModelCard(name=m.name, summary=m.summary, embedded=True, fingerprint=_fingerprint(m.name))
        for m in EMBEDDED.values()
    ]


def _fingerprint(name: str) -> str | None:
    from headlab.models.embedded import fingerprint  # imports torch

    try:
        return fingerprint(name)
    except HeadlabError:
        return None


def tasks() -> list[TaskCard]:
    """Every task that can be asked for, with its labels and languages; never fails for one that cannot be read."""
    return [_task_card(name) for name in names()]


def _task_card(name: str) -> TaskCard:
    try:
        found = task(name)
    except HeadlabError as error:  # a user's own files, broken: told where it is chosen, and the others still are
        return TaskCard(name=name, labels=[], languages=[], aligned=False, advice=str(error))
    languages = list(found.languages)
    return TaskCard(
        name=name, labels=list(found.labels), languages=languages, aligned=found.aligned, advice=source(name).advice
    )


def sentences(request: SentencesRequest) -> list[ExampleCard]:
    """The first examples of a split. Raises HeadlabError for an unknown task, language or split."""
    chosen = task(request.task)
    found = chosen.examples(request.language, request.split, request.n)
    return [_example_card(chosen, example) for example in found]


def _example_card(chosen: Task, example: Example) -> ExampleCard:
    return ExampleCard(
        id=example.id,
        text=example.text,
        label=chosen.labels[example.label] if example.label >= 0 else None,
        pair=example.pair,
        words=list(example.words),
        labels=[chosen.labels[label] for label in example.labels],
    )
