"""From a job to the page that shows its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headlab.core import players_of
from headlab.dashboard.frame import (
    Choice,
    current_choice,
    open_page,
    results_of,
    task_languages,
    variant_of,
)
from headlab.dashboard.names import PRUNE_TAB, PRUNE_TABS
from headlab.dashboard.panels.jobs import job_of_row
from headlab.dashboard.panels.masks import history_of
from headlab.dashboard.panels.stored import open_run_next, show_front_next, show_report_next
from headlab.dashboard.widgets import set_widget
from headlab.jobs import Job
from headlab.jobs.table import ExperimentJob, FrontJob, ScoreJob, WorthJob
from headlab.masks import mask_from_json
from headlab.methods import METHODS
from headlab.worker import JobRow


def result_keys(job_row: JobRow) -> list[str]:
    """The keys of a job's results in the store; none before it is done, or if it stores none."""
    keys = (job_row.result or {}).get("keys")
    if isinstance(keys, list):
        return list(map(str, keys))
    return []


def choice_of_scores(job_row: JobRow) -> Choice | None:
    """The choice that shows a job's scores; None for a job of another kind."""
    job = job_of_row(job_row)
    if not isinstance(job, ScoreJob) or job.method not in METHODS:
        return None
    choice = choice_of_job(job)
    results = results_of(choice)
    return replace(choice, variant=variant_of(results, result_keys(job_row)))


def choice_of_job(job: Job) -> Choice:
    """What a job is on; what it does not say is as in the sidebar."""
    sidebar_choice = current_choice()
    method = job.field_value("method")
    if method not in METHODS:
        method = next(iter(METHODS))
        if sidebar_choice is not None:
            method = sidebar_choice.method
    model = job.field_value("model")
    task = job.field_value("task")
    languages = tuple(job.language_codes)
    if sidebar_choice is not None:
        model = model or sidebar_choice.model
        task = task or sidebar_choice.task
        languages = languages or sidebar_choice.languages
    return Choice(
        str(model),
        str(task),
        languages,
        str(method),
        job.field_value("label_map"),
        players=job.players_switched,
    )


def open_job_page(job: Job, job_row: JobRow) -> None:
    """Open the page that a job names, at what the job is on."""
    open_page(job.page, choice_of_job(job))


def _open_report(job: Job, job_row: JobRow) -> None:
    """Open the Experiments page at the job's report."""
    if isinstance(job, ExperimentJob):
        show_report_next(job.experiment, next(iter(result_keys(job_row)), ""))
    open_page("experiments", choice_of_job(job))


def _open_roles(job: Job, job_row: JobRow) -> None:
    """Open the Roles page at the first language of the job.

    Roles have no method, and no task if their sentences are from a treebank: both are as in the
    sidebar.
    """
    sidebar_choice = current_choice()
    if sidebar_choice is None:
        return
    model = job.field_value("model")
    task = str(job.field_value("task") or sidebar_choice.task)
    languages = job.language_codes
    task_codes = task_languages(task)
    shown_languages = tuple(language for language in languages if language in task_codes)
    label_map = None
    if (model, task) == (sidebar_choice.model, sidebar_choice.task):
        label_map = sidebar_choice.label_map
    set_widget("focus", languages[0])
    open_page(
        "roles",
        Choice(
            str(model),
            task,
            shown_languages or sidebar_choice.languages,
            sidebar_choice.method,
            label_map,
        ),
    )


def _open_gates(job: Job, job_row: JobRow) -> None:
    """Open the Gates page at the job's last run; gates have no method."""
    set_widget("focus", job.language_codes[0])
    keys = result_keys(job_row)
    if keys:
        open_run_next(keys[-1])
    open_page("gates", choice_of_job(job))


def _open_prune(job: Job, job_row: JobRow) -> None:
    """Open the tab of the Prune page where heads are switched.

    The job's mask becomes the current one if it has one.
    """
    choice = choice_of_job(job)
    if isinstance(job, WorthJob):
        mask = mask_from_json(job.mask, "the job's mask")
        choice = replace(choice, players=str(players_of(mask.grid)))
        history_of(str(mask.model.get("fingerprint")), mask.grid).set_mask(
            mask.kept, {"rule": "job", "job": job_row.id}
        )
    set_widget(PRUNE_TAB, PRUNE_TABS[0])
    open_page("prune", choice)


def _open_front(job: Job, job_row: JobRow) -> None:
    """Open the tab of the Prune page that shows fronts, at the job's front if it made one."""
    keys = result_keys(job_row)
    if keys:
        show_front_next(keys[0])
    set_widget(PRUNE_TAB, PRUNE_TABS[1])
    open_page("prune", choice_of_job(job))


OPENERS: Mapping[str, Callable[[Job, JobRow], None]] = {
    "experiments": _open_report,
    "roles": _open_roles,
    "gates": _open_gates,
    "prune": _open_prune,
}
"""Functions that open a page at a job's results, by page.

Only pages that need more than the choice to be set have one.
"""

JOB_OPENERS: Mapping[str, Callable[[Job, JobRow], None]] = {FrontJob.key: _open_front}
"""The same by kind of job, for pages that show several kinds of results.

They go before `OPENERS`.
"""
