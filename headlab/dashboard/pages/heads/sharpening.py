"""The Heads page while its scores are computed: the map that sharpens, and buttons where maps are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import streamlit as st

from headlab.core import Head
from headlab.dashboard.frame import Choice, StoredScores, errors_as_sentences, worker_client
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels.job_actions import bar, known_jobs, refusal, said, start, watch
from headlab.dashboard.panels.job_format import languages_in
from headlab.dashboard.panels.job_offer import price, work_of
from headlab.dashboard.panels.sharpening_map import (
    draw_head_so_far,
    draw_sharpening_map,
    language_computed,
    map_so_far,
)
from headlab.dashboard.widgets import PageState, button, draw_map, redraw_every
from headlab.methods import METHODS
from headlab.methods.costs import PRECISION, spec_of
from headlab.results import HeadScores

REDRAW_SECONDS = 2.0

COMPUTE_HELP = "Its map then sharpens here and, larger, at the top."


@dataclass
class SharpeningMap(PageState):
    """The map that sharpens on the Heads page of one session.

    Attributes:
        language: Code of the language that was being computed when the whole page was last drawn.
        head_was_clicked: Whether a head of the map was clicked since.
    """

    key = "_sharpening"
    language: str = ""
    head_was_clicked: bool = False


def draw_sharpening(
    choice: Choice,
    stored_scores: Mapping[str, HeadScores],
    selected_head: Head | None,
    pick_head: Callable[[str, Head], None],
) -> None:
    """The map of the language that a job of this choice is computing, and the jobs that wait.

    The map is redrawn every two seconds. It does not replace a stored result until the job is done; the page then reruns.

    Args:
        choice: The sidebar's.
        stored_scores: By language; they set the colour scale.
        selected_head: The head that the page shows; None if it shows none.
        pick_head: Called with language and head on a click.
    """
    said()
    jobs = known_jobs(choice)
    if not jobs:
        return
    watch(jobs)
    job = jobs[0]
    is_running = job.state == "running"
    if is_running:
        SharpeningMap.of_session().language = language_computed(job)
        room = st.container()
        bar(job)
        with room:
            redraw_every(_draw_running_map, REDRAW_SECONDS)(
                job.id, stored_scores, selected_head, pick_head
            )
    for waiting_job in jobs[1:] if is_running else jobs:
        bar(waiting_job)


def _draw_running_map(
    number: int,
    stored_scores: Mapping[str, HeadScores],
    selected_head: Head | None,
    pick_head: Callable[[str, Head], None],
) -> None:
    """The map that sharpens. Its clicks go through the log of presses, so redrawing loses none."""
    with errors_as_sentences():
        state = SharpeningMap.of_session()
        job, scores = worker_client().snapshot(number)
        was_clicked = state.head_was_clicked
        state.head_was_clicked = False
        if was_clicked or language_computed(job) != state.language:
            st.rerun()  # the card, the other maps and the stored result are drawn outside this fragment
        if scores is None:
            return
        language = scores.language

        def pick_clicked_head(head: Head) -> None:
            pick_head(language, head)
            state.head_was_clicked = True

        st.subheader(f"{plain(language_title(language))}, being computed")
        map_column, head_column = st.columns([10, 11], gap="large")
        with map_column:
            draw_sharpening_map(job, scores, stored_scores, selected_head, pick_clicked_head)
        with head_column:
            draw_head_so_far(scores, stored_scores, selected_head)


def in_place_of_maps(choice: Choice, results: StoredScores) -> dict[str, Callable[[], None]]:
    """What to draw in place of missing languages' maps: a button, or the map that sharpens.

    Returns:
        For each missing language the function that draws.
    """
    if not results.missing or refusal(choice):
        return {}
    jobs = known_jobs(choice)
    waiting_languages = {language for job in jobs for language in languages_in(job)}
    running_job = jobs[0] if jobs and jobs[0].state == "running" else None

    def draw_language(language: str) -> None:
        if running_job is not None and language == language_computed(running_job):
            redraw_every(_draw_small_map, REDRAW_SECONDS)(running_job.id, language, results.scores)
            return
        with st.container(border=True):
            st.markdown(f"**{plain(language_title(language))}**")
            if language in waiting_languages:
                st.caption("Waiting for the worker.")
            else:
                button(
                    "Compute",
                    key=f"compute-{language}",
                    help=COMPUTE_HELP,
                    on_press=start,
                    args=(work_of(choice, [language], results.like),),
                )

    return {language: partial(draw_language, language) for language in results.missing}


def _draw_small_map(job_id: int, language: str, stored_scores: Mapping[str, HeadScores]) -> None:
    with errors_as_sentences():
        _, scores = worker_client().snapshot(job_id)
        if scores is None or scores.language != language:
            st.markdown(f"**{plain(language_title(language))}**")
            st.caption("Being computed; the first samples are on their way.")
            return
        draw_map(
            map_so_far(scores, stored_scores),
            key="sharpening-small",
            title=language_title(language),
            compact=True,
        )
        st.caption("Sharpening; larger at the top.")


def offer_sharper(choice: Choice, stored_scores: HeadScores) -> None:
    """The button that recomputes a stored result of other precision than today's default."""
    options = METHODS[choice.method].options
    stored_options = spec_of(stored_scores, "method", "options") or {}
    defaults = {name: options[name].default for name in PRECISION if name in options}
    has_defaults = all(stored_options.get(name) == value for name, value in defaults.items())
    if "target" not in defaults or has_defaults:
        return
    if any(stored_scores.language in languages_in(job) for job in known_jobs(choice)):
        return
    job = work_of(choice, [stored_scores.language], stored_scores)
    help_text = (
        f"Until every head's sign is decided or its half-width is {defaults['target']:g}. "
        f"{price(choice, job)}"
    )
    label = f"Sharpen {language_title(stored_scores.language)}"
    button(label, key="sharpen", help=help_text, on_press=start, args=(job,))
