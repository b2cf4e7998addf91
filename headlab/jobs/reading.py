"""From a command line, as `Job.terminal_lines` prints it, back to its job."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from headlab.core import HeadlabError
from headlab.jobs import Flag, FlagValue, Job
from headlab.jobs.table import JOBS
from headlab.tasks import declaration_of, task_names
from headlab.tasks.resolve import DECLARATION_ENDING

PROGRAM = "headlab"


def read_command(line: str) -> Job:
    """The job that a command line asks for; see `Job.resolve` for its defaults.

    Args:
        line: Quoted as for a shell.

    Raises:
        HeadlabError: It is no command of a kind of job, it has a flag that no job can have, a flag
            without its value, or a value that does not fit.
    """
    job_class, words = _kind_and_words(line)
    flags = [flag for flag in job_class.flags() if not flag.command_only]
    parser = click.Command(
        job_class.key, params=list(map(_parameter, flags)), add_help_option=False
    )
    try:
        parsed_values = parser.make_context(job_class.key, words).params
    except click.UsageError as error:
        raise _usage_error(error, job_class, flags) from error
    values: dict[str, FlagValue] = {}
    for key, value in parsed_values.items():
        values[key] = list(value) if isinstance(value, tuple) else value
    if "task" in values:
        values["task"] = _task_name(parsed_values["task"])
    return job_class.from_flags(values).with_checked_fields()


def _kind_and_words(line: str) -> tuple[type[Job], list[str]]:
    """The kind of job of a command line, and the words behind it."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quotation without its end
        words = []
    kinds = [job_class for job_class in JOBS.values() if job_class.has_command]
    for job_class in kinds:
        beginning = job_class.program_words()
        if words[: len(beginning)] == beginning:
            return job_class, words[len(beginning) :]
    raise HeadlabError(
        f"{line!r:.300} is not the command of a job; it begins with {PROGRAM} and one of "
        f"{', '.join(job_class.key for job_class in kinds)}",
        code="command.no_job",
    )


def _parameter(flag: Flag) -> click.Parameter:
    """A flag as the parser takes it."""
    if flag.is_argument:
        return click.Argument([flag.key], type=str, required=flag.required)
    value_type = flag.kind if flag.kind in (int, float) else str
    if flag.kind is bool:
        return click.Option([*flag.names, flag.key], is_flag=True, default=flag.default)
    if flag.required:  # one that may be missing has a default, be it None
        return click.Option([*flag.names, flag.key], type=value_type, required=True)
    return click.Option(
        [*flag.names, flag.key],
        type=value_type,
        default=flag.default,
        multiple=flag.repeated,
    )


def _usage_error(
    error: click.UsageError, job_class: type[Job], flags: Sequence[Flag]
) -> HeadlabError:
    """What a line of this kind of job has that does not fit, and what does."""
    flag_names = [flag.key.upper() if flag.is_argument else flag.name for flag in flags]
    fitting = f"{PROGRAM} {job_class.key} takes {', '.join(flag_names)}"
    if isinstance(error, click.NoSuchOption):
        return HeadlabError(
            f"no job of kind {job_class.key} has {error.option_name}; {fitting}",
            code="command.flag_unknown",
        )
    if isinstance(error, click.BadOptionUsage):
        return HeadlabError(
            f"{error.option_name} has no value; {fitting}", code="command.value_missing"
        )
    problem = error.format_message().rstrip(".")
    if isinstance(error, click.BadParameter):
        return HeadlabError(f"{problem}; {fitting}", code="command.value_invalid")
    return HeadlabError(f"{problem}; {fitting}", code="command.word_unexpected")


def _task_name(text: str | None) -> str | None:
    """The name of a task; a declaration's path stands for the task that it declares, if known."""
    if text is None or not text.endswith(DECLARATION_ENDING):
        return text
    return next((name for name in task_names() if str(declaration_of(name)) == text), text)
