"""The folder of a worker's job list and log, held by a lock that the kernel releases, and the worker's token."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headlab.errors import HeadlabError
from headlab.files import read_json, unwritable, write_json

# The token that app and worker share: long enough not to be guessed, plain enough for a header.

VARIABLE = "HEADLAB_TOKEN"
MIN_LENGTH = 16
MIN_DIFFERENT = 6


def token_of_environment() -> str | None:
    """$HEADLAB_TOKEN; None if it is not set. Raises HeadlabError if it is too weak or cannot be sent."""
    return checked_token(os.environ.get(VARIABLE))


def checked_token(token: str | None) -> str | None:
    """The token, checked; None if there is none. Raises HeadlabError if it is too weak or cannot be sent."""
    if not token:
        return None
    advice = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
    if not token.isascii() or not token.isprintable() or " " in token:
        raise HeadlabError(
            f"{VARIABLE} may hold letters, digits and punctuation, but no spaces; {advice}",
            code="token.characters_invalid",
        )
    if len(token) < MIN_LENGTH or len(set(token)) < MIN_DIFFERENT:
        raise HeadlabError(
            f"{VARIABLE} is too easy to guess: it needs {MIN_LENGTH} characters, {MIN_DIFFERENT} of them different; "
            f"{advice}",
            code="token.too_weak",
        )
    return token


# The folder of a worker's job list and log, held by a lock that the kernel releases.

NAME = ".worker"
HOMES = 8
HANDOVER_SECONDS = 10.0


@dataclass(frozen=True)
class Home:
    """A locked folder.  label: its path relative to the cache.  lock: open for as long as the worker lives."""

    folder: Path
    label: str
    lock: IO[bytes]
    note: str = ""


def take_home(cache: Path) -> Home:
    """Lock this cache's worker folder, or a spare one if another worker holds it.

    A holder whose parent process has ended is about to end too, so it is waited for. Raises HeadlabError if
    the folder cannot be written or all are taken.
    """
    for number in range(1, HOMES + 1):
        label = NAME if number == 1 else f"{NAME}/{number}"
        lock = _lock(cache / label, patient=number == 1)
        if lock is not None:
            note = "" if number == 1 else f"another worker uses this cache; this one keeps its own job list in {label}"
            return Home(cache / label, label, lock, note)
    raise HeadlabError(
        f"{HOMES} workers already use {cache}; stop one, or choose another folder with HEADLAB_CACHE",
        code="store.workers_too_many",
    )


def announce(home: Home, url: str, parent: int | None) -> None:
    """Write the address of the folder's holder to worker.json."""
    write_json(home.folder / "worker.json", {"url": url, "pid": os.getpid(), "parent": parent})


def _lock(folder: Path, patient: bool) -> IO[bytes] | None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (folder / "worker.lock").open("ab")
    except OSError as error:
        raise unwritable(folder / "worker.lock", error) from error
    until = time.monotonic() + HANDOVER_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not (patient and _orphaned(folder) and time.monotonic() < until):
                file.close()
                return None
            time.sleep(0.1)
        else:
            return file


def _orphaned(folder: Path) -> bool:
    """Whether the worker that holds the folder was started by a process that has ended."""
    try:
        said = read_json(folder / "worker.json")
        parent = said.get("parent")
        if parent is None:
            return False
        os.kill(int(parent), 0)
    except ProcessLookupError:
        return True
    except (HeadlabError, AttributeError, TypeError, ValueError, OSError):
        return False
    return False
