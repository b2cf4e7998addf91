"""`headlab doctor`: what transformers 5 does with code and checkpoints of transformers 4."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer
from rich.console import Console

from headlab.cli.json_output import AsJson, print_json
from headlab.doctor import ADVICE, DEFAULT_MAX_FILES, Examination, Finding, examine

FOUND = 1
"""The exit code where something was found."""
MAX_UNREAD = 20  # places that are listed of what could not be read; --json has all
WIDTH = 100
SECONDS_BETWEEN_LINES = 10.0  # if stderr is no terminal
FILES_BETWEEN_UPDATES = 50


def doctor(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="Python file, notebook, config.json, or a folder of them"
        ),
    ],
    max_files: Annotated[
        int, typer.Option("--max-files", min=1, help="files to read at most")
    ] = DEFAULT_MAX_FILES,
    json: AsJson = False,
) -> None:
    """Find head masks and pruned heads of transformers 4 in code, notebooks and checkpoints.

    Says for each what transformers 5 does with it, and what to write instead. Nothing is run.

    Exit codes: 0 nothing found in the files read, 1 something found, 2 nothing could be examined.
    """
    with progress_of_files() as report:
        examination = examine(path, max_files=max_files, report=report)
    if json:
        print_json(examination.record())
    else:
        typer.echo("\n".join(lines_of(examination)))
    if examination.findings:
        raise typer.Exit(FOUND)


@contextmanager
def progress_of_files() -> Iterator[Callable[[int, Path], None]]:
    """The number of files read so far, on stderr: in place on a terminal, else now and then a line.

    Yields:
        A function that is told the number of files and the last one.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("reading") as status:

            def show(count: int, path: Path) -> None:
                if count % FILES_BETWEEN_UPDATES == 0:
                    status.update(f"{count:,} files read")

            yield show
        return
    printed_at = time.monotonic()

    def print_line(count: int, path: Path) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= SECONDS_BETWEEN_LINES:
            printed_at = time.monotonic()
            print(f"files read: {count:,}, now in {one_line(str(path.parent))}", file=sys.stderr)

    yield print_line


def lines_of(examination: Examination) -> Iterator[str]:
    """What was found as lines of text: by kind, with the places below what is said of it."""
    findings_by_kind: dict[str, list[Finding]] = {}
    for finding in examination.findings:
        findings_by_kind.setdefault(finding.kind, []).append(finding)
    titles_by_remedy: dict[str, str] = {}
    for kind, advice in ADVICE.items():
        findings = findings_by_kind.get(kind, [])
        if not findings:
            continue
        yield f"{advice.title} ({len(findings):,})"
        yield paragraph("transformers 5", advice.does)
        if advice.instead in titles_by_remedy:
            yield f"  instead: as above, of {titles_by_remedy[advice.instead]}"
        else:
            yield paragraph("instead", advice.instead)
            titles_by_remedy[advice.instead] = advice.title
        for finding in findings:
            yield f"    {one_line(finding.place)}  {finding.found}"
        yield ""
    yield from unread_lines(examination)
    yield summary(examination)
    if not examination.is_complete:
        yield (
            f"Stopped after {examination.max_files:,} files; there are more. "
            "Raise --max-files, or name a folder further down."
        )


def paragraph(label: str, text: str) -> str:
    """A labelled text, broken into lines."""
    return fill(
        f"{label}: {text}",
        WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def unread_lines(examination: Examination) -> Iterator[str]:
    """What could not be read, with the reason."""
    if not examination.unread:
        return
    yield f"not read ({len(examination.unread):,})"
    for unread in examination.unread[:MAX_UNREAD]:
        yield f"    {one_line(unread.place)}  {unread.reason}"
    more = len(examination.unread) - MAX_UNREAD
    if more > 0:
        yield f"    and {more:,} more; --json lists all"
    yield ""


def summary(examination: Examination) -> str:
    """How much was read, left out and found, in a line."""
    count = len(examination.findings)
    found = f"{count:,} finding{'s' * (count != 1)}" if count else "Nothing found"
    read = examination.file_count
    text = f"{found} in {read:,} file{'s' * (read != 1)} read"
    if examination.unread:
        text += f"; {len(examination.unread):,} could not be read"
    if examination.skipped:
        parts = [f"{reason} ({number:,})" for reason, number in sorted(examination.skipped.items())]
        text += f"; left out: {', '.join(parts)}"
    return f"{text}."


def one_line(text: str) -> str:
    """A path as one line: a file's name may hold any letter but a zero and a slash."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
