"""The job list: each job's params, progress and log. It outlives the worker."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headlab.core import CHOOSE_CACHE, HeadlabError, canonical_json, unwritable_error
from headlab.jobs import JobPlace, Refusal
from headlab.worker.schemas import JobRow, Submitted

# The file of the job list: its tables, and how an earlier version is upgraded.

VERSION = 2
LOCKED_SECONDS = 2.0  # to wait for another program's lock; all callers wait meanwhile
PRIMARY_CODE = 0xFF  # the bits of an extended error code that name its kind
# Kinds of error where there is no shared memory for the write-ahead log.
NO_SHARED_MEMORY = (
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_CANTOPEN,
)
log = logging.getLogger(__name__)
CREATE_VERSION_1 = (
    "create table if not exists jobs("
    " id integer primary key autoincrement, dedup text not null, kind text not null,"
    " params text not null, state text not null default 'queued', done integer not null default 0,"
    " total integer not null default 0, note text not null default '', seconds_left real,"
    " cancel integer not null default 0, attempts integer not null default 0, error text,"
    " created real not null, started real, ended real)",
    "create index if not exists jobs_state on jobs(state, id)",
    "create unique index if not exists jobs_live on jobs(dedup) where state in "
    "('queued','running')",
)
# events: the log of each job.  runs: cache folders that a job which is not done has written to.
UPGRADE_TO_VERSION_2 = (
    "alter table jobs add column place text not null default 'here'",
    "alter table jobs add column result text",
    "create table events(id integer primary key, job integer not null, at real not null,"
    " line text not null)",
    "create index events_job on events(job, id)",
    "create table runs(job integer not null, folder text not null, language text not null,"
    " primary key(job, folder))",
)
UPGRADES = (CREATE_VERSION_1, UPGRADE_TO_VERSION_2)  # step n upgrades version n to n + 1
Statement = tuple[Any, ...]  # SQL, then its values


class Database:
    """One SQLite file, usable from any thread.

    Attributes:
        note: What was done about an unreadable file; empty if it could be read.
    """

    def __init__(self, path: Path, *, without_locks: bool = False) -> None:
        """Open the file, or create it.

        Args:
            path: of the file.
            without_locks: whether its file system has no locks, so that SQLite must do without.

        Raises:
            HeadlabError: another version's file; a folder that cannot be written.
            Refusal: the file fails (503).
        """
        self._lock = threading.Lock()
        self.note = ""
        try:
            self._db = _open(path, without_locks=without_locks)
        except OSError as error:
            raise unwritable_error(path, error, CHOOSE_CACHE) from error
        except sqlite3.DatabaseError as error:
            if not path.exists() or isinstance(error, sqlite3.OperationalError):
                raise _file_failure(error) from error
            broken_name = _put_aside(path)
            self.note = (
                f"the job list could not be read ({error}); it was put aside as {broken_name} "
                "and a new one begun"
            )
            self._db = _open(path, without_locks=without_locks)

    def close(self) -> None:
        """Close the file; no method may be called afterwards."""
        with self._lock:
            self._db.close()

    def run(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """The rows of one statement. Raises Refusal (503) if the file fails."""
        return self.run_all([(sql, *values)])

    def run_all(self, statements: Sequence[Statement]) -> list[sqlite3.Row]:
        """Run statements, all or none; the rows of the first that has any.

        Raises:
            Refusal: (503) if the file fails.
        """
        with self._lock:
            try:
                return _in_transaction(self._db, statements)
            except sqlite3.Error as error:
                raise _file_failure(error) from error


def _in_transaction(db: sqlite3.Connection, statements: Sequence[Statement]) -> list[sqlite3.Row]:
    rows: list[sqlite3.Row] = []
    if len(statements) > 1:
        db.execute("begin immediate")
    try:
        for sql, *values in statements:
            statement_rows = db.execute(sql, values).fetchall()
            rows = rows or statement_rows
        if db.in_transaction:
            db.execute("commit")
    finally:
        # A statement failed; a full disk may have ended the transaction already.
        if db.in_transaction:
            db.execute("rollback")
    return rows


def _open(path: Path, *, without_locks: bool) -> sqlite3.Connection:
    """Open the job list, without locks and shared memory where the file system has none."""
    # SQLite would make it readable by all users.
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.close(descriptor)
    try:
        return _connect(path, without_locks=without_locks)
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", 0)  # missing where Python itself raised it
        if without_locks or code & PRIMARY_CODE not in NO_SHARED_MEMORY:
            raise
        log.warning(
            "the file system of %s has no shared memory for SQLite (%s); it is used without",
            path,
            error,
        )
        return _connect(path, without_locks=True)


def _connect(path: Path, *, without_locks: bool) -> sqlite3.Connection:
    """A connection to the job list.

    Args:
        path: Of its file.
        without_locks: Whether neither locks nor shared memory are used: the worker's own lock
            already keeps other workers out. The write-ahead log is folded into the file and
            replaced by a journal, which needs neither.
    """
    address = f"{path.absolute().as_uri()}?vfs=unix-none" if without_locks else str(path)
    db = sqlite3.connect(
        address,
        uri=without_locks,
        timeout=LOCKED_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        db.row_factory = sqlite3.Row
        if without_locks:
            db.execute("pragma locking_mode=exclusive")
        journal_mode = "truncate" if without_locks else "wal"
        db.execute(f"pragma journal_mode={journal_mode}")
        db.execute("pragma synchronous=normal")
        _upgrade(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _upgrade(db: sqlite3.Connection, path: Path) -> None:
    """Create or upgrade the tables, one version at a time, each in one transaction."""
    version = int(db.execute("pragma user_version").fetchone()[0])
    if not 0 <= version <= VERSION:
        raise HeadlabError(
            f"the job list {path} is of version {version}, this headlab reads up to {VERSION}; "
            "update headlab, or move the file away",
            code="job.list_newer",
        )
    for number in range(version, VERSION):
        statements: list[Statement] = [(sql,) for sql in UPGRADES[number]]
        statements.append((f"pragma user_version={number + 1}",))
        _in_transaction(db, statements)


def _put_aside(path: Path) -> str:
    broken_path = path.with_name(f"{path.name}.broken-{time.time_ns()}")
    for suffix in ("", "-wal", "-shm"):  # left behind, SQLite would replay them into the new file
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(broken_path.with_name(broken_path.name + suffix))
    return broken_path.name


def _file_failure(error: sqlite3.Error) -> Refusal:
    is_disk_full = "full" in str(error)
    advice = "free some space" if is_disk_full else "check its folder, then start the worker again"
    sentence = (
        f"the job list cannot be read or written ({error}); {advice}. "
        "Nothing that was stored is lost"
    )
    return Refusal(sentence, 503, code="file.no_space" if is_disk_full else "job.list_unusable")


MAX_ATTEMPTS = 3
MAX_WAITING = 100
MAX_JOBS_LISTED = 200
MAX_LOG_LINES = 500
MAX_LINE_LENGTH = 300
COLUMNS = (
    "id,kind,params,place,state,done,total,note,error,result,seconds_left,attempts,"
    "created,started,ended"
)
DIED_MESSAGE = (
    f"the worker died {MAX_ATTEMPTS} times while it ran this job; see its log, then resume the job"
)
END_JOB = (
    "update jobs set state=?, error=?, result=?, ended=?, seconds_left=null, cancel=0 where id=?"
)
FORGET_RUNS = "delete from runs where job=? and (select state from jobs where id=?)='done'"
LOG_CHANGE = "insert into events(job,at,line) select ?,?,? where changes()>0"
SHORTEN_LOG = (
    "delete from events where job=? and id<="
    "(select id from events where job=? order by id desc limit 1 offset ?)"
)


class JobList:
    """Jobs and their progress.

    Every method may be called from any thread and raises HeadlabError if the file fails.

    Only the holder of the worker's lock may open it: opening requeues the jobs that a dead worker
    left running.
    """

    def __init__(self, path: Path, *, without_locks: bool = False) -> None:
        """Open the job list of a worker.

        Args:
            path: Of its file.
            without_locks: As for `Database`.
        """
        self.database = Database(path, without_locks=without_locks)
        self.note = self.database.note
        self._run = self.database.run
        self._remove_unreadable()
        self._requeue()

    def close(self) -> None:
        """Close the file; no method may be called afterwards."""
        self.database.close()

    def _remove_unreadable(self) -> None:
        """Take out of the list what cannot be read as a job; the note says which."""
        unreadable = []
        for row in self._run(f"select {COLUMNS} from jobs order by id"):
            try:
                _row_of(row)
            except (ValueError, TypeError, RecursionError):
                unreadable.append(int(row["id"]))
        for job in unreadable:
            self.database.run_all(
                [
                    ("delete from events where job=?", job),
                    ("delete from runs where job=?", job),
                    ("delete from jobs where id=?", job),
                ]
            )
        if unreadable:
            numbers = ", ".join(map(str, unreadable))
            sentence = (
                f"of the job list, what it says of job {numbers} could not be read and was taken "
                "out"
            )
            self.note = "; ".join(filter(None, [self.note, sentence]))

    def _requeue(self) -> None:
        now = time.time()
        log_death = (
            "insert into events(job,at,line) "
            "select id,?,'the worker died' from jobs where state='running'"
        )
        fail = (
            "update jobs set state='failed', error=?, ended=? where state='running' and attempts>=?"
        )
        cancel = "update jobs set state='cancelled', ended=? where state='running' and cancel=1"
        requeue = "update jobs set state='queued', seconds_left=null where state='running'"
        self.database.run_all(
            [(log_death, now), (fail, DIED_MESSAGE, now, MAX_ATTEMPTS), (cancel, now), (requeue,)]
        )

    def submit(self, kind: str, params: Mapping[str, Any], place: JobPlace = "here") -> Submitted:
        """Queue a job, or find the queued or running one with the same kind and params.

        Args:
            kind: The key of the job's kind.
            params: Its fields, ready for JSON.
            place: Where a new job is computed; the same work elsewhere is the same job.

        Raises:
            Refusal: Too many are waiting (429).
        """
        params_text = canonical_json(dict(params))
        key = f"{kind}:{params_text}"
        unfinished = self._run(
            "select id,state from jobs where dedup=? and state in ('queued','running')", key
        )
        if unfinished:
            return Submitted(id=unfinished[0]["id"], state=unfinished[0]["state"])
        self._require_room()
        now = time.time()
        insert = (
            "insert into jobs(dedup,kind,params,place,created) values(?,?,?,?,?) "
            "on conflict do nothing returning id,state"
        )
        destination = "" if place == "here" else f", to be computed on {place}"
        log_submission = (
            "insert into events(job,at,line) select last_insert_rowid(),?,? where changes()>0"
        )
        new_rows = self.database.run_all(
            [
                (insert, key, kind, params_text, place, now),
                (log_submission, now, f"submitted{destination}"),
            ]
        )
        # The other job may end between the two statements: then its row is the answer.
        rows = new_rows or self._run(
            "select id,state from jobs where dedup=? order by id desc limit 1", key
        )
        return Submitted(id=rows[0]["id"], state=rows[0]["state"])

    def _require_room(self) -> None:
        if self.count("queued") >= MAX_WAITING:
            raise Refusal(
                f"{MAX_WAITING} jobs are waiting; cancel some, or wait until they are done",
                429,
                code="job.queue_full",
            )

    def get(self, job: int) -> JobRow:
        """One job. Raises Refusal (404) if no job has that id."""
        rows = []
        if abs(job) < 1 << 63:
            rows = self._run(f"select {COLUMNS} from jobs where id=?", job)
        if not rows:
            raise Refusal(f"there is no job {job}; see the list of jobs", 404, code="job.unknown")
        return _row_of(rows[0])

    def list(self) -> list[JobRow]:
        """The newest jobs, newest first."""
        return [
            _row_of(row)
            for row in self._run(
                f"select {COLUMNS} from jobs order by id desc limit ?", MAX_JOBS_LISTED
            )
        ]

    def count(self, state: str) -> int:
        """Number of jobs in a state."""
        return int(self._run("select count(*) from jobs where state=?", state)[0][0])

    def log(self, job: int) -> Sequence[str]:
        """A job's log, oldest line first, each with its time in UTC."""
        rows = self._run("select at,line from events where job=? order by id", self.get(job).id)
        return [
            f"{datetime.fromtimestamp(logged_at, UTC).strftime('%Y-%m-%dT%H:%M:%SZ')} {line}"
            for logged_at, line in rows
        ]

    def cancel(self, job: int) -> JobRow:
        """Cancel a waiting job at once, a running one at its next batch.

        One that has ended stays as it is.
        """
        now = time.time()
        waiting = "update jobs set state='cancelled', ended=? where id=? and state='queued'"
        running = "update jobs set cancel=1 where id=? and state='running' and cancel=0"
        job_id = self.get(job).id
        self.database.run_all(
            [
                (waiting, now, job_id),
                (LOG_CHANGE, job_id, now, "cancelled"),
                (running, job_id),
                (LOG_CHANGE, job_id, now, "to be cancelled at its next batch"),
            ]
        )
        return self.get(job)

    def resume(self, job: int) -> JobRow:
        """Queue a cancelled or failed job again; it continues from its checkpoint.

        Raises Refusal (409) if it is neither, or if the same work is queued under another id, and
        (429) if too many are waiting.
        """
        row = self.get(job)
        if row.state not in ("cancelled", "failed"):
            raise Refusal(
                f"job {job} is {row.state}; only a cancelled or failed job can be resumed",
                409,
                code="job.not_resumable",
            )
        self._require_room()
        reset = "update jobs set state='queued', cancel=0, attempts=0, error=null, ended=null"
        requeue = f"{reset} where id=? and state in ('cancelled','failed')"
        try:
            self._change_and_log(job, "resumed", (requeue, job))
        except HeadlabError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise Refusal(
                    f"the same work is already queued or running under another number than {job}",
                    409,
                    code="job.work_queued_elsewhere",
                ) from error
            raise
        return self.get(job)

    def delete(self, job: int) -> None:
        """Delete a job that is not running, with its log. Raises Refusal (404, 409)."""
        if self.get(job).state == "running":
            raise Refusal(
                f"job {job} is running; cancel it before you delete it", 409, code="job.running"
            )
        idle = "select id from jobs where id=? and state<>'running'"
        tables = (("events", "job"), ("runs", "job"), ("jobs", "id"))
        self.database.run_all(
            [(f"delete from {table} where {name} in ({idle})", job) for table, name in tables]
        )

    def run_folders(self, job: int) -> dict[str, str]:
        """{cache folder: language} of what an unfinished job wrote to."""
        return dict(
            tuple(row) for row in self._run("select folder,language from runs where job=?", job)
        )

    def unfinished_jobs(self) -> Sequence[JobRow]:
        """Every job that is not done and may still continue from its checkpoints."""
        return [
            _row_of(row) for row in self._run(f"select {COLUMNS} from jobs where state<>'done'")
        ]

    # Called only by the worker as it runs jobs.

    def claim(self) -> JobRow | None:
        """Take the oldest waiting job and mark it running; None if there is none."""
        rows = self._run("select id,attempts from jobs where state='queued' order by id limit 1")
        if not rows:
            return None
        job, attempts = rows[0]
        update = (
            "update jobs set state='running', attempts=attempts+1, started=coalesce(started,?), "
            f"seconds_left=null where id=? and state='queued' returning {COLUMNS}"
        )
        claimed_rows = self._change_and_log(
            job, f"started, attempt {attempts + 1}", (update, time.time(), job)
        )
        if claimed_rows:
            return _row_of(claimed_rows[0])
        return None

    def progress(
        self, job: int, done: int, total: int, note: str, seconds_left: float | None
    ) -> None:
        """Write the progress of a running job."""
        update = "update jobs set done=?, total=?, note=?, seconds_left=? where id=?"
        self._run(update, done, total, note[:MAX_LINE_LENGTH], seconds_left, job)

    def reset_attempts(self, job: int) -> None:
        """Count no earlier attempts against a running job, as it has stored something new."""
        self._run("update jobs set attempts=1 where id=? and state='running'", job)

    def is_cancel_requested(self, job: int) -> bool:
        """Whether a running job is to be cancelled."""
        rows = self._run("select cancel from jobs where id=?", job)
        return bool(rows and rows[0][0])

    def add_log_line(self, job: int, line: str) -> None:
        """Add a line to a job's log; only the newest `MAX_LOG_LINES` stay."""
        insert = "insert into events(job,at,line) values(?,?,?)"
        self.database.run_all(
            [
                (insert, job, time.time(), line[:MAX_LINE_LENGTH]),
                (SHORTEN_LOG, job, job, MAX_LOG_LINES),
            ]
        )

    def record_folder(self, job: int, folder: str, language: str) -> None:
        """Note that a job writes to a cache folder."""
        self._run(
            "insert or ignore into runs(job,folder,language) values(?,?,?)", job, folder, language
        )

    def end(
        self,
        job: int,
        state: str,
        error: str | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """Mark a running job done, failed or cancelled.

        Args:
            result: Small, for JSON.
        """
        text = None if result is None else canonical_json(dict(result))
        line = f"{state}: {error}" if error else state
        self._change_and_log(
            job, line, (END_JOB, state, error, text, time.time(), job), (FORGET_RUNS, job, job)
        )

    def put_back(self, job: int) -> None:
        """Requeue a running job at shutdown, or cancel it if that was requested.

        This attempt does not count.
        """
        assignments = (
            "state=iif(cancel=1,'cancelled','queued'), attempts=attempts-1, seconds_left=null"
        )
        self._change_and_log(
            job,
            "requeued: the worker is shutting down",
            (f"update jobs set {assignments} where id=?", job),
        )

    def _change_and_log(
        self, job: int, line: str, change: Statement, *more_statements: Statement
    ) -> Sequence[sqlite3.Row]:
        """Change a job and log it, both or neither; nothing is logged if nothing changed."""
        log_change = (LOG_CHANGE, job, time.time(), line[:MAX_LINE_LENGTH])
        return self.database.run_all(
            [change, log_change, (SHORTEN_LOG, job, job, MAX_LOG_LINES), *more_statements]
        )


def _row_of(row: sqlite3.Row) -> JobRow:
    result = row["result"]
    json_fields = {
        "params": json.loads(row["params"]),
        "result": None if result is None else json.loads(result),
    }
    return JobRow(**{**dict(row), **json_fields})
