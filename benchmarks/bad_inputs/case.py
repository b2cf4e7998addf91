"""What a bad input is, and what headlab may answer to it.

Each family of bad inputs is a module of this package with one function,

    inputs(folder: Path, seed: int) -> Iterator[BadInput]

which yields them without end: the same seed gives the same inputs in the same order, wherever the
folder lies. The folder is empty, belongs to the family, and is the working directory meanwhile.
Files are written when an input is attempted, not when it is yielded, so that skipping is cheap.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headlab.core import HeadlabError

ROOT = Path(__file__).resolve().parents[2]
IN_PROCESS_SECONDS = 10.0
# Python and torch alone take several seconds to start.
PROCESS_SECONDS = 120.0
WORDS_KEPT = 2000


class Verdict(StrEnum):
    """What became of a bad input."""

    ACCEPTED = "accepted"
    """headlab took it; right only if what is wrong with it does not matter."""
    REFUSED = "refused"
    """headlab said in a sentence what is wrong."""
    TRACEBACK = "traceback"
    """An exception that is not a sentence got out, or the process died of a signal."""
    HTTP_500 = "http_500"
    """The worker answered that it failed."""
    HANG = "hang"
    """No answer in time."""


@dataclass(frozen=True)
class Answer:
    """What headlab answered.

    Attributes:
        verdict: Its kind.
        words: The sentence, or the end of the traceback.
    """

    verdict: Verdict
    words: str = ""


@dataclass(frozen=True)
class BadInput:
    """One input that is valid but for one thing.

    Attributes:
        wrong: What is wrong with it, in one line.
        content: All of it, as bytes. Inputs whose content was there before are left out.
        attempt: Gives it to headlab in this process. An exception that it raises counts as
            `answer_to` says.
        attempt_for_real: Gives it to headlab as people do: to a process of its own, or over a
            socket. One in fifty is tried in this way too.
        real_seconds: How long the latter may take.
    """

    wrong: str
    content: bytes
    attempt: Callable[[], Answer]
    attempt_for_real: Callable[[], Answer]
    real_seconds: float = PROCESS_SECONDS


def answer_to(read_input: Callable[[], object]) -> Answer:
    """Give an input to headlab, and say what came of it.

    Args:
        read_input: Gives the input to headlab; what it returns does not matter.
    """
    try:
        read_input()
    except HeadlabError as error:
        if not error.code or not str(error).strip():
            return Answer(Verdict.TRACEBACK, f"an error without a code or without words: {error!r}")
        return Answer(Verdict.REFUSED, str(error)[:WORDS_KEPT])
    except Exception:
        return Answer(Verdict.TRACEBACK, traceback.format_exc()[-WORDS_KEPT:])
    return Answer(Verdict.ACCEPTED)


def process_answer(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Answer:
    """Run headlab's command in a process of its own, and say what came of it.

    Args:
        arguments: What follows `headlab` on the command line.
        folder: The working directory.
        environment: Variables besides those of this process.

    A process that does not end is left to the caller's time limit (`runner.attempts`).
    """
    command = [sys.executable, "-m", "headlab.cli", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    try:
        process = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, stdin=subprocess.DEVNULL
        )
    except (ValueError, OSError) as error:
        return Answer(Verdict.REFUSED, f"the system does not run it: {error}")
    return answer_of_process(process.returncode, process.stdout, process.stderr)


def answer_of_process(exit_status: int, stdout: bytes, stderr: bytes) -> Answer:
    """Judge a finished process.

    Args:
        exit_status: 0, an error's status, or the negative number of the signal that ended it.
        stdout: What it printed.
        stderr: What it printed as errors.
    """
    words = (stderr or stdout).decode("utf-8", "replace").strip()[-WORDS_KEPT:]
    if exit_status < 0 or "Traceback (most recent call last)" in stderr.decode("utf-8", "replace"):
        return Answer(Verdict.TRACEBACK, f"exit status {exit_status}: {words}")
    if exit_status == 0:
        return Answer(Verdict.ACCEPTED, words)
    if not words:
        return Answer(Verdict.TRACEBACK, f"exit status {exit_status} without a word")
    return Answer(Verdict.REFUSED, words)
