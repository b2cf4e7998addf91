"""The Experiments page: the form with its forecast and Start, and the stored reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headlab.core import HeadlabError, Report, part, players_phrase
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import stored_count_text
from headlab.dashboard.panels.stored.shelf import facts_table, model_differences, short_fingerprint
from headlab.jobs.table import ExperimentJob
from headlab.methods import DEFAULT_METHOD, METHODS
from headlab.report.again import Again
from headlab.report.build import known_in
from headlab.report.commands import job_that_makes
from headlab.report.parts import as_text
from headlab.results import LearnedGates, Result, store_with_demo
from headlab.studies import METHOD, METHOD_OPTIONS, PLAYERS
from headlab.tasks import language_titles, likelihood_of


def resolved_options(job: ExperimentJob) -> dict[str, Any]:
    """All options of a job's experiment, the method and its options among them.

    Raises:
        HeadlabError: For an unknown experiment, method or option, or an invalid value.
    """
    return job.study().resolve(job.study_options(), likelihood_of(job.task) or "")


def matching_reports(
    results: Iterable[Result[Report]], choice: Choice, experiment: str, weights: str | None = None
) -> list[Result[Report]]:
    """Reports of an experiment on a choice's model and task.

    Those a job would make now come first, then others; newest first.

    Args:
        results: Stored reports.
        choice: The model and the task, with its label map.
        experiment: Key of the experiment.
        weights: Fingerprint of the model's current weights, None if unknown.
    """
    subject = (choice.model, choice.task, experiment)

    def rank(result: Result[Report]) -> tuple[bool, bool, float, int, str]:
        stored_job = StoredJob.of(result.record)
        same_weights = weights is None or stored_job.fingerprint == weights
        is_float32 = stored_job.dtype is None
        options = changed_options(stored_job.job)
        return same_weights, is_float32, creation_seconds(result), -len(options), result.key

    fitting = []
    for result in results:
        report = result.record
        if _subject_of(report) == subject and choice.has_classes_of(report.spec):
            fitting.append(result)
    return sorted(fitting, key=rank, reverse=True)


def _subject_of(report: Report) -> tuple[object, object, object]:
    """The model, the task and the experiment of a report."""
    spec = report.spec
    return part(spec, "model", "name"), part(spec, "task", "name"), spec.get("experiment")


def creation_seconds(result: Result[Report]) -> float:
    """When a report was made, in Unix seconds; 0 if the date is missing or out of range."""
    try:
        creation_time = datetime.fromisoformat(str(result.meta.get("created"))).astimezone(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, creation_time.timestamp())


@dataclass(frozen=True)
class StoredJob:
    """The job that makes a stored report again, and the model's weights and precision beside it.

    Attributes:
        job: Of an experiment or a front. Its sizes are actual, not as requested, and nothing in it
            is checked.
        fingerprint: Of the model's weights; empty if the report does not have it.
        dtype: Precision of the model; None for float32.
    """

    job: ExperimentJob
    fingerprint: str
    dtype: str | None

    @classmethod
    def of(cls, report: Report) -> StoredJob:
        """The job of a stored report of an experiment or a front."""
        job = job_that_makes("report", report.spec)
        assert isinstance(job, ExperimentJob), f"{report.name} is no experiment and no front"
        dtype = part(report.spec, "model", "dtype")
        return cls(
            job=job,
            fingerprint=str(part(report.spec, "model", "fingerprint") or ""),
            dtype=str(dtype) if dtype else None,
        )


def report_label(result: Result[Report], weights: str | None = None) -> str:
    """A report in one line: date, languages, method, number of examples, seed and weights.

    Args:
        result: The report.
        weights: Fingerprint of the chosen model's weights; if it is None, the report's own are
            named.
    """
    stored_job = StoredJob.of(result.record)
    job = stored_job.job
    words = [creation_date_words(result), language_titles(job.language_codes)]
    if job.method:
        words.append(str(job.method))
    words += setting_words(changed_options(job))
    words.append(sizes_words(job))
    if job.seed:
        words.append(f"seed {job.seed}")
    if weights is None and stored_job.fingerprint:
        words.append(f"weights {short_fingerprint(stored_job.fingerprint)}")
    return " · ".join(
        [*words, *model_differences(stored_job.fingerprint, weights, stored_job.dtype)]
    )


def setting_words(settings: Mapping[str, object]) -> list[str]:
    """Settings in words, each with its value; players are words of their own."""
    words = []
    for name, value in settings.items():
        text = f"{name.replace('_', ' ')} {as_text(value)}"
        if name == PLAYERS:
            with suppress(HeadlabError):  # another program's stay as they are
                text = players_phrase(str(value))
        words.append(text)
    return words


def sizes_words(job: ExperimentJob) -> str:
    """How many examples a report is on."""
    dev_size = stored_count_text(job.dev_size)
    return f"up to {dev_size} examples of dev and {stored_count_text(job.test_size)} of test"


def changed_options(job: ExperimentJob) -> dict[str, object]:
    """The experiment's options that are not at their defaults, but for those of methods."""
    study = job.known_study()
    if study is None:
        return {}
    options: dict[str, object] = {}
    for name, value in job.options.items():
        if name in study.options_of or name not in study.options:
            continue
        if value != study.options[name].default:
            options[name] = value
    return options


