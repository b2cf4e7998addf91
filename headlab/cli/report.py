"""`headlab report`: results as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headlab.cli.output import AsJson, CacheRoot, open_store, print_json


def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="keys or beginnings of keys, run folders, reports (JSON), masks (JSON)", metavar="RUN..."),
    ],
    out: Annotated[Path, typer.Option("--out", help="HTML file to write")] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", help="of the report; default: the models' names")] = "",
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Write results as one HTML file: maps, curves, tables, masks, and the commands that make them again.

    The file needs no network and no script, and can be printed.
    """
    from headlab.htmlreport.page import summary, write_report

    found, size = write_report(runs, out, open_store(cache), title=title)
    if json:
        print_json({"out": str(out), "bytes": size, "sections": summary(found)})
        return
    for section in found.sections:
        typer.echo(f"{section.title} ({section.kind})")
    typer.echo(f"{out}: {size / 1e6:.2f} MB")
