"""All commands in one application."""

from __future__ import annotations

from typing import Annotated

import typer

from headlab.cli import (
    cache,
    evaluate,
    experiment,
    gates,
    lists,
    mask,
    prune,
    reproduce,
    roles,
    score,
    shrink,
    train,
)
from headlab.cli.job_command import command
from headlab.cli.output import CacheRoot, Device, Workers, check_workers, open_store
from headlab.cli.package_jobs import package_command
from headlab.jobs.table import JOBS

# `headlab worker`: the process that owns the device.


def worker(
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 takes a free one")] = 8700,
    host: Annotated[
        str, typer.Option(help="address; beyond loopback a token is required ($HEADLAB_TOKEN)")
    ] = "127.0.0.1",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="beyond loopback, a model besides the embedded ones that may be loaded; repeatable"
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(envvar="HEADLAB_RAY", help="offer Ray for jobs: local, auto or host:port"),
    ] = None,
    workers: Workers = None,
    warm: Annotated[str | None, typer.Option(help="model to load at start")] = None,
    device: Device = None,
    cache: CacheRoot = None,
) -> None:
    """Serve live requests and jobs until stopped."""
    from headlab.worker.server import WorkerSettings, serve

    check_workers(ray, workers)
    serve(
        WorkerSettings(
            open_store(cache).root,
            host,
            port,
            device,
            warm,
            allow=tuple(allow or ()),
            ray=ray,
            workers=workers,
        )
    )


HELP = """Which attention heads help, do nothing or do harm, in each language.

Exit codes: 0 done, 2 a problem you can solve (one sentence on stderr), 130 interrupted."""


def build() -> typer.Typer:
    """The application with all its commands."""
    # Without rich markup, argument errors are plain text and help may contain [layer][head].
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.command("score")(command(score.score))
    app.command("evaluate")(command(evaluate.evaluate))
    app.command("prune")(command(prune.prune))
    app.command("export")(command(shrink.export))
    app.command("shrink")(command(shrink.shrink))
    app.command("worth")(command(shrink.worth))
    app.command("front")(command(experiment.front))
    app.command("curve")(command(score.curve))
    app.command("experiment")(command(experiment.experiment))
    app.command("roles")(command(roles.roles))
    app.command("report")(lists.report)
    app.command("gates")(command(gates.gates))
    app.command("finetune")(command(train.finetune))
    app.command("models")(lists.models)
    app.command("families")(lists.families)
    app.command("tasks")(lists.tasks)
    app.command("cache")(cache.cache)
    app.command("worker")(worker)
    for key in JOBS.added_keys:
        app.command(key)(package_command(JOBS[key]))
    papers = typer.Typer(
        help="Reproduce published papers.", no_args_is_help=True, rich_markup_mode=None
    )
    papers.command("held")(reproduce.held)
    papers.command("voita-roles")(reproduce.voita_roles)
    papers.command("voita-gates")(reproduce.voita_gates)
    papers.command("shim")(reproduce.shim)
    app.add_typer(papers, name="reproduce")
    app.add_typer(train.group(), name="train")
    app.add_typer(mask.group(), name="mask")
    return app
