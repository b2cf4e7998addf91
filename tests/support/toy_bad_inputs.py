"""A family of bad inputs of which each gets another kind of answer, for `test_bad_inputs.py`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from bad_inputs.case import Answer, BadInput, answer_to

from headlab.core import HeadlabError


def taken() -> None:
    """Accept the input."""


def refused() -> None:
    """Refuse the input with a sentence."""
    raise HeadlabError("it is too long; shorten it", code="toy.long")


def refused_without_words() -> None:
    """Refuse the input with nothing to read."""
    raise HeadlabError(" ", code="toy.long")


def failed() -> None:
    """Fail as a library does."""
    raise KeyError("a library's own error")


def never_ends() -> None:
    """Write a file as a sign that this has begun, then wait for ever."""
    Path(os.environ["TOY_HANGING"]).touch()
    threading.Event().wait()


def died() -> None:
    """End the process as the kernel does when memory is full."""
    os.kill(os.getpid(), signal.SIGKILL)


READERS = (taken, refused, refused_without_words, failed, taken, never_ends, died, refused)


def inputs(folder: Path, seed: int) -> Iterator[BadInput]:
    """Yield an input for each of `READERS`, then the same again, which the runner skips."""
    assert folder.is_dir()
    for number, reader in [*enumerate(READERS), *enumerate(READERS)]:
        yield BadInput(reader.__name__, f"{seed} {number}".encode(), attempt(reader), refuse)


def attempt(reader: Callable[[], None]) -> Callable[[], Answer]:
    """An attempt that gives the input to a reader."""
    return lambda: answer_to(reader)


def refuse() -> Answer:
    """The answer to an attempt that is refused."""
    return answer_to(refused)
