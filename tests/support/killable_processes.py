"""Processes to kill: real commands, forked in milliseconds where torch is already loaded.

`python tests/support/killable_processes.py` is the nursery; `Nursery` speaks with it. A child may
be told to kill itself at the n-th event of a kind (see `sys.addaudithook`), for moments too short
to be hit from outside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from support.waiting import wait_within

ROOT = Path(__file__).parents[2]
SETTINGS = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class ProcessEnd:
    """How a process ended.

    Attributes:
        code: The exit code, negative for a signal.
        killed: Whether it ended by SIGKILL, and not on its own before.
        out: Its standard output.
        err: Its standard error.
    """

    code: int
    was_killed: bool
    stdout: str
    stderr: str


class Nursery:
    """Forks commands of headlab.

    Args:
        folder: Holds the output of the commands.
        warm: Arguments of a command that is run first, so that later ones find everything loaded.
    """

    def __init__(self, folder: Path, warm: list[str]) -> None:
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), json.dumps(warm)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **SETTINGS, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        )
        self._say({"ready": True})

    def _say(self, message: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, arguments: list[str], die_at: tuple[str, str, int] | None = None) -> Child:
        """Start a command.

        Args:
            arguments: The command's arguments, without "headlab".
            die_at: (event, ending of its path, n): the command kills itself at the n-th such event.
        """
        self._count += 1
        stdout, stderr = (self._folder / f"{self._count}.{kind}" for kind in ("out", "err"))
        for output in (stdout, stderr):
            output.touch()  # a child that is killed before it opens them has empty output
        pid = self._say(
            {"start": arguments, "out": str(stdout), "err": str(stderr), "die_at": die_at}
        )
        return Child(self, pid, stdout, stderr)

    def poll(self, pid: int) -> int | None:
        """The status that waitpid gives for a process, or None while it runs."""
        return self._say({"poll": pid})  # type: ignore[no-any-return] # JSON

    def close(self) -> None:
        """End the nursery; its children must have ended before."""
        self._process.communicate(timeout=120)


@dataclass(frozen=True)
class Child:
    """A running command."""

    nursery: Nursery
    pid: int
    out: Path
    err: Path

    def wait(self, seconds: float = 120.0) -> ProcessEnd:
        """Wait for its end. A command that takes longer is killed, and an error is raised."""
        process_end = self.ended_within(seconds)
        if process_end is None:
            self.kill()
            raise AssertionError(
                f"a command did not end in {seconds} s: {self.err.read_text()[-2000:]}"
            )
        return process_end

    def ended_within(self, seconds: float) -> ProcessEnd | None:
        """Its end if it comes within so many seconds, else None."""
        return wait_within(self._end, seconds)

    def _end(self) -> ProcessEnd | None:
        status = self.nursery.poll(self.pid)
        if status is None:
            return None
        code = os.waitstatus_to_exitcode(status)
        return ProcessEnd(code, code == -signal.SIGKILL, self.out.read_text(), self.err.read_text())

    def kill(self) -> ProcessEnd:
        """Kill it by SIGKILL, if it has not ended before."""
        os.kill(self.pid, signal.SIGKILL)
        process_end = self.ended_within(120)
        assert process_end is not None
        return process_end


@dataclass
class KillCounts:
    """What processes were doing when they were killed.

    Attributes:
        phases: Number of kills by phase (see `phase_of`).
    """

    phases: dict[str, int]

    def note(self, phase: str) -> None:
        self.phases[phase] = self.phases.get(phase, 0) + 1

    @property
    def count(self) -> int:
        return sum(self.phases.values())


def phase_of(cache: Path) -> str:
    """What a run was doing when it was killed, judged by the files in its folder."""
    visible_files = {path.name for path in cache.glob("[0-9a-f]*/*")}
    hidden_files = {path.name for path in cache.glob("[0-9a-f]*/.*")}
    names = visible_files | hidden_files
    if any(name.endswith(".tmp") for name in names):
        return "while a file was written"
    if "result.npz" in names:
        return "after the result"
    if "checkpoint.npz" in names:
        return "between checkpoints"
    return "before the first checkpoint"


def kill_until_done(
    begin: Callable[[], Child],
    rng: np.random.Generator,
    seconds: float,
    max_kills: int,
    phase: Callable[[], str],
    kills: KillCounts,
) -> ProcessEnd:
    """Start a command and kill it, again and again, then let it run to its end.

    Args:
        begin: Starts the command.
        rng: Draws when it is killed.
        seconds: It is killed at a random moment within so many seconds of its start.
        max_kills: How often it is killed at most.
        phase: Tells what the killed command was doing.
        kills: Counts the kills.

    Returns:
        How the command ended that was not killed.
    """
    for _ in range(max_kills):
        child = begin()
        process_end = child.ended_within(float(rng.uniform(0, seconds))) or child.kill()
        if not process_end.was_killed:
            return process_end
        kills.note(phase())
    return begin().wait()


def _fork(message: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(
                os.open(message[name], os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), descriptor
            )
        if message["die_at"] is not None:
            sys.addaudithook(_killer(*message["die_at"]))
        from headlab.cli.run import main

        code = main(message["start"])
        sys.stdout.flush()
    finally:
        os._exit(code)
    return 0


def _killer(event: str, ending: str, number: int) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that kills this process at the n-th event whose path has that ending."""
    events = 0

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal events
        if name != event or not any(str(argument).endswith(ending) for argument in arguments[:2]):
            return
        events += 1
        if events == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def main() -> None:
    """Load what commands need, then fork a command for each line of input that asks for one."""
    import headlab.worker.model_host
    import headlab.worker.server  # noqa: F401 - loaded for the children
    from headlab.cli.run import main as command

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    command(json.loads(sys.argv[1]))
    sys.stdout.flush()  # or every child would print it again
    for line in sys.stdin:
        message = json.loads(line)
        if "poll" in message:
            pid, status = os.waitpid(message["poll"], os.WNOHANG)
            answer: Any = status if pid else None
        elif "start" in message:
            answer = _fork(message)
        else:
            answer = True
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
