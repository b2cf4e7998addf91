"""Commands of the kinds of jobs that installed packages add: forecast, run in this process, outcome."""

from __future__ import annotations

from pathlib import Path

import typer

from headlab.cli.job_command import Command, command, job_flags
from headlab.cli.job_run import run_announced
from headlab.cli.output import AsJson, DataFolder, Here, print_json, progress_bar
from headlab.jobs import Job, Outcome, kept_outcome
from headlab.jobs.local import LocalLab, task_files


def package_command(job_class: type[Job]) -> Command:
    """The command of a kind of job."""

    def run(job: Job, *, data: DataFolder = None, here: Here, json: AsJson = False) -> None:
        outcome = run_here(job, here, data)
        print_json(outcome) if json else typer.echo("\n".join(outcome_lines(outcome)))

    run.__doc__ = job_class.about or job_class.name
    return command(run, job=job_flags(job_class))


def run_here(job: Job, here: Here, data: Path | None) -> Outcome:
    """Run a job in this process; its cost is printed on stderr first.

    Args:
        job: As its flags say it.
        here: What it is computed on, and where its results are.
        data: Folder of its task's files.

    Raises:
        HeadlabError: For a job that does not fit, and for an outcome that is no JSON.
    """
    with task_files(job.validated(), data) as job_by_name:
        resolved = job_by_name.checked()
        lab = LocalLab(here.store(), here.load, device=here.device)
        outcome = run_announced(resolved, lab, progress_bar(job.key))
    return kept_outcome(job.key, outcome)


def outcome_lines(outcome: Outcome) -> list[str]:
    """The keys of the results, one a line, and the figures by their names."""
    lines: list[str] = []
    for name, value in outcome.items():
        if name == "keys":
            lines += map(str, value)
        else:
            lines.append(f"{name}: {value}")
    return lines
