"""A job in this process, as a command runs it: its cost on stderr, then a bar of progress."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import typer

from headlab.cli.output import ShowProgress
from headlab.jobs import Job, Outcome
from headlab.jobs.local import LocalJob, LocalLab, forecast_here
from headlab.results import store_with_demo


def local_lab(device: str | None, dtype: str = "float32", data: Path | None = None) -> LocalLab:
    """What the job of a command without a cache of its own works with.

    Args:
        device: That models are on; None for a GPU where there is one.
        dtype: Of their weights.
        data: Folder of the task's files.
    """
    import headlab

    return LocalLab(
        store_with_demo(),
        lambda name: headlab.load(name, device=device, dtype=dtype),
        device=device,
        data=data,
    )


def run_announced(
    job: Job, lab: LocalLab, progress: AbstractContextManager[ShowProgress]
) -> Outcome:
    """What a job comes to; its cost is printed on stderr first.

    Args:
        job: It is resolved.
        lab: What it works with.
        progress: Shows how far it is.
    """
    typer.echo(f"{job.key}: {forecast_here(job, lab).sentence}", err=True)
    with progress as show:
        return job.run(lab, LocalJob(show, print_line))


def print_line(line: str) -> None:
    """Print a line of a job's log on stderr."""
    typer.echo(line, err=True)
