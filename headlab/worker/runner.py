"""One job after another: taken off the list, run, and its end written down whatever happens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextvars import Context
from pathlib import Path
from typing import Any, NamedTuple

from headlab.errors import HeadlabError
from headlab.scores import HeadScores
from headlab.worker.bench import Bench
from headlab.worker.failures import log_failure, sentence_of
from headlab.worker.jobs import Jobs
from headlab.worker.leftovers import clear, needed_by
from headlab.worker.running import Cancelled, Running, Stopping

log = logging.getLogger(__name__)


class End(NamedTuple):
    """How a job ended; state "queued": it was put back."""

    state: str
    error: str | None = None
    result: Mapping[str, Any] | None = None


class Runner:
    """Runs jobs in the device's thread; may be asked about them from any other.

    breathe: called between the batches of a job; may raise Stopping.
    """

    def __init__(self, jobs: Jobs, breathe: Callable[[], None]) -> None:
        self._jobs, self._breathe = jobs, breathe
        self._taking = threading.Lock()  # no job begins while the leftovers of another are cleared away
        self._running: Running | None = None
        self._unwritten: tuple[int, End] | None = None
        self._told = self._told_code = ""

    @property
    def model(self) -> str | None:
        """The model that the running job keeps in memory, if there is one."""
        running = self._running
        return None if running is None else running.model

    @property
    def trouble(self) -> str:
        """Why the job list cannot be written, or empty."""
        return self._told

    @property
    def trouble_code(self) -> str:
        """The code that goes with `trouble`, or empty."""
        return self._told_code

    def look(self, job: int) -> HeadScores | None:
        """The scores so far of a running job; None if it does not run, or has none to show."""
        running = self._running
        return running.look() if running is not None and running.job.id == job else None

    def delete(self, job: int, root: Path) -> None:
        """Take a job off the list, with the checkpoints that no other job of the list would go on from.

        root: the cache. Raises Refusal (404, 409).
        """
        with self._taking:
            deleted, folders = self._jobs.get(job), self._jobs.runs(job)
            others = [other for other in self._jobs.unfinished() if other.id != job]
            theirs = {folder for other in others for folder in self._jobs.runs(other.id)}
            free = [
                folder
                for folder, language in folders.items()
                if folder not in theirs and not any(needed_by(other, deleted, language) for other in others)
            ]
            places = [(root, folder) for folder in free]
            self._jobs.delete(job)
            for place, folder in places:
                clear(place, folder)

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
        self._told = self._told_code = ""
        running = self._running
        if job is None or running is None:
            return False
        try:
            self._write(job.id, self._outcome(bench, running))
        except HeadlabError as error:  # tried again before the next job, or at the next start of the worker
            self._tell(error)
        finally:
            self._running = None
        return True

    def _outcome(self, bench: Bench, running: Running) -> End:
        log.info("job %d started, attempt %d", running.job.id, running.job.attempts)
        try:
            return End("done", result=Context().run(bench.run, running))
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
        if str(error) != self._told:  # once, not every second
            log_failure(log, "the job list", error)
        self._told, self._told_code = str(error), error.code
