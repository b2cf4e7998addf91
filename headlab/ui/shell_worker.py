"""The worker as pages see it: started once per server, its state in one line, and calls that block no click."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, cast

import streamlit as st

from headlab.errors import HeadlabError
from headlab.ui.live import follow
from headlab.worker import process
from headlab.worker.client import Client

# An iterator read in its own thread, so that no click waits for its next value.

T = TypeVar("T")


class Latest(Generic[T]):
    """The newest value of an iterator, which a thread starts reading at once.

    In streamlit, a click in a fragment waits for the current run to end, so a run must be short: the page
    polls `value` instead of reading the iterator itself.  error: the exception that ended the iterator,
    if any.
    """

    def __init__(self, make: Callable[[], Generator[T]]) -> None:
        self.value: T | None = None
        self.error: Exception | None = None
        self.done = False
        self._begun = time.monotonic()
        self._make = make
        self._seen = 0
        self._news = threading.Condition()
        self._stopped = threading.Event()
        threading.Thread(target=self._read, name="figures", daemon=True).start()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._begun

    def stop(self) -> None:
        """Close the iterator at its next value."""
        self._stopped.set()

    def wait(self, values: int, seconds: float) -> None:
        """Return once this many values have arrived, the iterator has ended, or the time is up."""
        with self._news:
            self._news.wait_for(lambda: self.done or self._seen >= values, timeout=seconds)

    def _read(self) -> None:
        try:
            with closing(self._make()) as values:
                for value in values:
                    with self._news:
                        self.value, self._seen = value, self._seen + 1
                        self._news.notify_all()
                    if self._stopped.is_set():
                        break
        except Exception as error:  # for the caller to raise, not this thread
            self.error = error
        with self._news:
            self.done = True
            self._news.notify_all()


# The worker as pages see it: started once per server, its state in one line, a client to ask it.

WAIT_SECONDS = 60.0
FRESH_SECONDS = 2.0
RETRY_SECONDS = 10.0
LOOK_SECONDS, GIVE_WAY_SECONDS = 3.0, 0.1
# The first page also needs the processor, and needs no worker.
HEAD_START_SECONDS = 1.5
SIGNS = {"starting": ":material/hourglass_top:", "ready": ":material/check_circle:", "busy": ":material/sync:"}


class State(NamedTuple):
    """What the worker is doing: `starting`, `ready`, `busy` or `away`, and a line that says so.

    ray: the Ray cluster that it can hand jobs to, in a word; empty if there is none.
    """

    kind: str
    line: str
    ray: str = ""


def embedded_models() -> list[str]:
    """Models shipped with headlab: the folders of their adapters (read without torch)."""
    root = Path(str(files("headlab") / "embedded"))
    return sorted(p.parent.name for p in root.glob("*/adapter_config.json"))


def connect() -> process.Worker:
    """The worker that $HEADLAB_WORKER names, or a local one that loads the embedded model at once."""
    return process.connect(warm=next(iter(embedded_models()), None))


class Supervisor:
    """Connects to the worker in the background and retries after a failure; all sessions share it."""

    def __init__(self, connect: Callable[[], process.Worker], delay: float) -> None:
        self._connect = connect
        self._delay = delay
        self._worker: process.Worker | None = None
        self._error = self._error_code = ""
        self._failed = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._seen = (0.0, State("starting", "Worker: starting"))
        self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._start, name="headlab-worker-start", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        time.sleep(self._delay)
        try:
            self._worker, self._error, self._error_code = self._connect(), "", ""
        except HeadlabError as error:
            self._error, self._error_code, self._failed = str(error), error.code, time.monotonic()

    def _again(self) -> None:
        """Try once more if the last attempt failed a while ago."""
        with self._lock:
            idle = self._thread is None or not self._thread.is_alive()
            if self._worker is None and idle and time.monotonic() - self._failed > RETRY_SECONDS:
                self._delay = 0.0
                self._begin()

    def client(self, wait: float = WAIT_SECONDS) -> Client:
        """The worker's client, waiting while a worker starts. Raises HeadlabError if there is none."""
        self._again()
        until = time.monotonic() + wait
        while (
            self._worker is None and self._thread is not None and self._thread.is_alive() and time.monotonic() < until
        ):
            time.sleep(0.02)
        if self._worker is None:
            raise HeadlabError(
                self._error or "the worker is still starting; try again in a few seconds",
                code=self._error_code or "worker.starting",
            )
        return self._worker.client()

    @property
    def connected(self) -> bool:
        """Whether `client` answers at once."""
        return self._worker is not None

    def state(self) -> State:
        """The worker's state, requested at most every two seconds, however many tabs are open."""
        asked, state = self._seen
        begun = state.kind == "starting" and self.connected
        if begun or time.monotonic() - asked > FRESH_SECONDS:
            self._seen = (time.monotonic(), state)
            self._seen = (time.monotonic(), state := self._ask())
        return state

    def _ask(self) -> State:
        self._again()
        if self._worker is None:
            return (
                State("away", f"Worker: not running. {self._error}")
                if self._error
                else State("starting", "Worker: starting")
            )
        try:
            return describe(self._worker.client().health())
        except HeadlabError as error:
            return State("away", f"Worker: not reachable. {error}")


def describe(health: dict[str, object]) -> State:
    """A worker's health in one line."""
    where, ray = f" on {health['device']}" if health.get("device") else "", str(health.get("ray") or "")
    if health.get("jobs_running"):
        waiting = health.get("jobs_waiting")
        more = f", {waiting} more job{'s' * (waiting != 1)} in line" if waiting else ""
        return State("busy", f"Worker: computing scores{where}{more}; live requests go first", ray)
    return State("ready", f"Worker: ready{where}" + (f". {health['note']}" if health.get("note") else ""), ray)


@st.cache_resource(show_spinner=False)
def supervisor() -> Supervisor:
    """The one supervisor of this server; $HEADLAB_WORKER names a worker elsewhere."""
    return Supervisor(connect, HEAD_START_SECONDS)


def client() -> Client:
    """A client of the worker; waits, with a spinner, while a local one starts. Raises HeadlabError."""
    watched = supervisor()
    if watched.connected:
        return watched.client()
    with st.spinner("Starting the worker that holds the model …"):
        return waited(watched.client)


def waited(ask: Callable[[], T]) -> T:
    """The answer to a slow call. Meanwhile another request, such as a page switch, may end this run."""

    def answer() -> Generator[T]:
        yield ask()

    live = Latest(answer)
    while not live.done:
        live.wait(2, GIVE_WAY_SECONDS)
        st.session_state.get("_")  # here streamlit checks for other requests
    if live.error is not None:
        raise live.error
    return cast(T, live.value)


def status_line() -> None:
    """One line in the sidebar; it keeps itself up to date unless the worker has nothing to do."""
    every = None if supervisor().state().kind == "ready" else LOOK_SECONDS
    follow(_status, every)(every)


def _status(every: float | None) -> None:
    state = supervisor().state()
    if every is not None and state.kind == "ready":
        st.rerun()  # which ends the timer
    if state.kind == "away":
        st.warning(state.line)
    else:
        st.caption(f"{SIGNS[state.kind]} {state.line}")