def creation_date_words(result: Result[Report]) -> str:
    """When a report was made, in words."""
    creation_time = datetime.fromtimestamp(creation_seconds(result), UTC)
    return f"{creation_time.day} {creation_time:%b %Y, %H:%M} UTC"


COMPARED_FIELDS = ("languages", METHOD, "dev_size", "test_size", "seed", "ablation")
"""The fields in which a report may differ from a form, besides the options.

They are told in this order.
"""


def report_differences(
    stored_job: StoredJob, form_job: ExperimentJob, weights: str | None = None
) -> list[str]:
    """Settings in which a report differs from what is chosen, in words, with the report's values.

    Args:
        stored_job: The report's job.
        form_job: The form's job. Where it takes all examples, how many are not compared: how many
            there are is not known here.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """
    report_job = with_defaults(stored_job.job)
    wanted_job = with_defaults(form_job)
    settings = _differing_fields(report_job, wanted_job)
    settings |= _differing_options(report_job.options, wanted_job.options)
    if _method_of(report_job) == _method_of(wanted_job):
        method = METHODS[wanted_job.method]
        settings |= _differing_options(
            method.with_unrecorded(report_job.method_options),
            method.with_unrecorded(wanted_job.method_options),
        )
    return [
        *model_differences(stored_job.fingerprint, weights, stored_job.dtype),
        *setting_words(settings),
    ]


def _differing_fields(report_job: ExperimentJob, wanted_job: ExperimentJob) -> dict[str, object]:
    """The report's values of `COMPARED_FIELDS` that are not as wanted."""
    report_values: dict[str, object] = {}
    for name in COMPARED_FIELDS:
        if name == METHOD and _method_of(wanted_job) is None:
            continue
        value = report_job.field_value(name)
        if wanted_job.field_value(name) not in (None, value):
            report_values[name] = value
    if sorted(report_job.language_codes) == sorted(wanted_job.language_codes):
        report_values.pop("languages", None)
    return report_values


def _differing_options(report_options: object, wanted_options: object) -> dict[str, object]:
    """The report's options that are not as wanted.

    Those that only one of them has are not compared.

    Args:
        report_options: By name; anything else, as another program may have written, is not
            compared.
        wanted_options: By name.
    """
    report_values: dict[str, object] = {}
    if not isinstance(report_options, Mapping) or not isinstance(wanted_options, Mapping):
        return report_values
    for name, value in report_options.items():
        if name in wanted_options and value != wanted_options[name]:
            report_values[name] = value
    return report_values


def _method_of(job: ExperimentJob) -> str | None:
    """The method whose scores a job uses; None if its experiment uses none."""
    study = job.known_study()
    if study is None or METHOD not in study.options:
        return None
    return job.method


def with_defaults(job: ExperimentJob) -> ExperimentJob:
    """The job with all options filled in.

    Unchanged if they do not fit, as those of another program may not.
    """
    with_method = job if job.method else job.model_copy(update={METHOD: DEFAULT_METHOD})
    try:
        options = resolved_options(with_method)
    except (HeadlabError, TypeError, ValueError):
        return job
    fields = {name: options.pop(name) for name in (METHOD, METHOD_OPTIONS) if name in options}
    return job.model_copy(update={**fields, "options": options})


def report_facts(result: Result[Report]) -> list[tuple[str, str]]:
    """How a report was made, as (name, value) pairs."""
    report = result.record
    rows = facts_table(
        report.spec, result.meta, (report.example_forwards, report.seconds), ("Report", result.key)
    )
    return [*rows, ("Not counted", "forward passes and time of what was in the cache already")]


def commands_again(kind: str, result: Result[Report] | Result[LearnedGates]) -> Again:
    """The commands that make a stored result again, with paths of its files where they are noted.

    Args:
        kind: Of the result, as its spec names it.
        result: A report, or learned gates.
    """
    return known_in(store_with_demo()).again(kind, result.record.spec)
