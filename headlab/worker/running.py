"""A job while it runs: how its handler reports, gives way to live requests, and is told to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from headlab.errors import HeadlabError
from headlab.scores import HeadScores
from headlab.worker.failures import log_failure
from headlab.worker.jobs import Jobs
from headlab.worker.schemas import Job

log = logging.getLogger(__name__)
BETWEEN_SECONDS = 0.2  # between two looks at, or writes to, the job list


class Cancelled(Exception):
    """Raised inside a running job when it is to end: not an error, someone asked for it."""


class Stopping(Cancelled):
    """The worker is going down: the job goes back into the queue."""


class Running:
    """What a running job's handler sees: it reports through `progress` and calls `tick` between batches.

    model: what the job keeps in memory; set by the handler once it does.  look: gives the scores so far
    of the language under way, or None; set by the handler, called from any thread, so it may not wait
    for the device.
    """

    def __init__(
        self, jobs: Jobs, job: Job, breathe: Callable[[], None], clock: Callable[[], float] = time.monotonic
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
        """Serve live requests, then honour a cancellation. Raises Cancelled."""
        self._breathe()
        now = self._clock()
        if now - self._looked >= BETWEEN_SECONDS:
            self._looked = now
            if self._try(lambda: self._jobs.cancelling(self.job.id)):
                raise Cancelled

    def progress(self, done: int, total: int, note: str, *, fresh: bool = False) -> None:
        """Note how far the job is. fresh: the pace so far says nothing about what is left."""
        now = self._clock()
        if fresh or self._first is None or done < self._first[1]:
            self._first = (now, done)
        began, at = self._first
        left = (total - done) * (now - began) / (done - at) if done > at else None
        if now - self._written >= BETWEEN_SECONDS or fresh or done >= total:
            self._written = now
            self._try(lambda: self._jobs.progress(self.job.id, done, total, note, left))
        self.tick()

    def kept(self) -> None:
        """Something new is kept, so the next attempt will start further on: it is not the job that kills its worker."""
        if self._attempts > 1:
            self._attempts = 1
            self._try(lambda: self._jobs.gets_on(self.job.id))

    def log(self, line: str) -> None:
        """Add a line to the job's log: never a sentence or a token of a user's."""
        self._try(lambda: self._jobs.tell(self.job.id, line))

    def began(self, folder: str, language: str) -> None:
        """The job writes to a folder below the cache; what is unfinished there goes when the job is deleted."""
        self._try(lambda: self._jobs.began(self.job.id, folder, language))

    def _try(self, ask: Callable[[], bool | None]) -> bool:
        """Ask the job list; a job goes on where the list cannot be read or written, as its results are elsewhere."""
        try:
            return bool(ask())
        except HeadlabError as error:
            if str(error) != self._trouble:  # once, not at every batch
                log_failure(log, f"job {self.job.id}: the job list", error)
            self._trouble = str(error)
            return False
