"""The way to the first map, where nothing is computed yet: a model, data, and a map in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import streamlit as st

from headlab.core import HEADS, HeadlabError, as_sentence, content_key, noun_of
from headlab.dashboard.frame import (
    Choice,
    StoredScores,
    cached_grid,
    errors_as_sentences,
    first_link,
    loaded_model,
    matching_scores,
    scores_of,
    show_choice,
    stored_results,
    supervisor,
    was_named_here,
)
from headlab.dashboard.names import (
    count_words,
    error_words,
    language_title,
    page_link,
    plain,
)
from headlab.dashboard.panels.jobs import (
    draw_forecast,
    draw_live_jobs,
    job_requests,
    live_jobs,
    offer_missing_scores,
    score_job,
    scores_refusal,
    show_terminal_commands,
    start_job,
)
from headlab.dashboard.streamlit_private import is_fragment_run
from headlab.dashboard.widgets import PageState, button, redraw_every
from headlab.methods import DEFAULT_METHOD, FIRST_MAP_METHOD
from headlab.results import HeadScores

DRAWN_SECONDS = 0.2
"""Until the browser asks again for what it was sent."""
OTHER_MODEL_CODE = "worker.other_model_in_use"
"""Of the error of a model that cannot be loaded while a job computes with another."""
LOOK_SECONDS = 0.5
"""Between two looks for scores that a job has stored."""


@dataclass
class FirstMaps(PageState):
    """The choices of one session whose first map was started by itself.

    Choices are known by their model, task and label map.

    Attributes:
        drawn_keys: Those that the browser was sent before. A method that is set earlier is not
            written to the link.
        started_keys: Those whose map was started. Each is started once: a person who then cancels
            it, or chooses another method, is left alone.
        load_problems: Why a model does not load, by its name, as that was found out here.
    """

    key = "_first_maps"
    drawn_keys: set[str] = field(default_factory=set)
    started_keys: set[str] = field(default_factory=set)
    load_problems: dict[str, str] = field(default_factory=dict)


def needs_first_steps(choice: Choice, results: StoredScores) -> bool:
    """Whether nothing decides yet which heads help: no scores, or those of a first map alone."""
    if choice.method == FIRST_MAP_METHOD:
        return not scores_of(choice, DEFAULT_METHOD).scores
    return not results.scores


def start_first_map(choice: Choice, results: StoredScores) -> None:
    """Start the quick map of a model and task of which nothing is stored, once a session.

    The sidebar then shows its method. Nothing is started for what a link asks for: its reader may
    only want to look. Nor is it for a model that such a map is refused for, which is loaded to find
    out; the page then says why.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
    """
    # the method of first maps stays chosen after one, and another model or task then needs its own
    is_undecided = choice.method in (DEFAULT_METHOD, FIRST_MAP_METHOD)
    if not is_undecided or results.scores or results.other_variants:
        return
    if choice.players != HEADS:  # somebody has scored these, and chosen them
        return
    earlier_scores = stored_results(HeadScores).results
    stored_methods = {
        result.record.method
        for result in matching_scores(earlier_scores, choice.model, choice.task)
    }
    if stored_methods - {FIRST_MAP_METHOD} or is_being_computed(choice):
        return
    first_choice = replace(choice, method=FIRST_MAP_METHOD, variant="")
    if not supervisor().is_connected or scores_refusal(first_choice) or is_of_link(choice):
        return
    first_maps = FirstMaps.of_session()
    subject_key = content_key([choice.model, choice.task, dict(choice.label_map or {})])
    if subject_key in first_maps.started_keys:
        return
    if subject_key not in first_maps.drawn_keys:
        first_maps.drawn_keys.add(subject_key)
        redraw_every(_rerun_once_drawn, DRAWN_SECONDS)()
        return
    first_maps.started_keys.add(subject_key)
    if cached_grid(choice.model) is None and not _can_be_queued(first_choice):
        return
    missing = scores_of(first_choice).missing
    if missing:
        start_job(score_job(first_choice, missing, None))
        if job_requests().failure:
            return
    show_choice(first_choice)
    st.rerun()


def is_of_link(choice: Choice) -> bool:
    """Whether the session's link asks for this choice, by its model, task or method.

    What a person has chosen since is not, nor a model that they have brought since.
    """
    link = first_link()
    chosen_values = {"model": choice.model, "task": choice.task, "method": choice.method}
    linked_names = [name for name in chosen_values if name in link]
    if not linked_names or was_named_here(choice.model):
        return False
    return all(chosen_values[name] in link[name] for name in linked_names)


def _can_be_queued(first_choice: Choice) -> bool:
    """Whether a first map may be queued, as loading the model tells.

    The job needs the model in memory too, so this takes no time that it does not save. If the model
    does not load, the reason is kept for the card.
    """
    try:
        loaded_model(first_choice.model)
    except HeadlabError as error:
        if error.code == OTHER_MODEL_CODE:
            return True  # the job waits for its turn
        load_problems = FirstMaps.of_session().load_problems
        load_problems[first_choice.model] = error_words(as_sentence(error))
        return False
    return not scores_refusal(first_choice)


def is_being_computed(choice: Choice) -> bool:
    """Whether a job computes scores of this choice; False if the worker cannot be asked."""
    try:
        return bool(live_jobs(choice))
    except HeadlabError:  # the list of jobs below says so
        return False


def _rerun_once_drawn() -> None:
    """Run the page again as soon as the browser asks for this part, which it has drawn then."""
    if is_fragment_run():
        st.rerun()


def rerun_when_stored(choice: Choice, results: StoredScores) -> None:
    """Run the page again as soon as scores of another language are stored.

    Args:
        choice: The sidebar's.
        results: The stored scores that the page shows.
    """
    redraw_every(_rerun_if_stored, LOOK_SECONDS)(choice, tuple(results.scores))


def _rerun_if_stored(choice: Choice, drawn_languages: tuple[str, ...]) -> None:
    with errors_as_sentences():
        if tuple(scores_of(choice).scores) != drawn_languages:
            st.rerun()


def draw_first_steps(choice: Choice, results: StoredScores) -> None:
    """The card of three steps, with the jobs that run.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
    """
    with st.container(border=True, key="first-steps"):
        st.markdown("##### Three steps to a map")
        st.markdown(f"**1. Your model:** {plain(choice.model)}")
        page_link("own", "Bring another model")
        st.markdown(f"**2. Your data:** {plain(choice.task)}, {plain(_languages_words(choice))}")
        page_link("own", "Bring your own data")
        st.markdown(f"**3. First map:** {_map_words(choice, results)}")
        if results.missing:
            offer_missing_scores(choice, results.missing, results.template, is_folded=True)
        draw_live_jobs()


def _languages_words(choice: Choice) -> str:
    if len(choice.languages) == 1:
        return language_title(choice.languages[0])
    return count_words(len(choice.languages), "language")


def _map_words(choice: Choice, results: StoredScores) -> str:
    """Where the first map stands."""
    if results.scores and not results.missing:
        return f"by `{choice.method}`, shown here."
    if is_being_computed(choice):
        return f"being computed by `{choice.method}`."
    load_problem = FirstMaps.of_session().load_problems.get(choice.model, "")
    reason = load_problem or scores_refusal(choice) or _first_map_refusal(choice)
    if reason:
        return plain(f"{reason.rstrip('.')}.")
    if results.scores:
        return (
            f"by `{choice.method}`, in {len(results.scores)} of {len(choice.languages)} languages."
        )
    return f"`{choice.method}` is not computed yet."


def _first_map_refusal(choice: Choice) -> str:
    """Why there is no map in seconds, where the chosen method is the one that such a map precedes."""
    if choice.method != DEFAULT_METHOD:
        return ""
    return scores_refusal(replace(choice, method=FIRST_MAP_METHOD, variant=""))


def offer_shapley(choice: Choice) -> None:
    """Beside a first map: what decides which heads help and which harm, with its price.

    Args:
        choice: The sidebar's, whose method is that of first maps.
    """
    shapley_choice = replace(choice, method=DEFAULT_METHOD, variant="")
    shapley_scores = scores_of(shapley_choice)
    with st.container(border=True, key="shapley-next"):
        st.markdown("##### Shapley values")
        if shapley_scores.scores:
            st.markdown("They are there too, with intervals.")
            button(
                "Show Shapley values",
                kind="primary",
                key="show-shapley",
                on_press=show_choice,
                args=(shapley_choice,),
            )
            return
        st.markdown(
            f"They say which {noun_of(choice.players)} help and which harm, with intervals."
        )
        if reason := scores_refusal(shapley_choice):
            st.markdown(plain(reason))
            return
        if is_being_computed(shapley_choice):
            st.markdown("They are being computed.")
            return
        job = score_job(shapley_choice, shapley_scores.missing, shapley_scores.template)
        button(
            "Compute them", kind="primary", key="compute-shapley", on_press=start_job, args=(job,)
        )
        draw_forecast(job, "", "")
        st.caption("They can be stopped at any time; finished work is kept.")
        show_terminal_commands(job)
