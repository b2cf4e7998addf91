"""What a running job works with, and how it says how far it is: in a worker or in a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headlab.cluster.pool import run_side_by_side
from headlab.core import Report, content_key
from headlab.results import Curve, HeadScores, Store, StoredRun

if TYPE_CHECKING:
    from headlab.core import Progress
    from headlab.hooks import Model
    from headlab.methods import Helpers
    from headlab.studies.front_so_far import FrontSoFar
    from headlab.tasks import Task
    from headlab.training import StepMade

UNITS_A_PART = 1000
"""A job's progress is counted in thousandths of a language."""
Tick = Callable[[], None]
AnyResult = TypeVar("AnyResult", HeadScores, Curve, Report)
Made = TypeVar("Made")


@dataclass(frozen=True)
class JobPart:
    """A part of a job's work: a language, or one of the things that are done for it.

    Attributes:
        work: What is done, by its key, like "shapley" or "curve".
        language: Its code.
        label: The part in front of a note on it.
        index: Among all parts, from 0.
        count: Of all parts.
    """

    work: str
    language: str
    label: str
    index: int
    count: int


class RunningJob(Protocol):
    """A job at work, as whoever runs it sees it: progress, log, and the wish that it stop."""

    scores_so_far: Callable[[], HeadScores | None]
    """Returns the current language's scores so far; called from any thread."""

    def tick(self) -> None:
        """Called between batches. Raises to stop the job."""

    def progress(self, done: int, total: int, note: str, *, fresh: bool = False) -> None:
        """Say how far the job is.

        Args:
            done: In the job's own units.
            total: The same, of all its work.
            note: What it is at.
            fresh: Whether the pace so far says nothing about the rest.
        """

    def part_progress(self, part: JobPart) -> Callable[[Progress], None]:
        """A callback that is told how far one part of the job is; from the thread of that part."""
        ...

    def note_stored(self) -> None:
        """Note that something new is stored, from which a later attempt goes on."""

    def show_front(self, front: FrontSoFar) -> None:
        """Show what is measured of a front to those who look at the running job."""

    def log(self, line: str) -> None:
        """Add a line to the job's log, never with a user's sentence or a token."""

    def record_folder(self, folder: str, language: str) -> None:
        """Note that the job writes to a folder of the cache."""


class Lab(Protocol):
    """What a running job works with; called in the device's thread only."""

    @property
    def device(self) -> str:
        """The device that models are on."""
        ...

    @property
    def store(self) -> Store:
        """Where results are stored."""
        ...

    @property
    def paces(self) -> MutableMapping[tuple[str | None, ...], float]:
        """Seconds a forward pass of the model that was needed last, as timed for forecasts."""
        ...

    @property
    def helpers(self) -> Helpers | None:
        """Other devices that scores are computed on; None for this one alone."""
        ...

    @property
    def languages_at_once(self) -> int:
        """How many languages of a job are worked on at once, each in its own thread.

        With 1 they are worked on in turn, in this thread.
        """
        ...

    def watched_store(self, running: RunningJob, language: str) -> Store:
        """The same store, which notifies the running job of the run about to be computed."""
        ...

    def need(self, model: str) -> Model:
        """A model, loaded unless it is in memory; another may be freed for it."""
        ...

    def task(self, name: str, label_map: Mapping[str, str] | None = None) -> Task:
        """A task by its name, with the classes that stand for its labels where these are stated."""
        ...

    def base(self) -> Path:
        """Folder of the base model that fine-tuning starts from."""
        ...


class WatchedStore(Store):
    """A store that tells of each run that is asked for, and of each part of one that is stored."""

    def __init__(
        self,
        root: Path,
        *,
        demo: Path | None = None,
        on_begin: Callable[[StoredRun], None] = lambda run: None,
        on_stored: Callable[[StoredRun, bool], None] = lambda run, finished: None,
    ) -> None:
        """Open the store.

        Args:
            root: Its folder.
            demo: As of `Store`.
            on_begin: Called with each run asked for, about to be computed.
            on_stored: Called with a run of which a part has been stored, and whether that was all.
        """
        super().__init__(root, demo=demo)
        self._on_begin = on_begin
        self._on_stored = on_stored

    def run(self, spec: Mapping[str, Any]) -> StoredRun:
        """The run of a spec, finished or not."""
        run = super().run(spec)
        self._on_begin(run)
        return replace(run, on_stored=self._on_stored)


def result_for_each_language(
    lab: Lab,
    running: RunningJob,
    languages: Sequence[str],
    make: Callable[[int, str, Tick], Made],
    parts: int = 1,
) -> dict[str, Made]:
    """Make a result for each language: in turn, or as many at once as the lab has devices for.

    Args:
        lab: What the job works with.
        running: The job.
        languages: Their codes.
        make: Makes the result, given the place and the code of its language, and what to call
            between batches.
        parts: Of which the work on each language consists.

    Returns:
        The results by language.
    """
    total = len(languages) * parts * UNITS_A_PART
    places = {language: place for place, language in enumerate(languages)}

    def make_for(language: str, tick: Tick) -> Made:
        place = places[language]
        running.progress(place * parts * UNITS_A_PART, total, language, fresh=True)
        return make(place, language, tick)

    results = run_side_by_side(languages, make_for, lab.languages_at_once, running.tick)
    running.progress(total, total, f"{', '.join(languages)} done")
    return results


def keys_of(results: Mapping[str, AnyResult]) -> dict[str, list[str]]:
    """What a job says of its results by language: their keys in the store, under "keys"."""
    return {"keys": [content_key(result.spec) for result in results.values()]}


def report_part(running: RunningJob, part: JobPart) -> Callable[[Progress], None]:
    """A callback that reports the progress of one part as the job's.

    Args:
        running: The job.
        part: Of its work.
    """
    fresh = True  # the first call may come from a checkpoint

    def report(progress: Progress) -> None:
        nonlocal fresh
        share = progress.done / progress.total if progress.total else 0.0
        note = f"{part.label}: {progress.note or f'{progress.done} of {progress.total}'}"
        done = part.index * UNITS_A_PART + int(UNITS_A_PART * share)
        running.progress(done, part.count * UNITS_A_PART, note, fresh=fresh)
        fresh = False

    return report


class StepProgress:
    """Tells a job of its training's steps: where it continues from, and when one is on disk."""

    def __init__(self, running: RunningJob) -> None:
        self._running = running
        self._fresh = True
        self._stored_steps = 0

    def report_step(self, training_step: StepMade, done: int, total: int, note: str) -> None:
        """Called after each step; the first may continue from a checkpoint."""
        self._running.progress(done, total, note, fresh=self._fresh)
        if self._fresh:
            self._stored_steps = training_step.kept
            self._fresh = False
        if training_step.kept > self._stored_steps:
            self._stored_steps = training_step.kept
            self._running.note_stored()
