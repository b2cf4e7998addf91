"""One job: progress, the map while it sharpens, its log, what it computes and its results."""

from __future__ import annotations

import time
from dataclasses import dataclass

import streamlit as st

from headlab.core import Head, HeadlabError, json_with_rows
from headlab.dashboard.frame import errors_as_sentences, scores_of, supervisor
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.pages.jobs.openers import choice_of_scores
from headlab.dashboard.pages.jobs.queue import draw_actions, failure_words, reached_worker
from headlab.dashboard.pages.jobs.results import draw_results
from headlab.dashboard.panels.jobs import (
    LIVE_STATES,
    draw_head_so_far,
    draw_sharpening_map,
    ended_line,
    job_details,
    job_of_row,
    job_requests,
    job_title,
    open_job,
    progress_line,
    share_done,
    show_last_failure,
    waiting_line,
    words_of_job,
)
from headlab.dashboard.widgets import (
    PageState,
    button,
    download_button,
    redraw_every,
    show_named_values,
)
from headlab.jobs.table import MASK_PLACEHOLDER, WorthJob, WriteJob
from headlab.methods import METHODS
from headlab.results import HeadScores
from headlab.worker import Client, JobRow


def command_lines(job_row: JobRow) -> str:
    """The commands equivalent to a job.

    Empty if there are none, as for a method of a package that is not installed here.
    """
    job = job_of_row(job_row)
    if job is None:
        return ""
    method = job.field_value("method")
    if method is not None and method not in METHODS:
        return ""
    return words_of_job(job, lambda job: job.terminal_lines())


REDRAW_SECONDS = 1.0
"""How often what a live job shows is drawn anew."""
RETRY_SECONDS = 3.0
"""How often a job is asked for again that cannot be fetched."""
LOG_HEIGHT = 260
"""Height of the log in pixels."""


@dataclass
class MapOfRunningJob(PageState):
    """The map of the job that runs, on the Jobs page of one session.

    Attributes:
        selected_head: The head that was clicked last; None if none was.
    """

    key = "_jobs_head"
    selected_head: Head | None = None


def draw_details(number: int) -> None:
    """Draw a job by its number; what changes while it runs is redrawn apart from the buttons."""
    button(
        "All jobs",
        icon="arrow_back",
        kind="tertiary",
        key="jobs-all",
        on_press=open_job,
        args=(None,),
    )
    job_row = _job_or_none(number)
    if job_row is None:
        redraw_every(_ask_again, RETRY_SECONDS)(number)
        return
    st.subheader(f"Job {number}: {plain(job_title(job_row))}")
    with errors_as_sentences():
        show_last_failure(of_all=True)
        is_live = job_row.state in LIVE_STATES
        if not is_live:
            job_requests().own_numbers.discard(number)  # its end has been seen
        redraw_every(_draw_state_or_rerun, REDRAW_SECONDS if is_live else None)(
            number, job_row.state
        )
        draw_actions(job_row)
        _draw_body(supervisor().client(), job_row)


def _job_or_none(number: int) -> JobRow | None:
    """The job; None if it cannot be fetched now: `_ask_again` says why."""
    try:
        if supervisor().is_connected:
            return supervisor().client().job(number)
        return None
    except HeadlabError:
        return None


def _ask_again(number: int) -> None:
    with errors_as_sentences():
        worker = reached_worker()
        if worker is not None and worker.job(number):
            st.rerun()


def _draw_state_or_rerun(number: int, state: str) -> None:
    with errors_as_sentences():
        worker = supervisor().client()
        job_row = worker.job(number)
        if job_row.state != state:
            st.rerun()  # the rest of the page has changed too
        _draw_state(worker, job_row)


def _draw_body(worker: Client, job_row: JobRow) -> None:
    """On the left what the job computes, on the right its log, whatever the job's state is."""
    result_column, log_column = st.columns([10, 11], gap="large")
    redraw_seconds = REDRAW_SECONDS if job_row.state in LIVE_STATES else None
    with result_column:
        if redraw_seconds:
            redraw_every(_draw_running_map, redraw_seconds)(job_row.id)
        if job_row.state == "done":
            draw_results(job_row)
        _draw_description(job_row)
    with log_column:
        redraw_every(_draw_log, redraw_seconds)(job_row.id)
        commands = command_lines(job_row)
        if commands:
            st.caption("The same from a terminal:")
            st.code(commands, language="bash", wrap_lines=True)
            _offer_mask(job_row)


def _offer_mask(job_row: JobRow) -> None:
    """The mask that a job's command names, as a file, if it names one."""
    job = job_of_row(job_row)
    if isinstance(job, WorthJob | WriteJob) and job.mask is not None:
        text = json_with_rows(job.mask) + "\n"
        download_button(
            f"Download {MASK_PLACEHOLDER}",
            text,
            MASK_PLACEHOLDER,
            "application/json",
            key="job-mask",
        )


def _draw_running_map(number: int) -> None:
    """The map of what is computed now.

    Its clicks go through the log of presses, so redrawing loses none.
    """
    with errors_as_sentences():
        job_row, scores = supervisor().client().snapshot(number)
        if scores is not None:
            stored_scores = _stored_scores(job_row)
            st.markdown(f"##### {plain(language_title(scores.language))}, being computed")
            selected_head = MapOfRunningJob.of_session().selected_head
            draw_sharpening_map(job_row, scores, stored_scores, selected_head, _select_head)
            draw_head_so_far(scores, stored_scores, selected_head)


def _select_head(head: Head) -> None:
    MapOfRunningJob.of_session().selected_head = head


def _draw_state(worker: Client, job_row: JobRow) -> None:
    now = time.time()
    if job_row.state == "running":
        st.progress(share_done(job_row), plain(progress_line(job_row)))
    elif job_row.state == "queued":
        waiting = [other_job for other_job in worker.jobs() if other_job.state == "queued"]
        position = sum(other_job.id <= job_row.id for other_job in waiting)
        st.markdown(plain(f"Waiting: {waiting_line(job_row, max(1, position), now)}."))
    else:
        line = ended_line(job_row, now)
        st.markdown(plain(f"{line[0].upper()}{line[1:]}."))
    if job_row.state == "failed":
        st.error(plain(failure_words(job_row)))


def _draw_log(number: int) -> None:
    with errors_as_sentences():
        st.markdown("##### Log, newest first")
        lines = supervisor().client().log(number)
        if lines:
            st.code("\n".join(reversed(lines)), language=None, height=LOG_HEIGHT, wrap_lines=True)
        else:
            st.caption("Nothing has been logged yet.")


def _stored_scores(job_row: JobRow) -> dict[str, HeadScores]:
    choice = choice_of_scores(job_row)
    if choice is None:
        return {}
    return dict(scores_of(choice).scores)


def _draw_description(job_row: JobRow) -> None:
    st.markdown("##### What it computes")
    show_named_values(job_details(job_row))
