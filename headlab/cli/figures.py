"""The figures of a report as SVG and PNG files, drawn by kaleido in a local browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from headlab.core import HeadlabError, Report, write_atomic

SCALE = 2  # of PNG files, for sharp prints
SECONDS = 120.0  # for one figure, once it is being drawn
START_SECONDS, FILE_SECONDS, TRIES = 120.0, 20.0, 2  # patience with a browser, and with each file
# Run by a process of its own: reads what to draw, and prints what went wrong as one line of JSON. Without MathJax,
# which would be fetched from the network.
DRAWING = """
import json, sys
import kaleido
from kaleido.errors import BrowserClosedError, BrowserFailedError, ChromeNotFoundError, KaleidoError

asked = json.load(sys.stdin)
try:
    found = kaleido.write_fig_from_object_sync(asked["jobs"], kopts=asked["options"])
    told = {"problems": [str(problem) for problem in found or ()]}
except (ChromeNotFoundError, BrowserFailedError, BrowserClosedError, KaleidoError, OSError, TimeoutError) as error:
    told = {"stopped": str(error.args[0] if error.args else type(error).__name__)}
print(json.dumps(told))
"""
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
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
            size = {
                "width": PRINT_WIDTH,
                "height": out.layout.height,
                "scale": SCALE if kind == "png" else 1,
            }
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
    """Draw in one browser, closed at the end. Raises HeadlabError if it fails."""
    from headlab.plots import as_data

    path = browser()
    plain = [{**job, "fig": as_data(job["fig"])} for job in jobs]
    asked = {"jobs": plain, "options": {"mathjax": False, "timeout": SECONDS, "path": path}}
    told = _drawn(json.dumps(asked), START_SECONDS + FILE_SECONDS * len(jobs))
    if "stopped" in told:
        raise HeadlabError(
            f"{path}, which draws figures, did not start, or stopped ({told['stopped']})",
            code="browser.not_started",
        )
    if told["problems"]:
        raise HeadlabError(
            f"the browser could not draw one ({told['problems'][0]})", code="browser.cannot_draw"
        )


def _drawn(asked: str, seconds: float) -> dict[str, Any]:
    """What `DRAWING` says: its problems, or why it stopped.

    kaleido may wait for ever for a browser that has started but does not answer, as on a busy machine: so its process
    is ended after a while, and started once more.
    """
    for _ in range(TRIES):
        try:
            done = _run_drawing(asked, seconds)
        except subprocess.TimeoutExpired:
            continue
        try:
            told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):  # it ended by itself, with a traceback
            told = {"stopped": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}
        return told
    return {"stopped": f"no answer in {seconds:.0f} s"}


def _run_drawing(asked: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run `DRAWING`; after so many seconds end it and the browser that it started, and raise TimeoutExpired."""
    command = [
        sys.executable,
        "-P",
        "-c",
        DRAWING,
    ]  # -P: nothing is imported from the working directory
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, err = process.communicate(asked, timeout=seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            _end(process.pid)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end(pid: int) -> None:
    """Kill a process and all that it started, which may be starting others meanwhile.

    Each is stopped before its children are looked for, so that none is started after the look.
    """
    stopped: list[int] = []
    running = [pid]
    while running:
        for started in running:
            with suppress(ProcessLookupError):
                os.kill(started, signal.SIGSTOP)
        stopped += running
        running = [child for child in descendants(pid) if child not in stopped]
    for started in reversed(stopped):
        with suppress(ProcessLookupError):
            os.kill(started, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """What a process started, directly or not, which may be in sessions of their own; none where there is no /proc."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def browser() -> str:
    """Path of the browser to draw with: $BROWSER_PATH, or the first found. Raises HeadlabError if there is none."""
    given = os.environ.get("BROWSER_PATH")
    found = shutil.which(given) if given else next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        where = (
            f"$BROWSER_PATH is {given!r}, which is not a program"
            if given
            else "none is on the PATH"
        )
        raise HeadlabError(
            f"figures are drawn by Chrome or Chromium, and {where}; install one, or set BROWSER_PATH",
            code="browser.missing",
        )
    return found
