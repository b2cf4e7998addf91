"""The steps of a training as a bar on a terminal, or as a line from time to time where there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from headlab.cli.output import progress_bar

if TYPE_CHECKING:
    from headlab.training.lm.options import LmStep
    from headlab.training.options import FinetuneStep

SILENCE = 30.0  # seconds between two lines where there is no terminal to draw a bar on
Say = Callable[[str, int, int], None]


@contextmanager
def shown(title: str) -> Iterator[Say]:
    """A bar; call it with (text, done, total). Where stderr is not a terminal, a line there from time to time."""
    with progress_bar(title) as show:
        said = time.monotonic()

        def say(words: str, done: int, total: int) -> None:
            nonlocal said
            show(words, done, total)
            if not sys.stderr.isatty() and time.monotonic() - said >= SILENCE:
                said = time.monotonic()
                typer.echo(f"{done}/{total} {words}", err=True)

        yield say


def step_words(step: FinetuneStep) -> str:
    """A step in words: loss, rate, time left."""
    return f"training, loss {step.loss:.3f}, rate {step.learning_rate:.2g}, {clock(step.left)} left"


def lm_words(step: LmStep) -> str:
    """A step of a language model in words: its part, loss, gates that are open, time left of that part."""
    gates = "" if step.open is None else f", {step.open} gates open"
    return f"{step.part}, loss {step.loss:.3f}{gates}, {clock(step.left)} left of this part"


def clock(seconds: float) -> str:
    """1:02:03, for 3,723 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
