"""One job after another: claimed from the list, run, stopped on request, and its end recorded whatever happens."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from headlab.core import HeadlabError, Progress, unwritable
from headlab.jobs import JobPart, Measured, MeasureRequest, kept_outcome, reporter
from headlab.jobs.table import JOBS
from headlab.results import CHECKPOINTS, HeadScores
from headlab.worker.jobs import Jobs
from headlab.worker.schemas import (
    AttentionRequest,
    Changed,
    EvaluateRequest,
    Figure,
    GradientRequest,
    JobRow,
    LoadedModel,
    Scores,
    Weights,
    log_failure,
    sentence_of,
)

# A running job: how its handler reports progress, lets live requests in, and is stopped.

log = logging.getLogger(__name__)
BETWEEN_SECONDS = 0.2  # between two reads of, or writes to, the job list


class Cancelled(Exception):
    """Raised inside a running job when it is to end at someone's request; not an error."""


class Stopping(Cancelled):
    """The worker is shutting down: the job goes back into the queue."""


class Running:
    """What a running job's handler sees: it reports through `progress` and calls `tick` between batches.

    model: the one the job holds in memory; set by the handler.  look: returns the current language's scores
    so far, or None; set by the handler, called from any thread, so it must not wait for the device.
    """

    def __init__(
        self,
        jobs: Jobs,
        job: JobRow,
        breathe: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job, self._jobs, self._breathe, self._clock = job, jobs, breathe, clock
        self.model: str | None = None
        self.look: Callable[[], HeadScores | None] = lambda: None
        self._looked = -1.0
        self._written = -1.0
        self._first: tuple[float, int] | None = None
        self._trouble = ""
        self._attempts = job.attempts

    def tick(self) -> None:
        """Serve live requests. Raises Cancelled if the job is to be cancelled."""
        self._breathe()
        now = self._clock()
        if now - self._looked >= BETWEEN_SECONDS:
            self._looked = now
            if self._try(lambda: self._jobs.cancelling(self.job.id)):
                raise Cancelled

    def progress(self, done: int, total: int, note: str, *, fresh: bool = False) -> None:
        """Report the job's progress.  fresh: the pace so far says nothing about the rest."""
        now = self._clock()
        if fresh or self._first is None or done < self._first[1]:
            self._first = (now, done)
        began, at = self._first
        left = (total - done) * (now - began) / (done - at) if done > at else None
        if now - self._written >= BETWEEN_SECONDS or fresh or done >= total:
            self._written = now
            self._try(lambda: self._jobs.progress(self.job.id, done, total, note, left))
        self.tick()

    def part_progress(self, part: JobPart) -> Callable[[Progress], None]:
        """A callback that reports how far one part of the job is, as a share of the whole job."""
        return reporter(self, part)

    def kept(self) -> None:
        """Note that something new is stored: the next attempt starts further on, so earlier ones no longer count."""
        if self._attempts > 1:
            self._attempts = 1
            self._try(lambda: self._jobs.gets_on(self.job.id))

    def log(self, line: str) -> None:
        """Add a line to the job's log, never with a user's sentence or a token."""
        self._try(lambda: self._jobs.tell(self.job.id, line))

    def began(self, folder: str, language: str) -> None:
        """Note that the job writes to a cache folder; what is unfinished there is deleted with the job."""
        self._try(lambda: self._jobs.began(self.job.id, folder, language))

    def _try(self, ask: Callable[[], bool | None]) -> bool:
        """Access the job list; a job goes on if that fails, as its results are stored elsewhere."""
        try:
            return bool(ask())
        except HeadlabError as error:
            if str(error) != self._trouble:  # once, not at every batch
                log_failure(log, f"job {self.job.id}: the job list", error)
            self._trouble = str(error)
            return False


# The work itself, as the engine sees it.


class Bench(Protocol):
    """The work itself. Created and called in the engine's thread only; `tick` is called between batches."""

    tick: Callable[[], None]

    @property
    def device(self) -> str:
        """The device that the model is on."""

    @property
    def resident(self) -> str | None:
        """Name of the model in memory."""

    def fetch(self, model: str) -> Future[None]:
        """Fetch a model's files to this machine; may be called from any thread."""

    def load(self, model: str) -> LoadedModel:
        """Load a model as the resident one, freeing the previous one."""

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        """Accuracy of a mask, figure by figure."""

    def changes(self, request: EvaluateRequest) -> Changed:
        """The answers that a mask changes."""

    def attention(self, request: AttentionRequest) -> Weights:
        """Attention of some heads for one sentence."""

    def gradient(self, request: GradientRequest) -> Scores:
        """Gradient importance of every head in one language, stored."""

    def measure(self, request: MeasureRequest) -> Measured:
        """Number of heads of a model, and how long a forward pass takes now."""

    def run(self, running: Running) -> Mapping[str, Any]:
        """Run a job; results go to the store, the returned mapping to the job list."""


# What an unfinished job leaves in the cache, and which other job could continue from it.

RUN = re.compile(r"[0-9a-f]{64}")
ADAPTER = re.compile(r"adapters/[0-9a-f]{24}")
LIVE = ("queued", "running")
# Params that may differ between jobs that share a run: a curve needs the scores that a score job computes.
OWN = ("languages", "split", "size", "points", "weights")
TRAINED = "model"  # in a run's folder: the model trained along with gates


def needed_by(other: JobRow, job: JobRow, language: str) -> bool:
    """Whether a waiting or running job may need a run that another job began; True in doubt."""
    # One that is put together may need any piece of its model and task.
    if other.state in LIVE and (_is_assembled(other) or _is_assembled(job)):
        return all(other.params.get(name) == job.params.get(name) for name in ("model", "task"))
    theirs, ours = ({k: v for k, v in one.params.items() if k not in OWN} for one in (other, job))
    return (
        other.state in LIVE
        and theirs == ours
        and language in other.params.get("languages", [language])
    )


def _is_assembled(job: JobRow) -> bool:
    """Whether a job is put together from pieces that other jobs may need too."""
    return job.kind in JOBS and JOBS[job.kind].assembled


def clear(root: Path, folder: str) -> None:
    """Delete the checkpoint of an unfinished run; a finished result stays. Raises HeadlabError if that fails.

    folder: relative to the cache, as in the job list; any other name is left alone.
    """
    try:
        if RUN.fullmatch(folder):
            _clear_run(root / folder)
        elif ADAPTER.fullmatch(folder):
            name = Path(folder).name
            for path in (root / folder).parent.glob(f".{name}-*.checkpoint.safetensors"):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(root / folder, error) from error


def _clear_run(folder: Path) -> None:
    for name in CHECKPOINTS:
        (folder / name).unlink(missing_ok=True)
    if (folder / "result.npz").exists():
        return
    for left in (
        folder / TRAINED,
        *folder.glob(f".{TRAINED}.*"),
    ):  # the latter: left by a killed write
        if left.is_dir():
            shutil.rmtree(left)
    for name in ("spec.json", "log.txt"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # gone already, or it holds something that is not ours to delete
        folder.rmdir()


# One job after another: claimed from the list, run, and its end recorded whatever happens.


class End(NamedTuple):
    """How a job ended; state "queued": it was put back."""

    state: str
    error: str | None = None
    result: Mapping[str, Any] | None = None


class Runner:
    """Runs jobs in the device's thread; any other thread may ask about them.

    breathe: called between the batches of a job; may raise Stopping.
    """

    def __init__(self, jobs: Jobs, breathe: Callable[[], None]) -> None:
        self._jobs, self._breathe = jobs, breathe
        self._taking = (
            threading.Lock()
        )  # no job begins while the leftovers of another are cleared away
        self._running: Running | None = None
        self._unwritten: tuple[int, End] | None = None
        self.trouble: HeadlabError | None = None  # why the job list cannot be written

    @property
    def model(self) -> str | None:
        """The model that the running job holds in memory, if any."""
        running = self._running
        return None if running is None else running.model

    def look(self, job: int) -> HeadScores | None:
        """The scores so far of a running job; None if it is not running or has none."""
        running = self._running
        return running.look() if running is not None and running.job.id == job else None

    def delete(self, job: int, root: Path) -> None:
        """Delete a job, with the checkpoints that no other job could continue from.

        root: the cache. Raises Refusal (404, 409).
        """
        with self._taking:
            deleted, folders = self._jobs.get(job), self._jobs.runs(job)
            others = [other for other in self._jobs.unfinished() if other.id != job]
            theirs = {folder for other in others for folder in self._jobs.runs(other.id)}
            free = [
                folder
                for folder, language in folders.items()
                if folder not in theirs
                and not any(needed_by(other, deleted, language) for other in others)
            ]
            self._jobs.delete(job)
            for folder in free:
                clear(root, folder)

    def run_next(self, bench: Bench) -> bool:
        """Run one waiting job to its end. Returns False if there is none, or the list cannot be written."""
        try:
            if self._unwritten is not None:
                self._write(*self._unwritten)
            with self._taking:
                job = self._jobs.claim()
                if job is not None:
                    self._running = Running(self._jobs, job, self._breathe)
        except HeadlabError as error:
            self._tell(error)
            return False
        self.trouble = None
        running = self._running
        if job is None or running is None:
            return False
        try:
            self._write(job.id, self._outcome(bench, running))
        except (
            HeadlabError
        ) as error:  # tried again before the next job, or at the next start of the worker
            self._tell(error)
        finally:
            self._running = None
        return True

    def _outcome(self, bench: Bench, running: Running) -> End:
        log.info("job %d started, attempt %d", running.job.id, running.job.attempts)
        try:
            outcome = Context().run(bench.run, running)
            return End("done", result=kept_outcome(running.job.kind, outcome))
        except Stopping:
            return End("queued")
        except Cancelled:
            return End("cancelled")
        except Exception as error:  # a failed job is an answer too; the worker goes on
            log_failure(log, f"job {running.job.id}", error)
            return End("failed", sentence_of(error))

    def _write(self, job: int, end: End) -> None:
        self._unwritten = (job, end)
        if end.state == "queued":
            self._jobs.put_back(job)
        else:
            self._jobs.end(job, end.state, end.error, end.result)
        self._unwritten = None
        log.info("job %d %s", job, "put back" if end.state == "queued" else end.state)

    def _tell(self, error: HeadlabError) -> None:
        if str(error) != str(self.trouble):  # once, not every second
            log_failure(log, "the job list", error)
        self.trouble = error
