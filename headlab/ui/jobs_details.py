"""One job: how far it is, its map while it sharpens, its log, what it computes and where its results are."""

from __future__ import annotations

import time

import pandas as pd
import streamlit as st

from headlab.errors import HeadlabError
from headlab.records import Head
from headlab.scores import HeadScores
from headlab.ui import jobs_do, jobs_results
from headlab.ui.jobs_queue import actions, reached, trouble
from headlab.ui.jobs_sharpening import about_head, picture
from headlab.ui.jobs_words import LIVE, Job, details, ended_line, progress_line, share, title, waiting_line
from headlab.ui.live import follow
from headlab.ui.names import language_title
from headlab.ui.presses import button
from headlab.ui.shell import found, guarded
from headlab.ui.shell_worker import supervisor
from headlab.worker.client import Client

SECONDS, AGAIN_SECONDS, LOG_HEIGHT = 1.0, 3.0, 260
HEAD = "_jobs_head"


def draw(number: int) -> None:
    """A job by its number; what changes while it runs is kept up to date, and stands apart from what is pressed."""
    button("All jobs", icon="arrow_back", kind="tertiary", key="jobs-all", on_press=jobs_do.show, args=(None,))
    job = _known(number)
    if job is None:
        follow(_ask_again, AGAIN_SECONDS)(number)
        return
    st.subheader(f"Job {number}: {title(job)}")
    with guarded():
        jobs_do.said()
        if job["state"] not in LIVE:
            jobs_do.asked_for().mine.discard(number)  # seen to its end
        follow(_look, SECONDS if job["state"] in LIVE else None)(number, job["state"])
        actions(job)
        _body(supervisor().client(), job)


def _known(number: int) -> Job | None:
    """The job; None if it cannot be asked for now, `_ask_again` says why."""
    try:
        return supervisor().client().job(number) if supervisor().connected else None
    except HeadlabError:
        return None


def _ask_again(number: int) -> None:
    with guarded():
        worker = reached()
        if worker is not None and worker.job(number):
            st.rerun()


def _look(number: int, state: str) -> None:
    with guarded():
        worker = supervisor().client()
        job = worker.job(number)
        if job["state"] != state:
            st.rerun()  # what stands around this has changed too
        _state(worker, job)


def _body(worker: Client, job: Job) -> None:
    """Left what it computes, right what happened; the log keeps its place whatever the job does."""
    left, right = st.columns([10, 11], gap="large")
    every = SECONDS if job["state"] in LIVE else None
    with left:
        if every:
            follow(_map, every)(job["id"])
        if job["state"] == "done":
            jobs_results.draw(job)
        _about(job)
    with right:
        follow(_log, every)(job["id"])
        if line := jobs_results.terminal(job):
            st.caption("The same from a terminal:")
            st.code(line, language="bash", wrap_lines=True)


def _map(number: int) -> None:
    """The map of what is computed now. It takes clicks, which the log of presses keeps however often it is drawn."""
    with guarded():
        job, scores = supervisor().client().snapshot(number)
        if scores is not None:
            stored = _stored(job)
            st.markdown(f"##### {language_title(scores.language)}, being computed")
            picture(job, scores, stored, st.session_state.get(HEAD), _pick)
            about_head(scores, stored, st.session_state.get(HEAD))


def _pick(head: Head) -> None:
    st.session_state[HEAD] = head


def _state(worker: Client, job: Job) -> None:
    now = time.time()
    if job["state"] == "running":
        st.progress(share(job), progress_line(job))
    elif job["state"] == "queued":
        ahead = [other for other in worker.jobs() if other["state"] == "queued" and other["id"] <= job["id"]]
        st.markdown(f"Waiting: {waiting_line(job, max(1, len(ahead)), now)}.")
    else:
        line = ended_line(job, now)
        st.markdown(f"{line[0].upper()}{line[1:]}.")
    if job["state"] == "failed":
        st.error(trouble(job))


def _log(number: int) -> None:
    with guarded():
        st.markdown("##### Log, newest first")
        if lines := supervisor().client().log(number):
            st.code("\n".join(reversed(lines)), language=None, height=LOG_HEIGHT, wrap_lines=True)
        else:
            st.caption("Nothing is written yet.")


def _stored(job: Job) -> dict[str, HeadScores]:
    choice = jobs_results.choice_of(job)
    return {} if choice is None else dict(found(choice).scores)


def _about(job: Job) -> None:
    st.markdown("##### What it computes")
    table = pd.DataFrame(details(job), columns=["what", "value"])
    st.table(table, border="horizontal", hide_index=True, hide_header=True)
