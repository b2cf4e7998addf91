"""The queue: the running job first, then those that wait, then those that ended."""

from __future__ import annotations

import time

import streamlit as st

from headlab.ui import jobs_do
from headlab.ui.jobs_follow import KEPT, cancel_button, far, settle, watch
from headlab.ui.jobs_words import LIVE, Job, ended_line, in_order, title, waiting_line
from headlab.ui.live import follow
from headlab.ui.presses import Button, button, row
from headlab.ui.shell import guarded
from headlab.ui.shell_worker import supervisor
from headlab.worker.client import Client

SECONDS = 1.0
ICONS = {
    "queued": "schedule",
    "running": "sync",
    "done": "check_circle",
    "failed": "error",
    "cancelled": "cancel",
}
SHOWN, MORE = 8, "_jobs_shown"
GONE = "The list of jobs is kept in the cache folder, and they go on where they stopped once a worker runs."
EMPTY = (
    "No job runs or waits. Put one together under **New job**, or press **Compute** on a page that lacks a result. "
    "Jobs go on when this page is closed."
)


def draw() -> None:
    """The queue; the page runs again when a job begins, ends or comes."""
    with guarded():
        jobs_do.said()
        if (worker := reached()) is None:
            follow(_await_worker, SECONDS)()
            return
        jobs = worker.jobs()
        settle(jobs, tell=False)
        queue, now = in_order(jobs), time.time()
        if not queue.live:
            st.info(EMPTY)
        for job in queue.running:
            _running(job)
        for position, job in enumerate(queue.waiting, 1):
            _card(job, waiting_line(job, position, now))
        _ended(queue.ended, now)
        watch(queue.live)


def _await_worker() -> None:
    if supervisor().connected:
        st.rerun()


def reached() -> Client | None:
    """The worker, if it can be asked without waiting; else None, and a sentence says why not."""
    watched = supervisor()
    if watched.connected:
        return watched.client()
    state = watched.state()
    if state.kind == "away":
        st.warning(f"{state.line} {GONE}")
    else:
        st.info("The worker is starting; its jobs appear here in a moment.")
    return None


def _ended(jobs: list[Job], now: float) -> None:
    if not jobs:
        return
    st.markdown("##### Ended")
    shown = st.session_state.get(MORE, SHOWN)
    for job in jobs[:shown]:
        _card(job, ended_line(job, now))
    if len(jobs) > shown:
        button(f"Show more ({len(jobs) - shown})", key="jobs-more", on_press=_show_more)


def _show_more() -> None:
    st.session_state[MORE] = st.session_state.get(MORE, SHOWN) + 3 * SHOWN


def _running(job: Job) -> None:
    with st.container(border=True, key=f"job-{job['id']}"):
        _heading(job)
        far(job)
        _asking(job)


def _card(job: Job, line: str) -> None:
    with st.container(border=True, key=f"job-{job['id']}", gap="xsmall"):
        _heading(job)
        st.caption(line)
        if job["state"] == "failed":
            st.error(trouble(job))
        _asking(job)


def _heading(job: Job) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", gap="small"):
        open_button(job)
        row(*buttons(job))


def open_button(job: Job) -> None:
    """The button that turns the page to a job."""
    number = job["id"]
    label = f"Job {number}: {title(job)}"
    button(
        label, icon=ICONS[job["state"]], kind="tertiary", key=f"open-{number}", on_press=jobs_do.show, args=(number,)
    )


def trouble(job: Job) -> str:
    """Why a job failed."""
    return str(job.get("error") or "It failed without a sentence; its log may say more.")


def actions(job: Job) -> None:
    """What can be done with a job, and the question whether to delete it where that was asked for."""
    row(*buttons(job, resume_first=False))
    _asking(job)


def buttons(job: Job, *, resume_first: bool = True) -> list[Button]:
    """What can be done with a job in its state.

    resume_first: what takes the place of Cancel under the pointer is to be Delete, which asks, as a double
    click would otherwise resume the job; so it depends on the side that the row is aligned to.
    """
    number, state = job["id"], job["state"]
    if state in LIVE:
        return [cancel_button(number)]
    delete = Button("Delete", f"delete-{number}", jobs_do.confirm_delete, (number,))
    if state == "done":
        return [delete]
    resume = Button("Resume", f"resume-{number}", jobs_do.resume, (number,), help=KEPT)
    return [resume, delete] if resume_first else [delete, resume]


def _asking(job: Job) -> None:
    if jobs_do.deleting(job["id"]) and job["state"] != "running":
        _confirm(job)


def _confirm(job: Job) -> None:
    number = job["id"]
    lost = "" if job["state"] == "done" else " and what it has done of unfinished results"
    st.warning(f"Delete job {number} with its log{lost}? Finished results stay.")
    row(
        Button(f"Delete job {number}", f"delete-yes-{number}", jobs_do.delete, (number,), "primary"),
        Button("Keep it", f"delete-no-{number}", jobs_do.confirm_delete, (None,)),
    )
