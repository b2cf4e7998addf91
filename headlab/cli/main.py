"""Commands put together; every error a user can act on becomes one sentence and an exit code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import typer

from headlab.cli import (
    curve,
    evaluate,
    experiment,
    finetune,
    front,
    gates,
    lists,
    mask,
    prune,
    report,
    reproduce,
    reproduce_gates,
    reproduce_shim,
    reproduce_voita,
    roles,
    score,
    shrink,
    train,
    worker,
    worth,
)
from headlab.errors import HeadlabError

OK, FAILED, INTERRUPTED = 0, 2, 130
HELP = """Which attention heads help, do nothing or do harm, in each language.

Exit codes: 0 done, 2 a problem you can solve (one sentence on stderr), 130 interrupted."""


def build() -> typer.Typer:
    """The application with all its commands."""
    # Without rich markup a wrong argument is told in plain lines, and help may say [layer][head].
    app = typer.Typer(
        help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    app.command("score")(score.score)
    app.command("evaluate")(evaluate.evaluate)
    app.command("prune")(prune.prune)
    app.command("shrink")(shrink.shrink)
    app.command("worth")(worth.worth)
    app.command("front")(front.front)
    app.command("curve")(curve.curve)
    app.command("experiment")(experiment.experiment)
    app.command("roles")(roles.roles)
    app.command("report")(report.report)
    app.command("gates")(gates.gates)
    app.command("finetune")(finetune.finetune)
    app.command("models")(lists.models)
    app.command("tasks")(lists.tasks)
    app.command("cache")(lists.cache)
    app.command("worker")(worker.worker)
    papers = typer.Typer(help="Reproduce published papers.", no_args_is_help=True, rich_markup_mode=None)
    papers.command("held")(reproduce.held)
    papers.command("voita-roles")(reproduce_voita.voita_roles)
    papers.command("voita-gates")(reproduce_gates.voita_gates)
    papers.command("shim")(reproduce_shim.shim)
    app.add_typer(papers, name="reproduce")
    app.add_typer(train.group(), name="train")
    app.add_typer(mask.group(), name="mask")
    return app


@cache
def _command() -> Any:
    """The application as click has it, made once."""
    return typer.main.get_command(build())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        with warnings_as_sentences():
            _command().main(args=None if arguments is None else list(arguments), prog_name="headlab")
    except HeadlabError as error:
        print(f"headlab: {error}", file=sys.stderr)
        return FAILED
    except SystemExit as ended:  # typer ends this way, always: done, help shown, a wrong argument, Ctrl-C
        if ended.code == INTERRUPTED:
            print(
                "headlab: interrupted; score, curve, front, experiment, reproduce, gates, finetune and train go on "
                "where they stopped when run again",
                file=sys.stderr,
            )
        return ended.code if isinstance(ended.code, int) else OK if ended.code is None else FAILED
    return OK


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Print a warning meant for the user as one line, once, without the place in the code."""
    told: set[str] = set()
    with warnings.catch_warnings():
        otherwise = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is not UserWarning:
                otherwise(message, category, *where, **more)
            elif str(message) not in told:
                told.add(str(message))
                print(f"headlab: note: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield
