"""Computing what is missing: a job for the worker, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from headlab.ui.overview_coverage import command
from headlab.ui.shell import Choice, guarded
from headlab.ui.shell_worker import client, supervisor

LIVE = ("queued", "running")


def offer(choice: Choice, missing: Sequence[str]) -> None:
    """The button that computes the missing languages, and the command that does the same."""
    many = f"the {len(missing)} missing languages" if len(missing) > 1 else f"the missing language ({missing[0]})"
    if st.button(f"Compute {many}", type="primary", key="compute"):
        spec = {
            "model": choice.model,
            "task": choice.task,
            "languages": list(missing),
            "method": choice.method,
            "options": {},
            "seed": 0,
        }
        st.session_state["_job"] = client().submit(kind="score", spec=spec)["id"]
    st.caption("Or from a terminal; it can be interrupted, and the same command goes on where it stopped:")
    st.code(command(choice.model, choice.task, missing, choice.method), language="bash", wrap_lines=True)


def progress() -> None:
    """Jobs under way, kept up to date; when one ends, the page runs again to show its results."""
    if supervisor().state().kind in ("ready", "busy"):
        busy = supervisor().state().kind == "busy" or "_job" in st.session_state
        st.fragment(_board, run_every=1.0 if busy else None)()


def _board() -> None:
    with guarded():
        jobs = [job for job in client().jobs() if job["state"] in LIVE]
        for job in jobs:
            _bar(job)
        mine = st.session_state.get("_job")
        if mine is not None and mine not in {job["id"] for job in jobs}:
            _ended(client().job(mine))


def _bar(job: Mapping[str, Any]) -> None:
    done, total, left = job.get("done") or 0, job.get("total") or 0, job.get("seconds_left")
    words = [describe(job), f"{done} of {total}" if total else str(job["state"]), str(job.get("note") or "")]
    words += [f"about {duration(left)} left"] if left is not None else []
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(min(1.0, done / total) if total else 0.0, " · ".join(word for word in words if word))
        if st.button("Cancel", key=f"cancel-{job['id']}", help="What is done stays; the same job goes on from there."):
            client().cancel(job["id"])


def _ended(job: Mapping[str, Any]) -> None:
    del st.session_state["_job"]
    if job["state"] == "done":
        st.rerun()
    st.error(f"{describe(job)}: {job['state']}. {job.get('error') or ''}")


def describe(job: Mapping[str, Any]) -> str:
    """A job in words."""
    params = job.get("params") or {}
    languages = params.get("languages") or []
    return (
        f"{params.get('method', job.get('kind', 'job'))} for {', '.join(languages)}"
        if languages
        else str(job.get("kind", "job"))
    )


def duration(seconds: float) -> str:
    """Seconds in words, as exact as a guess deserves."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
