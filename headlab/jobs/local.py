"""Jobs in this process, as a command runs them: what they work with, and their progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cachetools import LRUCache

from headlab.core import HeadlabError
from headlab.jobs import (
    MAX_PACES,
    ForecastBasis,
    Job,
    JobPart,
    RunningJob,
    measured_by,
    report_part,
)
from headlab.methods import Forecast
from headlab.results import HeadScores, Store
from headlab.tasks import DATA_VARIABLE, TASKS_VARIABLE, Task, data_root, declaration_of
from headlab.tasks.resolve import DECLARATION_ENDING
from headlab.tasks.resolve import task as task_at

if TYPE_CHECKING:
    from headlab.core import Progress
    from headlab.hooks import Model
    from headlab.methods import Helpers
    from headlab.studies.front_so_far import FrontSoFar

AnyJob = TypeVar("AnyJob", bound=Job)


class LocalLab:
    """What a job of this process works with.

    Attributes:
        store: Where results are stored.
        paces: Seconds a forward pass, as timed for its forecast.
        helpers: Other devices that scores are computed on; None: here alone.
        languages_at_once: How many languages of a job are worked on at once; 1 while there are no
            helpers.
    """

    def __init__(
        self,
        store: Store,
        load: Callable[[str], Model],
        *,
        device: str | None = None,
        data: Path | None = None,
    ) -> None:
        """Nothing is loaded yet.

        Args:
            store: Where results are stored.
            load: Loads a model by its name.
            device: That models are on; None for a GPU where there is one.
            data: Folder of the tasks' files; None for $HEADLAB_DATA, or for a declaration's own
                folder.
        """
        self.store = store
        self.paces: MutableMapping[tuple[str | None, ...], float] = LRUCache(MAX_PACES)
        self.helpers: Helpers | None = None
        self.languages_at_once = 1
        self._load = load
        self._requested_device = device
        self._data = data
        self._models: dict[str, Model] = {}

    @cached_property
    def device(self) -> str:
        """The device that models are on."""
        from headlab.models import pick_device  # imports torch

        return str(pick_device(self._requested_device))

    def watched_store(self, running: RunningJob, language: str) -> Store:
        """The store; nobody looks at results while they are computed."""
        return self.store

    def need(self, model: str) -> Model:
        """A model, loaded as the only one."""
        if model not in self._models:
            self._models.clear()
            self.paces.clear()
            self._models[model] = self._load(model)
        return self._models[model]

    def task(self, name: str, label_map: Mapping[str, str] | None = None) -> Task:
        """A task by its name or its declaration's path, with the model's classes where stated."""
        return task_at(name, data=self._data, label_map=label_map)

    def base(self) -> Path:
        """Folder of the base model that fine-tuning starts from."""
        from headlab.training import embedded_base  # imports torch

        return embedded_base().folder


class LocalJob:
    """A job at work in this process; Ctrl-C stops it.

    Attributes:
        scores_so_far: Returns nothing: nobody looks at results while they are computed.
    """

    def __init__(
        self, show_progress: Callable[[str, int, int], None], print_line: Callable[[str], None]
    ) -> None:
        """Begin to show its progress.

        Args:
            show_progress: Shows a note, and how much of how much is done.
            print_line: Shows a line of its log.
        """
        self.scores_so_far: Callable[[], HeadScores | None] = lambda: None
        self._show_progress = show_progress
        self._print_line = print_line

    def tick(self) -> None:
        """Called between batches; nothing else waits in this process."""

    def progress(self, done: int, total: int, note: str, *, fresh: bool = False) -> None:
        """Show how far the job is.

        Args:
            done: In the job's own units.
            total: The same, of all its work.
            note: What it is at.
            fresh: Whether the pace so far says nothing about the rest.
        """
        self._show_progress(note, done, total)

    def part_progress(self, part: JobPart) -> Callable[[Progress], None]:
        """A callback that shows how far one part of the job is, as a share of the whole job."""
        return report_part(self, part)

    def note_stored(self) -> None:
        """Called when something new is stored."""

    def show_front(self, front: FrontSoFar) -> None:
        """Called with what is measured of a front; nobody looks at it while it is computed."""

    def log(self, line: str) -> None:
        """Show a line of the job's log."""
        self._print_line(line)

    def record_folder(self, folder: str, language: str) -> None:
        """Called when the job begins to write to a folder of the cache."""


def forecast_here(job: Job, lab: LocalLab) -> Forecast:
    """What a job will cost in this process; what is not known of its pace is measured now.

    Args:
        job: It is resolved.
        lab: What it works with.
    """
    if job.places:
        known = ForecastBasis.of_store(lab.store, lab.device, players=job.players_switched)
    else:  # the work of a command alone leaves no results in a store
        known = ForecastBasis((), (), lab.device.split(":")[0], lab.store.root)
    estimate = job.forecast(known)
    if estimate.measure_request is None:
        return estimate.forecast
    measured = measured_by(lab, estimate.measure_request, lambda: None)
    return job.forecast(replace(known, measured=measured)).forecast


@contextmanager
def task_files(job: AnyJob, data: Path | None) -> Iterator[AnyJob]:
    """A job whose task is found by its name alone while the block runs, as jobs ask for tasks.

    Args:
        job: Its task may be the path of a declaration.
        data: Folder of the task's files; None for $HEADLAB_DATA.

    Raises:
        HeadlabError: The declaration cannot be read, the folder is none, or both are given: a task
            that is asked for by its name is read beside its declaration.
    """
    variables: dict[str, str] = {}
    name = job.field_value("task")
    is_declaration = isinstance(name, str) and name.endswith(DECLARATION_ENDING)
    if data is not None:
        data_root(data)  # raises for what is no folder
        variables[DATA_VARIABLE] = str(data)
    if is_declaration and data is not None:
        raise HeadlabError(
            f"{name} says where its files are, so --data {data} would change nothing; leave "
            "--data out, or put the declaration beside its files",
            code="option.data_of_declaration",
        )
    if is_declaration:
        path = Path(name).absolute()
        declared_name = task_at(path).name
        job = job.model_copy(update={"task": declared_name})
        if declaration_of(declared_name) != path:
            declarations = os.environ.get(TASKS_VARIABLE, "")
            variables[TASKS_VARIABLE] = os.pathsep.join(filter(None, (str(path), declarations)))
    with _environment(variables):
        yield job


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the duration of a block."""
    previous_values = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous_values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
