"""A worker's token and folder, and the worker of an app: its own, or that of HEADLAB_WORKER."""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headlab.core import (
    CHOOSE_CACHE,
    HeadlabError,
    LockedFile,
    holder_of,
    lock_file,
    read_json,
    unwritable_error,
    write_json,
)
from headlab.results import default_root
from headlab.worker.client import Client, error_of

# The token that app and worker share: long enough not to be guessed, plain enough for a header.

TOKEN_VARIABLE = "HEADLAB_TOKEN"
MIN_TOKEN_LENGTH = 16
MIN_TOKEN_CHARACTERS = 6


def token_of_environment() -> str | None:
    """The token in $HEADLAB_TOKEN; None if it is empty or not set.

    Raises:
        HeadlabError: It is too easy to guess, or has characters that an HTTP header cannot hold.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return None
    advice = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
    if not token.isascii() or not token.isprintable() or " " in token:
        raise HeadlabError(
            f"{TOKEN_VARIABLE} may hold letters, digits and punctuation, but no spaces; {advice}",
            code="token.characters_invalid",
        )
    if len(token) < MIN_TOKEN_LENGTH or len(set(token)) < MIN_TOKEN_CHARACTERS:
        raise HeadlabError(
            f"{TOKEN_VARIABLE} is too easy to guess: it needs {MIN_TOKEN_LENGTH} characters, "
            f"{MIN_TOKEN_CHARACTERS} of them different; {advice}",
            code="token.too_weak",
        )
    return token


# The folder of a worker's job list and log, held by a lock that ends with its process.

FOLDER_NAME = ".worker"
LOCK_NAME = "worker.lock"
MAX_HOMES = 8
HANDOVER_SECONDS = 10.0


@dataclass(frozen=True)
class Home:
    """A worker's locked folder.

    Attributes:
        folder: Its path.
        label: Its path relative to the cache.
        lock: Open for as long as the worker lives.
        note: What the dashboard says of it for as long as the worker runs.
    """

    folder: Path
    label: str
    lock: LockedFile
    note: str = ""


def take_home(cache: Path) -> Home:
    """Lock this cache's worker folder, or a spare one if another worker holds it.

    A holder whose parent process has ended is about to end too, so it is waited for.

    Raises:
        HeadlabError: If the folder cannot be written or all are taken.
    """
    for number in range(1, MAX_HOMES + 1):
        label = FOLDER_NAME if number == 1 else f"{FOLDER_NAME}/{number}"
        lock = _lock_folder(cache / label, patient=number == 1)
        if lock is not None:
            note = "" if number == 1 else _spare_note(cache, label)
            return Home(cache / label, label, lock, note)
    raise HeadlabError(
        f"{MAX_HOMES} workers already use {cache}; stop one, or choose another folder with "
        f"HEADLAB_CACHE{_marker_advice(cache / FOLDER_NAME)}",
        code="store.workers_too_many",
    )


def _spare_note(cache: Path, label: str) -> str:
    advice = _marker_advice(cache / FOLDER_NAME)
    return f"another worker uses this cache; this one keeps its own job list in {label}{advice}"


def _marker_advice(folder: Path) -> str:
    """How to free a folder whose holder may have ended on another computer.

    Empty where the kernel keeps the lock.
    """
    holder = holder_of(folder / LOCK_NAME)
    return f". {holder}" if holder else ""


def announce(home: Home, url: str, parent: int | None) -> None:
    """Write the address of the folder's holder to worker.json."""
    write_json(
        home.folder / "worker.json",
        {"url": url, "pid": os.getpid(), "parent": parent},
        CHOOSE_CACHE,
    )


def _lock_folder(folder: Path, patient: bool) -> LockedFile | None:
    deadline = time.monotonic() + HANDOVER_SECONDS
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            lock = lock_file(folder / LOCK_NAME)
            if lock is not None or not patient:
                return lock
            if not _holder_is_orphaned(folder) or time.monotonic() >= deadline:
                return None
            time.sleep(0.1)
    except OSError as error:
        raise unwritable_error(folder / LOCK_NAME, error, CHOOSE_CACHE) from error


def _holder_is_orphaned(folder: Path) -> bool:
    """Whether the worker that holds the folder was started by a process that has ended."""
    try:
        announcement = read_json(folder / "worker.json")
        parent = announcement.get("parent")
        if parent is None:
            return False
        os.kill(int(parent), 0)
    except ProcessLookupError:
        return True
    except (HeadlabError, AttributeError, TypeError, ValueError, OSError):
        return False
    return False


# The worker of an app.

WORKER_VARIABLE = "HEADLAB_WORKER"
START_SECONDS = 30.0
STOP_SECONDS = 5.0
COMMAND = (sys.executable, "-P", "-m", "headlab.worker")
"""-P: what lies in the working folder is no module."""
SEE_LOGS = f"worker.log and start.log in {FOLDER_NAME}, below the cache"
# A worker that dies this often within so many seconds will die again: raise instead of restarting
# it for ever.
MAX_DEATHS = 3
DEATH_SECONDS = 60.0


