"""The figures of a report as SVG and PNG files, drawn by kaleido in a local browser."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import typer

from headlab.errors import HeadlabError
from headlab.files import write_atomic
from headlab.tables import Report

SCALE = 2  # of PNG files, for sharp prints
SECONDS = 120.0  # for one figure
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
# plotly.js names its clip paths with a random number, which first appears here.
RANDOM_ID = re.compile(r'id="(?:top)?defs-([0-9a-f]{6})"')

UNFIT = re.compile(r"[^\w.-]")  # characters replaced in file names


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write every figure of a report as `NAME.svg` and `NAME.png`, and return their paths.

    If they cannot be drawn, prints one sentence with the reason and remedy on stderr and returns an empty list, since
    the tables do not depend on them.  Equal reports give equal SVG files.
    """
    try:
        return draw(report, folder)
    except HeadlabError as error:
        typer.echo(f"no figures: {error}", err=True)
        return []


def draw(report: Report, folder: Path) -> list[Path]:
    """Like `write_figures`, but raises HeadlabError if kaleido or a browser is missing or fails."""
    try:
        import kaleido  # noqa: F401 # fail before anything is drawn

        from headlab.plots import PRINT_WIDTH, printed, report_figures
    except ImportError as error:
        lacking = error.name or "kaleido"
        raise HeadlabError(
            f"the package {lacking} is missing; pip install 'headlab[figures]' to draw figures",
            code="package.figures_missing",
        ) from error
    jobs: list[dict[str, Any]] = []
    for name, figure in report_figures(report).items():
        file = UNFIT.sub("_", name)
        out = printed(figure, file)
        for kind in ("svg", "png"):
            size = {"width": PRINT_WIDTH, "height": out.layout.height, "scale": SCALE if kind == "png" else 1}
            jobs.append({"fig": out, "path": f"{file}.{kind}", "opts": {"format": kind, **size}})
    if not jobs:
        return []
    with tempfile.TemporaryDirectory() as place:
        _run([{**job, "path": str(Path(place) / job["path"])} for job in jobs])
        written = []
        for job in jobs:
            data = (Path(place) / job["path"]).read_bytes()
            path = folder / job["path"]
            write_atomic(path, named(data, path.stem) if path.suffix == ".svg" else data)
            written.append(path)
    return written


def named(svg: bytes, name: str) -> bytes:
    """An SVG file with the figure's name instead of the random number in its ids."""
    text = svg.decode("utf-8")
    for number in dict.fromkeys(RANDOM_ID.findall(text)):
        text = re.sub(rf"(?<=[a-z]){number}|(?<=[a-z]-){number}", f"-{name}-", text)
    return text.encode("utf-8")


def _run(jobs: list[dict[str, Any]]) -> None:
    """Draw in one browser, closed at the end, and without MathJax, which would be fetched from the network."""
    import kaleido
    from kaleido.errors import BrowserClosedError, BrowserFailedError, ChromeNotFoundError, KaleidoError

    try:
        options = {"mathjax": False, "timeout": SECONDS, "path": browser()}
        problems = kaleido.write_fig_from_object_sync(jobs, kopts=options)
    except (ChromeNotFoundError, BrowserFailedError, BrowserClosedError, KaleidoError, OSError, TimeoutError) as error:
        reason = error.args[0] if error.args else type(error).__name__
        raise HeadlabError(
            f"{options['path']}, which draws figures, did not start, or stopped ({reason})", code="browser.not_started"
        ) from error
    if problems:
        raise HeadlabError(f"the browser could not draw one ({problems[0]})", code="browser.cannot_draw")


def browser() -> str:
    """Path of the browser to draw with: $BROWSER_PATH, or the first found. Raises HeadlabError if there is none."""
    given = os.environ.get("BROWSER_PATH")
    found = shutil.which(given) if given else next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        where = f"$BROWSER_PATH is {given!r}, which is not a program" if given else "none is on the PATH"
        raise HeadlabError(
            f"figures are drawn by Chrome or Chromium, and {where}; install one, or set BROWSER_PATH",
            code="browser.missing",
        )
    return found
