"""Estimators as generators of ever better estimates; whoever runs one looks at the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from comparison import previous
from headlab.core import Bools, Floats
from headlab.evaluation import Evaluator
from headlab.methods import joined, monte_carlo, tmab
from headlab.methods.game import Game
from headlab.methods.model_game import ModelGame
from headlab.methods.sampling import SamplingPlan, Tally, cycled_example
from headlab.methods.smoothed import (
    DRAWS_AT_ONCE,
    DrawStream,
    SlopePlan,
    SlopeTally,
    measured_first,
    slopes_until,
)
from headlab.methods.table import MIN_WORTH_EXAMPLES, MOST_SLOPE_DRAWS, SLOPE_BANDWIDTH
from headlab.stats import sample_mean

Width = Callable[[], float]
FOREVER = SamplingPlan(1 << 40, None, "width", 0.95, 1.0)
SPACING = 1.2


@dataclass(frozen=True)
class Estimate:
    """Shapley values so far.

    Attributes:
        values: Float [head], in shares of the span.
        width: Gives the mean guaranteed half-width, if there is one.
    """

    values: Floats
    width: Width | None = None


@dataclass(frozen=True)
class Point:
    """An estimate and what it had cost: seconds and example-forwards since the run began."""

    seconds: float
    forwards: int
    values: Floats
    width: float | None = None


class SmallRounds(ModelGame):
    """The same game in rounds of four samples, between which the clock is looked at.

    The size of rounds does not change the numbers.
    """

    @property
    def round(self) -> int:
        """Samples that go into one call."""
        return 4


def watch(estimates: Iterator[Estimate], evaluator: Evaluator, seconds: float) -> list[Point]:
    """Points of one run until the time is up, evenly spaced in log seconds; at least one."""
    points: list[Point] = []
    forwards_before = evaluator.forwards
    start = time.perf_counter()
    for estimate in estimates:
        seconds_spent = time.perf_counter() - start
        time_is_up = seconds_spent >= seconds
        if time_is_up or not points or seconds_spent >= SPACING * points[-1].seconds:
            width = estimate.width() if time_is_up and estimate.width else None
            points.append(
                Point(seconds_spent, evaluator.forwards - forwards_before, estimate.values, width)
            )
        if time_is_up:
            break
    return points


def running_mean(samples: Iterator[Floats]) -> Iterator[Estimate]:
    """The mean of all samples so far, after each."""
    total: Floats | None = None
    for number, sample in enumerate(samples, 1):
        total = np.array(sample, dtype=np.float64) if total is None else total + sample
        yield Estimate(total / number)


def examples_of(game: Game, seed: int) -> Iterator[int]:
    """Examples in balanced cycles: every cycle a fresh random order of all."""
    return (cycled_example(seed, number, game.examples) for number in count())


def mean_values(game: Game, coalitions: Bools) -> Floats:
    """Mean value of coalitions over all examples: bool [coalition, player] -> float [coalition]."""
    examples = np.arange(game.examples)
    values = game.values(
        np.repeat(coalitions, len(examples), axis=0), np.tile(examples, len(coalitions))
    )
    return np.asarray(values.reshape(len(coalitions), -1).mean(axis=1))


def from_tallies(tallies: Iterator[Tally]) -> Iterator[Estimate]:
    """Estimates of headlab's own samplers."""
    for tally in tallies:
        yield Estimate(sample_mean(tally.support, tally.counts), partial(mean_width, tally))


def mean_width(tally: Tally) -> float:
    """Mean half-width of the anytime-valid intervals."""
    low, high = tally.interval()
    return float((high - low).mean() / 2)


def headlab_joined(game: Game, seed: int) -> Iterator[Estimate]:
    """The values of headlab's default method: samples joined with slopes."""
    slope_plan = SlopePlan(MOST_SLOPE_DRAWS, FOREVER.span, tmab.ALL_SIZES, FOREVER.level)
    for tally in joined.estimate(game, FOREVER, slope_plan, seed=seed):
        means = tally.joined_means()
        values = tally.samples.mean(tally.samples.counts) if means is None else means.values
        yield Estimate(values, partial(mean_width, tally.samples))


def headlab_shapley(game: Game, seed: int) -> Iterator[Estimate]:
    """The samples of headlab's default method alone, for all coalition sizes."""
    return from_tallies(tmab.estimate(game, FOREVER, seed=seed, estimand=tmab.ALL_SIZES))


def headlab_slopes(game: Game, seed: int) -> Iterator[Estimate]:
    """Slopes alone: the method `smoothed`, without an end."""
    plan = SlopePlan(FOREVER.samples, FOREVER.span, tmab.ALL_SIZES, FOREVER.level)
    stream = DrawStream(seed)
    tally = SlopeTally.start(game.players, plan)
    example_count = min(game.examples, MIN_WORTH_EXAMPLES)
    tally = measured_first(game, tally, stream, SLOPE_BANDWIDTH, example_count)
    while True:
        for longer_tally in slopes_until(game, tally, tally.draws + DRAWS_AT_ONCE, stream):
            tally = longer_tally
            yield Estimate(tally.scale * tally.mean_slopes())


def headlab_former(game: Game, seed: int) -> Iterator[Estimate]:
    """The first version of that method, which computes every gain."""
    return from_tallies(previous.estimate(game, FOREVER, seed=seed, estimand=tmab.ALL_SIZES))


def headlab_monte_carlo(game: Game, seed: int) -> Iterator[Estimate]:
    """Plain permutation sampling by headlab: walks that resume at the layer that changed."""
    return from_tallies(monte_carlo.estimate(game, FOREVER, seed=seed, estimand=tmab.ALL_SIZES))