class RemoteWorker:
    """A worker that someone else started.

    Raises:
        HeadlabError: If it cannot be reached or is not a worker.
    """

    def __init__(self, url: str) -> None:
        self.url = url.strip().rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise HeadlabError(
                f"{WORKER_VARIABLE} is {url!r}, but must look like http://host:port",
                code="worker.url_invalid",
            )
        self._client = Client(self.url, token_of_environment())
        try:
            self._client.tasks()  # needs the token, which /health does not
        except HeadlabError as error:
            raise HeadlabError(
                f"the worker that {WORKER_VARIABLE} names, {self.url}, cannot be used: {error}",
                code=error.code,
            ) from error

    def client(self) -> Client:
        """Its only client."""
        return self._client

    def stop(self) -> None:
        """Close the connections; the worker keeps running."""
        self._client.close()


class LocalWorker:
    """A child process: started at once, restarted if it dies, stopped with this process.

    Its token is $HEADLAB_TOKEN or generated here, so that other users of this machine cannot use
    it. Raises HeadlabError with the worker's reason if it cannot start.
    """

    def __init__(
        self,
        cache: Path,
        warm: str | None = None,
        command: Sequence[str] = COMMAND,
        *,
        device: str | None = None,
    ) -> None:
        self._cache = cache.resolve()
        self._warm = warm
        self._device = device
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._starts: list[float] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._token = token_of_environment() or secrets.token_urlsafe(32)
        self._client = Client(lambda: self.url, self._token)
        atexit.register(self.stop)
        self._ensure_running()

    @property
    def url(self) -> str:
        """Address that it listens at now; restarts it if it has died."""
        return self._ensure_running()

    @property
    def pid(self) -> int | None:
        """Its process id; None if it is not running."""
        process = self._process
        if process is not None and process.poll() is None:
            return process.pid
        return None

    def client(self) -> Client:
        """Its only client, which follows it across restarts."""
        return self._client

    def stop(self) -> None:
        """Stop the process: gracefully, then by force. A running job goes back into the queue."""
        with self._lock:
            process = self._process
            self._process = None
            self._starts = [float("inf")] * MAX_DEATHS  # stopped for good
        atexit.unregister(self.stop)
        self._client.close()
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ensure_running(self) -> str:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            return self._url

    def _start(self) -> None:
        now = time.monotonic()
        recent_starts = [start for start in self._starts if now - start < DEATH_SECONDS]
        self._starts = [*recent_starts, now]
        if len(self._starts) > MAX_DEATHS:
            raise HeadlabError(
                f"the worker was stopped, or crashed {MAX_DEATHS} times in a minute; see "
                f"{SEE_LOGS}, then restart the app",
                code="worker.stopped",
            )
        with (
            tempfile.TemporaryDirectory(prefix="headlab-") as folder,
            _output_file(self._cache) as output,
        ):
            address_file = Path(folder) / "told.json"
            warm = () if self._warm is None else ("--warm", self._warm)
            device = () if self._device is None else ("--device", self._device)
            arguments = [
                *("--port", "0"),
                *("--cache", str(self._cache)),
                *("--parent", str(os.getpid())),
                *("--told", str(address_file)),
                *warm,
                *device,
            ]
            home = Path(__file__).parents[2]
            is_installed = home.name in ("site-packages", "dist-packages")
            own_path = "" if is_installed else str(home)  # headlab may run from a folder
            paths = os.pathsep.join(filter(None, (own_path, os.environ.get("PYTHONPATH"))))
            environment = {**os.environ, "PYTHONPATH": paths, "HEADLAB_TOKEN": self._token}
            self._process = subprocess.Popen(
                (*self._command, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
            )
            self._url = _wait_for_url(self._process, address_file)


def _output_file(cache: Path) -> IO[bytes]:
    """File for output that bypasses the worker's log, such as a crash's."""
    path = cache / FOLDER_NAME / "start.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path.open("wb")
    except OSError as error:
        raise unwritable_error(path, error, CHOOSE_CACHE) from error


def _wait_for_url(process: subprocess.Popen[bytes], address_file: Path) -> str:
    """Address of the process, once it has reported it and answers there."""
    deadline = time.monotonic() + START_SECONDS
    while not address_file.exists():
        if process.poll() is not None and not address_file.exists():
            raise HeadlabError(
                f"the worker exited during start-up (exit code {process.returncode}); see "
                f"{SEE_LOGS}",
                code="worker.ended_at_start",
            )
        if time.monotonic() > deadline:
            process.kill()
            raise HeadlabError(
                f"the worker did not start within {START_SECONDS:.0f} s; see {SEE_LOGS}, then "
                "restart the app",
                code="worker.start_timed_out",
            )
        time.sleep(0.02)
    answer = read_json(address_file)
    if "error" in answer:
        process.wait()
        raise HeadlabError(
            f"the worker could not start: {answer['error']}", code=error_of(answer).code
        )
    url = str(answer["url"])
    client = Client(url)
    try:
        client.health()
    finally:
        client.close()
    return url


Worker = LocalWorker | RemoteWorker


def connect(
    cache: Path | None = None, warm: str | None = None, device: str | None = None
) -> Worker:
    """The worker that $HEADLAB_WORKER names, or a new local one on this cache.

    Raises HeadlabError if it cannot be used.

    Args:
        cache: Folder of results; None for the usual one.
        warm: A model that a local worker loads at once.
        device: That a local worker computes on; None for a GPU where there is one.
    """
    address = os.environ.get(WORKER_VARIABLE)
    if address:
        return RemoteWorker(address)
    return start_local(cache, warm, device)


def start_local(
    cache: Path | None = None, warm: str | None = None, device: str | None = None
) -> LocalWorker:
    """A local worker on this cache (default: the store's); its `stop` is called at exit."""
    return LocalWorker(cache or default_root(), warm, device=device)
