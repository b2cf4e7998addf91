"""One job after another: claimed from the list, run, stopped on request, its end recorded."""

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

from headlab.core import HeadlabError, Progress, unwritable_error
from headlab.jobs import (
    JobPart,
    Measured,
    MeasureRequest,
    Refusal,
    checked_outcome,
    report_part,
)
from headlab.jobs.table import JOBS
from headlab.results import CHECKPOINT_NAMES, HeadScores
from headlab.studies.front_so_far import FrontSoFar
from headlab.worker.jobs import JobList
from headlab.worker.schemas import (
    AttentionRequest,
    Changed,
    EvaluateRequest,
    Figure,
    GradientRequest,
    JobRow,
    LoadedModel,
    LoadedPlayers,
    PlayersRequest,
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


class WorkerJob:
    """What a running job sees: it reports through `progress` and calls `tick` between batches.

    Attributes:
        job: Its row in the job list.
        model: The one that the job holds in memory; set by the job.
        scores_so_far: Returns the current language's scores so far, or None; set by the job, called
            from any thread, so it must not wait for the device.
        front_so_far: What is measured of a front, or None; read from any thread.
    """

    def __init__(
        self,
        jobs: JobList,
        job: JobRow,
        between_batches: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self._jobs = jobs
        self._between_batches = between_batches
        self._clock = clock
        self.model: str | None = None
        self.scores_so_far: Callable[[], HeadScores | None] = lambda: None
        self.front_so_far: FrontSoFar | None = None
        self._last_check = -1.0
        self._last_write = -1.0
        self._pace_start: tuple[float, int] | None = None
        self._trouble = ""
        self._attempts = job.attempts

    def tick(self) -> None:
        """Serve live requests. Raises Cancelled if the job is to be cancelled."""
        self._between_batches()
        now = self._clock()
        if now - self._last_check >= BETWEEN_SECONDS:
            self._last_check = now
            if self._try(lambda: self._jobs.is_cancel_requested(self.job.id)):
                raise Cancelled

    def progress(self, done: int, total: int, note: str, *, fresh: bool = False) -> None:
        """Report the job's progress.

        Args:
            done: In the job's own units.
            total: The same, of all its work.
            note: What it is at.
            fresh: Whether the pace so far says nothing about the rest.
        """
        now = self._clock()
        if fresh or self._pace_start is None or done < self._pace_start[1]:
            self._pace_start = (now, done)
        started, first_done = self._pace_start
        seconds_left = None
        if done > first_done:
            seconds_left = (total - done) * (now - started) / (done - first_done)
        if now - self._last_write >= BETWEEN_SECONDS or fresh or done >= total:
            self._last_write = now
            self._try(lambda: self._jobs.progress(self.job.id, done, total, note, seconds_left))
        self.tick()

    def part_progress(self, part: JobPart) -> Callable[[Progress], None]:
        """A callback that reports how far one part of the job is, as a share of the whole job."""
        return report_part(self, part)

    def note_stored(self) -> None:
        """Note that something new is stored.

        The next attempt starts further on, so earlier ones no longer count.
        """
        if self._attempts > 1:
            self._attempts = 1
            self._try(lambda: self._jobs.reset_attempts(self.job.id))

    def show_front(self, front: FrontSoFar) -> None:
        """Let those who look at the job see what is measured of a front."""
        self.front_so_far = front

    def log(self, line: str) -> None:
        """Add a line to the job's log, never with a user's sentence or a token."""
        self._try(lambda: self._jobs.add_log_line(self.job.id, line))

    def record_folder(self, folder: str, language: str) -> None:
        """Note that the job writes to a cache folder.

        What is unfinished there is deleted with the job.
        """
        self._try(lambda: self._jobs.record_folder(self.job.id, folder, language))

    def _try(self, access: Callable[[], bool | None]) -> bool:
        """Access the job list; a job goes on if that fails, as its results are stored elsewhere."""
        try:
            return bool(access())
        except HeadlabError as error:
            if str(error) != self._trouble:  # once, not at every batch
                log_failure(log, f"job {self.job.id}: the job list", error)
            self._trouble = str(error)
            return False


# The work itself, as the engine sees it.


def other_model_in_use(busy: str, asked: str) -> Refusal:
    """Why a model cannot be used while a job computes with another.

    Args:
        busy: The job's model.
        asked: The model that was asked for.
    """
    return Refusal(
        f"the worker is computing with {busy}; wait for that job or cancel it, then ask for {asked}",
        409,
        code="worker.other_model_in_use",
    )


class Bench(Protocol):
    """The work itself.

    Created and called in the engine's thread only; `tick` is called between batches.
    """

    tick: Callable[[], None]

    @property
    def device(self) -> str:
        """The device that the model is on."""

    @property
    def residents(self) -> tuple[str, ...]:
        """Names of the models in memory, the one used last at the end; from any thread."""

    def may_join(self, model: str) -> bool:
        """Whether a model can be used without freeing the running job's one."""

    def fetch(self, model: str) -> Future[None]:
        """Fetch a model's files to this machine; may be called from any thread."""

    def load(self, model: str) -> LoadedModel:
        """Load a model unless it is in memory, and describe it."""

    def players(self, request: PlayersRequest) -> LoadedPlayers:
        """What a model's players cost, and where they are."""

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

    def run(self, running: WorkerJob) -> Mapping[str, Any]:
        """Run a job; results go to the store, the returned mapping to the job list."""


# What an unfinished job leaves in the cache, and which other job could continue from it.

RUN_FOLDER = re.compile(r"[0-9a-f]{64}")
ADAPTER_FOLDER = re.compile(r"adapters/[0-9a-f]{24}")
UNFINISHED_STATES = ("queued", "running")
# Params that may differ between jobs that share a run: a curve needs what a score job computes.
PARAMS_OF_ONE_JOB = ("languages", "split", "size", "points", "weights")
TRAINED_MODEL = "model"  # in a run's folder: the model trained along with gates


def may_need_run(other_job: JobRow, job: JobRow, language: str) -> bool:
    """Whether a waiting or running job may need a run that another job began; True in doubt."""
    if other_job.state not in UNFINISHED_STATES:
        return False
    # One that is put together may need any piece of its model and task.
    if _is_assembled(other_job) or _is_assembled(job):
        return all(other_job.params.get(name) == job.params.get(name) for name in ("model", "task"))
    has_same_params = _shared_params(other_job) == _shared_params(job)
    return has_same_params and language in other_job.params.get("languages", [language])


def _shared_params(job: JobRow) -> dict[str, Any]:
    """The params that jobs which share a run have in common."""
    return {name: value for name, value in job.params.items() if name not in PARAMS_OF_ONE_JOB}


def _is_assembled(job: JobRow) -> bool:
    """Whether a job is put together from pieces that other jobs may need too."""
    return job.kind in JOBS and JOBS[job.kind].assembled


def clear_checkpoint(root: Path, folder: str) -> None:
    """Delete the checkpoint of an unfinished run; a finished result stays.

    Args:
        root: The cache.
        folder: Relative to the cache, as in the job list; any other name is left alone.

    Raises:
        HeadlabError: If that fails.
    """
    try:
        if RUN_FOLDER.fullmatch(folder):
            _clear_run(root / folder)
        elif ADAPTER_FOLDER.fullmatch(folder):
            name = Path(folder).name
            for path in (root / folder).parent.glob(f".{name}-*.checkpoint.safetensors"):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable_error(root / folder, error) from error


def _clear_run(folder: Path) -> None:
    for name in CHECKPOINT_NAMES:
        (folder / name).unlink(missing_ok=True)
    if (folder / "result.npz").exists():
        return
    left_by_killed_writes = folder.glob(f".{TRAINED_MODEL}.*")
    for leftover in (folder / TRAINED_MODEL, *left_by_killed_writes):
        if leftover.is_dir():
            shutil.rmtree(leftover)
    for name in ("spec.json", "log.txt"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # gone already, or it holds something that is not ours to delete
        folder.rmdir()


# One job after another: claimed from the list, run, and its end recorded whatever happens.


class JobEnd(NamedTuple):
    """How a job ended.

    Attributes:
        state: "done", "failed" or "cancelled"; "queued" if it was put back.
        error: Why it failed; None if it did not.
        result: What it says of itself, ready for JSON; None without a result.
    """

    state: str
    error: str | None = None
    result: Mapping[str, Any] | None = None


class Runner:
    """Runs jobs in the device's thread; any other thread may ask about them.

    Attributes:
        trouble: Why the job list cannot be written; None if it can.
    """

    def __init__(self, jobs: JobList, between_batches: Callable[[], None]) -> None:
        """Nothing runs yet.

        Args:
            jobs: The job list.
            between_batches: Called between the batches of a job; may raise Stopping.
        """
        self._jobs = jobs
        self._between_batches = between_batches
        # No job begins while the leftovers of another are cleared away.
        self._claim_lock = threading.Lock()
        self._running: WorkerJob | None = None
        self._unrecorded_end: tuple[int, JobEnd] | None = None
        self.trouble: HeadlabError | None = None

    @property
    def model(self) -> str | None:
        """The model that the running job holds in memory, if any."""
        running = self._running
        if running is None:
            return None
        return running.model

    def scores_so_far(self, job: int) -> HeadScores | None:
        """The scores so far of a running job; None if it is not running or has none."""
        running = self._running
        if running is None or running.job.id != job:
            return None
        return running.scores_so_far()

    def front_so_far(self, job: int) -> FrontSoFar | None:
        """What a running job has measured of a front; None if it is not running or has none."""
        running = self._running
        if running is None or running.job.id != job:
            return None
        return running.front_so_far

    def delete(self, job: int, root: Path) -> None:
        """Delete a job, with the checkpoints that no other job could continue from.

        Args:
            job: Its id.
            root: The cache.

        Raises:
            Refusal: There is no such job (404), or it is running (409).
        """
        with self._claim_lock:
            row = self._jobs.get(job)
            other_jobs = [
                other_job for other_job in self._jobs.unfinished_jobs() if other_job.id != job
            ]
            folders_of_others: set[str] = set()
            for other_job in other_jobs:
                folders_of_others |= set(self._jobs.run_folders(other_job.id))
            unneeded_folders = []
            for folder, language in self._jobs.run_folders(job).items():
                is_needed = any(may_need_run(other_job, row, language) for other_job in other_jobs)
                if folder not in folders_of_others and not is_needed:
                    unneeded_folders.append(folder)
            self._jobs.delete(job)
            for folder in unneeded_folders:
                clear_checkpoint(root, folder)

    def run_next(self, bench: Bench) -> bool:
        """Run one waiting job to its end.

        Args:
            bench: Does the work.

        Returns:
            False if there is no waiting job, or the list cannot be written.
        """
        try:
            if self._unrecorded_end is not None:
                self._record_end(*self._unrecorded_end)
            with self._claim_lock:
                job = self._jobs.claim()
                if job is not None:
                    self._running = WorkerJob(self._jobs, job, self._between_batches)
        except HeadlabError as error:
            self._report_trouble(error)
            return False
        self.trouble = None
        running = self._running
        if job is None or running is None:
            return False
        try:
            self._record_end(job.id, self._outcome(bench, running))
        except HeadlabError as error:
            # Tried again before the next job, or at the next start of the worker.
            self._report_trouble(error)
        finally:
            self._running = None
        return True

    def _outcome(self, bench: Bench, running: WorkerJob) -> JobEnd:
        log.info("job %d started, attempt %d", running.job.id, running.job.attempts)
        try:
            job_outcome = Context().run(bench.run, running)
            return JobEnd("done", result=checked_outcome(running.job.kind, job_outcome))
        except Stopping:
            return JobEnd("queued")
        except Cancelled:
            return JobEnd("cancelled")
        except Exception as error:  # a failed job is an answer too; the worker goes on
            log_failure(log, f"job {running.job.id}", error)
            return JobEnd("failed", sentence_of(error))

    def _record_end(self, job: int, end: JobEnd) -> None:
        self._unrecorded_end = (job, end)
        if end.state == "queued":
            self._jobs.put_back(job)
        else:
            self._jobs.end(job, end.state, end.error, end.result)
        self._unrecorded_end = None
        log.info("job %d %s", job, "put back" if end.state == "queued" else end.state)

    def _report_trouble(self, error: HeadlabError) -> None:
        if str(error) != str(self.trouble):  # once, not every second
            log_failure(log, "the job list", error)
        self.trouble = error
