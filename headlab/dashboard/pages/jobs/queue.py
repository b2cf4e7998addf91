"""The queue: running, then waiting, then ended jobs, and what can be done with them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import streamlit as st

from headlab.dashboard.frame import errors_as_sentences, supervisor
from headlab.dashboard.names import error_words, plain
from headlab.dashboard.panels.jobs import (
    LIVE_STATES,
    RESUMES_HELP,
    cancel_button,
    confirm_job_deletion,
    delete_job,
    draw_job_progress,
    ended_line,
    is_deletion_to_confirm,
    job_title,
    open_job,
    rerun_if_job_ended,
    rerun_when_jobs_change,
    resume_job,
    show_last_failure,
    sorted_queue,
    waiting_line,
)
from headlab.dashboard.widgets import Button, PageState, button, button_row, redraw_every
from headlab.worker import Client, JobRow

QUEUE_SECONDS = 1.0

ICONS = {
    "queued": "schedule",
    "running": "sync",
    "done": "check_circle",
    "failed": "error",
    "cancelled": "cancel",
}

FIRST_ENDED_JOBS = 8
"""Ended jobs that are listed at first; "Show more" adds three times as many."""

JOBS_ARE_KEPT = (
    "The list of jobs is kept in the cache folder, and they resume where they stopped once a "
    "worker runs."
)

NO_JOBS = (
    "No job is running or waiting. Create one under **New job**, or press **Compute** on a page "
    "that lacks a result. Jobs keep running when this page is closed."
)


@dataclass
class EndedJobs(PageState):
    """The list of ended jobs on the Jobs page of one session.

    Attributes:
        listed: The number of jobs that are listed at most.
    """

    key = "_jobs_shown"
    listed: int = FIRST_ENDED_JOBS


def draw_queue() -> None:
    """The queue; the page reruns when a job is added, starts or ends."""
    with errors_as_sentences():
        show_last_failure(of_all=True)
        worker = reached_worker()
        if worker is None:
            redraw_every(_await_worker, QUEUE_SECONDS)()
            return
        jobs = worker.jobs()
        rerun_if_job_ended(jobs, tell_failures=False)
        queue = sorted_queue(jobs)
        now = time.time()
        if not queue.live:
            st.info(NO_JOBS)
        for job in queue.running:
            _draw_running(job)
        for position, job in enumerate(queue.waiting, 1):
            _draw_card(job, waiting_line(job, position, now))
        _draw_ended(queue.ended, now)
        rerun_when_jobs_change(queue.live)


def _await_worker() -> None:
    if supervisor().is_connected:
        st.rerun()


def reached_worker() -> Client | None:
    """The worker if it is connected; else None, and a sentence says why not."""
    worker_supervisor = supervisor()
    if worker_supervisor.is_connected:
        return worker_supervisor.client()
    state = worker_supervisor.state()
    if state.kind == "away":
        st.warning(plain(f"{state.line} {JOBS_ARE_KEPT}"))
    else:
        st.info("The worker is starting; its jobs appear here in a moment.")
    return None


def _draw_ended(jobs: list[JobRow], now: float) -> None:
    if not jobs:
        return
    st.markdown("##### Ended")
    listed = EndedJobs.of_session().listed
    for job_row in jobs[:listed]:
        _draw_card(job_row, ended_line(job_row, now))
    if len(jobs) > listed:
        button(f"Show more ({len(jobs) - listed})", key="jobs-more", on_press=_show_more)


def _show_more() -> None:
    EndedJobs.of_session().listed += 3 * FIRST_ENDED_JOBS


def _draw_running(job_row: JobRow) -> None:
    with st.container(border=True, key=f"job-{job_row.id}"):
        _draw_heading(job_row)
        draw_job_progress(job_row)
        _draw_delete_question(job_row)


def _draw_card(job_row: JobRow, line: str) -> None:
    with st.container(border=True, key=f"job-{job_row.id}", gap="xsmall"):
        _draw_heading(job_row)
        st.caption(plain(line))
        if job_row.state == "failed":
            st.error(plain(failure_words(job_row)))
        _draw_delete_question(job_row)


def _draw_heading(job_row: JobRow) -> None:
    with st.container(
        horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", gap="small"
    ):
        draw_open_button(job_row)
        button_row(*action_buttons(job_row))


def draw_open_button(job_row: JobRow) -> None:
    """The button that opens a job."""
    number = job_row.id
    button(
        f"Job {number}: {job_title(job_row)}",
        icon=ICONS[job_row.state],
        kind="tertiary",
        key=f"open-{number}",
        on_press=open_job,
        args=(number,),
    )


def failure_words(job_row: JobRow) -> str:
    """Why a job failed."""
    return (
        error_words(job_row.error or "")
        or "It failed without an error message; its log may say more."
    )


def draw_actions(job_row: JobRow) -> None:
    """A job's buttons, and the delete confirmation if it is open."""
    button_row(*action_buttons(job_row, resume_first=False))
    _draw_delete_question(job_row)


def action_buttons(job_row: JobRow, *, resume_first: bool = True) -> list[Button]:
    """The buttons for a job in its state.

    Args:
        job_row: The job.
        resume_first: Whether Resume is before Delete. Delete, which asks first, must take Cancel's
            place under the pointer, or a double click would resume the job; so the order depends on
            the row's alignment.
    """
    number = job_row.id
    if job_row.state in LIVE_STATES:
        return [cancel_button(number)]
    delete = Button("Delete", f"delete-{number}", confirm_job_deletion, (number,))
    if job_row.state == "done":
        return [delete]
    resume = Button("Resume", f"resume-{number}", resume_job, (number,), help=RESUMES_HELP)
    if resume_first:
        return [resume, delete]
    return [delete, resume]


def _draw_delete_question(job_row: JobRow) -> None:
    number = job_row.id
    if not is_deletion_to_confirm(number) or job_row.state == "running":
        return
    also_deleted = "" if job_row.state == "done" else " and its unfinished results"
    st.warning(f"Delete job {number} with its log{also_deleted}? Finished results stay.")
    button_row(
        Button(
            f"Delete job {number}",
            f"delete-yes-{number}",
            delete_job,
            (number,),
            "primary",
        ),
        Button("Keep it", f"delete-no-{number}", confirm_job_deletion, (None,)),
    )
