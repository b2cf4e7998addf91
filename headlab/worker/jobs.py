"""The job list: one SQLite table that outlives the worker."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.records import canonical_json
from headlab.scores import HeadScores
from headlab.worker.schemas import Job, Refusal, Submitted

ATTEMPTS = 3
MAX_WAITING = 100
LISTED = 200
VERSION = 1
SCHEMA = """
create table if not exists jobs(
 id integer primary key autoincrement, dedup text not null, kind text not null, params text not null,
 state text not null default 'queued', done integer not null default 0, total integer not null default 0,
 note text not null default '', seconds_left real, cancel integer not null default 0,
 attempts integer not null default 0, error text, created real not null, started real, ended real);
create index if not exists jobs_state on jobs(state, id);
create unique index if not exists jobs_live on jobs(dedup) where state in ('queued','running');
"""
COLUMNS = "id,kind,params,state,done,total,note,error,seconds_left,attempts,created,started,ended"
DIED = f"the worker died {ATTEMPTS} times while it ran this job; see its log, then resume the job"


class Cancelled(Exception):
    """Raised inside a running job when it is to end: not an error, someone asked for it."""


class Stopping(Cancelled):
    """The worker is going down: the job goes back into the queue."""


class Jobs:
    """Jobs and their progress. Every method may be called from any thread.

    Only the holder of the worker's lock may open it, as opening requeues what a dead worker left running.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self.note = ""
        try:
            self._db = _open(path)
        except sqlite3.DatabaseError as error:
            if not path.exists() or isinstance(error, sqlite3.OperationalError):
                raise _failed(error) from error
            aside = path.with_name(f"{path.name}.broken-{time.time_ns()}")
            for suffix in ("", "-wal", "-shm"):  # left behind, SQLite would replay them into the new file
                part = path.with_name(path.name + suffix)
                if part.exists():
                    part.rename(aside.with_name(aside.name + suffix))
            self.note = (
                f"the job list could not be read ({error}); it was put aside as {aside.name} and a new one begun"
            )
            self._db = _open(path)
        self._requeue()

    def close(self) -> None:
        """Close the file; no method may be called after."""
        with self._lock:
            self._db.close()

    def _run(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise _failed(error) from error

    def _requeue(self) -> None:
        died = "update jobs set state='failed', error=?, ended=? where state='running' and attempts>=?"
        self._run(died, DIED, time.time(), ATTEMPTS)
        self._run("update jobs set state='cancelled', ended=? where state='running' and cancel=1", time.time())
        self._run("update jobs set state='queued', seconds_left=null where state='running'")

    def submit(self, kind: str, params: Mapping[str, Any]) -> Submitted:
        """Queue a job, or find the one that waits or runs with the same kind and params.

        Raises Refusal (429) when too many wait.
        """
        text = canonical_json(dict(params))
        key = f"{kind}:{text}"
        if self.count("queued") >= MAX_WAITING:
            raise Refusal(f"{MAX_WAITING} jobs are waiting; cancel some, or wait until they are done", 429)
        insert = "insert into jobs(dedup,kind,params,created) values(?,?,?,?) on conflict do nothing returning id,state"
        made = self._run(insert, key, kind, text, time.time())
        # The other one may end between the two statements: then its last row is the answer.
        found = made or self._run("select id,state from jobs where dedup=? order by id desc limit 1", key)
        return Submitted(id=found[0]["id"], state=found[0]["state"])

    def get(self, job: int) -> Job:
        """One job. Raises Refusal (404) if there is none of that id."""
        rows = self._run(f"select {COLUMNS} from jobs where id=?", job)
        if not rows:
            raise Refusal(f"there is no job {job}; the list of jobs shows those that exist", 404)
        return _job(rows[0])

    def list(self) -> list[Job]:
        """The newest jobs, newest first."""
        return [_job(row) for row in self._run(f"select {COLUMNS} from jobs order by id desc limit ?", LISTED)]

    def count(self, state: str) -> int:
        """How many jobs are in a state."""
        return int(self._run("select count(*) from jobs where state=?", state)[0][0])

    def cancel(self, job: int) -> Job:
        """Cancel a waiting job at once, a running one at its next batch; one that ended stays as it is."""
        self._run("update jobs set state='cancelled', ended=? where id=? and state='queued'", time.time(), job)
        self._run("update jobs set cancel=1 where id=? and state='running'", job)
        return self.get(job)

    def resume(self, job: int) -> Job:
        """Queue a cancelled or failed job again; it goes on from its checkpoint.

        Raises Refusal (409) if it has not ended so, or if the same work is queued under another id.
        """
        before = self.get(job)
        if before.state not in ("cancelled", "failed"):
            raise Refusal(f"job {job} is {before.state}; only a cancelled or failed job can be resumed", 409)
        reset = "update jobs set state='queued', cancel=0, attempts=0, error=null, ended=null"
        try:
            self._run(f"{reset} where id=? and state in ('cancelled','failed')", job)
        except HeadlabError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise Refusal(
                    f"the same work is already queued or running under another number than {job}", 409
                ) from error
            raise
        return self.get(job)

    # What follows is the worker's own side.

    def claim(self) -> Job | None:
        """Take the oldest waiting job and mark it running; None if none waits."""
        rows = self._run(
            "update jobs set state='running', attempts=attempts+1, started=coalesce(started,?), seconds_left=null "
            f"where id=(select id from jobs where state='queued' order by id limit 1) returning {COLUMNS}",
            time.time(),
        )
        return _job(rows[0]) if rows else None

    def progress(self, job: int, done: int, total: int, note: str, seconds_left: float | None) -> None:
        """Write how far a running job is."""
        self._run(
            "update jobs set done=?, total=?, note=?, seconds_left=? where id=?",
            done,
            total,
            note[:300],
            seconds_left,
            job,
        )

    def cancelling(self, job: int) -> bool:
        """Whether someone asked to cancel a running job."""
        rows = self._run("select cancel from jobs where id=?", job)
        return bool(rows and rows[0][0])

    def end(self, job: int, state: str, error: str | None = None) -> None:
        """A running job is done, failed or cancelled."""
        self._run(
            "update jobs set state=?, error=?, ended=?, seconds_left=null, cancel=0 where id=?",
            state,
            error,
            time.time(),
            job,
        )

    def put_back(self, job: int) -> None:
        """A running job waits again, without this attempt being counted: the worker goes down in order."""
        back = "state=iif(cancel=1,'cancelled','queued'), attempts=attempts-1, seconds_left=null"
        self._run(f"update jobs set {back} where id=?", job)


class Running:
    """What a running job's handler sees: it reports through `progress` and calls `tick` between batches.

    look: gives the scores so far of the language under way, or None; set by the handler, called from any
    thread, so it may not wait for the device.
    """

    def __init__(
        self, jobs: Jobs, job: Job, breathe: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.job, self._jobs, self._breathe, self._clock = job, jobs, breathe, clock
        self.look: Callable[[], HeadScores | None] = lambda: None
        self._looked = -1.0
        self._written = -1.0
        self._first: tuple[float, int] | None = None

    def tick(self) -> None:
        """Serve live requests, then honour a cancellation. Raises Cancelled."""
        self._breathe()
        now = self._clock()
        if now - self._looked >= 0.2:
            self._looked = now
            if self._jobs.cancelling(self.job.id):
                raise Cancelled

    def progress(self, done: int, total: int, note: str, *, fresh: bool = False) -> None:
        """Note how far the job is. fresh: the pace so far says nothing about what is left."""
        now = self._clock()
        if fresh or self._first is None or done < self._first[1]:
            self._first = (now, done)
        began, at = self._first
        left = (total - done) * (now - began) / (done - at) if done > at else None
        if now - self._written >= 0.2 or fresh or done >= total:
            self._written = now
            self._jobs.progress(self.job.id, done, total, note, left)
        self.tick()


def _open(path: Path) -> sqlite3.Connection:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)  # sqlite would make it readable by all
    os.close(descriptor)
    db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    try:
        db.row_factory = sqlite3.Row
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=normal")
        version = db.execute("pragma user_version").fetchone()[0]
        if version not in (0, VERSION):
            raise HeadlabError(
                f"the job list {path} is of version {version}, this headlab reads {VERSION}; "
                "update headlab, or move the file away"
            )
        db.executescript(SCHEMA + f"pragma user_version={VERSION};")
    except BaseException:
        db.close()
        raise
    return db


def _failed(error: sqlite3.Error) -> HeadlabError:
    full = "full" in str(error)
    do = "free some space" if full else "check its folder, then start the worker again"
    return HeadlabError(f"the job list cannot be read or written ({error}); {do}. Nothing that was stored is lost")


def _job(row: sqlite3.Row) -> Job:
    return Job(**{**dict(row), "params": json.loads(row["params"])})
