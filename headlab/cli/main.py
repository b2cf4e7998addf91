"""Commands put together; every error a user can act on becomes one sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import typer

from headlab.cli import evaluate, finetune, lists, prune, score, worker
from headlab.errors import HeadlabError

OK, FAILED, INTERRUPTED = 0, 2, 130
HELP = """Which attention heads help, do nothing or do harm, in each language.

Exit codes: 0 done, 2 a problem you can solve (one sentence on stderr), 130 interrupted."""


def build() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.command("score")(score.score)
    app.command("evaluate")(evaluate.evaluate)
    app.command("prune")(prune.prune)
    app.command("finetune")(finetune.finetune)
    app.command("models")(lists.models)
    app.command("tasks")(lists.tasks)
    app.command("cache")(lists.cache)
    app.command("worker")(worker.worker)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    command = typer.main.get_command(build())
    try:
        result = command.main(
            args=None if arguments is None else list(arguments), prog_name="headlab", standalone_mode=False
        )
        return result if isinstance(result, int) else OK
    except HeadlabError as error:
        print(f"headlab: {error}", file=sys.stderr)
        return FAILED
    except click.ClickException as error:
        error.show()
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        print("headlab: interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return OK
