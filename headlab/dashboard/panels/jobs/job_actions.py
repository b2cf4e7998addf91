"""Job actions for pages: starting and cancelling, forecasts, and progress bars."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import streamlit as st
from cachetools import FIFOCache

from headlab.core import HEADS, HeadlabError, content_key, read_players
from headlab.dashboard.frame import (
    Choice,
    LatestValue,
    cached_grid,
    current_choice,
    errors_as_sentences,
    is_model_absent,
    stored_specs,
    supervisor,
    worker_client,
)
from headlab.dashboard.names import error_words, page_link, plain
from headlab.dashboard.panels.jobs.fitting import misfit_reason
from headlab.dashboard.panels.jobs.job_format import (
    LIVE_STATES,
    describe_job,
    forecast_line,
    job_of_row,
    progress_line,
    sorted_queue,
    words_of_job,
)
from headlab.dashboard.panels.jobs.job_format import share_done as share_of
from headlab.dashboard.widgets import (
    Button,
    Form,
    FormValues,
    PageState,
    button,
    button_row,
    reason_refused,
    redraw_every,
    with_typed_numbers,
)
from headlab.jobs import Job, JobPlace
from headlab.jobs.table import ScoreJob
from headlab.methods import METHODS, Forecast, costs
from headlab.worker import Client, JobRow

# Actions on jobs. A press calls them before anything is redrawn, and they are not interrupted.


class StartedJob(NamedTuple):
    """A job that a click started.

    Attributes:
        number: Its number.
        state: Its state just after the click.
        was_in_queue: Whether it was in the queue before the click.
    """

    number: int
    state: str
    was_in_queue: bool


class FailedJob(NamedTuple):
    """A job of this session that has failed.

    Attributes:
        model: That it computed with; None for a job without one.
        task: On which it did; None for a job without one.
        reason: A sentence that says why.
    """

    model: object
    task: object
    reason: str

    def concerns(self, choice: Choice | None) -> bool:
        """Whether it says something of this model and task; True for a choice of None."""
        if choice is None:
            return True
        return self.model in (None, choice.model) and self.task in (None, choice.task)


@dataclass
class JobRequests(PageState):
    """What one session has asked the worker for, and which job it looks at.

    Attributes:
        own_numbers: Its jobs whose end it has not seen yet.
        live_numbers: All jobs that ran or waited when it last looked.
        failure: Why its last click failed; empty if it did not.
        failed_jobs: Those of its jobs that have failed since its last click.
        started: The job that its last click queued.
        to_delete: The job whose deletion waits for confirmation; None for none.
        was_turned: Whether a press has opened a job, or the list of all, which the link does not
            say yet.
        turned_to: The job that the press has opened; None for the list of all.
    """

    key = "_jobs"
    own_numbers: set[int] = field(default_factory=set)
    live_numbers: set[int] = field(default_factory=set)
    failure: str = ""
    failed_jobs: list[FailedJob] = field(default_factory=list)
    started: StartedJob | None = None
    to_delete: int | None = None
    was_turned: bool = False
    turned_to: int | None = None

    def forget(self, reason: str = "") -> None:
        """Drop the last messages and the last started job.

        Args:
            reason: The new message, if any.
        """
        self.failure = reason
        self.failed_jobs = []
        self.started = None


def job_requests() -> JobRequests:
    """This session's job requests."""
    return JobRequests.of_session()


def ask_worker(call: Callable[[Client], object]) -> None:
    """Call the worker.

    An error becomes a sentence that `show_last_failure` shows until the next click.
    """
    requests = job_requests()
    requests.forget()
    try:
        call(supervisor().client())
    except HeadlabError as error:
        requests.failure = str(error)


def show_last_failure(*, of_all: bool = False) -> None:
    """Show why this session's last click or job failed, until the next click.

    What failed with another model, or on another task, is no error of the chosen ones; the Jobs
    page lists it.

    Args:
        of_all: Whether jobs of other models and tasks are told of too.
    """
    requests = job_requests()
    choice = None if of_all else current_choice()
    reasons = [job.reason for job in requests.failed_jobs if job.concerns(choice)]
    if message := " ".join(filter(None, [requests.failure, *reasons])):
        st.error(plain(error_words(message)))


