"""Errors of every estimator over time, against a long reference run, and seconds to equal error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from comparison.estimates import (
    Estimate,
    Point,
    headlab_former,
    headlab_monte_carlo,
    headlab_shapley,
    watch,
)
from comparison.peers import ONE_EXAMPLE, PEERS, WHOLE_SET, Peer, newer
from comparison.setting import LongRun, Setting
from headlab.core import Floats
from headlab.methods.game import Game
from headlab.methods.sampling import SamplingPlan
from headlab.stats import sample_mean

OURS = "headlab shapley"
FORMER = "headlab shapley, version 1"
PLAIN = "headlab monte-carlo"
HEADLAB = {OURS: headlab_shapley, FORMER: headlab_former, PLAIN: headlab_monte_carlo}
REFERENCE_SEED = 424_242
REFERENCE_PLAN = SamplingPlan(1 << 20, None, "width", 0.95, 1.0)
# A peer takes no part if its first estimate takes this many times longer than a run of the race.
LATE_FACTOR = 3.0
Start = Callable[[Game, int], Iterator[Estimate]]  # begins a run with a seed


@dataclass(frozen=True)
class Run:
    """One estimator with one seed."""

    title: str
    seed: int
    points: list[Point]


@dataclass(frozen=True)
class Reference:
    """What the estimates are held against: values and their standard errors, float [head]."""

    values: Floats
    error: Floats
    samples: int

    @classmethod
    def of_long_run(cls, long_run: LongRun) -> Reference:
        """The reference that a long run gives.

        The error is that of independent samples; whole cycles of examples make it smaller.
        """
        support = long_run.tally.support
        counts = long_run.tally.counts
        values = sample_mean(support, counts)
        samples_drawn = np.maximum(counts.sum(axis=0), 1)
        variance = sample_mean(support**2, counts) - values**2
        error = np.sqrt(variance / samples_drawn)
        return cls(values, error, int(samples_drawn.min()))

    @property
    def noise(self) -> float:
        """Its own root-mean-square error, estimated."""
        mean_squared_error = (self.error**2).mean()
        return float(np.sqrt(mean_squared_error))

    def squared_error(self, values: Floats) -> float:
        """Mean squared error over heads, less the reference's own share of it."""
        squared_errors = (values - self.values) ** 2
        return float(squared_errors.mean() - self.noise**2)


def race(setting: Setting, forward: float) -> tuple[list[Run], dict[str, float]]:
    """Run every estimator that plays on single examples, seed after seed, each for the same time.

    Args:
        setting: The model, its examples and the time.
        forward: Seconds of an example-forward.

    Returns:
        The runs, and {peer without an estimate in the time: seconds that it would need}.
    """
    starts: dict[str, Start] = dict(HEADLAB)
    all_peers = (*PEERS, *newer(setting.newer))
    peers = [peer for peer in all_peers if peer.wrapping == ONE_EXAMPLE]
    estimators = len(starts) + len(peers)
    seconds_a_run = setting.seconds("race") / estimators / setting.seeds
    missing = {}
    for peer in peers:
        need = first_estimate(peer, setting, forward)
        if need > LATE_FACTOR * seconds_a_run:
            missing[peer.title] = need
        else:
            starts[peer.title] = peer.start
    for start in starts.values():  # so that nothing is compiled or allocated during the race
        watch(start(setting.small_rounds(), 0), setting.evaluator, 0)
    runs = []
    for seed in range(1, setting.seeds + 1):
        for title, start in starts.items():
            estimates = start(setting.small_rounds(), seed)
            points = watch(estimates, setting.evaluator, seconds_a_run)
            runs.append(Run(title, seed, points))
            end = points[-1]
            cost = f"{end.forwards} forwards in {end.seconds:.1f} s"
            print(f"  {title}, seed {seed}: {cost}", flush=True)
    return runs, missing


def whole_set(setting: Setting, forward: float) -> tuple[list[Run], dict[str, float]]:
    """Run the peers with the whole dev set in every evaluation whose estimate fits into the time.

    Args:
        setting: The model, its examples and the time.
        forward: Seconds of an example-forward.

    Returns:
        The runs, and {peer that was not run: seconds that it would need}.
    """
    seconds_left = setting.seconds("whole")
    runs = []
    missing = {}
    for peer in PEERS:
        if peer.wrapping != WHOLE_SET:
            continue
        need = first_estimate(peer, setting, forward)
        if need > seconds_left:
            missing[peer.title] = need
            print(f"  {peer.title}: not run, its first estimate needs {need:.0f} s", flush=True)
            continue
        estimates = peer.start(setting.game, 1)
        points = watch(estimates, setting.evaluator, 0)
        runs.append(Run(peer.title, 1, points))
        seconds = points[-1].seconds
        seconds_left -= seconds
        print(f"  {peer.title}: {seconds:.0f} s", flush=True)
    return runs, missing


def first_estimate(peer: Peer, setting: Setting, forward: float) -> float:
    """Seconds of forward passes until a peer's first estimate."""
    examples_a_coalition = setting.game.examples if peer.wrapping == WHOLE_SET else 1
    return forward * peer.first(setting.game.players) * examples_a_coalition


