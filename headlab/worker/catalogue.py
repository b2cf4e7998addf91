"""What can be requested, and what people bring: jobs, models, tasks, sentences.

It never waits for a device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from fastapi import FastAPI
from pydantic import Field, create_model

from headlab.core import HeadlabError
from headlab.jobs import Job, JobPlace, Strict
from headlab.jobs.table import JOBS, queued_kinds
from headlab.methods import METHODS
from headlab.studies import STUDIES
from headlab.tasks import SAVED_FOLDER, TASKS, Draft, Upload, save_task, source_of, task, task_names
from headlab.worker.schemas import (
    CheckRequest,
    ExampleCard,
    Finding,
    ModelCard,
    SavedTask,
    SentencesRequest,
    TaskCard,
    TaskRequest,
)

# Requests for jobs, as types made from the kinds of jobs.


class Submission(Strict):
    """A request for a job: the key of its kind, its fields, and where it runs."""

    kind: str
    spec: Job
    place: JobPlace = "here"


def submission_type() -> Any:
    """The union of the requests for every kind of job that a worker takes, told apart by `kind`.

    Packages may have added some.
    """
    requests = tuple(_request_type(job_class) for job_class in queued_kinds().values())
    return Annotated[Union[requests], Field(discriminator="kind")]  # noqa: UP007 - of a tuple


def _request_type(job_class: type[Job]) -> type[Submission]:
    fields: dict[str, Any] = {
        "kind": (Literal[job_class.key], ...),
        "spec": (job_class, ...),
        "place": (Literal[job_class.places], "here"),
    }
    name = "".join(word.capitalize() for word in job_class.key.split("-"))
    return create_model(
        f"{name}Submission", __base__=Submission, __doc__=job_class.summary, **fields
    )


# The models, the tasks and their sentences.
# One thread at a time imports torch and the like: two would see each other's modules half
# initialised, and fail.

IMPORTING = threading.Lock()


def read_entry_points() -> None:
    """Read the entry points of installed packages once, before requests arrive.

    Their modules may import torch.
    """
    with IMPORTING:
        for registry in (METHODS, STUDIES, TASKS, JOBS):
            tuple(registry)


def models() -> list[ModelCard]:
    """The embedded models; hub ids and folders can be requested as well."""
    with IMPORTING:  # the device's thread may be importing it
        from headlab.models import EMBEDDED  # imports torch, which may take seconds

    return [
        ModelCard(
            name=embedded.name,
            summary=embedded.summary,
            embedded=True,
            fingerprint=_fingerprint(embedded.name),
        )
        for embedded in EMBEDDED.values()
    ]


def _fingerprint(name: str) -> str | None:
    from headlab.models import fingerprint  # imports torch

    try:
        return fingerprint(name)
    except HeadlabError:
        return None


def _draft_of(request: TaskRequest) -> Draft:
    """The draft in a request."""
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
    return [_task_card(name) for name in task_names()]


def _task_card(name: str) -> TaskCard:
    try:
        loaded_task = task(name)
    except HeadlabError as error:
        # A user's own files are broken: advice says so, and the other tasks are still listed.
        return TaskCard(name=name, labels=[], languages=[], aligned=False, advice=str(error))
    languages = list(loaded_task.languages)
    return TaskCard(
        name=name,
        labels=list(loaded_task.labels),
        languages=languages,
        aligned=loaded_task.aligned,
        advice=source_of(name).advice,
    )


def sentences(request: SentencesRequest) -> list[ExampleCard]:
    """The first examples of a split. Raises HeadlabError for an unknown task, language or split."""
    chosen_task = task(request.task)
    cards = []
    for example in chosen_task.examples(request.language, request.split, request.n):
        label = None
        if example.label >= 0:
            label = chosen_task.names_of(example)[example.label]
        card = ExampleCard(
            id=example.id,
            text=example.full_text if chosen_task.likelihood else example.text,
            label=label,
            pair=example.pair,
            words=list(example.words),
            labels=[chosen_task.labels[label_index] for label_index in example.labels],
        )
        cards.append(card)
    return cards


# Their routes.


def add_catalogue(app: FastAPI, cache: Path, admit: Callable[[str], str]) -> None:
    """Add the routes of models, tasks and sentences.

    Args:
        app: The worker's application.
        cache: Where tasks are saved.
        admit: Refuses models that may not be requested.
    """

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
        """Whether a model can be used, as far as its files tell.

        Its weights are neither fetched nor read.
        """
        admit(request.model)
        with IMPORTING:
            from headlab.models import examine_model  # imports torch

        chosen_task = (
            None if request.task is None else task(request.task).with_label_map(request.label_map)
        )
        return [
            Finding(what=fact.what, ok=fact.ok, words=fact.words, classes=list(fact.classes))
            for fact in examine_model(request.model, chosen_task)
        ]

    @app.post("/tasks")
    def make_task(request: TaskRequest) -> SavedTask:
        """Make a task from files.

        Every row is checked, and it is saved with its declaration below the cache folder.

        No other task is written over, and the names of the files are the declaration's, not the
        sender's.
        """
        draft = _draft_of(request)
        checked_draft = save_task(draft, cache)
        sizes: dict[str, dict[str, int]] = {}
        for (language, split), count in checked_draft.sizes.items():
            sizes.setdefault(language, {})[split] = count
        return SavedTask(
            name=draft.name,
            path=f"{SAVED_FOLDER}/{draft.name}/{draft.name}.toml",
            declaration=checked_draft.declaration,
            labels=list(checked_draft.labels),
            sizes=sizes,
        )
