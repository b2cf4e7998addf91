"""Errors over time of every estimator against a long reference run, and what it takes to be equally wrong."""

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
from comparison.peers import ONE, PEERS, WHOLE, Peer, newer
from comparison.setting import Long, Setting
from headlab.core import Floats
from headlab.methods.game import Game
from headlab.stats import sample_mean

OURS = "headlab shapley"
FORMER = "headlab shapley, version 1"
PLAIN = "headlab monte-carlo"
HEADLAB = {OURS: headlab_shapley, FORMER: headlab_former, PLAIN: headlab_monte_carlo}
REFERENCE_SEED = 424_242
# A peer whose first estimate takes so many times longer than everybody's race does not take part.
LATE_FACTOR = 3.0


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
    def of(cls, long_run: Long) -> Reference:
        """From a long run. The error is that of independent samples; whole cycles of examples make it smaller."""
        support = long_run.tally.support
        counts = long_run.tally.counts
        values = sample_mean(support, counts)
        samples_drawn = np.maximum(counts.sum(axis=0), 1)
        variance = sample_mean(support**2, counts) - values**2
        return cls(values, np.sqrt(variance / samples_drawn), int(samples_drawn.min()))

    @property
    def noise(self) -> float:
        """Its own root-mean-square error, estimated."""
        return float(np.sqrt((self.error**2).mean()))

    def squared_error(self, values: Floats) -> float:
        """Mean squared error over heads with the reference's own share taken off."""
        return float(((values - self.values) ** 2).mean() - self.noise**2)


def race(setting: Setting, forward: float) -> tuple[list[Run], dict[str, float]]:
    """Every estimator that plays on single examples, seed after seed, each for the same time.

    Returns runs and, for peers that would not have an estimate in the time, the seconds they would
    need.

    Args:
        forward: Seconds of an example-forward.
    """
    starts: dict[str, Callable[[Game, int], Iterator[Estimate]]] = dict(HEADLAB)
    peers = [peer for peer in (*PEERS, *newer(setting.newer)) if peer.wrapping == ONE]
    seconds_a_run = setting.seconds("race") / (len(starts) + len(peers)) / setting.seeds
    needs = {peer.title: first_estimate(peer, setting, forward) for peer in peers}
    missing = {title: need for title, need in needs.items() if need > LATE_FACTOR * seconds_a_run}
    starts.update({peer.title: peer.start for peer in peers if peer.title not in missing})
    for start in starts.values():  # what is compiled or allocated once
        watch(start(setting.small_rounds(), 0), setting.evaluator, 0)
    runs = []
    for seed in range(1, setting.seeds + 1):
        for title, start in starts.items():
            runs.append(
                Run(
                    title,
                    seed,
                    watch(start(setting.small_rounds(), seed), setting.evaluator, seconds_a_run),
                )
            )
            last_point = runs[-1].points[-1]
            print(
                f"  {title}, seed {seed}: {last_point.forwards} forwards in {last_point.seconds:.1f} s",
                flush=True,
            )
    return runs, missing


def whole_set(setting: Setting, forward: float) -> tuple[list[Run], dict[str, float]]:
    """Peers with the whole dev set in every evaluation, as far as one estimate fits into the time.

    Returns runs, and for the others the seconds they would need.

    Args:
        forward: Seconds of an example-forward.
    """
    seconds_left = setting.seconds("whole")
    runs = []
    missing = {}
    for peer in (p for p in PEERS if p.wrapping == WHOLE):
        need = first_estimate(peer, setting, forward)
        if need > seconds_left:
            missing[peer.title] = need
            print(f"  {peer.title}: not run, its first estimate needs {need:.0f} s", flush=True)
            continue
        runs.append(Run(peer.title, 1, watch(peer.start(setting.game, 1), setting.evaluator, 0)))
        seconds_left -= runs[-1].points[-1].seconds
        print(f"  {peer.title}: {runs[-1].points[-1].seconds:.0f} s", flush=True)
    return runs, missing


