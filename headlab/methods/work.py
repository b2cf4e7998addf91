"""What a method is given and what it gives: a piece of work, its snapshots (saved and reported), and the outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from headlab.core import Floats, HeadGrid, HeadlabError, Ints, Progress, RunSpec, Value
from headlab.core.parallel import Tick, spread
from headlab.evaluation import Batch, Evaluator
from headlab.methods.game import Game
from headlab.methods.table import method as method_of
from headlab.results import HeadScores
from headlab.results.store.folder import Arrays as Arrays
from headlab.stats import jackknife_interval


def _ignore(_: object) -> None:
    """Default for `report` and `save`: do nothing."""


class HeadGame(Game, Protocol):
    """The game whose players are the heads of a model in this process."""

    evaluator: Evaluator
    ablation: str
    value: Value
    tokens: int | None


class Helpers(Protocol):
    """Other devices, with the same model on each."""

    @property
    def kind(self) -> str:
        """Kind of the devices: "cpu" or "cuda"."""

    def game(self, own: HeadGame) -> Game:
        """The same game as `own`, computed on these devices."""

    def outcome(self, name: str, work: Work) -> Outcome:
        """The outcome of a method (see `Method.whole`) run on one of these devices."""


@dataclass(frozen=True)
class Work:
    """One method on one language: the evaluator, the options, and callbacks to report and to save.

    saved: arrays of an earlier, interrupted run of the same spec.  save: stores arrays so that a later
    run can resume from here.  helpers: other devices that do the work; None uses this one only.
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
    """Result of a method, flat arrays [head]; fields as in `HeadScores`."""

    values: Floats
    low: Floats | None = None
    high: Floats | None = None
    samples: Ints | None = None
    p_values: Floats | None = None
    level: float = 0.95
    halves: Floats | None = None

    def scores(self, grid: HeadGrid, spec: RunSpec, forwards: int, seconds: float) -> HeadScores:
        """The record of this outcome; method and language are taken from the spec."""
        method = method_of(spec.method.name)
        options = spec.method.options or {}
        return HeadScores(
            grid=grid,
            language=spec.task.language,
            method=method.key,
            estimand=str(options.get("estimand", method.estimand)),
            unit=method.unit_of(options),
            example_forwards=forwards,
            seconds=seconds,
            spec=spec,
            signed=method.signed,
            **vars(self),
        )


