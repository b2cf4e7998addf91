"""All commands in one application, each imported when it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from textwrap import shorten
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

JOBS_GROUP = "headlab.jobs"
"""The entry points by which packages add kinds of jobs, which are commands too."""


@dataclass(frozen=True)
class CommandPlace:
    """Where a command is defined, and what the list of commands says of it.

    Attributes:
        module: Below `headlab.cli`.
        function: The command's function there; of a group, the one that gives its commands.
        about: The first sentence of its help. It stands here so that the list of commands imports
            none of them, which takes more than a second.
        kind: "job": the flags of its parameters are declared by jobs and records
            (`headlab.cli.job_command`); "plain": as typer reads its parameters; "group": several
            commands.
    """

    module: str
    function: str
    about: str
    kind: Literal["job", "plain", "group"] = "job"

    def imported(self) -> Callable[..., Any]:
        """The function, imported now."""
        function: Callable[..., Any] = getattr(
            import_module(f"headlab.cli.{self.module}"), self.function
        )
        return function

    def add_to(self, app: typer.Typer, name: str) -> None:
        """Add the command to an application.

        Args:
            app: The application.
            name: Of the command.
        """
        function = self.imported()
        if self.kind == "group":
            app.add_typer(function(), name=name)
        elif self.kind == "plain":
            app.command(name)(function)
        else:
            from headlab.cli.job_command import command

            app.command(name)(command(function))


COMMANDS = {
    "app": CommandPlace("app", "app", "Serve the dashboard in a browser.", "plain"),
    "score": CommandPlace("score", "score", "Score every head on dev."),
    "evaluate": CommandPlace("evaluate", "evaluate", "Measure accuracy in each language."),
    "check": CommandPlace(
        "check",
        "check",
        "Check that a mask loses no more than some points of accuracy, for continuous integration.",
        "plain",
    ),
    "prune": CommandPlace(
        "prune", "prune", "Make each language's mask from its cached dev scores and evaluate it."
    ),
    "export": CommandPlace(
        "shrink",
        "export",
        "Write a model with a mask built in, in a form that other software reads.",
    ),
    "shrink": CommandPlace(
        "shrink", "shrink", "Remove a mask's heads from the weights and write the smaller model."
    ),
    "worth": CommandPlace(
        "shrink",
        "worth",
        "Count and time a model untouched, masked, and with the mask's heads removed from the "
        "weights.",
    ),
    "front": CommandPlace(
        "experiment",
        "front",
        "Choose a smaller model by its cost and its weakest language: chosen on dev, measured on "
        "test.",
    ),
    "interactions": CommandPlace(
        "experiment",
        "interactions",
        "Measure how pairs of heads interact, and compare removed sets with what pairs foresee.",
    ),
    "curve": CommandPlace(
        "score",
        "curve",
        "Remove heads one after another, lowest dev score first, and measure the accuracy.",
    ),
    "experiment": CommandPlace(
        "experiment",
        "experiment",
        "Run an analysis; scores, answers and curves come from the cache or are computed first.",
    ),
    "roles": CommandPlace("roles", "roles", "Measure heads and find their roles."),
    "report": CommandPlace(
        "lists",
        "report",
        "Write results as one HTML file: maps, curves, tables, masks and commands.",
        "plain",
    ),
    "gates": CommandPlace(
        "gates",
        "gates",
        "Learn which heads to keep, with gates and a penalty λ for each open gate.",
    ),
    "finetune": CommandPlace(
        "train",
        "finetune",
        "Fine-tune on one language, then measure dev accuracy in every language.",
    ),
    "models": CommandPlace(
        "lists",
        "models",
        "List the embedded models and their fingerprints; folders and hub ids work as models too.",
        "plain",
    ),
    "families": CommandPlace(
        "lists",
        "families",
        "List the model types of transformers that were tried, and which of them can be gated.",
        "plain",
    ),
    "tasks": CommandPlace(
        "lists",
        "tasks",
        "List tasks: labels, languages, and whether their examples are on this machine.",
        "plain",
    ),
    "cache": CommandPlace(
        "cache",
        "cache",
        "List the results in the cache, and what was skipped and why; or remove replaced ones.",
        "plain",
    ),
    "info": CommandPlace(
        "info", "info", "Say what is installed and what this machine has, for bug reports.", "plain"
    ),
    "doctor": CommandPlace(
        "doctor",
        "doctor",
        "Find head masks and pruned heads of transformers 4 in code, notebooks and checkpoints.",
        "plain",
    ),
    "push": CommandPlace(
        "sharing",
        "push",
        "Send masks and stored scores to a folder or the hub, with a card.",
        "plain",
    ),
    "pull": CommandPlace(
        "sharing",
        "pull",
        "Take a mask or scores from a folder or the hub, after checking them.",
        "plain",
    ),
    "worker": CommandPlace(
        "worker", "worker", "Serve live requests and jobs until stopped.", "plain"
    ),
    "reproduce": CommandPlace("reproduce", "group", "Reproduce published papers.", "group"),
    "train": CommandPlace(
        "train", "group", "Models trained from scratch, on files of your own.", "group"
    ),
    "mask": CommandPlace(
        "mask", "group", "Mask files: read, compare, convert and combine.", "group"
    ),
}

HELP = """Which attention heads help, do nothing or do harm, in each language.