@dataclass(frozen=True)
class Ratio:
    """How many times more, and the bounds of a 95 % interval; None if too few runs bound it."""

    times: float
    low: float | None
    high: float | None


def ratio_of_means(
    upper: Sequence[float] | float, lower: Sequence[float], level: float = 0.95
) -> Ratio:
    """The ratio of two means, with Welch's t interval.

    The interval is that of the difference of the means' logarithms, whose standard errors are the
    relative errors of the means.

    Args:
        upper: Samples of a positive mean, or the mean itself if it is known exactly.
        lower: Independent samples of another positive mean.
        level: Of the interval.
    """
    upper_values = np.asarray(upper, float)
    lower_values = np.asarray(lower, float)
    times = float(upper_values.mean() / lower_values.mean())
    samples = [values for values in (upper_values, lower_values) if values.ndim]
    if min(len(values) for values in samples) < 2 or not times > 0:
        return Ratio(times, None, None)
    relative_variance = 0.0
    welch_sum = 0.0
    for values in samples:
        variance_of_mean = values.var(ddof=1) / len(values)
        term = variance_of_mean / values.mean() ** 2
        relative_variance += term
        welch_sum += term**2 / (len(values) - 1)
    freedom = relative_variance**2 / welch_sum if welch_sum else 1.0
    quantile = t.ppf((1 + level) / 2, freedom)
    half_width = quantile * np.sqrt(relative_variance)
    factor = float(np.exp(half_width))
    return Ratio(times, times / factor, times * factor)


@dataclass(frozen=True)
class Summary:
    """One estimator over its seeds.

    Attributes:
        title: Its name.
        seconds: Mean length of its runs.
        forwards: Mean number of example-forwards of its runs.
        error: Root-mean-square error, less the reference's own.
        raw_error: Root-mean-square error with the reference's own.
        law: Mean of `laws`.
        laws: Squared error × seconds at the end of each of its runs.
        slope: Of log squared error over log seconds; -1 where the error falls as one over the
            square root of time.
        width: Mean guaranteed half-width, if it guarantees one.
    """

    title: str
    seconds: float
    forwards: float
    error: float
    raw_error: float
    law: float
    laws: tuple[float, ...]
    slope: float | None
    width: float | None

    def seconds_to(self, error: float) -> float:
        """Seconds to a root-mean-square error that falls as one over the square root of time."""
        return self.law / error**2


def summarise(runs: Sequence[Run], reference: Reference) -> list[Summary]:
    """A summary for each estimator, in order of appearance."""
    titles = list(dict.fromkeys(run.title for run in runs))
    summaries = []
    for title in titles:
        runs_of_estimator = [run for run in runs if run.title == title]
        summaries.append(_summary(runs_of_estimator, reference))
    return summaries


def _summary(runs: Sequence[Run], reference: Reference) -> Summary:
    last_points = [run.points[-1] for run in runs]
    squared_errors = np.array([reference.squared_error(point.values) for point in last_points])
    seconds = np.array([point.seconds for point in last_points])
    errors = np.stack([point.values - reference.values for point in last_points])
    raw_squared_errors = (errors**2).mean(axis=1)
    widths = [point.width for point in last_points if point.width is not None]
    forwards = [point.forwards for point in last_points]
    laws = squared_errors * seconds
    return Summary(
        runs[0].title,
        float(seconds.mean()),
        float(np.mean(forwards)),
        float(np.sqrt(max(squared_errors.mean(), 0.0))),
        float(np.sqrt(raw_squared_errors.mean())),
        float(max(laws.mean(), 0.0)),
        tuple(laws.tolist()),
        _slope(runs, reference),
        float(np.mean(widths)) if widths else None,
    )


def _slope(runs: Sequence[Run], reference: Reference) -> float | None:
    """Slope of log squared error over log seconds; None for fewer than three times."""
    pairs = []
    for run in runs:
        for point in run.points:
            squared_error = reference.squared_error(point.values)
            if squared_error > 0:
                pairs.append((point.seconds, squared_error))
    seconds_and_errors = np.array(pairs).reshape(-1, 2)
    log_seconds, log_errors = np.log(seconds_and_errors).T
    if len(set(log_seconds)) > 2:
        return float(np.polyfit(log_seconds, log_errors, 1)[0])
    return None


def equal_error(summaries: Sequence[Summary]) -> tuple[float, dict[str, Ratio]]:
    """Compare all estimators at equal error.

    Returns:
        The lowest error that a peer ended with, and {title: how many times more seconds than ours it
        takes to equal error}.
    """
    ours = next(summary for summary in summaries if summary.title == OURS)
    peer_errors = []
    for summary in summaries:
        if summary.title not in HEADLAB and summary.error > 0:
            peer_errors.append(summary.error)
    ratios = {}
    for summary in summaries:
        if summary is not ours and ours.law > 0:
            ratios[summary.title] = ratio_of_means(summary.laws, ours.laws)
    return min(peer_errors, default=ours.raw_error), ratios
