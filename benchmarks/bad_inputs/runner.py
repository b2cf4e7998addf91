"""Attempts bad inputs one after the other in a process that is replaced if it hangs or dies."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bad_inputs.case import IN_PROCESS_SECONDS, Answer, BadInput, Verdict

FAMILIES: Mapping[str, str] = {
    "command-lines": "bad_inputs.command_lines",
    "task-files": "bad_inputs.task_files",
    "model-folders": "bad_inputs.model_folders",
    "stored-files": "bad_inputs.stored_files",
    "http-bodies": "bad_inputs.http_bodies",
}
REAL_EVERY = 50
# Until the first input: imports, and the models and workers that a family prepares.
PREPARATION_SECONDS = 180.0
FAILURES_LISTED = 20
POLL_SECONDS = 1.0
WAITING_SECONDS = 60.0


@dataclass(frozen=True)
class Begun:
    """What the process sends before each attempt.

    Attributes:
        number: The input's, from 0.
        wrong: What is wrong with it.
        seconds: How long the attempt may take.
        for_real: Whether it is made in a process of its own or over a socket.
    """

    number: int
    wrong: str
    seconds: float
    for_real: bool


@dataclass(frozen=True)
class Attempt:
    """What became of one input."""

    begun: Begun
    answer: Answer


def family_inputs(family: str, folder: Path, seed: int) -> Iterator[BadInput]:
    """Yield the inputs of a family, no two with the same content.

    Args:
        family: One of `FAMILIES`, or a module that can be imported.
        folder: What the family may write to.
        seed: What the inputs are drawn from.
    """
    contents_seen: set[bytes] = set()
    module = importlib.import_module(FAMILIES.get(family, family))
    for bad_input in module.inputs(folder, seed):
        if bad_input.content not in contents_seen:
            contents_seen.add(bad_input.content)
            yield bad_input


def attempts(family: str, count: int, seed: int) -> Iterator[Attempt]:
    """Attempt the first inputs of a family; one in fifty twice, the second time for real.

    Args:
        family: One of `FAMILIES`, or a module that can be imported.
        count: How many inputs.
        seed: What they are drawn from.
    """
    next_number = 0
    while next_number < count:
        first_number = next_number
        for attempt in _attempts_of_one_process(family, seed, range(next_number, count)):
            yield attempt
            next_number = attempt.begun.number + 1
        if next_number == first_number:
            raise RuntimeError(
                f"the process that makes inputs of {family} from number {first_number} on died"
            )


def _attempts_of_one_process(family: str, seed: int, numbers: range) -> Iterator[Attempt]:
    """Attempt inputs until all are done, one hangs, or the process dies of one."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="headlab-bad-inputs-") as folder:
        process = context.Process(target=_work, args=(family, seed, numbers, folder, sending))
        process.start()
        sending.close()
        try:
            assert process.pid is not None
            yield from _received_attempts(receiving, process.pid)
        finally:
            _end(process)
            receiving.close()


def _received_attempts(receiving: Connection, process_id: int) -> Iterator[Attempt]:
    """Yield what a process sends of its attempts until it has made all of them, hangs or dies."""
    under_way: Begun | None = None
    while True:
        if under_way is None:
            if not receiving.poll(PREPARATION_SECONDS):
                raise RuntimeError(f"no input was attempted within {PREPARATION_SECONDS:g} s")
        elif not _answers_in_time(receiving, process_id, under_way):
            yield Attempt(
                under_way, Answer(Verdict.HANG, f"no answer within {under_way.seconds:g} s")
            )
            return
        try:
            message = receiving.recv()
        except EOFError:
            if under_way is not None:
                yield Attempt(under_way, Answer(Verdict.TRACEBACK, "the process died"))
            return
        if message is None:
            return
        if isinstance(message, Begun):
            under_way = message
        else:
            assert under_way is not None
            yield Attempt(under_way, message)
            under_way = None


