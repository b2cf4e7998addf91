"""A map that sharpens: the scores so far of the language that the worker is computing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from headlab.methods.best import PRECISION
from headlab.methods.costs import caution
from headlab.methods.table import METHODS
from headlab.records import Head
from headlab.scores import HeadScores
from headlab.ui.heads_card import shown_value
from headlab.ui.heads_maps import common_limit, one_map
from headlab.ui.heads_table import verdict
from headlab.ui.names import head_words, language_title
from headlab.ui.overview_jobs import (
    bar,
    duration,
    failure,
    known_jobs,
    price,
    refusal,
    settle,
    submit,
    under_way,
    watching,
    work_of,
)
from headlab.ui.results import Found, spec_of
from headlab.ui.shell import Choice, client, guarded
from headlab.ui.shell_worker import supervisor

SECONDS = 2.0
AT, PICKED = "_sharpening", "_sharpening_picked"
HELP = "Its map then sharpens here and, larger, at the top."
# Methods that look at their intervals after whole cycles of the examples only.
IN_CYCLES = ("shapley",)


def draw(
    choice: Choice, stored: Mapping[str, HeadScores], selected: Head | None, pick: Callable[[str, Head], None]
) -> None:
    """The map of the language that a job of this choice is at, drawn again every two seconds.

    It does not take the place of a stored result before the job is done: then the page runs again.
    stored: sets the colour scale.  pick: told of a click, by language and head.
    """
    failure()
    if supervisor().connected:
        every = SECONDS if watching() else None
        st.fragment(_look, run_every=every)(choice, stored, selected, pick)


def _look(
    choice: Choice, stored: Mapping[str, HeadScores], selected: Head | None, pick: Callable[[str, Head], None]
) -> None:
    with guarded():
        jobs = under_way(choice)
        settle(jobs)
        if st.session_state.pop(PICKED, False):
            st.rerun()  # the card and the other maps stand outside of this fragment
        job, scores = client().snapshot(jobs[0]["id"]) if jobs else ({}, None)
        _follow(job)
        if scores is not None:
            _sharpening(job, scores, stored, selected, pick)
        for waiting in jobs[scores is not None :]:
            bar(waiting)


def _follow(job: Mapping[str, Any]) -> None:
    """Run the page again when a job has begun, gone on to its next language, or ended: what is stored has changed."""
    now = (job["id"], _language(job)) if job.get("state") == "running" else None
    before, st.session_state[AT] = st.session_state.get(AT), now
    if now != before:
        st.rerun()


def _sharpening(
    job: Mapping[str, Any],
    scores: HeadScores,
    stored: Mapping[str, HeadScores],
    selected: Head | None,
    pick: Callable[[str, Head], None],
) -> None:
    def clicked(head: Head) -> None:
        pick(scores.language, head)
        st.session_state[PICKED] = True

    st.subheader(f"{language_title(scores.language)}, being computed")
    st.markdown(line(job, scores))
    left, right = st.columns([10, 11], gap="large")
    selected = selected if selected in scores.grid.heads else None  # it may be another model's
    with left:
        limit = common_limit(stored or {scores.language: scores})
        one_map(scores, limit, key="sharpening", selected=selected, on_click=clicked, compact=False)
    with right:
        bar(job, "")
        head = selected or scores.grid.heads[int(scores.values.argmax())]
        name = head_words(head, several=len(scores.grid.stacks) > 1)
        st.markdown(f"{name}, so far: {shown_value(scores, head)}; {verdict(scores, head)}.")
        if scores.language in stored:
            st.caption("The maps below show the stored result until this one is done.")


def line(job: Mapping[str, Any], scores: HeadScores) -> str:
    """How far a sharpening map is, in one line."""
    most = 0 if scores.samples is None else int(scores.samples.max())
    words = [f"sharpening: {most:,} samples a head so far"]
    done = str(job.get("note") or "").partition("; ")[2]  # as the estimator says it
    words += [done] if done else []
    left = job.get("seconds_left")
    words += [f"about {duration(left)} left"] if left is not None else []
    return "; ".join((", ".join(words), *_warnings(scores)))


def _warnings(scores: HeadScores) -> list[str]:
    """What to know about the intervals of a run that is under way."""
    if text := caution(scores.method):
        return [text]
    size, most = spec_of(scores, "task", "size"), int(np.max(scores.samples)) if scores.samples is not None else 0
    middle = scores.method in IN_CYCLES and size and most % size
    return ["intervals in the middle of a cycle are provisional"] if middle else []


def in_place_of_maps(choice: Choice, results: Found) -> dict[str, Callable[[], None]]:
    """What stands where the maps of missing languages would: a button, or the map that sharpens."""
    if not results.missing or refusal(choice):
        return {}
    jobs = known_jobs(choice)
    waiting = {language for job in jobs for language in job["params"]["languages"]}
    at = _language(jobs[0]) if jobs and jobs[0]["state"] == "running" else None

    def draw_one(language: str) -> None:
        if language == at:
            st.fragment(_small, run_every=SECONDS)(jobs[0]["id"], language, results.scores)
            return
        with st.container(border=True):
            st.markdown(f"**{language_title(language)}**")
            if language in waiting:
                st.caption("In line for the worker.")
            elif st.button("Compute", key=f"compute-{language}", help=HELP):
                submit(work_of(choice, [language], results.first))

    return {language: partial(draw_one, language) for language in results.missing}


def _small(job: int, language: str, stored: Mapping[str, HeadScores]) -> None:
    with guarded():
        _, scores = client().snapshot(job)
        if scores is None or scores.language != language:
            st.markdown(f"**{language_title(language)}**")
            st.caption("Being computed; the first samples are on their way.")
            return
        limit = common_limit(stored or {language: scores})
        one_map(scores, limit, key="sharpening-small", selected=None, on_click=None, compact=True)
        st.caption("Sharpening; larger at the top.")


def _language(job: Mapping[str, Any]) -> str:
    """The language that a running job is at: its note begins with it."""
    return str(job.get("note") or "").partition(":")[0]


def offer_again(choice: Choice, stored: HeadScores) -> None:
    """The button that computes a stored result again where its run was another than today's defaults ask for."""
    options = METHODS[choice.method].options
    given = spec_of(stored, "method", "options") or {}
    usual = {name: options[name].default for name in PRECISION if name in options}
    if "target" not in usual or all(given.get(name) == value for name, value in usual.items()):
        return
    if any(stored.language in job["params"]["languages"] for job in known_jobs(choice)):
        return
    spec = work_of(choice, [stored.language], stored)
    text = f"Until every head's sign is decided or its half-width is {usual['target']:g}. {price(choice, spec)}"
    if st.button(f"Sharpen {language_title(stored.language)}", key="sharpen", help=text):
        submit(spec)
