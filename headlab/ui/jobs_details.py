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
from headlab.ui.names import language_title
from headlab.ui.shell import found, guarded
from headlab.ui.shell_worker import supervisor
from headlab.worker.client import Client

SECONDS, AGAIN_SECONDS, LOG_HEIGHT = 1.0, 3.0, 260
HEAD, STATE = "_jobs_head", "_jobs_state"


def draw(number: int) -> None:
    """A job by its number, kept up to date."""
    st.button("All jobs", icon=":material/arrow_back:", type="tertiary", on_click=jobs_do.show, args=(None,))
    job = _known(number)
    if job is None:
        st.fragment(_ask_again, run_every=AGAIN_SECONDS)(number)
        return
    st.session_state[STATE] = (number, job["state"])
    st.subheader(f"Job {number}: {title(job)}")
    st.fragment(_look, run_every=SECONDS)(number, jobs_do.address())


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


def _look(number: int, address: str) -> None:
    with guarded():
        worker = reached()
        if worker is None:
            return
        if jobs_do.address() != address:
            st.rerun()  # it was deleted here
        jobs_do.said()
        job, scores = worker.snapshot(number)
        if job["state"] not in LIVE:
            jobs_do.asked_for().mine.discard(number)  # seen to its end
        if (number, job["state"]) != st.session_state.get(STATE):
            st.rerun()  # what stands around this has changed too
        _state(worker, job)
        _body(worker, job, scores)


def _body(worker: Client, job: Job, scores: HeadScores | None) -> None:
    """Left what it computes, right what happened; the log keeps its place whatever the job does."""
    left, right = st.columns([10, 11], gap="large")
    stored = _stored(job) if scores is not None else {}
    with left:
        if scores is not None:
            st.markdown(f"##### {language_title(scores.language)}, being computed")
            picture(job, scores, stored, st.session_state.get(HEAD), _pick)
            about_head(scores, stored, st.session_state.get(HEAD))
        if job["state"] == "done":
            jobs_results.draw(job)
        _about(job)
    with right:
        _log(worker, job["id"])
        if line := jobs_results.terminal(job):
            st.caption("The same from a terminal:")
            st.code(line, language="bash", wrap_lines=True)


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
    actions(job)


def _log(worker: Client, number: int) -> None:
    st.markdown("##### Log, newest first")
    lines = worker.log(number)
    if lines:
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
