"""`headlab experiment`, `headlab front` and `headlab interactions`: analyses of several steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.job_command import FlagValues, values_of
from headlab.cli.output import (
    AsJson,
    ComputeSettings,
    RayAddress,
    Workers,
    check_ablation,
    chosen_task,
    print_json,
    progress_bar,
    ray_workers,
)
from headlab.core import JsonRecord, write_atomic, write_json
from headlab.jobs.local import LocalLab
from headlab.jobs.table import ExperimentJob, FrontJob, InteractionsJob
from headlab.masks import load_mask
from headlab.studies import METHOD, METHOD_OPTIONS, Experiment, offered_experiments

if TYPE_CHECKING:
    from headlab.core import Progress, Report
    from headlab.studies.run import Pieces


ReportFolder = Annotated[
    Path | None,
    typer.Option("--out", help="folder for report.json, a CSV file a table, and the figures"),
]


# `headlab experiment`: the papers' analyses, with their tables and figures.


def experiment(
    flags: Annotated[FlagValues, values_of(ExperimentJob.flags())],
    *,
    key: str | None,
    data: Path | None,
    compute: ComputeSettings,
    out: ReportFolder = None,
    json: AsJson = False,
    list_: Annotated[
        bool, typer.Option("--list", help="the experiments and their options, and nothing else")
    ] = False,
) -> None:
    """Run an analysis; scores, answers and curves come from the cache or are computed first.

    The cost is printed before it starts. It can be interrupted: finished parts stay in the cache,
    and the same command resumes from there.
    """
    if list_ or key is None:
        print_experiments(json=json)
        return
    job = ExperimentJob.from_flags(flags)
    job.study().resolve(job.study_options())  # raises before anything is loaded
    report = make_report(job, pieces_of(job, compute, data))
    if out is not None:
        write_report(report, out)
    if json:
        print_json(report.to_json())
    else:
        typer.echo(report_markdown(report))


def pieces_of(job: ExperimentJob, compute: ComputeSettings, data: Path | None) -> Pieces:
    """The pieces that a report is assembled from. Raises HeadlabError for what cannot be computed.

    Args:
        job: The experiment, or the front.
        compute: What it is computed on, and where its results are.
        data: Folder of the task's files.
    """
    check_ablation(job.ablation)
    task = chosen_task(job.task, job.languages, data, job.label_map)
    lab = LocalLab(compute.store(), compute.load, device=compute.device)
    return job.pieces_on(task, lab, lab.store, tick=lambda: None)


def make_report(job: ExperimentJob, pieces: Pieces) -> Report:
    """The report; its cost is printed on stderr first."""
    typer.echo(f"{job.experiment}: {job.cost(pieces).sentence}", err=True)
    with progress_bar(job.experiment) as show:

        def on_progress(step: Progress) -> None:
            show(step.note or job.experiment, step.done, step.total)

        return job.report(pieces, on_progress)


def print_experiments(*, json: bool) -> None:
    """Every experiment with its options, as text or as JSON."""
    if json:
        records = [experiment_record(study) for study in offered_experiments().values()]
        print_json({"experiments": records})
        return
    for study in offered_experiments().values():
        typer.echo(f"{study.key}: {study.question} ({study.paper})")
        for name, option in study.options.items():
            if name != METHOD and (name != METHOD_OPTIONS or METHOD not in study.options):
                default = "none" if option.default is None else option.default
                typer.echo(f"    --option {name}={default}: {option.help} ({option.range})")


def experiment_record(study: Experiment) -> JsonRecord:
    """One experiment as JSON."""
    names = ("key", "title", "question", "paper", "least_languages")
    options = {
        name: {"default": option.default, "help": option.help, "fits": option.range}
        for name, option in study.options.items()
    }
    return {name: getattr(study, name) for name in names} | {"options": options}


def report_markdown(report: Report) -> str:
    """The tables under their titles, then the notes, as Markdown."""
    parts = [f"## {table.title}\n\n{table.markdown()}" for table in report.tables]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in report.notes)]).rstrip()


def write_report(report: Report, folder: Path) -> None:
    """Write report.json, one CSV file per table, and the figures.

    Raises:
        HeadlabError: If that fails.
    """
    from headlab.cli.figures import write_figures

    write_json(folder / "report.json", report.to_json())
    for table in report.tables:
        write_atomic(folder / f"{table.name}.csv", table.csv().encode())
    write_figures(report, folder)


# `headlab front`: the smallest model that is good enough in every language, or the best one of a
# given size.

CHOICE_TABLES = ("front-choice", "front-confirmed")


def front(
    job: FrontJob,
    *,
    data: Path | None,
    compute: ComputeSettings,
    out: Annotated[
        Path | None, typer.Option(help="mask file of the chosen model; or a folder for tables too")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="print every point of every order, too")
    ] = False,
    json: AsJson = False,
) -> None:
    """Choose a smaller model by its cost and its weakest language: chosen on dev, measured on test.

    Scores, walks and answers come from the cache or are computed first; the cost is printed before
    it starts. It can be interrupted; run the same command again to resume.
    """
    from headlab.studies.pareto import chosen_mask

    job.study().resolve(job.study_options())  # raises before anything is loaded
    pieces = pieces_of(job, compute, data)
    report = make_report(job, pieces)
    mask = chosen_mask(report, pieces.model.grid)
    if out is not None and out.suffix == ".json":
        mask.save(out)
    elif out is not None:
        mask.save(out / "mask.json")
        write_report(report, out)
    if json:
        print_json({"mask": mask.to_json(), "report": report.to_json()})
    else:
        typer.echo(report_markdown(report if full else _choice_only(report)))


def _choice_only(report: Report) -> Report:
    """The report with only the choice and its confirmation."""
    from dataclasses import replace

    return replace(report, tables=tuple(report.table(name) for name in CHOICE_TABLES))


# `headlab interactions`: heads that stand in for each other, or need each other.


def interactions(
    job: InteractionsJob,
    *,
    mask: Path | None,
    data: Path | None,
    compute: ComputeSettings,
    ray: RayAddress = None,
    workers: Workers = None,
    out: ReportFolder = None,
    json: AsJson = False,
) -> None:
    """Measure how pairs of heads interact, and compare removed sets with what pairs foresee.

    The cost is printed before it starts. It can be interrupted; run the same command again to
    resume.
    """
    job.study().resolve(job.study_options())  # raises before anything is loaded
    pieces = pieces_of(job, compute, data)
    if mask is not None:
        load_mask(str(mask)).check(pieces.model.grid, pieces.model.fingerprint)
    with ray_workers(pieces.model, ray, workers, job.ablation) as helpers:
        pieces.helpers = helpers
        report = make_report(job, pieces)
    if out is not None:
        write_report(report, out)
    if json:
        print_json(report.to_json())
    else:
        typer.echo(report_markdown(report))
