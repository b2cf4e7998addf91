"""The offer to compute missing scores, on any page: the cost, the button, and the progress bars."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from headlab.core import HEADS, duration_text, noun_of, players_phrase
from headlab.dashboard.frame import (
    Choice,
    LatestValue,
    StoredScores,
    cached_grid,
    errors_as_sentences,
    stored_results,
)
from headlab.dashboard.names import count_words, plain
from headlab.dashboard.panels.jobs.fitting import draw_misfit, misfit_reason
from headlab.dashboard.panels.jobs.job_actions import (
    ask_worker,
    draw_forecast,
    draw_live_jobs,
    forecast_at_once,
    job_requests,
    live_jobs,
    scores_refusal,
    start_job,
)
from headlab.dashboard.panels.jobs.job_format import languages_in
from headlab.dashboard.widgets import PageState, button, redraw_every, set_widget
from headlab.jobs import SimpleValue
from headlab.jobs.table import ScoreJob
from headlab.methods import (
    DEFAULT_METHOD,
    FIRST_MAP_METHOD,
    LIVE_METHOD,
    METHODS,
    costs,
    settings,
    spec_of,
)
from headlab.results import HeadScores
from headlab.tasks import language_title, language_titles
from headlab.worker import Client

# Gradient scores as live requests: they take seconds per language and take priority over jobs.

REDRAW_SECONDS = 0.5
LIVE_OPTIONS = ("form", "normalise")
"""Options of the method that a live request supports."""


@dataclass
class RequestedScores(PageState):
    """The scores that one session has requested and that are not all there yet.

    Attributes:
        job: That would compute the same; None if nothing is requested.
        languages: The language that is being computed, as it changes; None if nothing is requested.
    """

    key = "_gradient"
    job: ScoreJob | None = None
    languages: LatestValue[str] | None = None

    def clear(self) -> None:
        """Forget the request, which has ended or is to end."""
        self.job = None
        self.languages = None


def fits_live_request(job: ScoreJob) -> bool:
    """Whether a live request gives exactly what this job would."""
    settings = (job.seed, job.ablation, job.players)
    if job.method != LIVE_METHOD or settings != (0, "zero", HEADS):
        return False
    options = METHODS[LIVE_METHOD].options
    return all(
        value == options[name].default
        for name, value in job.options.items()
        if name not in LIVE_OPTIONS
    )


def request_gradient_scores(worker: Client, job: ScoreJob) -> Generator[str]:
    """Request each language in turn.

    Yields its name before each, and an empty string at the end.
    """
    form = str(job.options.get("form", METHODS[job.method].options["form"].default))
    normalise = bool(job.options.get("normalise", False))
    for language in job.language_codes:
        yield language
        worker.gradient(
            job.model,
            job.task,
            language,
            label_map=job.label_map,
            form=form,
            normalise=normalise,
        )
    yield ""


def draw_live_offer(job: ScoreJob, label: str) -> None:
    """The button, or the progress of the scores it requested."""
    request = RequestedScores.of_session()
    requested_job = request.job
    live = request.languages
    if requested_job is None or live is None or not _is_request_of(requested_job, job):
        # Starting this request ends another choice's.
        button(label, kind="primary", key="compute", on_press=_start_request, args=(job,))
        return
    with st.container(horizontal=True, vertical_alignment="center", key="gradient-bar"):
        with st.container():
            redraw_every(_draw_progress, REDRAW_SECONDS)(requested_job.language_codes, live)
        button("Stop", key="gradient-stop", on_press=_stop_request, help="Finished work is kept.")


def _is_request_of(requested_job: ScoreJob, job: ScoreJob) -> bool:
    """Whether a running request is for this choice.

    Languages it has finished are no longer missing.
    """
    is_same = _without_languages(requested_job) == _without_languages(job)
    return is_same and set(job.language_codes) <= set(requested_job.language_codes)


def _without_languages(job: ScoreJob) -> ScoreJob:
    """The job without its languages, and with every option filled in.

    The first result will have these options.
    """
    options = METHODS[job.method].resolve(job.options)
    return job.model_copy(update={"languages": [], "options": options})


def _start_request(job: ScoreJob) -> None:
    def replace_request(worker: Client) -> None:
        _stop_request()
        request = RequestedScores.of_session()
        request.languages = LatestValue(lambda: request_gradient_scores(worker, job))
        request.job = job

    ask_worker(replace_request)


def _stop_request() -> None:
    request = RequestedScores.of_session()
    live = request.languages
    request.clear()
    if live is not None:
        live.stop()


def _draw_progress(languages: Sequence[str], live: LatestValue[str]) -> None:
    with errors_as_sentences():
        if live.done:
            if live.error is not None:
                job_requests().failure = str(live.error)
            RequestedScores.of_session().clear()
            st.rerun()
        current = languages[0] if live.value is None else live.value or languages[-1]
        done_count = languages.index(current)
        caption = f"{plain(language_title(current))}, {done_count} of {len(languages)} done"
        st.progress(done_count / len(languages), caption)


def score_job(choice: Choice, languages: Sequence[str], template: HeadScores | None) -> ScoreJob:
    """The job that scores these languages.

    Args:
        choice: Whose model, task and method it is of.
        languages: Their codes.
        template: A result whose settings it copies; None for the method's defaults.
    """
    options: dict[str, SimpleValue] = {}
    seed = 0
    ablation = "zero"
    if template is not None:
        known_options = METHODS[choice.method].options
        for name, value in settings(template).items():
            if name in known_options and not isinstance(value, Mapping):
                options[name] = value
        seed = spec_of(template, "seed") or 0
        ablation = spec_of(template, "ablation") or "zero"
    job = ScoreJob.model_construct(
        **choice.job_fields,
        method=choice.method,
        languages=list(languages),
        options=options,
        seed=seed,
        ablation=ablation,
    )
    if choice.players == HEADS:
        return job
    return job.model_copy(update={"players": choice.players})


def draw_missing_scores(choice: Choice, stored_scores: StoredScores, what_for: str) -> None:
    """On other pages: which scores are missing, what they are for, and the offer.

    Nothing if none are missing.
    """
    if not stored_scores.missing:
        return
    with st.container(border=True, key="offer"):
        missing_titles = plain(language_titles(stored_scores.missing))
        scores_words = f"{choice.method} scores"
        if choice.players != HEADS:
            scores_words += f" of {players_phrase(choice.players)}"
        st.markdown(f"No {scores_words} of {missing_titles} are cached. {what_for}")
        offer_missing_scores(choice, stored_scores.missing, stored_scores.template, is_folded=True)
        draw_live_jobs()


def offer_missing_scores(
    choice: Choice,
    missing: Sequence[str],
    template: HeadScores | None = None,
    *,
    is_folded: bool = False,
) -> None:
    """The button that computes the missing languages, its cost, and the equivalent command.

    Args:
        choice: Whose scores are missing.
        missing: The languages; those of live jobs are left out.
        template: As in `score_job`.
        is_folded: Whether the command is in an expander.
    """
    if skipped_count := len(stored_results(HeadScores).problems):
        st.caption(
            f"Skipped in the cache: {count_words(skipped_count, 'folder')}; the Jobs page says why."
        )
    if misfit := misfit_reason(choice):
        draw_misfit(choice, misfit)
        return
    if reason := scores_refusal(choice):
        st.warning(plain(reason))
        return
    computed_languages: set[str] = set()
    for job_row in live_jobs(choice):
        computed_languages.update(languages_in(job_row))
    missing = [language for language in missing if language not in computed_languages]
    if not missing:
        return
    job = score_job(choice, missing, template)
    has_first_map = template is None and _offer_first_map(choice, missing)
    if fits_live_request(job):
        draw_live_offer(job, f"Compute {_missing_words(missing)}")
    else:
        button(
            f"Compute {_missing_words(missing)}",
            kind="secondary" if has_first_map else "primary",
            key="compute",
            on_press=start_job,
            args=(job,),
        )
    draw_forecast(job, _cost_and_caution(choice), _max_cost(choice, job))
    with st.expander("The same from a terminal") if is_folded else st.container():
        st.caption("Or from a terminal; it can be interrupted, and the same command resumes it:")
        st.code(job.terminal_lines(), language="bash", wrap_lines=True)


def _offer_first_map(choice: Choice, languages: Sequence[str]) -> bool:
    """The button for a first map in seconds, where the chosen method takes minutes.

    Returns:
        Whether it was drawn.
    """
    first_choice = replace(choice, method=FIRST_MAP_METHOD)
    if choice.method != DEFAULT_METHOD or scores_refusal(first_choice):
        return False
    job = score_job(first_choice, languages, None)
    button(
        "A first map, in seconds",
        kind="primary",
        key="first-map",
        on_press=_start_first_map,
        args=(job,),
    )
    st.caption(
        f"By `{FIRST_MAP_METHOD}`: all {noun_of(choice.players)} from one gradient, without intervals. "
        f"`{DEFAULT_METHOD}` then says which {noun_of(choice.players)} help and which do harm."
    )
    return True


def _start_first_map(job: ScoreJob) -> None:
    """Queue the job, and choose its method."""
    set_widget("method", job.method)
    start_job(job)


def _missing_words(missing: Sequence[str]) -> str:
    if len(missing) > 1:
        return f"the {len(missing)} missing languages"
    return f"the missing language ({missing[0]})"


def score_job_cost(choice: Choice, job: ScoreJob) -> str:
    """The cost of a score job in words, with the forecast if it arrives at once."""
    forecast_text = forecast_at_once(job, _max_cost(choice, job))
    return f"{_cost_and_caution(choice)} {forecast_text}".rstrip()


def _cost_and_caution(choice: Choice) -> str:
    method = METHODS[choice.method]
    warning = costs.caution(method.key)
    cost = f"Cost: {method.costs.words}."
    if warning:
        return f"Caution: {warning}. {cost}"
    return cost


def _max_cost(choice: Choice, job: ScoreJob) -> str:
    """If the worker has no forecast: the maximum cost, at the pace of the cached results."""
    method = METHODS[choice.method]
    grid = cached_grid(choice.model)
    if grid is None or choice.players != HEADS:
        return ""
    forwards = method.max_forwards(method.resolve(job.options), grid.size, 512)
    all_scores = [result.record for result in stored_results(HeadScores).results]
    pace = costs.pace(all_scores, choice.model, choice.task)
    if not forwards or pace is None:
        return ""
    unit = "each language" if len(job.language_codes) > 1 else "the language"
    time_text = duration_text(forwards * pace)
    return (
        f"Here at most {forwards:,} forwards for {unit}, {time_text} at the pace of the results cached "
        "here."
    )
