"""Following jobs on any page: bars with time left, and the page run again when one ends."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.ui.jobs_do import asked_for, cancel, said
from headlab.ui.jobs_forecast import KNOWN
from headlab.ui.jobs_words import LIVE, Job, describe, in_order, progress_line
from headlab.ui.jobs_words import share as share_of
from headlab.ui.links import page_link
from headlab.ui.shell import Choice, guarded
from headlab.ui.shell_worker import client, supervisor

SECONDS, SHOWN = 1.0, 3
KEPT = "What is done stays; the same job goes on from there."


def progress() -> None:
    """Jobs under way, kept up to date; when one ends, the page runs again to show its results."""
    if supervisor().connected:  # not its state, which may be of a slow moment: nothing would look again
        st.fragment(_board, run_every=SECONDS if watching() else None)()
    else:
        said()


def asked(what_then: str) -> None:
    """What became of the last click that asked for a job, with a link to it. what_then: a sentence on its result."""
    held = asked_for()
    if (made := held.started) is not None and made.job in held.mine:
        told = f"Job {made.job} is in the queue." if not made.before else f"This is job {made.job} already."
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{told} {what_then}")
            page_link("jobs", f"Follow job {made.job}", {"job": str(made.job)})


def watching() -> bool:
    """Whether there may be a job to watch."""
    held = asked_for()
    return supervisor().state().kind == "busy" or bool(held.mine or held.live)


def _board() -> None:
    with guarded():
        said()
        jobs = under_way()
        for job in jobs[:SHOWN]:
            bar(job)
        more = f"Jobs: {len(jobs) - SHOWN} more in line" if len(jobs) > SHOWN else "Jobs: queue, logs and time left"
        if jobs:
            page_link("jobs", more)


def under_way(choice: Choice | None = None) -> list[Job]:
    """Jobs that run or wait, the running ones first; of one model, task and method if a choice is given.

    Runs the page again if one has ended since this session's last look.
    """
    jobs = client().jobs()
    settle(jobs)
    live = in_order(jobs).live
    return live if choice is None else [job for job in live if _is_of(job, choice)]


def known_jobs(choice: Choice) -> list[Job]:
    """Score jobs of this choice under way, as far as a worker can be asked without waiting for it."""
    return under_way(choice) if supervisor().connected else []


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


def bar(job: Job, words: str | None = None) -> None:
    """A job's bar with a button that cancels it; words: beside it, instead of how far it is."""
    told = [describe(job), progress_line(job) if words is None else words]
    with st.container(horizontal=True, vertical_alignment="center", key=f"bar-{job['id']}"):
        st.progress(share_of(job), " · ".join(word for word in told if word))
        cancel_button(job["id"])


def cancel_button(job: int) -> None:
    """The button that cancels a job."""
    st.button("Cancel", key=f"cancel-{job}", help=KEPT, on_click=cancel, args=(job,))
