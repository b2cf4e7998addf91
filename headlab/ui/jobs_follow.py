"""Following jobs on any page: bars with time left, and the page run again when one begins or ends."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.ui.jobs_do import asked_for, cancel, said
from headlab.ui.jobs_forecast import KNOWN
from headlab.ui.jobs_words import LIVE, Job, describe, in_order, progress_line
from headlab.ui.jobs_words import share as share_of
from headlab.ui.links import page_link
from headlab.ui.live import follow
from headlab.ui.presses import Button, row
from headlab.ui.shell import Choice, guarded
from headlab.ui.shell_worker import client, supervisor

SECONDS, SHOWN = 1.0, 3
States = tuple[tuple[int, str], ...]
KEPT = "Finished work is kept; the same job goes on from there."


def progress() -> list[Job]:
    """Draw the jobs under way, kept up to date, and return them; when one ends, the page runs again."""
    jobs: list[Job] = []
    with guarded():
        said()
        jobs = known_jobs()
        for job in jobs[:SHOWN]:
            bar(job)
        more = f"Jobs: {len(jobs) - SHOWN} more in line" if len(jobs) > SHOWN else "Jobs: queue, logs and time left"
        if jobs:
            page_link("jobs", more)
            watch(jobs)
    return jobs


def watch(jobs: Sequence[Job]) -> None:
    """Run the page again as soon as other jobs are under way than these, or in another state."""
    follow(_watch, SECONDS, waits=bool(jobs))(_states(jobs))


def _watch(drawn: States) -> None:
    with guarded():
        jobs = client().jobs()
        settle(jobs)
        if _states(in_order(jobs).live) != drawn:
            st.rerun()


def _states(jobs: Sequence[Job]) -> States:
    return tuple((job["id"], job["state"]) for job in jobs)


def asked(what_then: str) -> None:
    """What became of the last click that asked for a job, with a link to it. what_then: a sentence on its result."""
    held = asked_for()
    if (made := held.started) is not None and made.job in held.mine:
        told = f"Job {made.job} is in the queue." if not made.before else f"This is job {made.job} already."
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{told} {what_then}")
            page_link("jobs", f"Follow job {made.job}", {"job": str(made.job)})


def known_jobs(choice: Choice | None = None) -> list[Job]:
    """Jobs that run or wait, as far as a worker can be asked without waiting for it; the running ones first.

    choice: only score jobs of its model, task and method.  Runs the page again if one has ended since this session's
    last look.
    """
    if not supervisor().connected:
        return []
    jobs = client().jobs()
    settle(jobs)
    live = in_order(jobs).live
    return live if choice is None else [job for job in live if _is_of(job, choice)]


def _is_of(job: Job, choice: Choice) -> bool:
    params = job.get("params") or {}
    asked = tuple(params.get(name) for name in ("model", "task", "method"))
    return job.get("kind", "score") == "score" and asked == (choice.model, choice.task, choice.method)


def settle(jobs: Sequence[Job], *, tell: bool = True) -> None:
    """Run the page again if a job has ended since the last look, whoever asked for it: what is stored has changed.

    tell: say why a job of this session failed; the page may show that already.
    """
    held, states = asked_for(), {job["id"]: job["state"] for job in jobs}
    now, mine = {number for number, state in states.items() if state in LIVE}, set(held.mine)
    ended = (mine | held.live) & states.keys() - now
    newest = max(states, default=0)  # a list that was asked for before a click does not know the click's job
    held.mine.difference_update(number for number in mine - now if number <= newest)
    held.live = now
    if tell and (failed := [failure(job) for job in jobs if job["id"] in mine & ended and job["state"] == "failed"]):
        held.said = " ".join(failed)
    if ended:
        st.session_state.pop(KNOWN, None)  # what was forecast may be in the cache now
        st.rerun()


def failure(job: Job) -> str:
    """Why a job failed, as a sentence."""
    return f"{describe(job)}: {job['state']}. {job.get('error') or ''}".rstrip()


def bar(job: Job) -> None:
    """A job with how far it is and a button that cancels it."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"bar-{job['id']}"):
        with st.container():
            far(job, describe(job))
        row(cancel_button(job["id"]))


def cancel_button(job: int) -> Button:
    """The button that cancels a job."""
    return Button("Cancel", f"cancel-{job}", cancel, (job,), help=KEPT)


def far(job: Job, words: str = "") -> None:
    """How far a job is, kept up to date while it runs. It holds no button: one could be drawn again as it is pressed.

    words: before it.
    """
    if job["state"] == "running":
        follow(_far, SECONDS)(job["id"], words)
    else:
        _bar(job, words)


def _far(number: int, words: str) -> None:
    with guarded():
        _bar(client().job(number), words)


def _bar(job: Job, words: str) -> None:
    st.progress(share_of(job), " · ".join(word for word in (words, progress_line(job)) if word))
