"""The worker as pages see it: started once per server, with its state and a client."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import streamlit as st

from headlab.core import APP_DEVICE_VARIABLE, APP_MODEL_VARIABLE, HeadlabError
from headlab.dashboard.frame.background import wait_for_result
from headlab.dashboard.names import count_words, plain
from headlab.dashboard.widgets import redraw_every
from headlab.worker import Client, Health, process

WAIT_SECONDS = 60.0

FRESH_SECONDS = 2.0

RETRY_SECONDS = 10.0
"""Seconds after a failed start before it is tried again."""

LOOK_SECONDS = 3.0
"""Seconds between two drawings of the worker's state."""

# The first page also needs the processor, and needs no worker.
HEAD_START_SECONDS = 1.5

STATE_ICONS = {
    "starting": ":material/hourglass_top:",
    "ready": ":material/check_circle:",
    "busy": ":material/sync:",
}


class WorkerState(NamedTuple):
    """What the worker is doing: `starting`, `ready`, `busy` or `away`, and a line that says so.

    Attributes:
        kind: Which of these.
        line: The line.
        ray: The Ray cluster that it can hand jobs to, in a word; empty if there is none.
    """

    kind: str
    line: str
    ray: str = ""


def embedded_models() -> list[str]:
    """Models shipped with headlab: the folders of their adapters (read without torch)."""
    root = Path(str(files("headlab") / "embedded"))
    return sorted(p.parent.name for p in root.glob("*/adapter_config.json"))


def connect() -> process.Worker:
    """The worker that $HEADLAB_WORKER names, or a local one.

    A local one loads at once the model that pages show first, unless that would be fetched.
    """
    embedded = embedded_models()
    model = os.environ.get(APP_MODEL_VARIABLE, "")
    if not model or not (model in embedded or Path(model).is_dir()):
        model = next(iter(embedded), "")
    device = os.environ.get(APP_DEVICE_VARIABLE) or None
    return process.connect(warm=model or None, device=device)


class WorkerSupervisor:
    """Connects to the worker in the background and retries after a failure.

    All sessions share it.
    """

    def __init__(self, connect: Callable[[], process.Worker], delay: float) -> None:
        self._connect = connect
        self._delay = delay
        self._worker: process.Worker | None = None
        self._error = ""
        self._error_code = ""
        self._failure_time = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last_state = (0.0, WorkerState("starting", "Worker: starting"))
        self._start_thread()

    def _start_thread(self) -> None:
        self._thread = threading.Thread(
            target=self._connect_after_delay, name="headlab-worker-start", daemon=True
        )
        self._thread.start()

    def _connect_after_delay(self) -> None:
        time.sleep(self._delay)
        try:
            self._worker = self._connect()
            self._error = ""
            self._error_code = ""
        except HeadlabError as error:
            self._error = str(error)
            self._error_code = error.code
            self._failure_time = time.monotonic()

    def _retry_if_due(self) -> None:
        """Try once more if the last attempt failed a while ago."""
        with self._lock:
            is_idle = self._thread is None or not self._thread.is_alive()
            is_due = time.monotonic() - self._failure_time > RETRY_SECONDS
            if self._worker is None and is_idle and is_due:
                self._delay = 0.0
                self._start_thread()

    def client(self, wait: float = WAIT_SECONDS) -> Client:
        """The worker's client, waiting while a worker starts.

        Args:
            wait: For how many seconds at most.

        Raises:
            HeadlabError: There is no worker, or none yet.
        """
        self._retry_if_due()
        deadline = time.monotonic() + wait
        while (
            self._worker is None
            and self._thread is not None
            and self._thread.is_alive()
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        if self._worker is None:
            raise HeadlabError(
                self._error or "the worker is still starting; try again in a few seconds",
                code=self._error_code or "worker.starting",
            )
        return self._worker.client()

    @property
    def is_connected(self) -> bool:
        """Whether `client` answers at once."""
        return self._worker is not None

    def state(self) -> WorkerState:
        """The worker's state, requested at most every two seconds, however many tabs are open."""
        request_time, state = self._last_state
        has_begun = state.kind == "starting" and self.is_connected
        if has_begun or time.monotonic() - request_time > FRESH_SECONDS:
            self._last_state = (time.monotonic(), state)  # others need not ask meanwhile
            state = self._ask()
            self._last_state = (time.monotonic(), state)
        return state

    def _ask(self) -> WorkerState:
        self._retry_if_due()
        if self._worker is None and self._error:
            return WorkerState("away", f"Worker: not running. {self._error}")
        if self._worker is None:
            return WorkerState("starting", "Worker: starting")
        try:
            return state_of(self._worker.client().health())
        except HeadlabError as error:
            return WorkerState("away", f"Worker: not reachable. {error}")


def state_of(health: Health) -> WorkerState:
    """A worker's health in one line."""
    device_words = f" on {health.device}" if health.device else ""
    if not health.jobs_running:
        note = f". {health.note}" if health.note else ""
        return WorkerState("ready", f"Worker: ready{device_words}{note}", health.ray)
    waiting = health.jobs_waiting
    waiting_words = f", {count_words(waiting, 'more job')} in line" if waiting else ""
    line = (
        f"Worker: running a job{device_words}{waiting_words}; live requests for its model go first"
    )
    return WorkerState("busy", line, health.ray)


@st.cache_resource(show_spinner=False)
def supervisor() -> WorkerSupervisor:
    """The one supervisor of this server; $HEADLAB_WORKER names a worker elsewhere."""
    return WorkerSupervisor(connect, HEAD_START_SECONDS)


def worker_client() -> Client:
    """A client of the worker; waits, with a spinner, while a local one starts.

    Raises HeadlabError.
    """
    shared_supervisor = supervisor()
    if shared_supervisor.is_connected:
        return shared_supervisor.client()
    with st.spinner("Starting the worker that holds the model …"):
        return wait_for_result(shared_supervisor.client)


def show_worker_state() -> None:
    """One line in the sidebar; it keeps itself up to date unless the worker has nothing to do."""
    redraw_seconds = None if supervisor().state().kind == "ready" else LOOK_SECONDS
    redraw_every(_show_state, redraw_seconds)(redraw_seconds)


def _show_state(redraw_seconds: float | None) -> None:
    state = supervisor().state()
    if redraw_seconds is not None and state.kind == "ready":
        st.rerun()  # which ends the timer
    if state.kind == "away":
        st.warning(plain(state.line))
    else:
        st.caption(f"{STATE_ICONS[state.kind]} {plain(state.line)}")
