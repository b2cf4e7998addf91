"""Commands of the kinds of jobs that installed packages add: forecast, run, outcome."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import typer

from headlab.cli.job_command import Command, FlagGroup, command, parameter_of
from headlab.cli.job_run import run_announced
from headlab.cli.output import AsJson, ComputeSettings, DataFolder, print_json, progress_bar
from headlab.core import Option
from headlab.jobs import Job, Outcome, checked_outcome, flag_name
from headlab.jobs.local import LocalLab, task_files


def package_command(job_class: type[Job]) -> Command:
    """The command of a kind of job."""

    def run(
        job: Job, *, data: DataFolder = None, compute: ComputeSettings, json: AsJson = False
    ) -> None:
        outcome = run_in_process(job, compute, data)
        if json:
            print_json(outcome)
        else:
            typer.echo("\n".join(outcome_lines(outcome)))

    run.__doc__ = job_class.about or job_class.name
    return command(run, job=flags_with_limits(job_class))


def flags_with_limits(job_class: type[Job]) -> FlagGroup[Job]:
    """The flags of a package's kind of job, which make the job.

    The help of a setting says which values it takes: unlike those of headlab's own kinds, they bind
    the command as they bind requests and forms. The job checks them all, so that one sentence
    refuses what is too small or too large.
    """
    settings = {
        flag_name(name, option): option for name, option in job_class.command_settings().items()
    }
    flags = [
        replace(flag, help=help_with_limits(settings[flag.name]), low=None)
        if flag.name in settings
        else flag
        for flag in job_class.flags()
    ]
    return FlagGroup([parameter_of(flag) for flag in flags], job_class.from_flags)


def help_with_limits(option: Option) -> str:
    """The help of a setting and the values that it takes, where the help does not name them."""
    if option.choices:
        says_all = set(option.choices) <= set(re.findall(r"[\w.-]+", option.help))
    else:
        says_all = option.kind not in (int, float)
    if says_all:
        return option.help
    values = replace(option, optional=False).range  # no flag can say none
    return f"{option.help} ({values})"


def run_in_process(job: Job, compute: ComputeSettings, data: Path | None) -> Outcome:
    """Run a job in this process; its cost is printed on stderr first.

    Args:
        job: As its flags say it.
        compute: What it is computed on, and where its results are.
        data: Folder of its task's files.

    Raises:
        HeadlabError: For a job that does not fit, and for an outcome that is no JSON.
    """
    with task_files(job.with_checked_fields(), data) as job_by_name:
        checked_job = job_by_name.resolve_or_refuse()
        lab = LocalLab(compute.store(), compute.load, device=compute.device)
        outcome = run_announced(checked_job, lab, progress_bar(job.key))
    return checked_outcome(job.key, outcome)


def outcome_lines(outcome: Outcome) -> list[str]:
    """The keys of the results, one a line, and the figures by their names."""
    lines: list[str] = []
    for name, value in outcome.items():
        if name == "keys":
            lines += map(str, value)
        else:
            lines.append(f"{name}: {value}")
    return lines
