"""`headlab experiment` and `headlab front`: the papers' analyses, and the smallest model that is good enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    AsJson,
    Here,
    MethodOptions,
    OnTask,
    check_ablation,
    flags_of,
    print_json,
    progress_bar,
)
from headlab.errors import HeadlabError
from headlab.files import write_atomic, write_json
from headlab.methods.table import DEFAULT_METHOD
from headlab.methods.table import method as method_of
from headlab.options import parse_options
from headlab.studies.table import EXPERIMENTS, FRONT, JOBS, METHOD, METHOD_OPTIONS, Experiment
from headlab.studies.table import experiment as experiment_of

if TYPE_CHECKING:
    from headlab.records import Progress
    from headlab.studies.run import Pieces
    from headlab.tables import Report


# `headlab experiment`: the papers' analyses, with their tables and figures.


@flags_of(JOBS["experiment"])
def experiment(
    key: Annotated[str | None, typer.Argument(help=f"one of {', '.join(EXPERIMENTS)}")] = None,
    *,
    on: OnTask,
    method: Annotated[
        str | None,
        typer.Option(
            help="method whose scores are used (default shapley), where the experiment has one"
        ),
    ] = None,
    method_option: Annotated[
        list[str] | None, typer.Option("-o", help="name=value of the method, e.g. samples=512")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="name=value of the experiment (--list shows them)"),
    ] = None,
    here: Here,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="folder for report.json, a CSV file a table, and the figures"),
    ] = None,
    json: AsJson = False,
    list_: Annotated[
        bool, typer.Option("--list", help="the experiments and their options, and nothing else")
    ] = False,
    **settings: Any,
) -> None:
    """Run an analysis; scores, answers and curves come from the cache or are computed first.

    The cost is printed before it starts. It can be interrupted: finished parts stay in the cache, and the same command
    resumes from there.
    """
    if list_ or key is None:
        show_list(json=json)
        return
    check_ablation(settings["ablation"])
    options = options_of(experiment_of(key), method, method_option or [], option or [])
    chosen, store = on.chosen(), here.store()
    from headlab.studies.run import Pieces

    pieces = Pieces(here.load(on.model), chosen, store, **settings)
    report = reported(key, pieces, options)
    if out is not None:
        write_report(report, out)
    print_json(report.to_json()) if json else typer.echo(markdown(report))


def reported(key: str, pieces: Pieces, options: Mapping[str, Any]) -> Report:
    """The report; its cost is printed on stderr first."""
    from headlab.studies.run import forecast, run_experiment

    typer.echo(f"{key}: {forecast(key, pieces, options).sentence}", err=True)
    with progress_bar(key) as show:

        def on_progress(step: Progress) -> None:
            show(step.note or key, step.done, step.total)

        return run_experiment(key, pieces, options=options, on_progress=on_progress)


def options_of(
    about: Experiment, method: str | None, of_method: list[str], of_experiment: list[str]
) -> dict[str, Any]:
    """All options of the experiment. Raises HeadlabError for one that it or the method does not have."""
    given = parse_options(of_experiment, about.options)
    if method is not None:
        if METHOD not in about.options:
            raise HeadlabError(
                f"experiment {about.key} does not choose a method; leave --method out",
                code="experiment.takes_no_method",
            )
        given[METHOD] = method_of(method).key
    if of_method:
        if METHOD_OPTIONS not in about.options:
            raise HeadlabError(
                f"experiment {about.key} takes no options of a method; leave -o out",
                code="experiment.takes_no_method_options",
            )
        if METHOD_OPTIONS in given:
            raise HeadlabError(
                f"options of the method are given by -o and by --option {METHOD_OPTIONS}; use one",
                code="option.given_twice",
            )
        own = method_of(str(given.get(METHOD, DEFAULT_METHOD)))
        given[METHOD_OPTIONS] = own.resolve(parse_options(of_method, own.options))
    return about.resolve(given)


def show_list(*, json: bool) -> None:
    """Every experiment with its options, as text or as JSON."""
    if json:
        print_json({"experiments": [listed(about) for about in EXPERIMENTS.values()]})
        return
    for about in EXPERIMENTS.values():
        typer.echo(f"{about.key}: {about.question} ({about.paper})")
        for name, option in about.options.items():
            if name != METHOD and (name != METHOD_OPTIONS or METHOD not in about.options):
                default = "none" if option.default is None else option.default
                typer.echo(f"    --option {name}={default}: {option.help} ({option.range})")


def listed(about: Experiment) -> dict[str, Any]:
    """One experiment as JSON."""
    names = ("key", "title", "question", "paper", "least_languages")
    options = {
        name: {"default": option.default, "help": option.help, "fits": option.range}
        for name, option in about.options.items()
    }
    return {name: getattr(about, name) for name in names} | {"options": options}


def markdown(report: Report) -> str:
    """The tables under their titles, then the notes, as Markdown."""
    parts = [f"## {table.title}\n\n{table.markdown()}" for table in report.tables]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in report.notes)]).rstrip()


def write_report(report: Report, folder: Path) -> None:
    """Write report.json, one CSV file per table, and the figures. Raises HeadlabError if that fails."""
    from headlab.cli.figures import write_figures

    write_json(folder / "report.json", report.to_json())
    for table in report.tables:
        write_atomic(folder / f"{table.name}.csv", table.csv().encode())
    write_figures(report, folder)


# `headlab front`: the smallest model that is good enough in every language, or the best one of a given size.

SHOWN = ("front-choice", "front-confirmed")
ASKED = ("within", "heads", "by", "orders", "points")


@flags_of(FRONT.options, *ASKED, before="every")
@flags_of(JOBS["front"])
def front(
    on: OnTask,
    *,
    every: Annotated[
        bool,
        typer.Option("--every", help="measure every count of removed heads, whatever --points"),
    ] = False,
    method: Annotated[
        str, typer.Option(help="method whose dev scores order the heads")
    ] = DEFAULT_METHOD,
    option: MethodOptions = None,
    here: Here,
    out: Annotated[
        Path | None, typer.Option(help="mask file of the chosen model; or a folder for tables too")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="print every point of every order, too")
    ] = False,
    json: AsJson = False,
    **settings: Any,
) -> None:
    """Choose a smaller model by its cost and its weakest language: chosen on dev, measured on test.

    Scores, walks and answers come from the cache or are computed first; the cost is printed before it starts.
    It can be interrupted; run the same command again to resume.
    """
    from headlab.studies.pareto import chosen_mask
    from headlab.studies.run import Pieces

    check_ablation(settings["ablation"])
    about = method_of(method)
    asked = {name: settings.pop(name) for name in ASKED} | ({"points": None} if every else {})
    of_method = parse_options(option or [], about.options)
    options = FRONT.resolve({METHOD: about.key, METHOD_OPTIONS: of_method, **asked})
    chosen, loaded, store = on.chosen(), here.load(on.model), here.store()
    pieces = Pieces(loaded, chosen, store, **settings)
    report = reported(FRONT.key, pieces, options)
    mask = chosen_mask(report, loaded.grid)
    if out is not None and out.suffix == ".json":
        mask.save(out)
    elif out is not None:
        mask.save(out / "mask.json")
        write_report(report, out)
    if json:
        print_json({"mask": mask.to_json(), "report": report.to_json()})
    else:
        typer.echo(markdown(report if full else _short(report)))


def _short(report: Any) -> Any:
    """The report with only the choice and its confirmation."""
    from dataclasses import replace

    return replace(report, tables=tuple(report.table(name) for name in SHOWN))
