"""The Heads page while its scores are computed: the map that sharpens, and buttons where maps are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from headlab.methods.costs import PRECISION
from headlab.methods.table import METHODS
from headlab.records import Head
from headlab.scores import HeadScores
from headlab.ui.jobs_do import said, start
from headlab.ui.jobs_follow import bar, known_jobs, watch
from headlab.ui.jobs_offer import price, refusal, work_of
from headlab.ui.jobs_sharpening import about_head, language_at, picture, small_picture
from headlab.ui.jobs_words import Job
from headlab.ui.live import follow
from headlab.ui.names import language_title
from headlab.ui.presses import button
from headlab.ui.results import Found, spec_of
from headlab.ui.shell import Choice, client, guarded

SECONDS = 2.0
AT, PICKED = "_sharpening", "_sharpening_picked"
HELP = "Its map then sharpens here and, larger, at the top."


def draw(
    choice: Choice, stored: Mapping[str, HeadScores], selected: Head | None, pick: Callable[[str, Head], None]
) -> None:
    """The map of the language that a job of this choice is at, drawn again every two seconds, and jobs that wait.

    It does not take the place of a stored result before the job is done: then the page runs again.
    stored: sets the colour scale.  pick: told of a click, by language and head.
    """
    said()
    jobs = known_jobs(choice)
    if not jobs:
        return
    watch(jobs)
    job = jobs[0]
    if job["state"] == "running":
        st.session_state[AT] = language_at(job)
        room = st.container()
        bar(job)
        with room:
            follow(_look, SECONDS)(job["id"], stored, selected, pick)
    for waiting in jobs[job["state"] == "running" :]:
        bar(waiting)


def _look(
    number: int, stored: Mapping[str, HeadScores], selected: Head | None, pick: Callable[[str, Head], None]
) -> None:
    """The map that sharpens. It takes clicks, which the log of presses keeps however often it is drawn."""
    with guarded():
        job, scores = client().snapshot(number)
        if st.session_state.pop(PICKED, False) or language_at(job) != st.session_state.get(AT):
            st.rerun()  # the card and the other maps stand outside of this fragment; so does what is stored now
        if scores is not None:
            _sharpening(job, scores, stored, selected, pick)


def _sharpening(
    job: Job,
    scores: HeadScores,
    stored: Mapping[str, HeadScores],
    selected: Head | None,
    pick: Callable[[str, Head], None],
) -> None:
    def clicked(head: Head) -> None:
        pick(scores.language, head)
        st.session_state[PICKED] = True

    st.subheader(f"{language_title(scores.language)}, being computed")
    left, right = st.columns([10, 11], gap="large")
    with left:
        picture(job, scores, stored, selected, clicked)
    with right:
        about_head(scores, stored, selected)


def in_place_of_maps(choice: Choice, results: Found) -> dict[str, Callable[[], None]]:
    """What stands where the maps of missing languages would: a button, or the map that sharpens."""
    if not results.missing or refusal(choice):
        return {}
    jobs = known_jobs(choice)
    waiting = {language for job in jobs for language in job["params"]["languages"]}
    at = language_at(jobs[0]) if jobs and jobs[0]["state"] == "running" else None

    def draw_one(language: str) -> None:
        if language == at:
            follow(_small, SECONDS)(jobs[0]["id"], language, results.scores)
            return
        with st.container(border=True):
            st.markdown(f"**{language_title(language)}**")
            if language in waiting:
                st.caption("In line for the worker.")
            else:
                spec = work_of(choice, [language], results.first)
                button("Compute", key=f"compute-{language}", help=HELP, on_press=start, args=("score", spec))

    return {language: partial(draw_one, language) for language in results.missing}


def _small(job: int, language: str, stored: Mapping[str, HeadScores]) -> None:
    with guarded():
        _, scores = client().snapshot(job)
        if scores is None or scores.language != language:
            st.markdown(f"**{language_title(language)}**")
            st.caption("Being computed; the first samples are on their way.")
            return
        small_picture(scores, stored)
        st.caption("Sharpening; larger at the top.")


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
    label = f"Sharpen {language_title(stored.language)}"
    button(label, key="sharpen", help=text, on_press=start, args=("score", spec))
