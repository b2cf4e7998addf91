"""How long a forward pass of some work takes: a few batches of it, timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from headlab.evaluator import Evaluator
from headlab.methods.run import Work
from headlab.methods.table import method as method_of

BATCHES = 8
SECONDS = 1.0
WARMING = 16  # examples before the clock starts: the first batch of a model is slow


class Enough(Exception):
    """Ends the work once it has been timed."""


class Stopwatch:
    """Times the batches of an evaluator; what others do between them does not count."""

    def __init__(self, evaluator: Evaluator, tick: Callable[[], None]) -> None:
        self._evaluator, self._tick = evaluator, tick
        self._since, self._counted = time.perf_counter(), evaluator.forwards
        self._open = 0.0  # seconds since forwards were last counted
        self.seconds, self.forwards, self.batches = 0.0, 0, 0

    def __call__(self) -> None:
        """Called between batches, and while they are under way. Raises Enough once it has seen enough."""
        self.take()
        if self.batches and (self.batches >= BATCHES or self.seconds >= SECONDS):
            raise Enough
        self._tick()
        self._since = time.perf_counter()

    def take(self) -> None:
        """Note what was done since the last call."""
        now, counted = time.perf_counter(), self._evaluator.forwards
        self._open += now - self._since
        self._since = now
        if counted > self._counted:
            self.seconds, self._open = self.seconds + self._open, 0.0
            self.forwards, self._counted = self.forwards + counted - self._counted, counted
            self.batches += 1

    @property
    def pace(self) -> float:
        """Seconds a forward."""
        return self.seconds / max(1, self.forwards)


def pace_of(evaluator: Evaluator, method: str | None, options: Mapping[str, Any], tick: Callable[[], None]) -> float:
    """Seconds a forward pass of a method takes, or a plain one (method None). tick: called between batches."""
    answered(evaluator, min(WARMING, len(evaluator.examples)))
    watch = Stopwatch(evaluator, tick)
    evaluator.tick = watch
    try:
        if method is None:
            answered(evaluator, len(evaluator.examples))
        else:
            chosen = method_of(method)
            import_module(f"headlab.methods.{chosen.module}").run(Work(evaluator, 0, chosen.resolve(options)))
        watch.take()
    except Enough:
        pass
    return watch.pace


def answered(evaluator: Evaluator, examples: int) -> None:
    """Plain forward passes of the untouched model on the first examples; nothing of them is kept."""
    grid = evaluator.model.grid
    whole = np.ones((examples, grid.layers, grid.width), dtype=bool)
    evaluator.correct(whole, np.arange(examples))
