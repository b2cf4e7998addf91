"""What a method is given and gives: a piece of work, its snapshots, and the outcome.

Snapshots are saved and reported.
"""

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

from headlab.core import (
    Floats,
    HeadGrid,
    HeadlabError,
    Ints,
    Progress,
    RunSpec,
    SlopeUse,
    Tick,
    ValueFunction,
    run_in_parallel,
)
from headlab.evaluation import Batch, Evaluator
from headlab.methods.game import Game
from headlab.methods.table import method as method_of
from headlab.results import HeadScores
from headlab.results.store.folder import Arrays as Arrays
from headlab.stats import jackknife_interval


def _do_nothing(_: object) -> None:
    """Default for `report` and `save`: do nothing."""


class HeadGame(Game, Protocol):
    """The game whose players are the heads of a model in this process."""

    evaluator: Evaluator
    ablation: str
    value: ValueFunction
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
    """One method on one language, with callbacks to report and to save.

    Attributes:
        evaluator: Of the model and the examples.
        seed: Of all that is drawn at random.
        options: Resolved options of the method.
        ablation: What stands in the place of a removed head, one of `headlab.core.ABLATIONS`.
        report: Called as steps finish.
        saved: Arrays of an earlier, interrupted run of the same spec.
        save: Stores arrays, so that a later run can resume from here.
        helpers: Other devices that do the work; None uses this one only.
        samples_only: Whether slopes are left out of a method that joins samples with them, as where
            the pace of its samples is timed.
    """

    evaluator: Evaluator
    seed: int
    options: Mapping[str, Any]
    ablation: str = "zero"
    report: Callable[[Progress], None] = _do_nothing
    saved: Arrays | None = None
    save: Callable[[Arrays], None] = _do_nothing
    helpers: Helpers | None = None
    samples_only: bool = False


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
    sampling_error: Floats | None = None
    sample_means: Floats | None = None
    slopes: SlopeUse | None = None
    average_error: Floats | None = None

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
    """Report progress between batches until the block ends.

    Args:
        work: Has the evaluator whose batches are meant.
        forwards_per_unit: Number of forward passes that a unit of progress takes.
        total: Number of units in all.
        note: What the units are.
    """
    evaluator = work.evaluator
    tick = evaluator.tick

    def report_and_tick() -> None:
        units_done = min(evaluator.forwards // forwards_per_unit, total)
        work.report(Progress(units_done, total, note))
        tick()

    evaluator.tick = report_and_tick
    try:
        yield
    finally:
        evaluator.tick = tick


def mean_outcome(
    work: Work,
    batches: Iterable[Batch],
    batch_sums_of: Callable[[Evaluator, Batch, Tick], tuple[Floats, Floats]],
    to_size: Callable[[Floats], Floats] = np.asarray,
    max_size: float = math.inf,
) -> Outcome:
    """Sizes of heads, averaged over examples.

    A size is made of the sum over the examples, divided by that of their weights. Intervals at 95 %
    and halves cover the sampling of the examples.

    Args:
        work: One method on one language.
        batches: All examples.
        batch_sums_of: Given an evaluator and a batch, returns sums of the batch's examples, none
            below 0, [row, layer, head], and their weights, [row] or [row, layer]; or one row for
            the whole batch, which then stands for an example. The evaluator is one of its own,
            whose forward passes are not counted if it fails.
        to_size: Makes sizes of means, [head].
        max_size: No size is above.
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
        batch_sums, batch_weights = batch_sums_of(lane, batch, tick)
        return batch_sums, batch_weights, lane.forwards

    examples_done = 0
    for batch, (batch_sums, batch_weights, forwards) in run_in_parallel(
        batches, sums_of, model=evaluator.model, tick=evaluator.tick
    ):
        rows = batch.rows[: len(batch_weights)]
        sums[rows] = batch_sums[:, layers, columns]
        has_layers = batch_weights.ndim > 1
        weights[rows] = batch_weights[:, layers] if has_layers else batch_weights[:, None]
        if len(rows) < len(batch.rows):
            groups[rows[0]] = f"batch of {rows[0]}"
        evaluator.forwards += forwards
        examples_done += len(batch.rows)
        work.report(Progress(examples_done, len(examples), "examples"))
    low, high = jackknife_interval(sums, weights, groups, to_size, upper_limit=max_size) or (
        None,
        None,
    )
    return Outcome(
        values=to_size(sums.sum(axis=0) / weights.sum(axis=0)),
        low=low,
        high=high,
        samples=(weights > 0).sum(axis=0),
        halves=_halves(sums, weights, to_size),
    )


def _halves(sums: Floats, weights: Floats, to_size: Callable[[Floats], Floats]) -> Floats | None:
    """Sizes of heads on each half of the examples, [half, head].

    None where a half has no weight for a head.

    Args:
        sums: By example, [example, head].
        weights: By example, [example, head].
        to_size: Makes a size of a mean.
    """
    half_sums = np.array_split(sums, 2)
    half_weights = np.array_split(weights, 2)
    halves = []
    for sums_of_half, weights_of_half in zip(half_sums, half_weights, strict=True):
        if not weights_of_half.any(axis=0).all():
            return None
        halves.append(to_size(sums_of_half.sum(axis=0) / weights_of_half.sum(axis=0)))
    return np.stack(halves)


# Running an estimator: save and report its snapshots, and return the outcome of the last one.

# Share of a run's time that its checkpoints may take.
SAVING_SHARE = 0.01


class EstimatorSnapshot(Protocol):
    """State of an estimator."""

    def outcome(self) -> Outcome:
        """The current outcome."""

    def arrays(self) -> Arrays:
        """Arrays from which the run can resume with bit-identical results."""

    def progress(self) -> Progress:
        """Current progress."""


S = TypeVar("S", bound=EstimatorSnapshot)


class Saver:
    """Saves a run's state, at intervals such that saving takes one hundredth of the run's time.

    The first offer is saved at once; one that came too soon is saved by `flush`.

    Args:
        save: Stores arrays.
        clock: Gives the time in seconds.
    """

    def __init__(
        self, save: Callable[[Arrays], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._save = save
        self._clock = clock
        self._due = -math.inf
        self._waiting: Callable[[], Arrays] | None = None

    def offer(self, arrays: Callable[[], Arrays]) -> None:
        """Save some arrays if the last save is old enough.

        Args:
            arrays: Gives them; called only when they are saved.
        """
        self._waiting = arrays
        if self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Save the arrays offered last, unless they have been saved."""
        arrays = self._waiting
        self._waiting = None
        if arrays is None:
            return
        started_at = self._clock()
        self._save(arrays())
        ended_at = self._clock()
        self._due = ended_at + (ended_at - started_at) / SAVING_SHARE


@contextmanager
def saves_of(
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


def final_outcome(work: Work, start: S, snapshots: Iterable[S]) -> Outcome:
    """Save and report every snapshot; returns the outcome of the last one."""
    last_snapshot = start
    work.report(last_snapshot.progress())
    with saves_of(work.save) as saver:
        for snapshot in snapshots:
            saver.offer(partial(_arrays, snapshot, work.evaluator.forwards))
            work.report(snapshot.progress())
            last_snapshot = snapshot
    return last_snapshot.outcome()


def _arrays(snapshot: EstimatorSnapshot, forwards: int) -> Arrays:
    return {**snapshot.arrays(), "forwards": np.array(forwards)}
