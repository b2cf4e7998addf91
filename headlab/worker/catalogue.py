"""What can be requested, and what people bring: jobs, models, tasks, sentences. It never waits for a device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from fastapi import FastAPI
from pydantic import Field, create_model

from headlab.errors import HeadlabError
from headlab.methods.table import METHODS
from headlab.studies.table import EXPERIMENTS
from headlab.tasks import SAVED, TASKS, names, source, task
from headlab.tasks.own import Draft, Upload, save
from headlab.worker.kinds.kind import HOMES, Kind, kind_of
from headlab.worker.schemas import (
    CheckRequest,
    ExampleCard,
    Finding,
    ModelCard,
    SavedTask,
    SentencesRequest,
    Strict,
    TaskCard,
    TaskRequest,
)

# The kinds of jobs by key, and the requests for them, as types made from the kinds.

KINDS: Mapping[str, Kind[Any]] = MappingProxyType({key: kind_of(key) for key in HOMES})
# By kind: the function that checks and fills in a job's params.
CHECKS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = MappingProxyType(
    {key: kind.check for key, kind in KINDS.items()}
)


def _request(kind: Kind[Any]) -> type[Strict]:
    """The type of a request for a job of a kind: its key, its spec, and where it runs."""
    fields: dict[str, Any] = {
        "kind": (Literal[kind.key], ...),
        "spec": (kind.spec, ...),
        "place": (kind.places, "here"),
    }
    return create_model(f"{kind.key.capitalize()}Job", __base__=Strict, __doc__=kind.says, **fields)


if TYPE_CHECKING:
    Submission = Any
else:
    Submission = Annotated[Union[tuple(map(_request, KINDS.values()))], Field(discriminator="kind")]  # noqa: UP007


# The models, the tasks and their sentences.
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


def _draft(request: TaskRequest) -> Draft:
    """A task to be made, as it was sent."""
    return Draft(
        request.name,
        request.format,
        request.columns,
        tuple(Upload(file.name, file.data, file.language, file.split) for file in request.sent),
        request.splits,
        request.aligned,
        request.share,
        request.division,
    )


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
        name=name,
        labels=list(found.labels),
        languages=languages,
        aligned=found.aligned,
        advice=source(name).advice,
    )


def sentences(request: SentencesRequest) -> list[ExampleCard]:
    """The first examples of a split. Raises HeadlabError for an unknown task, language or split."""
    chosen = task(request.task)
    return [
        ExampleCard(
            id=example.id,
            text=example.whole if chosen.likelihood else example.text,
            label=chosen.names_of(example)[example.label] if example.label >= 0 else None,
            pair=example.pair,
            words=list(example.words),
            labels=[chosen.labels[label] for label in example.labels],
        )
        for example in chosen.examples(request.language, request.split, request.n)
    ]


# Their routes.


def add_catalogue(app: FastAPI, cache: Path, admit: Callable[[str], str]) -> None:
    """Add the routes of all this.  cache: where tasks are saved.  admit: refuses models that may not be requested."""

    @app.get("/models")
    def list_models() -> list[ModelCard]:
        return models()

    @app.get("/tasks")
    def list_tasks() -> list[TaskCard]:
        return tasks()

    @app.post("/sentences")
    def read_sentences(request: SentencesRequest) -> list[ExampleCard]:
        return sentences(request)

    @app.post("/check")
    def check_model(request: CheckRequest) -> list[Finding]:
        """Whether a model can be used, as far as its files tell; its weights are neither fetched nor read."""
        admit(request.model)
        with IMPORTING:
            from headlab.models.load import examine  # imports torch

        known = None if request.task is None else task(request.task).mapped(request.label_map)
        return [
            Finding(what=fact.what, ok=fact.ok, words=fact.words, classes=list(fact.classes))
            for fact in examine(request.model, known)
        ]

    @app.post("/tasks")
    def make_task(request: TaskRequest) -> SavedTask:
        """Make a task from files: every row is checked, and it is saved with its declaration below the cache folder.

        No other task is written over, and the names of the files are the declaration's, not the sender's.
        """
        draft = _draft(request)
        found = save(draft, cache)
        sizes: dict[str, dict[str, int]] = {}
        for (language, split), many in found.sizes.items():
            sizes.setdefault(language, {})[split] = many
        return SavedTask(
            name=draft.name, path=f"{SAVED}/{draft.name}/{draft.name}.toml", declaration=found.declaration,
            labels=list(found.labels), sizes=sizes,
        )  # fmt: skip
