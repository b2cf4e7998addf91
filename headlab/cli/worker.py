"""`headlab worker`: the process that owns the device."""

from __future__ import annotations

from typing import Annotated

import typer

from headlab.cli.output import CacheRoot, Device, Workers, check_workers, open_store


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
