"""The figures of a report as SVG and PNG files."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from headlab.core import HeadlabError, Report, write_atomic
from headlab.report.figures import charts_of

UNSAFE_CHARACTER = re.compile(r"[^\w.-]")  # characters replaced in file names


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write every figure of a report as `NAME.svg` and `NAME.png`.

    Where one cannot be drawn, one sentence on stderr says why and what helps, since the tables do
    not depend on it.

    Args:
        report: Of any study.
        folder: Where the files go.

    Returns:
        Paths of the files written. Equal reports give equal files.
    """
    try:
        charts = charts_of(report)
    except HeadlabError as error:
        typer.echo(f"no figures: {error}", err=True)
        return []
    if not charts:
        return []
    from headlab.charts import static

    paths = []
    for name, chart in charts.items():
        path = folder / f"{UNSAFE_CHARACTER.sub('_', name)}.svg"
        write_atomic(path, static.svg(chart).encode())
        paths.append(path)
        path = path.with_suffix(".png")
        try:
            pixels = static.png(chart)
        except HeadlabError as error:
            typer.echo(f"no {path.name}: {error}", err=True)
            continue
        write_atomic(path, pixels)
        paths.append(path)
    return paths
