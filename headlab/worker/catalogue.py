"""What can be requested: models, tasks and sentences. Needs no device, so it never waits for one."""

from __future__ import annotations

import threading

from headlab.errors import HeadlabError
from headlab.methods.table import METHODS
from headlab.studies.table import EXPERIMENTS
from headlab.tasks import TASKS, names, source, task
from headlab.tasks.base import Example, Task
from headlab.worker.schemas import ExampleCard, ModelCard, SentencesRequest, TaskCard

# One thread at a time imports torch and the like: two would see each other's modules half initialised, and fail.

IMPORTING = threading.Lock()


def read_entry_points() -> None:
    """Read the entry points of installed packages once, before requests arrive: their modules may import torch."""
    with IMPORTING:
        for registry in (METHODS, EXPERIMENTS, TASKS):
            tuple(registry)


def models() -> list[ModelCard]:
    """The embedded models; hub ids and folders can be requested as well."""
    with IMPORTING:  # the device's thread may be importing it
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
    """Every task, with its labels and languages; one that cannot be read raises nothing."""
    return [_task_card(name) for name in names()]


def _task_card(name: str) -> TaskCard:
    try:
        found = task(name)
    except HeadlabError as error:  # a user's own files are broken: advice says so, and the other tasks are still listed
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