def first_estimate(peer: Peer, setting: Setting, forward: float) -> float:
    """Seconds until a peer's first estimate, what it computes itself apart."""
    rows = peer.first(setting.game.players) * (
        setting.game.examples if peer.wrapping == WHOLE else 1
    )
    return forward * rows


@dataclass(frozen=True)
class Ratio:
    """How many times more, and the ends of a 95 % interval; None where nothing says how far it is off."""

    times: float
    low: float | None
    high: float | None


def ratio_of_means(
    upper: Sequence[float] | float, lower: Sequence[float], level: float = 0.95
) -> Ratio:
    """The mean of `upper` over the mean of `lower`, independent samples of positive means; a number is exact.

    Welch's t interval of the difference of the logarithms, whose errors are those of the means relative to them.
    """
    upper_values = np.asarray(upper, float)
    lower_values = np.asarray(lower, float)
    times = float(upper_values.mean() / lower_values.mean())
    samples = [x for x in (upper_values, lower_values) if x.ndim]
    if min(len(x) for x in samples) < 2 or not times > 0:
        return Ratio(times, None, None)
    terms = [x.var(ddof=1) / len(x) / x.mean() ** 2 for x in samples]
    parts = sum(term**2 / (len(x) - 1) for x, term in zip(samples, terms, strict=True))
    freedom = sum(terms) ** 2 / parts if parts else 1.0
    factor = float(np.exp(t.ppf((1 + level) / 2, freedom) * np.sqrt(sum(terms))))
    return Ratio(times, times / factor, times * factor)


@dataclass(frozen=True)
class Summary:
    """One estimator over its seeds.

    Attributes:
        laws: Squared error × seconds at the end of each of its runs.
        law: Their mean.
        slope: Of log squared error over log seconds; -1 where the error falls as one over the
            square root.
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
        """Seconds to a root-mean-square error, the error falling as one over the square root of time."""
        return self.law / error**2


def summarise(runs: Sequence[Run], reference: Reference) -> list[Summary]:
    """A summary for each estimator, in order of appearance."""
    titles = list(dict.fromkeys(run.title for run in runs))
    return [_summary([r for r in runs if r.title == title], reference) for title in titles]


def _summary(runs: Sequence[Run], reference: Reference) -> Summary:
    last_points = [run.points[-1] for run in runs]
    squared_errors = np.array([reference.squared_error(p.values) for p in last_points])
    seconds = np.array([p.seconds for p in last_points])
    raw_squared_error = float(
        np.mean([((p.values - reference.values) ** 2).mean() for p in last_points])
    )
    widths = [p.width for p in last_points if p.width is not None]
    return Summary(
        runs[0].title,
        float(seconds.mean()),
        float(np.mean([p.forwards for p in last_points])),
        float(np.sqrt(max(squared_errors.mean(), 0.0))),
        float(np.sqrt(raw_squared_error)),
        float(max((squared_errors * seconds).mean(), 0.0)),
        tuple((squared_errors * seconds).tolist()),
        _slope(runs, reference),
        float(np.mean(widths)) if widths else None,
    )


def _slope(runs: Sequence[Run], reference: Reference) -> float | None:
    points = [(p.seconds, reference.squared_error(p.values)) for run in runs for p in run.points]
    logs = np.log(np.array([point for point in points if point[1] > 0]).reshape(-1, 2))
    if len(set(logs[:, 0])) > 2:
        return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return None


def equal_error(summaries: Sequence[Summary]) -> tuple[float, dict[str, Ratio]]:
    """The lowest error that a peer ended with, and for each title the times more seconds than ours to equal error."""
    ours = next(s for s in summaries if s.title == OURS)
    lowest_peer_error = min(
        (s.error for s in summaries if s.title not in HEADLAB and s.error > 0),
        default=ours.raw_error,
    )
    other_summaries = (s for s in summaries if s is not ours and ours.law > 0)
    return lowest_peer_error, {s.title: ratio_of_means(s.laws, ours.laws) for s in other_summaries}
