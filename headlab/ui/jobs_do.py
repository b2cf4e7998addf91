"""What a press may ask of the job list. It is called before anything is drawn again, and is not interrupted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import streamlit as st

from headlab.errors import HeadlabError
from headlab.ui.jobs_words import LIVE
from headlab.ui.shell_worker import supervisor
from headlab.worker.client import Client

ASKED, DELETING, TURNED = "_jobs_asked", "_jobs_deleting", "_jobs_turned"


class Started(NamedTuple):
    """A job that a click asked for. before: it was in the queue already."""

    job: int
    state: str
    before: bool


@dataclass
class Asked:
    """What a session has asked for.

    mine: jobs whose end it has not seen yet.  live: all that ran or waited when it last looked.  said: why its last
    click or job did not end well.  started: the job that its last click queued.
    """

    mine: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)
    said: str = ""
    started: Started | None = None

    def forget(self, why: str = "") -> None:
        """A click answers what was said before; why: it could not be done."""
        self.said, self.started = why, None


def asked_for() -> Asked:
    """What this session has asked for."""
    held: Asked = st.session_state.setdefault(ASKED, Asked())
    return held


def ask(do: Callable[[Client], object]) -> None:
    """Ask the worker; what goes wrong is a sentence that `said` shows until the next click."""
    held = asked_for()
    held.forget()
    try:
        do(supervisor().client())
    except HeadlabError as error:
        held.said = str(error)


def said() -> None:
    """Why this session's last click or job did not end well, until the next click."""
    if sentence := asked_for().said:
        st.error(sentence)


def start(kind: str, spec: Mapping[str, Any], place: str = "here") -> None:
    """Queue a job as this session's own."""
    held = asked_for()

    def do(worker: Client) -> None:
        before = {job["id"] for job in worker.jobs() if job["state"] in LIVE}
        made = worker.submit(kind, spec, place)
        held.mine.add(made["id"])
        held.started = Started(made["id"], made["state"], made["id"] in before)

    ask(do)


def show(job: int | None) -> None:
    """Turn the Jobs page to one job, or to all. A link to the same page would drop the rest of the address."""
    asked_for().forget()
    st.session_state.pop(DELETING, None)
    st.session_state[TURNED] = job


def shown() -> str:
    """The job that the link names, or nothing; what a press turned to comes first, and goes into the link here.

    A press does not write the link itself: a timer's run that it ends may still begin again after it, and put the link
    of its own request in the place of the session's.
    """
    if TURNED in st.session_state:
        if (job := st.session_state[TURNED]) is None:
            st.query_params.pop("job", None)
        else:
            st.query_params["job"] = str(job)
        del st.session_state[TURNED]  # last: a run that is ended before leaves it to the next
    return st.query_params.get("job", "")


def cancel(job: int) -> None:
    """End a running job at its next batch, a waiting one at once."""
    _drop()
    ask(lambda worker: worker.cancel(job))


def resume(job: int) -> None:
    """Queue a cancelled or failed job again."""
    _drop()
    ask(lambda worker: worker.resume(job))


def _drop() -> None:
    """The question whether to delete a job is answered by doing something else with one."""
    st.session_state.pop(DELETING, None)


def confirm_delete(job: int | None) -> None:
    """Ask whether to delete a job; None: the answer was no."""
    asked_for().said = ""
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