def start_job(job: Job, place: JobPlace = "here") -> None:
    """Queue a job as this session's own."""
    requests = job_requests()

    def submit(worker: Client) -> None:
        live_numbers = {row.id for row in worker.jobs() if row.state in LIVE_STATES}
        job_row = worker.submit(job, place=place)
        requests.own_numbers.add(job_row.id)
        requests.started = StartedJob(
            job_row.id, job_row.state, was_in_queue=job_row.id in live_numbers
        )

    ask_worker(submit)


RAY_LEAD = "What it would take this worker alone; Ray workers share it:"
"""Before the forecast of a job that is to run on Ray."""


def draw_job_place(job_class: type[Job], key: str) -> None:
    """Where a job runs, if it may run on Ray and the worker has it.

    Args:
        job_class: Of the job.
        key: Of the widget.
    """
    ray = supervisor().state().ray
    if not ray or "ray" not in job_class.places:
        return
    places = {"here": "this worker", "ray": f"Ray ({ray})"}
    st.radio(
        "Where it runs", list(places), format_func=places.__getitem__, horizontal=True, key=key
    )


def job_place(job_class: type[Job], chosen: object) -> JobPlace:
    """Where a job runs.

    Args:
        job_class: Of the job.
        chosen: What the widget of `draw_job_place` holds.
    """
    if chosen == "ray" and "ray" in job_class.places:
        return "ray"
    return "here"


def start_job_of_form(
    form: Form,
    make_job: Callable[[FormValues], Job],
    typed_numbers: Mapping[str, str] | None,
    place: JobPlace = "here",
) -> None:
    """Queue the job of a form, as its widgets are now, not as they were when the button was drawn.

    Args:
        form: Whose values the job is made of.
        make_job: Makes it; its HeadlabError is shown.
        typed_numbers: What the form's number fields showed last, as in `with_typed_numbers`.
        place: Where the job is to run.
    """
    try:
        job = make_job(with_typed_numbers(form.values(), typed_numbers))
    except HeadlabError as error:
        job_requests().forget(str(error))
        return
    start_job(job, place)


def open_job(job: int | None) -> None:
    """Show one job on the Jobs page, or all.

    A link to the same page would drop the other parameters.
    """
    requests = job_requests()
    requests.forget()
    requests.to_delete = None
    requests.turned_to = job
    requests.was_turned = True


def opened_job() -> str:
    """The job that the link names, or empty.

    A job opened by a press takes precedence and is written to the link here.

    A press does not write the link itself: a timer's run that it interrupts may start again after
    it and overwrite the session's link with that of its own request.
    """
    requests = job_requests()
    if requests.was_turned:
        if requests.turned_to is None:
            st.query_params.pop("job", None)
        else:
            st.query_params["job"] = str(requests.turned_to)
        requests.was_turned = False  # last: a run interrupted before this leaves it to the next
    return st.query_params.get("job", "")


def cancel_job(job: int) -> None:
    """Cancel a running job at its next batch, a waiting one at once."""
    _dismiss_delete_confirmation()
    ask_worker(lambda worker: worker.cancel(job))


def resume_job(job: int) -> None:
    """Queue a cancelled or failed job again."""
    _dismiss_delete_confirmation()
    ask_worker(lambda worker: worker.resume(job))


def _dismiss_delete_confirmation() -> None:
    """Dismiss the delete confirmation, because another action was chosen."""
    job_requests().to_delete = None


def confirm_job_deletion(job: int | None) -> None:
    """Ask for confirmation to delete a job; None dismisses the question."""
    requests = job_requests()
    requests.failure = ""
    requests.failed_jobs = []
    requests.to_delete = job


def is_deletion_to_confirm(job: int) -> bool:
    """Whether the confirmation to delete this job is open."""
    return job_requests().to_delete == job


def delete_job(job: int) -> None:
    """Delete a job, with its log and the checkpoints of its unfinished results."""

    def delete_and_show_all(worker: Client) -> None:
        worker.delete(job)
        open_job(None)

    ask_worker(delete_and_show_all)


# The end of every job form.


def end_job_form(
    job: Job,
    reason: str,
    on_press: Callable[..., None],
    *args: Any,
    key: str,
    form_prefix: str,
    text_before: str = "What it will take:",
) -> None:
    """What is wrong with the form, or else the forecast of its job; and Start.

    Args:
        job: Of the form.
        reason: Why it cannot be started; empty if it can.
        on_press: Called by Start, with `args` and what was typed last.
        args: Of `on_press`.
        key: Of the button.
        form_prefix: Prefix of the keys of the form's widgets.
        text_before: Text before the forecast.
    """
    if reason:
        st.warning(plain(reason))
    else:
        draw_forecast(job, text_before, "")
    button(
        "Start",
        kind="primary",
        icon="play_arrow",
        key=key,
        disabled=bool(reason),
        on_press=on_press,
        args=args,
        form=form_prefix,
    )


