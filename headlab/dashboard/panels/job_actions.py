"""Job actions for pages: starting and cancelling, forecasts, and progress bars."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import streamlit as st
from cachetools import FIFOCache

from headlab.core import HeadlabError, content_key
from headlab.dashboard.frame import (
    Choice,
    LatestValue,
    errors_as_sentences,
    is_model_absent,
    stored_results,
    stored_specs,
    supervisor,
    worker_client,
)
from headlab.dashboard.names import page_link, plain
from headlab.dashboard.panels.job_format import (
    LIVE,
    describe,
    forecast_line,
    in_order,
    job_in,
    progress_line,
    words_of,
)
from headlab.dashboard.panels.job_format import share as share_of
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
from headlab.jobs import Job, Place
from headlab.jobs.table import ScoreJob
from headlab.methods import METHODS, Forecast, costs, spec_of
from headlab.results import HeadScores
from headlab.worker import Client, JobRow

# Actions on jobs. A press calls them before anything is redrawn, and they are not interrupted.


class StartedJob(NamedTuple):
    """A job that a click started.

    Attributes:
        job: Its number.
        state: Its state just after the click.
        before: Whether it was in the queue before the click.
    """

    job: int
    state: str
    before: bool


@dataclass
class JobRequests(PageState):
    """What one session has asked the worker for, and which job it looks at.

    Attributes:
        mine: Its jobs whose end it has not seen yet.
        live: All jobs that ran or waited when it last looked.
        said: Why its last click or job failed; empty if it did not.
        started: The job that its last click queued.
        to_delete: The job whose deletion waits for confirmation; None for none.
        was_turned: Whether a press has opened a job, or the list of all, which the link does not say yet.
        turned_to: The job that the press has opened; None for the list of all.
    """

    key = "_jobs"
    mine: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)
    said: str = ""
    started: StartedJob | None = None
    to_delete: int | None = None
    was_turned: bool = False
    turned_to: int | None = None

    def forget(self, reason: str = "") -> None:
        """Drop the last message and the last started job.

        Args:
            reason: The new message, if any.
        """
        self.said = reason
        self.started = None


def asked_for() -> JobRequests:
    """This session's job requests."""
    return JobRequests.of_session()


def ask(call: Callable[[Client], object]) -> None:
    """Call the worker; an error becomes a sentence that `said` shows until the next click."""
    requests = asked_for()
    requests.forget()
    try:
        call(supervisor().client())
    except HeadlabError as error:
        requests.said = str(error)


def said() -> None:
    """Show why this session's last click or job failed, until the next click."""
    if message := asked_for().said:
        st.error(plain(message))


def start(job: Job, place: Place = "here") -> None:
    """Queue a job as this session's own."""
    requests = asked_for()

    def submit(worker: Client) -> None:
        live_numbers = {row.id for row in worker.jobs() if row.state in LIVE}
        job_row = worker.submit(job, place=place)
        requests.mine.add(job_row.id)
        requests.started = StartedJob(job_row.id, job_row.state, before=job_row.id in live_numbers)

    ask(submit)


def start_planned(
    form: Form, make_job: Callable[[FormValues], Job], typed_numbers: Mapping[str, str] | None
) -> None:
    """Queue the job of a form, as its widgets are now, not as they were when the button was drawn.

    Args:
        form: Whose values the job is made of.
        make_job: Makes it; its HeadlabError is shown.
        typed_numbers: What the form's number fields showed last, as in `with_typed_numbers`.
    """
    try:
        job = make_job(with_typed_numbers(form.values(), typed_numbers))
    except HeadlabError as error:
        asked_for().forget(str(error))
        return
    start(job)


def show(job: int | None) -> None:
    """Show one job on the Jobs page, or all. A link to the same page would drop the other parameters."""
    requests = asked_for()
    requests.forget()
    requests.to_delete = None
    requests.turned_to = job
    requests.was_turned = True


def shown() -> str:
    """The job that the link names, or empty; a job opened by a press takes precedence and is written to the link here.

    A press does not write the link itself: a timer's run that it interrupts may start again after it and overwrite
    the session's link with that of its own request.
    """
    requests = asked_for()
    if requests.was_turned:
        if requests.turned_to is None:
            st.query_params.pop("job", None)
        else:
            st.query_params["job"] = str(requests.turned_to)
        requests.was_turned = False  # last: a run interrupted before this leaves it to the next
    return st.query_params.get("job", "")


def cancel(job: int) -> None:
    """Cancel a running job at its next batch, a waiting one at once."""
    _dismiss_delete_confirmation()
    ask(lambda worker: worker.cancel(job))


def resume(job: int) -> None:
    """Queue a cancelled or failed job again."""
    _dismiss_delete_confirmation()
    ask(lambda worker: worker.resume(job))


def _dismiss_delete_confirmation() -> None:
    """Dismiss the delete confirmation, because another action was chosen."""
    asked_for().to_delete = None


def confirm_delete(job: int | None) -> None:
    """Ask for confirmation to delete a job; None dismisses the question."""
    requests = asked_for()
    requests.said = ""
    requests.to_delete = job


