"""What can be asked for: models, tasks, sentences, jobs. Needs no device, so it never waits for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from headlab.errors import HeadlabError
from headlab.tasks import TASKS, task
from headlab.worker.imports import IMPORTING
from headlab.worker.kinds.table import KINDS
from headlab.worker.schemas import ExampleCard, ModelCard, SentencesRequest, TaskCard


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
    """Every task, with its labels and languages."""
    every = [task(name) for name in TASKS]
    return [TaskCard(name=t.name, labels=list(t.labels), languages=list(t.languages), aligned=t.aligned) for t in every]


def sentences(request: SentencesRequest) -> list[ExampleCard]:
    """The first examples of a split. Raises HeadlabError for an unknown task, language or split."""
    chosen = task(request.task)
    found = chosen.examples(request.language, request.split, request.n)
    return [ExampleCard(id=e.id, text=e.text, label=chosen.labels[e.label], pair=e.pair) for e in found]


CHECKS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = MappingProxyType(
    {key: kind.check for key, kind in KINDS.items()}
)
