"""The queue: the running job first, then those that wait, then those that ended."""

from __future__ import annotations

import time

import streamlit as st

from headlab.ui import jobs_do
from headlab.ui.jobs_follow import KEPT, cancel_button, settle
from headlab.ui.jobs_words import LIVE, Job, ended_line, in_order, progress_line, share, title, waiting_line
from headlab.ui.once import once
from headlab.ui.shell import guarded
from headlab.ui.shell_worker import supervisor
from headlab.worker.client import Client

SECONDS = 1.0
ICONS = {
    "queued": ":material/schedule:",
    "running": ":material/sync:",
    "done": ":material/check_circle:",
    "failed": ":material/error:",
    "cancelled": ":material/cancel:",
}
SHOWN, MORE, REACHED = 8, "_jobs_shown", "_jobs_reached"
GONE = "The list of jobs is kept in the cache folder, and they go on where they stopped once a worker runs."
EMPTY = (
    "No job runs or waits. Put one together under **New job**, or press **Compute** on a page that lacks a result. "
    "Jobs go on when this page is closed."
)


def draw() -> None:
    """The queue, kept up to date."""
    st.fragment(_look, run_every=SECONDS)(jobs_do.address())


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


def _look(address: str) -> None:
    with guarded():
        if jobs_do.address() != address:
            st.rerun()  # a job was opened here
        jobs_do.said()
        worker = reached()
        _note_change(worker is not None)
        if worker is None:
            return
        jobs = worker.jobs()
        settle(jobs, tell=False)
        queue, now = in_order(jobs), time.time()
        if not queue.live:
            st.info(EMPTY)
        for job in queue.running:
            _running(job)
        for position, job in enumerate(queue.waiting, 1):
            _row(job, waiting_line(job, position, now))
        _ended(queue.ended, now)


def _note_change(here: bool) -> None:
    """Run the page again when the worker has come: the form has a forecast then."""
    before, st.session_state[REACHED] = st.session_state.get(REACHED), here
    if before is False and here:
        st.rerun()


def _ended(jobs: list[Job], now: float) -> None:
    if not jobs:
        return
    st.markdown("##### Ended")
    shown = st.session_state.get(MORE, SHOWN)
    for job in jobs[:shown]:
        _row(job, ended_line(job, now))
    if len(jobs) > shown:
        st.button(f"Show more ({len(jobs) - shown})", key="jobs-more", on_click=once(_show_more))


def _show_more() -> None:
    st.session_state[MORE] = st.session_state.get(MORE, SHOWN) + 3 * SHOWN


def _running(job: Job) -> None:
    with st.container(border=True, key=f"job-{job['id']}"):
        _heading(job)
        st.progress(share(job), progress_line(job))
        _asking(job)


def _row(job: Job, line: str) -> None:
    with st.container(border=True, key=f"job-{job['id']}", gap="xsmall"):
        _heading(job)
        st.caption(line)
        if job["state"] == "failed":
            st.error(trouble(job))
        _asking(job)


def _heading(job: Job) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", gap="small"):
        open_button(job)
        with st.container(horizontal=True, width="content", gap="small"):
            buttons(job)


def open_button(job: Job) -> None:
    """The button that turns the page to a job."""
    number, icon = job["id"], ICONS[job["state"]]
    label = f":primary[Job {number}: {title(job)}]"
    st.button(label, icon=icon, type="tertiary", key=f"open-{number}", on_click=jobs_do.show, args=(number,))


def trouble(job: Job) -> str:
    """Why a job failed."""
    return str(job.get("error") or "It failed without a sentence; its log may say more.")


def actions(job: Job) -> None:
    """What can be done with a job, and the question whether to delete it where that was asked for."""
    with st.container(horizontal=True, gap="small", key="actions"):
        buttons(job, resume_first=False)
    _asking(job)


def buttons(job: Job, *, resume_first: bool = True) -> None:
    """What can be done with a job in its state.

    resume_first: what takes the place of Cancel under the pointer is to be Delete, which asks, as a double
    click would otherwise resume the job; so it depends on the side that the row is aligned to.
    """
    number, state = job["id"], job["state"]
    if state in LIVE:
        cancel_button(number)
        return
    shown = [_resume_button] if state in ("failed", "cancelled") else []
    for draw_one in [*shown, _delete_button] if resume_first else [_delete_button, *shown]:
        draw_one(number)


def _resume_button(number: int) -> None:
    st.button("Resume", key=f"resume-{number}", help=KEPT, on_click=once(jobs_do.resume), args=(number,))


def _delete_button(number: int) -> None:
    st.button("Delete", key=f"delete-{number}", on_click=jobs_do.confirm_delete, args=(number,))


def _asking(job: Job) -> None:
    if jobs_do.deleting(job["id"]) and job["state"] != "running":
        _confirm(job)


def _confirm(job: Job) -> None:
    number = job["id"]
    lost = "" if job["state"] == "done" else " and what it has done of unfinished results"
    st.warning(f"Delete job {number} with its log{lost}? Finished results stay.")
    with st.container(horizontal=True, gap="small"):
        label = f"Delete job {number}"
        st.button(label, key=f"delete-yes-{number}", type="primary", on_click=once(jobs_do.delete), args=(number,))
        st.button("Keep it", key=f"delete-no-{number}", on_click=jobs_do.confirm_delete, args=(None,))
