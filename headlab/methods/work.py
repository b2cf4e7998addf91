"""What a method is given to work with, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headlab.evaluator import Evaluator
from headlab.methods.game import Game
from headlab.methods.model_game import ModelGame
from headlab.methods.table import method as method_of
from headlab.progress import Progress
from headlab.records import Floats, HeadGrid, Ints
from headlab.scores import HeadScores

Arrays = Mapping[str, np.ndarray[Any, Any]]


def _ignore(_: Any) -> None:
    """Progress and checkpoints of a run nobody watches."""


class Helpers(Protocol):
    """Other devices, with the same model on each."""

    @property
    def kind(self) -> str:
        """What they are: "cpu" or "cuda"."""
        ...

    def game(self, own: ModelGame) -> Game:
        """The same game as one's own, played there."""
        ...

    def outcome(self, name: str, work: Work) -> Outcome:
        """What a method (see `Method.whole`) gives when one of them runs it."""
        ...


@dataclass(frozen=True)
class Work:
    """One method on one language: the evaluator, the options, and the way to report and to save.

    saved: arrays of an earlier, interrupted run of the same spec.  save: keep arrays so that a later
    run can go on from here.  helpers: other devices that do the work; None keeps to this one.
    """

    evaluator: Evaluator
    seed: int
    options: Mapping[str, Any]
    ablation: str = "zero"
    report: Callable[[Progress], None] = _ignore
    saved: Arrays | None = None
    save: Callable[[Arrays], None] = _ignore
    helpers: Helpers | None = None


@dataclass(frozen=True)
class Outcome:
    """Numbers of a method, flat arrays [head]; fields as in `HeadScores`."""

    values: Floats
    low: Floats | None = None
    high: Floats | None = None
    samples: Ints | None = None
    p_values: Floats | None = None
    level: float = 0.95
    halves: Floats | None = None

    def scores(self, grid: HeadGrid, spec: Mapping[str, Any], forwards: int, seconds: float) -> HeadScores:
        """The record of these numbers: the spec says of which method and language, the rest what they took."""
        chosen, options = method_of(spec["method"]["name"]), spec["method"]["options"]
        return HeadScores(
            grid,
            spec["task"]["language"],
            chosen.key,
            self.values,
            options.get("estimand", chosen.estimand),
            chosen.unit_of(options),
            forwards,
            seconds,
            self.low,
            self.high,
            self.samples,
            self.p_values,
            self.level,
            spec,
            self.halves,
        )


@contextmanager
def reporting(work: Work, forwards_per_unit: int, total: int, note: str) -> Iterator[None]:
    """Report progress between batches, counted in units of so many forwards, until the block ends."""
    evaluator, tick = work.evaluator, work.evaluator.tick

    def counted() -> None:
        work.report(Progress(min(evaluator.forwards // forwards_per_unit, total), total, note))
        tick()

    evaluator.tick = counted
    try:
        yield
    finally:
        evaluator.tick = tick