def deleting(job: int) -> bool:
    """Whether the confirmation to delete this job is open."""
    return asked_for().to_delete == job


def delete(job: int) -> None:
    """Delete a job, with its log and the checkpoints of its unfinished results."""

    def delete_and_show_all(worker: Client) -> None:
        worker.delete(job)
        show(None)

    ask(delete_and_show_all)


# The end of every job form.


def end_form(
    job: Job,
    reason: str,
    on_press: Callable[..., None],
    *args: Any,
    key: str,
    form: str,
    before: str = "What it will take:",
) -> None:
    """What is wrong with the form, or else the forecast of its job; and Start.

    Args:
        job: Of the form.
        reason: Why it cannot be started; empty if it can.
        on_press: Called by Start, with `args` and what was typed last.
        args: Of `on_press`.
        key: Of the button.
        form: Prefix of the keys of the form's widgets.
        before: Text before the forecast.
    """
    if reason:
        st.warning(plain(reason))
    else:
        draw(job, before, "")
    button(
        "Start",
        kind="primary",
        icon="play_arrow",
        key=key,
        disabled=bool(reason),
        on_press=on_press,
        args=args,
        form=form,
    )


def terminal(*jobs: Job, about: str = "") -> None:
    """Show the terminal commands of jobs, folded.

    Args:
        jobs: A command, or several, each.
        about: A note above the commands.
    """
    with st.expander("The same from a terminal"):
        if about:
            st.caption(about)
        lines = "\n".join(words_of(job, lambda job: job.terminal_lines()) for job in jobs)
        st.code(lines, language="bash", wrap_lines=True)


# The cost of a job, as the worker forecasts it. It may have to time its device first, so no page waits for it.

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


def draw(job: Job, text_before: str, otherwise: str) -> None:
    """Draw the forecast of a job as a caption, as soon as it arrives.

    Args:
        job: The job.
        text_before: Before the forecast.
        otherwise: Text if no worker is connected or it has no answer; if empty, the reason is shown.
    """
    coming = _requested_forecast(job)
    if coming is not None:
        coming.wait(1, FIRST_SECONDS)
    # Room for all its lines, so that no button below moves as it is pressed. A page may show several.
    with st.container(key=f"forecast-{_job_content_key(job)[:12]}"):
        if coming is not None and coming.value is not None:
            st.caption(f"{text_before} {words(coming, otherwise)}".strip())
        else:  # a worker may still connect
            poll_seconds = RETRY_SECONDS if coming is None else POLL_SECONDS
            redraw_every(_draw_forecast_if_there, poll_seconds)(job, text_before, otherwise)


def _draw_forecast_if_there(job: Job, text_before: str, otherwise: str) -> None:
    with errors_as_sentences():
        coming = _requested_forecast(job)
        if coming is not None and coming.value is not None:
            st.rerun()
        is_asking = coming is not None and not coming.error
        text = words(coming, otherwise)
        if is_asking:
            text = "Asking the worker how long it will take …"
        st.caption(f"{text_before} {text}".strip())


def words(coming: ComingForecast | None, otherwise: str) -> str:
    """A forecast in words, as Markdown; if there is none, `otherwise` or else the reason."""
    if coming is not None and coming.value is not None:
        return forecast_line(coming.value)
    if otherwise or coming is None:
        return otherwise or "not known, as no worker could be asked."
    return plain(f"not known: {coming.error or 'the worker has not answered yet'}.")


def at_once(job: Job, otherwise: str) -> str:
    """The forecast in words, if it arrives within FIRST_SECONDS."""
    coming = _requested_forecast(job)
    if coming is not None:
        coming.wait(1, FIRST_SECONDS)
    return words(coming, otherwise)


def _requested_forecast(job: Job) -> ComingForecast | None:
    """The forecast of a job, requested unless this session did so recently; a failed request is retried sooner."""
    if not supervisor().connected:
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


def told_pace(job: Job) -> float | None:
    """Seconds a forward pass by the forecast of a job; None if this session has none, or nothing is to be run."""
    forecast_request = Forecasts.of_session().by_job.get(_job_content_key(job))
    forecast = None if forecast_request is None else forecast_request.coming.value
    if forecast is None or not forecast.seconds or not forecast.forwards:
        return None
    return forecast.seconds / forecast.forwards


def _job_content_key(job: Job) -> str:
    return content_key([job.key, job.params()])


# Following jobs on any page: bars with time left, and a rerun of the page when one starts or ends.

REDRAW_SECONDS = 1.0
MAX_BARS = 3
"""Jobs whose progress is drawn; of more it says how many."""
JobStates = tuple[tuple[int, str], ...]
"""Numbers and states of live jobs, in their order."""
GOES_ON = "Finished work is kept; the same job resumes from there."


def progress() -> list[JobRow]:
    """Draw the live jobs, kept up to date, and return them; when one ends, the page reruns."""
    live_rows: list[JobRow] = []
    with errors_as_sentences():
        said()
        live_rows = known_jobs()
        for job_row in live_rows[:MAX_BARS]:
            bar(job_row)
        if live_rows:
            hidden_count = len(live_rows) - MAX_BARS
            link_text = "queue, logs and time left"
            if hidden_count > 0:
                link_text = f"{hidden_count} more in line"
            page_link("jobs", f"Jobs: {link_text}")
            watch(live_rows)
    return live_rows