def show_terminal_commands(*jobs: Job, note: str = "") -> None:
    """Show the terminal commands of jobs, folded.

    Args:
        jobs: A command, or several, each.
        note: A note above the commands.
    """
    with st.expander("The same from a terminal"):
        if note:
            st.caption(note)
        lines = "\n".join(words_of_job(job, lambda job: job.terminal_lines()) for job in jobs)
        st.code(lines, language="bash", wrap_lines=True)


# The cost of a job, as the worker forecasts it. It may have to time its device first, so no page
# waits for it.

FIRST_SECONDS = 0.3
"""A forecast that comes this soon is drawn by the run that asked for it."""
POLL_SECONDS = 0.5
RETRY_SECONDS = 3.0
FRESH_SECONDS = 60.0
"""A forecast older than this is asked for again."""
MAX_FORECASTS = 50
ComingForecast = LatestValue[Forecast]
"""A forecast that a thread asks the worker for."""


class RequestedForecast(NamedTuple):
    """A forecast, and when it was requested, by `time.monotonic`."""

    request_time: float
    coming: ComingForecast


@dataclass
class Forecasts(PageState):
    """The forecasts that one session has requested.

    Attributes:
        by_job: By `_job_content_key`.
    """

    key = "_forecasts"
    by_job: FIFOCache[str, RequestedForecast] = field(
        default_factory=lambda: FIFOCache(MAX_FORECASTS)
    )


def draw_forecast(job: Job, text_before: str, otherwise: str) -> None:
    """Draw the forecast of a job as a caption, as soon as it arrives.

    Args:
        job: The job.
        text_before: Before the forecast.
        otherwise: Text if no worker is connected or it has no answer; if empty, the reason is
            shown.
    """
    coming = _requested_forecast(job)
    if coming is not None:
        coming.wait(1, FIRST_SECONDS)
    # Room for all its lines, so that no button below moves as it is pressed. A page may show
    # several.
    with st.container(key=f"forecast-{_job_content_key(job)[:12]}"):
        if coming is not None and coming.value is not None:
            st.caption(f"{text_before} {forecast_words(coming, otherwise)}".strip())
        else:  # a worker may still connect
            poll_seconds = RETRY_SECONDS if coming is None else POLL_SECONDS
            redraw_every(_draw_forecast_if_there, poll_seconds)(job, text_before, otherwise)


def _draw_forecast_if_there(job: Job, text_before: str, otherwise: str) -> None:
    with errors_as_sentences():
        coming = _requested_forecast(job)
        if coming is not None and coming.value is not None:
            st.rerun()
        is_asking = coming is not None and not coming.error
        text = forecast_words(coming, otherwise)
        if is_asking:
            text = "Asking the worker how long it will take …"
        st.caption(f"{text_before} {text}".strip())


def forecast_words(coming: ComingForecast | None, otherwise: str) -> str:
    """A forecast in words, as Markdown; if there is none, `otherwise` or else the reason."""
    if coming is not None and coming.value is not None:
        return forecast_line(coming.value)
    if otherwise or coming is None:
        return otherwise or "not known, as no worker could be asked."
    reason = error_words(str(coming.error or "")) or "the worker has not answered yet"
    return plain(f"not known: {reason}.")


def forecast_at_once(job: Job, otherwise: str) -> str:
    """The forecast in words, if it arrives within FIRST_SECONDS."""
    coming = _requested_forecast(job)
    if coming is not None:
        coming.wait(1, FIRST_SECONDS)
    return forecast_words(coming, otherwise)


def _requested_forecast(job: Job) -> ComingForecast | None:
    """The forecast of a job, requested unless this session did so recently.

    A failed request is retried sooner.
    """
    if not supervisor().is_connected:
        return None
    forecasts = Forecasts.of_session().by_job
    key = _job_content_key(job)
    current_time = time.monotonic()
    earlier_request = forecasts.get(key)
    if earlier_request is not None:
        fresh_seconds = FRESH_SECONDS if earlier_request.coming.error is None else RETRY_SECONDS
        if current_time - earlier_request.request_time <= fresh_seconds:
            return earlier_request.coming
    worker = supervisor().client()

    def forecast_of_job() -> Generator[Forecast]:
        yield worker.forecast(job)

    coming = LatestValue(forecast_of_job)
    forecasts[key] = RequestedForecast(current_time, coming)
    return coming


