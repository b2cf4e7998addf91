"""What a click may ask of the job list, as callbacks: streamlit calls them before anything is drawn again.

A button that is read while the page is drawn can lose its click: another event may come in the same request, or
end the run before the button is reached, or the job may have moved on so that the button is not drawn any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import streamlit as st

from headlab.errors import HeadlabError
from headlab.ui.jobs_words import LIVE
from headlab.ui.shell_worker import supervisor
from headlab.worker.client import Client

MINE, SAID, STARTED, DELETING = "_jobs_mine", "_jobs_said", "_jobs_started", "_jobs_deleting"


class Started(NamedTuple):
    """A job that a click asked for. before: it was in the queue already."""

    job: int
    state: str
    before: bool


def ask(do: Callable[[Client], None]) -> None:
    """Ask the worker; what goes wrong is a sentence that `said` shows until the next click."""
    st.session_state.pop(SAID, None)
    st.session_state.pop(STARTED, None)
    try:
        do(supervisor().client())
    except HeadlabError as error:
        st.session_state[SAID] = str(error)


def said() -> None:
    """Why this session's last click or job did not end well, until the next click."""
    if SAID in st.session_state:
        st.error(st.session_state[SAID])


def mine() -> set[int]:
    """Jobs of this session whose end it has not seen yet."""
    known: set[int] = st.session_state.setdefault(MINE, set())
    return known


def start(kind: str, spec: Mapping[str, Any], place: str = "here") -> None:
    """Queue a job as this session's own."""

    def do(worker: Client) -> None:
        before = {job["id"] for job in worker.jobs() if job["state"] in LIVE}
        made = worker.submit(kind, spec, place)
        mine().add(made["id"])
        st.session_state[STARTED] = Started(made["id"], made["state"], made["id"] in before)

    ask(do)


def started() -> Started | None:
    """The job that the last click queued; None if it queued none."""
    made: Started | None = st.session_state.get(STARTED)
    return made


def show(job: int | None) -> None:
    """Turn the Jobs page to one job, or to all. A link to the same page would drop the rest of the address."""
    st.session_state.pop(SAID, None)
    st.session_state.pop(STARTED, None)
    st.session_state.pop(DELETING, None)
    if job is None:
        st.query_params.pop("job", None)
    else:
        st.query_params["job"] = str(job)


def address() -> str:
    """What the page's address says about a job; a fragment that sees it change asks for a whole run."""
    return str(st.query_params.get("job", ""))


def cancel(job: int) -> None:
    """End a running job at its next batch, a waiting one at once."""
    ask(lambda worker: _drop(worker.cancel(job)))


def resume(job: int) -> None:
    """Queue a cancelled or failed job again."""
    ask(lambda worker: _drop(worker.resume(job)))


def _drop(_: object) -> None:
    """The question whether to delete a job is answered by doing something else with one."""
    st.session_state.pop(DELETING, None)


def confirm_delete(job: int | None) -> None:
    """Ask whether to delete a job; None: the answer was no."""
    st.session_state.pop(SAID, None)
    st.session_state[DELETING] = job


def deleting(job: int) -> bool:
    """Whether it is being asked if this job is to be deleted."""
    return st.session_state.get(DELETING) == job


def delete(job: int) -> None:
    """Take a job off the list, with its log and the checkpoints of what it did not finish."""

    def do(worker: Client) -> None:
        worker.delete(job)
        show(None)

    ask(do)