Exit codes: 0 done, 2 a problem you can solve (one sentence on stderr), 130 interrupted; 1 and 3 are
answers of `check` and `doctor`."""
# Without rich markup, argument errors are plain text and help may contain [layer][head].
PLAIN = {"pretty_exceptions_enable": False, "rich_markup_mode": None, "no_args_is_help": True}


def _added_kinds() -> dict[str, str]:
    """What the kinds of jobs are about that packages add, by their keys."""
    from headlab.core.extensions import has_entry_points

    if not has_entry_points(JOBS_GROUP):
        return {}
    from headlab.jobs.table import JOBS

    return {key: JOBS[key].about or JOBS[key].name for key in JOBS.added_keys}


def _add_package_command(app: typer.Typer, key: str) -> None:
    """Add the command of a kind of job that a package adds."""
    from headlab.cli.package_jobs import package_command
    from headlab.jobs.table import JOBS

    app.command(key)(package_command(JOBS[key]))


class CommandsOnDemand(TyperGroup):
    """The commands, each of which is imported when it is asked for.

    Typer has a click of its own, so contexts and formatters are of no type that can be named here.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands."""
        return [*COMMANDS, *_added_kinds()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name; None if there is none."""
        place = COMMANDS.get(cmd_name)
        if place is not None and place.kind == "group":
            return typer.main.get_group(place.imported()())
        app = typer.Typer(add_completion=False, **PLAIN)  # type: ignore[arg-type]
        if place is not None:
            place.add_to(app, cmd_name)
        elif cmd_name in _added_kinds():
            _add_package_command(app, cmd_name)
        else:
            return None
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        about = {name: place.about for name, place in COMMANDS.items()} | _added_kinds()
        width = formatter.width - 6 - max(map(len, about))
        rows = [(name, shorten(text, width, placeholder="...")) for name, text in about.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from headlab.core.versions import version_line

        typer.echo(version_line())
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="print headlab's version and commit",
        ),
    ] = False,
) -> None:
    """The options of `headlab` itself."""


def on_demand() -> Any:
    """The application as a click command, which imports a command when it is used."""
    app = typer.Typer(help=HELP, cls=CommandsOnDemand, **PLAIN)  # type: ignore[arg-type]
    app.callback(help=HELP, cls=CommandsOnDemand, no_args_is_help=True)(_options)
    return typer.main.get_command(app)


def build() -> typer.Typer:
    """The application with all its commands imported."""
    app = typer.Typer(help=HELP, add_completion=False, **PLAIN)  # type: ignore[arg-type]
    app.callback()(_options)
    for name, place in COMMANDS.items():
        place.add_to(app, name)
    for key in _added_kinds():
        _add_package_command(app, key)
    return app
