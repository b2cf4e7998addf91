"""Computing what is missing: a job for the worker, what it will cost, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.methods import costs
from headlab.methods.best import settings, spec_of
from headlab.methods.table import METHODS
from headlab.scores import HeadScores
from headlab.ui.overview_coverage import command
from headlab.ui.shell import Choice, guarded, listing
from headlab.ui.shell_worker import client, supervisor

LIVE = ("queued", "running")
MINE, FAILED = "_job", "_job_failed"


def work_of(choice: Choice, languages: Sequence[str], like: HeadScores | None) -> dict[str, Any]:
    """The spec of a job that scores these languages; like: a result it is to stand beside."""
    if like is None:
        options, seed, ablation = {}, 0, "zero"
    else:
        options = {name: v for name, v in settings(like).items() if name in METHODS[choice.method].options}
        seed, ablation = spec_of(like, "seed") or 0, spec_of(like, "ablation") or "zero"
    about = {"model": choice.model, "task": choice.task, "method": choice.method}
    return {**about, "languages": list(languages), "options": options, "seed": seed, "ablation": ablation}


def submit(spec: Mapping[str, Any]) -> None:
    """Queue a job as this session's own, and run the page again to show it."""
    st.session_state.pop(FAILED, None)
    st.session_state[MINE] = client().submit(kind="score", spec=spec)["id"]
    st.rerun()


def offer(choice: Choice, missing: Sequence[str], like: HeadScores | None = None) -> None:
    """The button that computes the missing languages, what that costs, and the command that does the same.

    like: a result that they are to stand beside.  Languages of jobs under way are left out.
    """
    if sentence := refusal(choice):
        st.warning(sentence)
        return
    busy = {language for job in known_jobs(choice) for language in job["params"]["languages"]}
    missing = [language for language in missing if language not in busy]
    if not missing:
        return
    spec = work_of(choice, missing, like)
    many = f"the {len(missing)} missing languages" if len(missing) > 1 else f"the missing language ({missing[0]})"
    if st.button(f"Compute {many}", type="primary", key="compute"):
        submit(spec)
    st.caption(price(choice, spec))
    st.caption("Or from a terminal; it can be interrupted, and the same command goes on where it stopped:")
    st.code(command(spec), language="bash", wrap_lines=True)


def _heads(model: str) -> int | None:
    """Heads of a model, as far as its cached results tell."""
    own = (r.scores.grid.size for r in listing().results if spec_of(r.scores, "model", "name") == model)
    return next(own, None)


def refusal(choice: Choice) -> str:
    """Why the method cannot be run on this model, or empty; a model without results is not known here."""
    heads = _heads(choice.model)
    try:
        if heads is not None:
            costs.refuse(METHODS[choice.method], heads)
    except HeadlabError as error:
        return f"{error}."
    return ""


def price(choice: Choice, spec: Mapping[str, Any]) -> str:
    """What a job costs, in words: the method's own, and its most at the pace of the cached results."""
    method, heads = METHODS[choice.method], _heads(choice.model)
    words = f"Cost: {method.cost}."
    if text := costs.caution(method.key):
        words = f"Caution: {text}. {words}"
    if heads is None:
        return words
    forwards = costs.most_forwards(method, method.resolve(spec["options"]), heads, 512)
    seen = [r.scores for r in listing().results]
    pace = costs.pace(seen, choice.model, choice.task)
    if forwards and pace is not None:
        each = "each language" if len(spec["languages"]) > 1 else "the language"
        words += (
            f" Here at most {forwards:,} forwards for {each}, {duration(forwards * pace)} at the pace of the results "
            "cached here."
        )
    return words


def progress() -> None:
    """Jobs under way, kept up to date; when one ends, the page runs again to show its results."""
    failure()
    if supervisor().state().kind in ("ready", "busy"):
        st.fragment(_board, run_every=1.0 if watching() else None)()


def watching() -> bool:
    """Whether there may be a job to watch."""
    return supervisor().state().kind == "busy" or MINE in st.session_state


def failure() -> None:
    """Why this session's last job did not end well, until the next one."""
    if FAILED in st.session_state:
        st.error(st.session_state[FAILED])


def _board() -> None:
    with guarded():
        jobs = under_way()
        settle(jobs)
        for job in jobs:
            bar(job)


def under_way(choice: Choice | None = None) -> list[dict[str, Any]]:
    """Jobs that run or wait, the running ones first; of one model, task and method if a choice is given."""
    jobs = [job for job in client().jobs() if job["state"] in LIVE]
    if choice is not None:
        jobs = [job for job in jobs if _is_of(job, choice)]
    return sorted(jobs, key=lambda job: (job["state"] != "running", job["id"]))


def known_jobs(choice: Choice) -> list[dict[str, Any]]:
    """Jobs of this choice under way, as far as a worker can be asked without waiting for it."""
    return under_way(choice) if supervisor().connected else []


def _is_of(job: Mapping[str, Any], choice: Choice) -> bool:
    params = job.get("params") or {}
    asked = tuple(params.get(name) for name in ("model", "task", "method"))
    return asked == (choice.model, choice.task, choice.method)


def settle(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Run the page again if this session's own job is no longer among those under way."""
    mine = st.session_state.get(MINE)
    if mine is None or mine in {job["id"] for job in jobs}:
        return
    ended = client().job(mine)
    if ended["state"] in LIVE:  # it is of another choice than the one shown
        return
    del st.session_state[MINE]
    if ended["state"] != "done":
        st.session_state[FAILED] = f"{describe(ended)}: {ended['state']}. {ended.get('error') or ''}"
    st.rerun()


def bar(job: Mapping[str, Any], *more: str) -> None:
    """A job's bar with a button that cancels it; more: further words about it."""
    done, total, left = job.get("done") or 0, job.get("total") or 0, job.get("seconds_left")
    words = [describe(job), f"{100 * done // total} %" if total else str(job["state"]), *more]
    words += [] if more else [str(job.get("note") or "")]
    words += [f"about {duration(left)} left"] if left is not None and not more else []
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(min(1.0, done / total) if total else 0.0, " · ".join(word for word in words if word))
        if st.button("Cancel", key=f"cancel-{job['id']}", help="What is done stays; the same job goes on from there."):
            client().cancel(job["id"])


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
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"