def arrived_forecast(job: Job) -> Forecast | None:
    """The forecast of a job, if this session has it already."""
    forecast_request = Forecasts.of_session().by_job.get(_job_content_key(job))
    if forecast_request is None:
        return None
    return forecast_request.coming.value


def forecast_pace(job: Job) -> float | None:
    """Seconds a forward pass by the forecast of a job.

    None if this session has none, or nothing is to be run.
    """
    forecast = arrived_forecast(job)
    if forecast is None or not forecast.seconds or not forecast.forwards:
        return None
    return forecast.seconds / forecast.forwards


def forecast_seconds(job: Job) -> float | None:
    """How long a job will take, by a forecast that is asked for here.

    None while it is not known; the page is drawn anew once it is.
    """
    coming = _requested_forecast(job)
    if coming is None:
        return None
    coming.wait(1, FIRST_SECONDS)
    if coming.value is not None:
        return coming.value.seconds
    if coming.error is None:
        redraw_every(_rerun_if_forecast_is_there, POLL_SECONDS)(job)
    return None


def _rerun_if_forecast_is_there(job: Job) -> None:
    coming = _requested_forecast(job)
    if coming is not None and coming.value is not None:
        st.rerun()


def _job_content_key(job: Job) -> str:
    return content_key([job.key, job.params()])


# Following jobs on any page: bars with time left, and a rerun of the page when one starts or ends.

REDRAW_SECONDS = 1.0
MAX_BARS = 3
"""Jobs whose progress is drawn; of more it says how many."""
JobStates = tuple[tuple[int, str], ...]
"""Numbers and states of live jobs, in their order."""
RESUMES_HELP = "Finished work is kept; the same job resumes from there."


def draw_live_jobs() -> list[JobRow]:
    """Draw the live jobs, kept up to date, and return them; when one ends, the page reruns."""
    live_rows: list[JobRow] = []
    with errors_as_sentences():
        show_last_failure()
        live_rows = live_jobs()
        for job_row in live_rows[:MAX_BARS]:
            draw_job_bar(job_row)
        if live_rows:
            hidden_count = len(live_rows) - MAX_BARS
            link_text = "queue, logs and time left"
            if hidden_count > 0:
                link_text = f"{hidden_count} more in line"
            page_link("jobs", f"Jobs: {link_text}")
            rerun_when_jobs_change(live_rows)
    return live_rows


def rerun_when_jobs_change(jobs: Sequence[JobRow]) -> None:
    """Rerun the page as soon as the live jobs or their states differ from these."""
    redraw_every(_rerun_if_changed, REDRAW_SECONDS, waits=bool(jobs))(_states_of(jobs))


def _rerun_if_changed(drawn_states: JobStates) -> None:
    with errors_as_sentences():
        jobs = worker_client().jobs()
        rerun_if_job_ended(jobs)
        if _states_of(sorted_queue(jobs).live) != drawn_states:
            st.rerun()


def _states_of(jobs: Sequence[JobRow]) -> JobStates:
    return tuple((job_row.id, job_row.state) for job_row in jobs)


def show_started_job(result_sentence: str) -> None:
    """Say what the last click that started a job came to, with a link to the job.

    Args:
        result_sentence: What becomes of the job's result.
    """
    requests = job_requests()
    started_job = requests.started
    if started_job is None or started_job.number not in requests.own_numbers:
        return
    state_text = f"Job {started_job.number} is in the queue."
    if started_job.was_in_queue:
        state_text = f"This is already job {started_job.number}."
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{state_text} {result_sentence}")
        page_link("jobs", f"Follow job {started_job.number}", {"job": str(started_job.number)})


def live_jobs(choice: Choice | None = None) -> list[JobRow]:
    """Live jobs, the running ones first; none if no worker is connected.

    Reruns the page if a job has ended since this session's last look.

    Args:
        choice: Whose model, task and method the jobs compute scores of; None for all jobs.
    """
    if not supervisor().is_connected:
        return []
    jobs = worker_client().jobs()
    rerun_if_job_ended(jobs)
    live_rows = sorted_queue(jobs).live
    if choice is None:
        return live_rows
    return [job_row for job_row in live_rows if _computes_choice(job_row, choice)]


