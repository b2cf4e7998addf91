"""Maps that sharpen while scores are computed, on the Heads page and on a job's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from headlab.methods.costs import PRECISION, caution, spec_of
from headlab.methods.table import METHODS
from headlab.pictures import HeadMap, common_limit, maps_of
from headlab.records import Head
from headlab.scores import HeadScores
from headlab.tables import duration
from headlab.ui.head_card import shown_value, verdict
from headlab.ui.headgrid import draw_map
from headlab.ui.job_actions import bar, known_jobs, refusal, said, start, watch
from headlab.ui.job_format import Job
from headlab.ui.job_offer import price, work_of
from headlab.ui.names import head_words, language_title, plain
from headlab.ui.presses import button, follow
from headlab.ui.results import Found
from headlab.ui.shell import Choice, client, guarded

# A map that sharpens: the scores so far of the language that a job is computing.

# Methods that check their intervals only after whole cycles of the examples.
IN_CYCLES = ("shapley",)


def picture(
    job: Job,
    scores: HeadScores,
    stored: Mapping[str, HeadScores],
    selected: Head | None,
    clicked: Callable[[Head], None],
) -> None:
    """The large map of a running job, and its progress. stored: sets the colour scale."""
    st.markdown(plain(line(job, scores)))
    draw_map(
        shown(scores, stored), key="sharpening", title=language_title(scores.language),
        selected=known(scores, selected), on_click=clicked,
    )  # fmt: skip


def shown(scores: HeadScores, stored: Mapping[str, HeadScores]) -> HeadMap:
    """The map of the scores so far, on the scale of the stored ones and corrected together with them."""
    (*_, own) = maps_of({**{k: s for k, s in stored.items() if k != scores.language}, scores.language: scores}).values()
    return replace(own, limit=common_limit(stored.values() or [scores]))


def about_head(scores: HeadScores, stored: Mapping[str, HeadScores], selected: Head | None) -> None:
    """The scores so far of the selected head, or of the highest one if none is selected."""
    head = known(scores, selected) or scores.grid.heads[int(scores.values.argmax())]
    name = head_words(head, several=len(scores.grid.stacks) > 1)
    st.markdown(f"{plain(name)}, so far: {shown_value(scores, head)}; {verdict(scores, head)}.")
    if scores.language in stored:
        st.caption("The stored result stands until this one is done.")


def known(scores: HeadScores, head: Head | None) -> Head | None:
    """The head if these scores have it, else None: it may be another model's."""
    return head if head in scores.grid.heads else None


def small_picture(scores: HeadScores, stored: Mapping[str, HeadScores]) -> None:
    """The same as a small map."""
    draw_map(shown(scores, stored), key="sharpening-small", title=language_title(scores.language), compact=True)


def line(job: Job, scores: HeadScores) -> str:
    """Progress of a sharpening map, in one line."""
    most = 0 if scores.samples is None else int(scores.samples.max())
    words = [f"sharpening: {most:,} samples a head so far"]
    done = str(job.get("note") or "").partition("; ")[2]  # as the estimator reports it
    words += [done] if done else []
    left = job.get("seconds_left")
    words += [f"about {duration(left)} left"] if left is not None else []
    return "; ".join((", ".join(words), *_warnings(scores)))


def _warnings(scores: HeadScores) -> list[str]:
    """Caveats about the intervals of a running job."""
    if text := caution(scores.method):
        return [text]
    size, most = spec_of(scores, "task", "size"), int(np.max(scores.samples)) if scores.samples is not None else 0
    middle = scores.method in IN_CYCLES and size and most % size
    return ["intervals in the middle of a cycle are provisional"] if middle else []


def language_at(job: Job) -> str:
    """The language that a running job is computing: its note starts with it."""
    return str(job.get("note") or "").partition(":")[0]


# The Heads page while its scores are computed: the map that sharpens, and buttons where maps are missing.

SECONDS = 2.0
AT, PICKED = "_sharpening", "_sharpening_picked"
HELP = "Its map then sharpens here and, larger, at the top."


def draw(
    choice: Choice, stored: Mapping[str, HeadScores], selected: Head | None, pick: Callable[[str, Head], None]
) -> None:
    """The map of the language that a job of this choice is computing, redrawn every two seconds, and waiting jobs.

    It does not replace a stored result until the job is done; the page then reruns.
    stored: sets the colour scale.  pick: called with language and head on a click.
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
    """The map that sharpens. Its clicks go through the log of presses, so redrawing loses none."""
    with guarded():
        job, scores = client().snapshot(number)
        if st.session_state.pop(PICKED, False) or language_at(job) != st.session_state.get(AT):
            st.rerun()  # the card, the other maps and the stored result are drawn outside this fragment
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

    st.subheader(f"{plain(language_title(scores.language))}, being computed")
    left, right = st.columns([10, 11], gap="large")
    with left:
        picture(job, scores, stored, selected, clicked)
    with right:
        about_head(scores, stored, selected)


def in_place_of_maps(choice: Choice, results: Found) -> dict[str, Callable[[], None]]:
    """Functions that draw in place of missing languages' maps: a button, or the map that sharpens."""
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
            st.markdown(f"**{plain(language_title(language))}**")
            if language in waiting:
                st.caption("Waiting for the worker.")
            else:
                spec = work_of(choice, [language], results.like)
                button("Compute", key=f"compute-{language}", help=HELP, on_press=start, args=("score", spec))

    return {language: partial(draw_one, language) for language in results.missing}


def _small(job: int, language: str, stored: Mapping[str, HeadScores]) -> None:
    with guarded():
        _, scores = client().snapshot(job)
        if scores is None or scores.language != language:
            st.markdown(f"**{plain(language_title(language))}**")
            st.caption("Being computed; the first samples are on their way.")
            return
        small_picture(scores, stored)
        st.caption("Sharpening; larger at the top.")


def offer_again(choice: Choice, stored: HeadScores) -> None:
    """The button that recomputes a stored result whose precision differs from the current defaults."""
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
