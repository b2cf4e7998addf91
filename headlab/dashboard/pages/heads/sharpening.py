"""The Heads page while scores are computed: the map so far, and offers for missing maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import streamlit as st

from headlab.core import Head
from headlab.dashboard.frame import Choice, StoredScores, errors_as_sentences, worker_client
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels.jobs import (
    draw_head_so_far,
    draw_job_bar,
    draw_sharpening_map,
    language_computed,
    languages_in,
    live_jobs,
    map_so_far,
    rerun_when_jobs_change,
    score_job,
    score_job_cost,
    scores_refusal,
    show_last_failure,
    start_job,
)
from headlab.dashboard.widgets import PageState, button, draw_map, redraw_every
from headlab.methods import METHODS, options_of
from headlab.methods.costs import PRECISION
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
    selected_head: Head | str | None,
    pick_head: Callable[[str, Head], None],
) -> None:
    """The map of the language that a job of this choice is computing, and the jobs that wait.

    The map is redrawn every two seconds. It does not replace a stored result until the job is done;
    the page then reruns.

    Args:
        choice: The sidebar's.
        stored_scores: By language; they set the colour scale.
        selected_head: The head that the page shows; None if it shows none.
        pick_head: Called with language and head on a click.
    """
    show_last_failure()
    jobs = live_jobs(choice)
    if not jobs:
        return
    rerun_when_jobs_change(jobs)
    job = jobs[0]
    is_running = job.state == "running"
    if is_running:
        SharpeningMap.of_session().language = language_computed(job)
        room = st.container()
        draw_job_bar(job)
        with room:
            redraw_every(_draw_running_map, REDRAW_SECONDS)(
                job.id, stored_scores, selected_head, pick_head
            )
    for waiting_job in jobs[1:] if is_running else jobs:
        draw_job_bar(waiting_job)


def _draw_running_map(
    number: int,
    stored_scores: Mapping[str, HeadScores],
    selected_head: Head | str | None,
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
    if not results.missing or scores_refusal(choice):
        return {}
    jobs = live_jobs(choice)
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
                    on_press=start_job,
                    args=(score_job(choice, [language], results.template),),
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
    stored_options = options_of(stored_scores)
    defaults = {name: options[name].default for name in PRECISION if name in options}
    has_defaults = all(stored_options.get(name) == value for name, value in defaults.items())
    if "target" not in defaults or has_defaults:
        return
    if any(stored_scores.language in languages_in(job) for job in live_jobs(choice)):
        return
    job = score_job(choice, [stored_scores.language], stored_scores)
    help_text = (
        f"Until every head's sign is decided or its half-width is {defaults['target']:g}. "
        f"{score_job_cost(choice, job)}"
    )
    label = f"Sharpen {language_title(stored_scores.language)}"
    button(label, key="sharpen", help=help_text, on_press=start_job, args=(job,))