def watch(jobs: Sequence[JobRow]) -> None:
    """Rerun the page as soon as the live jobs or their states differ from these."""
    redraw_every(_rerun_if_changed, REDRAW_SECONDS, waits=bool(jobs))(_states_of(jobs))


def _rerun_if_changed(drawn_states: JobStates) -> None:
    with errors_as_sentences():
        jobs = worker_client().jobs()
        settle(jobs)
        if _states_of(in_order(jobs).live) != drawn_states:
            st.rerun()


def _states_of(jobs: Sequence[JobRow]) -> JobStates:
    return tuple((job_row.id, job_row.state) for job_row in jobs)


def asked(result_sentence: str) -> None:
    """Say what the last click that started a job came to, with a link to the job.

    Args:
        result_sentence: What becomes of the job's result.
    """
    requests = asked_for()
    started_job = requests.started
    if started_job is None or started_job.job not in requests.mine:
        return
    state_text = f"Job {started_job.job} is in the queue."
    if started_job.before:
        state_text = f"This is already job {started_job.job}."
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{state_text} {result_sentence}")
        page_link("jobs", f"Follow job {started_job.job}", {"job": str(started_job.job)})


def known_jobs(choice: Choice | None = None) -> list[JobRow]:
    """Live jobs, the running ones first; none if no worker is connected.

    Reruns the page if a job has ended since this session's last look.

    Args:
        choice: Whose model, task and method the jobs compute scores of; None for all jobs.
    """
    if not supervisor().connected:
        return []
    jobs = worker_client().jobs()
    settle(jobs)
    live_rows = in_order(jobs).live
    if choice is None:
        return live_rows
    return [job_row for job_row in live_rows if _computes_choice(job_row, choice)]


def _computes_choice(job_row: JobRow, choice: Choice) -> bool:
    """Whether a job computes scores of this choice."""
    job = job_in(job_row)
    if not isinstance(job, ScoreJob):
        return False
    computed_subject = (job.model, job.task, job.method, job.label_map)
    return computed_subject == (choice.model, choice.task, choice.method, choice.label_map)


def settle(jobs: Sequence[JobRow], *, tell: bool = True) -> None:
    """Rerun the page if a job of any session has ended since the last look: the stored results have changed.

    Args:
        jobs: The list of jobs.
        tell: Whether to report why a job of this session failed; False if the page already shows it.
    """
    requests = asked_for()
    states = {job_row.id: job_row.state for job_row in jobs}
    live_numbers = {number for number, state in states.items() if state in LIVE}
    own_numbers = set(requests.mine)
    ended_numbers = (own_numbers | requests.live) & states.keys() - live_numbers
    # A list fetched before a click does not contain the click's job.
    newest_number = max(states, default=0)
    requests.mine.difference_update(
        number for number in own_numbers - live_numbers if number <= newest_number
    )
    requests.live = live_numbers
    failures = []
    for job_row in jobs:
        if job_row.state == "failed" and job_row.id in own_numbers & ended_numbers:
            failures.append(failure(job_row))
    if tell and failures:
        requests.said = " ".join(failures)
    if ended_numbers:
        Forecasts.of_session().by_job.clear()  # what was forecast may be in the cache now
        st.rerun()


def failure(job_row: JobRow) -> str:
    """Why a job failed, as a sentence."""
    return f"{describe(job_row)}: {job_row.state}. {job_row.error or ''}".rstrip()


def bar(job_row: JobRow) -> None:
    """A job's progress and a button that cancels it."""
    number = job_row.id
    with st.container(horizontal=True, vertical_alignment="center", key=f"bar-{number}"):
        with st.container():
            far(job_row, describe(job_row))
        button_row(cancel_button(number))


def cancel_button(job: int) -> Button:
    """The button that cancels a job."""
    return Button("Cancel", f"cancel-{job}", cancel, (job,), help=GOES_ON)


def far(job_row: JobRow, text_before: str = "") -> None:
    """A job's progress, kept up to date while it runs. It holds no button, which could be redrawn as it is pressed.

    Args:
        job_row: The job.
        before: Text before the progress.
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


def heads_of(model: str) -> int | None:
    """Number of heads of a model, from its cached results; None if it has none."""
    for result in stored_results(HeadScores).results:
        if spec_of(result.record, "model", "name") == model:
            return result.record.grid.size
    return None


def weights_missing(model: str) -> str:
    """Why nothing can be computed on this model here; empty if its weights may be found."""
    if not is_model_absent(model, stored_specs()):
        return ""
    return f"The weights of {model} are not here; give the folder that holds it, under Another model in the sidebar."


def refusal(choice: Choice) -> str:
    """Why nothing can be computed by this method on this model; empty if it can be, as far as is known."""
    missing_weights = weights_missing(choice.model)
    head_count = heads_of(choice.model)
    if missing_weights or head_count is None:
        return missing_weights
    return reason_refused(costs.refuse, METHODS[choice.method], head_count)