def _computes_choice(job_row: JobRow, choice: Choice) -> bool:
    """Whether a job computes scores of this choice."""
    job = job_of_row(job_row)
    if not isinstance(job, ScoreJob):
        return False
    computed_subject = (job.model, job.task, job.method, job.label_map, job.players)
    chosen_subject = (choice.model, choice.task, choice.method, choice.label_map, choice.players)
    return computed_subject == chosen_subject


def rerun_if_job_ended(jobs: Sequence[JobRow], *, tell_failures: bool = True) -> None:
    """Rerun the page if a job of any session has ended since the last look.

    The stored results have changed then.

    Args:
        jobs: The list of jobs.
        tell_failures: Whether to report why a job of this session failed; False if the page already
            shows it.
    """
    requests = job_requests()
    states = {job_row.id: job_row.state for job_row in jobs}
    live_numbers = {number for number, state in states.items() if state in LIVE_STATES}
    own_numbers = set(requests.own_numbers)
    ended_numbers = (own_numbers | requests.live_numbers) & states.keys() - live_numbers
    # A list fetched before a click does not contain the click's job.
    newest_number = max(states, default=0)
    requests.own_numbers.difference_update(
        number for number in own_numbers - live_numbers if number <= newest_number
    )
    requests.live_numbers = live_numbers
    failures = []
    for job_row in jobs:
        if job_row.state == "failed" and job_row.id in own_numbers & ended_numbers:
            failures.append(_failed_job(job_row))
    if tell_failures and failures:
        requests.failure = ""
        requests.failed_jobs = failures
    if ended_numbers:
        Forecasts.of_session().by_job.clear()  # what was forecast may be in the cache now
        st.rerun()


def _failed_job(job_row: JobRow) -> FailedJob:
    params = job_row.params
    return FailedJob(params.get("model"), params.get("task"), failure_sentence(job_row))


def failure_sentence(job_row: JobRow) -> str:
    """Why a job failed, as a sentence."""
    return f"{describe_job(job_row)}: {job_row.state}. {error_words(job_row.error or '')}".rstrip()


def draw_job_bar(job_row: JobRow) -> None:
    """A job's progress and a button that cancels it."""
    number = job_row.id
    with st.container(horizontal=True, vertical_alignment="center", key=f"bar-{number}"):
        with st.container():
            draw_job_progress(job_row, describe_job(job_row))
        button_row(cancel_button(number))


def cancel_button(job: int) -> Button:
    """The button that cancels a job."""
    return Button("Cancel", f"cancel-{job}", cancel_job, (job,), help=RESUMES_HELP)


def draw_job_progress(job_row: JobRow, text_before: str = "") -> None:
    """A job's progress, kept up to date while it runs.

    It holds no button, which could be redrawn as it is pressed.

    Args:
        job_row: The job.
        text_before: Text before the progress.
    """
    if job_row.state == "running":
        redraw_every(_redraw_progress, REDRAW_SECONDS)(job_row.id, text_before)
    else:
        _draw_progress(job_row, text_before)


def _redraw_progress(number: int, text_before: str) -> None:
    with errors_as_sentences():
        _draw_progress(worker_client().job(number), text_before)


def _draw_progress(job_row: JobRow, text_before: str) -> None:
    parts = [part for part in (text_before, progress_line(job_row)) if part]
    st.progress(share_of(job_row), plain(" · ".join(parts)))


# Whether a method can be run on a model.


def missing_weights_reason(model: str) -> str:
    """Why nothing can be computed on this model here; empty if its weights may be found."""
    if not is_model_absent(model, stored_specs()):
        return ""
    return f"The weights of {model} are not here; give the folder that holds it, under Another model in the sidebar."


def scores_refusal(choice: Choice) -> str:
    """Why nothing can be computed by this method of this model on this task.

    Empty if it can be, as far as is known.
    """
    unusable = missing_weights_reason(choice.model) or misfit_reason(choice)
    grid = cached_grid(choice.model)
    if unusable or grid is None:
        return unusable
    method = METHODS[choice.method]
    if choice.players != HEADS:
        unseen = reason_refused(
            costs.require_sees_players, method, read_players(choice.players).kinds
        )
        return unseen or reason_refused(costs.require_encoder, method, grid)
    too_many_heads = reason_refused(costs.require_few_heads, method, grid.size)
    return too_many_heads or reason_refused(costs.require_encoder, method, grid)
