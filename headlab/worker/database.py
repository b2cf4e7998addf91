"""The file of the job list: its tables, and how a list of an earlier version becomes one of this."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.worker.schemas import Refusal

VERSION = 2
LOCKED_SECONDS = 2.0  # that another program's lock is waited for; everyone waits meanwhile
FIRST = (
    "create table if not exists jobs("
    " id integer primary key autoincrement, dedup text not null, kind text not null, params text not null,"
    " state text not null default 'queued', done integer not null default 0, total integer not null default 0,"
    " note text not null default '', seconds_left real, cancel integer not null default 0,"
    " attempts integer not null default 0, error text, created real not null, started real, ended real)",
    "create index if not exists jobs_state on jobs(state, id)",
    "create unique index if not exists jobs_live on jobs(dedup) where state in ('queued','running')",
)
# events: what happened to a job.  runs: folders below the cache, written to by a job that has not ended well.
SECOND = (
    "alter table jobs add column place text not null default 'here'",
    "alter table jobs add column result text",
    "create table events(id integer primary key, job integer not null, at real not null, line text not null)",
    "create index events_job on events(job, id)",
    "create table runs(job integer not null, folder text not null, language text not null, primary key(job, folder))",
)
STEPS = (FIRST, SECOND)  # step n leads from version n to n + 1
Statement = tuple[Any, ...]  # SQL, then its values


class Database:
    """One SQLite file, opened for any thread.  note: what happened to a file that could not be read, or empty."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self.note = ""
        try:
            self._db = _open(path)
        except sqlite3.DatabaseError as error:
            if not path.exists() or isinstance(error, sqlite3.OperationalError):
                raise _failed(error) from error
            aside = _put_aside(path)
            self.note = f"the job list could not be read ({error}); it was put aside as {aside} and a new one begun"
            self._db = _open(path)

    def close(self) -> None:
        """Close the file; no method may be called after."""
        with self._lock:
            self._db.close()

    def run(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """The rows of one statement. Raises Refusal (503)."""
        return self.together([(sql, *values)])

    def together(self, statements: Sequence[Statement]) -> list[sqlite3.Row]:
        """Run statements, all or none; the rows of the first that gave any. Raises Refusal (503)."""
        with self._lock:
            try:
                return _in_transaction(self._db, statements)
            except sqlite3.Error as error:
                raise _failed(error) from error


def _in_transaction(db: sqlite3.Connection, statements: Sequence[Statement]) -> list[sqlite3.Row]:
    rows: list[sqlite3.Row] = []
    if len(statements) > 1:
        db.execute("begin immediate")
    try:
        for sql, *values in statements:
            found = db.execute(sql, values).fetchall()
            rows = rows or found
        if db.in_transaction:
            db.execute("commit")
    finally:
        if db.in_transaction:  # it failed; a full disk may have ended the transaction already
            db.execute("rollback")
    return rows


def _open(path: Path) -> sqlite3.Connection:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)  # sqlite would make it readable by all
    os.close(descriptor)
    db = sqlite3.connect(path, timeout=LOCKED_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        db.row_factory = sqlite3.Row
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=normal")
        _bring_up(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _bring_up(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables, or those that an earlier version lacks, a version at a time and each whole."""
    version = int(db.execute("pragma user_version").fetchone()[0])
    if not 0 <= version <= VERSION:
        raise HeadlabError(
            f"the job list {path} is of version {version}, this headlab reads up to {VERSION}; "
            "update headlab, or move the file away",
            code="job.list_newer",
        )
    for number in range(version, VERSION):
        _in_transaction(db, [*((sql,) for sql in STEPS[number]), (f"pragma user_version={number + 1}",)])


def _put_aside(path: Path) -> str:
    aside = path.with_name(f"{path.name}.broken-{time.time_ns()}")
    for suffix in ("", "-wal", "-shm"):  # left behind, SQLite would replay them into the new file
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside.name


def _failed(error: sqlite3.Error) -> Refusal:
    full = "full" in str(error)
    do = "free some space" if full else "check its folder, then start the worker again"
    sentence = f"the job list cannot be read or written ({error}); {do}. Nothing that was stored is lost"
    return Refusal(sentence, 503, code="file.no_space" if full else "job.list_unusable")
