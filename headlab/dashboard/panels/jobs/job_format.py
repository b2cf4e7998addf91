"""Jobs as text and in display order. No streamlit here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from headlab.core import duration_text, percent_text
from headlab.dashboard.names import plain
from headlab.jobs import Details, Job, value_text
from headlab.jobs.table import BUILT_IN_KINDS, job_from_params
from headlab.methods import Forecast
from headlab.tasks import language_titles
from headlab.worker import JobRow

LIVE_STATES = ("queued", "running")
log = logging.getLogger(__name__)


class JobQueue(NamedTuple):
    """Jobs in display order: running, waiting (oldest first), ended."""

    running: list[JobRow]
    waiting: list[JobRow]
    ended: list[JobRow]

    @property
    def live(self) -> list[JobRow]:
        """Running and waiting jobs, the running ones first."""
        return [*self.running, *self.waiting]


def sorted_queue(rows: Iterable[JobRow]) -> JobQueue:
    """The jobs as a queue; of those that ended, the newest first."""
    by_id = sorted(rows, key=lambda row: row.id)
    ended_rows = [row for row in by_id if row.state not in LIVE_STATES]
    return JobQueue(
        [row for row in by_id if row.state == "running"],
        [row for row in by_id if row.state == "queued"],
        sorted(ended_rows, key=lambda row: (row.ended or 0.0, row.id), reverse=True),
    )


# What a row of the list says of its job, whether or not its kind is known here.


def job_of_row(row: JobRow) -> Job | None:
    """The job of a row; None if it is of a kind that is unknown here, or of another version."""
    return job_from_params(row.kind, row.params)


def words_of_job(job: Job | None, describe: Callable[[Job], str]) -> str:
    """What a job says of itself.

    Empty if there is none, or if the package that brings its kind cannot say it.

    Args:
        job: The job.
        describe: Gets the words from it.
    """
    if job is None:
        return ""
    try:
        return str(describe(job))
    except Exception as error:
        if job.key in BUILT_IN_KINDS:
            raise
        _note_failure(job.key, f"{type(error).__name__}: {error}")
        return ""


@cache  # pages are drawn again and again
def _note_failure(kind: str, problem: str) -> None:
    log.error("a job of kind %s, which a package brings, cannot be described (%s)", kind, problem)


def languages_in(row: JobRow) -> list[str]:
    """The languages of a job by their codes; none if they cannot be read."""
    languages = row.params.get("languages")
    if not isinstance(languages, list):
        return []
    return [code for code in languages if isinstance(code, str)]


def describe_job(row: JobRow) -> str:
    """A job in few words: what is computed and the languages, by their keys."""
    if words := words_of_job(job_of_row(row), lambda job: job.describe()):
        return words
    languages = languages_in(row)
    if languages:
        return f"{row.kind} for {', '.join(languages)}"
    return row.kind


def job_title(row: JobRow) -> str:
    """A job as a heading: what is computed, and for which languages."""
    if words := words_of_job(job_of_row(row), lambda job: job.title()):
        return words
    languages = languages_in(row)
    if languages:
        return f"{row.kind} for {language_titles(languages)}"
    return row.kind


def job_details(row: JobRow) -> Details:
    """What a job computes and where, as (name, value) pairs."""
    pairs = _details_of(job_of_row(row))
    if not pairs:
        pairs = [("What", row.kind)]
        for name, value in row.params.items():
            pairs.append((name.capitalize().replace("_", " "), value_text(value)))
    return [*pairs, ("Where", place_words(row.place))]


def _details_of(job: Job | None) -> Details:
    """What a job says that it computes; empty where `words_of_job` would be.

    `words_of_job` is called for its handling of failures alone: the pairs are collected beside it.
    """
    pairs: Details = []

    def collect_details(job: Job) -> str:
        pairs.extend((str(name), str(value)) for name, value in job.details())
        return ""

    words_of_job(job, collect_details)
    return pairs


def place_words(name: str) -> str:
    """Where a job runs."""
    if name == "here":
        return "this worker"
    return "Ray"


# How far it is, and what it costs.


def share_done(row: JobRow) -> float:
    """The share of a job that is done, from 0 to 1."""
    if not row.total:
        return 0.0
    return min(1.0, max(0.0, row.done / row.total))


def progress_line(row: JobRow) -> str:
    """Progress of a live job: share, what it is computing, time left."""
    parts = [f"{100 * share_done(row):.0f} %" if row.total else row.state]
    if row.note:
        parts.append(row.note)
    if row.seconds_left is not None:
        parts.append(f"about {duration_text(row.seconds_left)} left")
    return " · ".join(parts)


def waiting_line(row: JobRow, position: int, current_time: float) -> str:
    """A waiting job's place in the queue.

    Args:
        row: The job.
        position: In the queue, from 1.
        current_time: Unix seconds.
    """
    line = "next in line" if position == 1 else f"number {position} in line"
    line += f" · since {clock_time(row.created, current_time)}"
    if row.attempts:
        line += f" · attempts so far: {row.attempts}"
    return line


def ended_line(row: JobRow, current_time: float) -> str:
    """How and when a job ended, how long it took, and its attempts where there was more than one.

    Args:
        row: The job.
        current_time: Unix seconds.
    """
    parts: list[str] = [row.state]
    if row.ended is not None and row.started is None:
        parts.append(f"{clock_time(row.ended, current_time)}, before it began")
    elif row.ended is not None and row.started is not None:
        seconds = max(0.0, row.ended - row.started)
        parts += [clock_time(row.ended, current_time), f"{duration_text(seconds)} after its start"]
    if row.state != "done" and row.total:
        parts.append(f"{percent_text(share_done(row))} done")
    if row.attempts > 1:
        parts.append(f"attempt {row.attempts}")
    return " · ".join(parts)


def clock_time(seconds: float, current_time: float) -> str:
    """A time of day in UTC, like the logs; with the date if it is not today.

    Args:
        seconds: The time, in Unix seconds.
        current_time: Unix seconds.
    """
    time = datetime.fromtimestamp(seconds, UTC)
    today = datetime.fromtimestamp(current_time, UTC).date()
    date = "" if time.date() == today else f"{time.day} {time:%b %Y}, "
    return f"{date}{time:%H:%M} UTC"


def forecast_line(forecast: Forecast) -> str:
    """The cost of a job as the worker forecasts it, in Markdown.

    It has the time, the forward passes, and the basis of both.
    """
    basis = plain(forecast.basis.rstrip("."))
    if forecast.seconds == 0 and not forecast.forwards:
        return f"**No time**: {basis}."
    line = "How long it takes is not known"
    if forecast.seconds is not None:
        line = f"**About {duration_text(forecast.seconds)}**"
    if forecast.forwards:
        line += f", {forecast.forwards:,} forwards"
    if basis:
        return f"{line}: {basis}."
    return f"{line}."