def _answers_in_time(receiving: Connection, process_id: int, under_way: Begun) -> bool:
    """Wait for the end of an attempt; False if it takes too long.

    An attempt in the process is late once both the clock and the processor have spent its `seconds`
    on it, so that a busy machine makes no hang; or after `WAITING_SECONDS` by the clock, so that one
    that only waits is a hang.
    """
    if under_way.for_real:
        return receiving.poll(under_way.seconds)
    began = time.monotonic()
    seconds_before = processor_seconds(process_id)
    while not receiving.poll(POLL_SECONDS):
        seconds_waited = time.monotonic() - began
        seconds_computed = processor_seconds(process_id) - seconds_before
        if (
            seconds_waited > WAITING_SECONDS
            or min(seconds_waited, seconds_computed) > under_way.seconds
        ):
            return False
    return True


def processor_seconds(process_id: int) -> float:
    """Processor seconds of a process so far, of all its threads; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    # The 14th and 15th value of the line; its first two are cut off above.
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end(process: multiprocessing.process.BaseProcess) -> None:
    """End a process and all that it started: the workers and commands of its process group."""
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # It has not become the leader of its group yet, or nothing of the group is left.
        process.kill()
    process.join()


def _work(family: str, seed: int, numbers: range, folder: str, sending: Connection) -> None:
    """Be the process that attempts the inputs with these numbers."""
    os.setsid()
    os.chdir(folder)
    _silence(Path(folder).with_suffix(".log"))
    bad_inputs = islice(family_inputs(family, Path(folder), seed), numbers.stop)
    for number, bad_input in enumerate(bad_inputs):
        if number not in numbers:
            continue
        sending.send(Begun(number, bad_input.wrong, IN_PROCESS_SECONDS, for_real=False))
        sending.send(bad_input.attempt())
        if number % REAL_EVERY == 0:
            sending.send(Begun(number, bad_input.wrong, bad_input.real_seconds, for_real=True))
            sending.send(bad_input.attempt_for_real())
    sending.send(None)


def _silence(log: Path) -> None:
    """Let everything that is printed go to a file, which is removed at once."""
    sys.stdout.flush()
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    log.unlink()


def summary(family_attempts: Sequence[Attempt], seconds: float) -> dict[str, Any]:
    """Count what became of the inputs of a family.

    Returns:
        `inputs`, `for_real` (attempts), one count a verdict over both, `seconds`, and `failures`:
        the first of those that headlab neither took nor refused.
    """
    verdicts = [attempt.answer.verdict for attempt in family_attempts]
    good_verdicts = (Verdict.ACCEPTED, Verdict.REFUSED)
    failures = [
        attempt for attempt in family_attempts if attempt.answer.verdict not in good_verdicts
    ]
    return {
        "inputs": len({attempt.begun.number for attempt in family_attempts}),
        "for_real": sum(attempt.begun.for_real for attempt in family_attempts),
        "accepted": verdicts.count(Verdict.ACCEPTED),
        "refused": verdicts.count(Verdict.REFUSED),
        "tracebacks": verdicts.count(Verdict.TRACEBACK),
        "hangs": verdicts.count(Verdict.HANG),
        "http_500": verdicts.count(Verdict.HTTP_500),
        "seconds": seconds,
        "failures": [
            {
                "number": attempt.begun.number,
                "for_real": attempt.begun.for_real,
                "wrong": attempt.begun.wrong,
                "verdict": attempt.answer.verdict.value,
                "words": attempt.answer.words,
            }
            for attempt in failures[:FAILURES_LISTED]
        ],
    }


def measure(families: Sequence[str], count: int, seed: int) -> dict[str, Any]:
    """Attempt the inputs of some families, and count.

    Args:
        families: Of `FAMILIES`.
        count: Inputs of each.
        seed: What they are drawn from.

    Returns:
        `bad_inputs`, `tracebacks`, `hangs` and `http_500` over all families, `seed`, and
        `families`: {family: its `summary`}.
    """
    by_family = {}
    for family in families:
        began = time.monotonic()
        family_attempts = list(attempts(family, count, seed))
        by_family[family] = summary(family_attempts, time.monotonic() - began)
    return {
        "bad_inputs": sum(counts["inputs"] for counts in by_family.values()),
        **{
            name: sum(counts[name] for counts in by_family.values())
            for name in ("tracebacks", "hangs", "http_500")
        },
        "seed": seed,
        "families": by_family,
    }