@contextmanager
def reporting(work: Work, forwards_per_unit: int, total: int, note: str) -> Iterator[None]:
    """Report progress between batches, in units of `forwards_per_unit` forward passes, until the block ends."""
    evaluator, tick = work.evaluator, work.evaluator.tick

    def counted() -> None:
        work.report(Progress(min(evaluator.forwards // forwards_per_unit, total), total, note))
        tick()

    evaluator.tick = counted
    try:
        yield
    finally:
        evaluator.tick = tick


def sizes(
    work: Work,
    batches: Iterable[Batch],
    part: Callable[[Evaluator, Batch, Tick], tuple[Floats, Floats]],
    of: Callable[[Floats], Floats] = np.asarray,
    most: float = math.inf,
) -> Outcome:
    """Sizes of heads, averaged over examples: `of` the sum of the parts over that of their weights, [head].

    Intervals at 95 % and halves cover the sampling of the examples.  part: sums of a batch's examples, none below 0,
    [row, layer, head], and their weights, [row] or [row, layer]; or one row for the whole batch, which then stands for
    an example.  It is given an evaluator of its own, whose forward passes are not counted if it fails.  most: no size
    is above.
    """
    evaluator = work.evaluator
    examples = evaluator.examples
    layers, columns = evaluator.model.grid.flat.T
    sums = np.zeros((len(examples), len(layers)))
    weights = np.zeros_like(sums)
    groups = [example.cluster for example in examples]

    def sums_of(batch: Batch, tick: Tick) -> tuple[Floats, Floats, int]:
        lane = copy(evaluator)
        lane.forwards = 0
        batch_sums, batch_weights = part(lane, batch, tick)
        return batch_sums, batch_weights, lane.forwards

    examples_done = 0
    for batch, (batch_sums, batch_weights, forwards) in spread(
        batches, sums_of, on=evaluator.model, tick=evaluator.tick
    ):
        rows = batch.rows[: len(batch_weights)]
        sums[rows] = batch_sums[:, layers, columns]
        weights[rows] = (
            batch_weights[:, layers] if batch_weights.ndim > 1 else batch_weights[:, None]
        )
        if len(rows) < len(batch.rows):
            groups[rows[0]] = f"batch of {rows[0]}"
        evaluator.forwards += forwards
        examples_done += len(batch.rows)
        work.report(Progress(examples_done, len(examples), "examples"))
    low, high = jackknife_interval(sums, weights, groups, of, most=most) or (None, None)
    return Outcome(
        values=of(sums.sum(axis=0) / weights.sum(axis=0)),
        low=low,
        high=high,
        samples=(weights > 0).sum(axis=0),
        halves=_halves(sums, weights, of),
    )


def _halves(sums: Floats, weights: Floats, of: Callable[[Floats], Floats]) -> Floats | None:
    """Sizes of heads on each half of the examples, [half, head]; None where a half has no weight for a head.

    Args:
        sums: By example, [example, head].
        weights: By example, [example, head].
        of: Makes a size of a mean.
    """
    half_sums = np.array_split(sums, 2)
    half_weights = np.array_split(weights, 2)
    halves = []
    for sums_of_half, weights_of_half in zip(half_sums, half_weights, strict=True):
        if not weights_of_half.any(axis=0).all():
            return None
        halves.append(of(sums_of_half.sum(axis=0) / weights_of_half.sum(axis=0)))
    return np.stack(halves)


# Running an estimator: save and report its snapshots, and return the outcome of the last one.

# Share of a run's time that its checkpoints may take.
SHARE = 0.01


class Snapshot(Protocol):
    """State of an estimator."""

    def outcome(self) -> Outcome:
        """The current outcome."""

    def arrays(self) -> Arrays:
        """Arrays from which the run can resume with bit-identical results."""

    def progress(self) -> Progress:
        """Current progress."""


S = TypeVar("S", bound=Snapshot)


class Saver:
    """Saves a run's state, at intervals such that saving takes one hundredth of the run's time.

    save: stores arrays.  clock: seconds.  The first offer is saved at once; one that came too soon is saved by `flush`.
    """

    def __init__(
        self, save: Callable[[Arrays], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._save, self._clock = save, clock
        self._due = -math.inf
        self._waiting: Callable[[], Arrays] | None = None

    def offer(self, arrays: Callable[[], Arrays]) -> None:
        """Save these arrays if the last save is old enough; `arrays` is called only when they are saved."""
        self._waiting = arrays
        if self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Save the arrays offered last, unless they have been saved."""
        arrays, self._waiting = self._waiting, None
        if arrays is None:
            return
        began = self._clock()
        self._save(arrays())
        ended = self._clock()
        self._due = ended + (ended - began) / SHARE


@contextmanager
def saving(
    save: Callable[[Arrays], None], clock: Callable[[], float] = time.perf_counter
) -> Iterator[Saver]:
    """A `Saver` for a run; if the run ends with an exception, its last state is saved."""
    saver = Saver(save, clock)
    try:
        yield saver
    except BaseException:
        with suppress(HeadlabError):  # why the run ended matters more; the last checkpoint remains
            saver.flush()
        raise


def drive(work: Work, start: S, snapshots: Iterable[S]) -> Outcome:
    """Save and report every snapshot; returns the outcome of the last one."""
    last = start
    work.report(last.progress())
    with saving(work.save) as saver:
        for snapshot in snapshots:
            saver.offer(partial(_arrays, snapshot, work.evaluator.forwards))
            work.report(snapshot.progress())
            last = snapshot
    return last.outcome()


def _arrays(snapshot: Snapshot, forwards: int) -> Arrays:
    return {**snapshot.arrays(), "forwards": np.array(forwards)}
