"""Seconds until an estimator's error is, and stays, below a bound; runs are kept and resumed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from comparison.estimates import (
    Estimate,
    Point,
    headlab_joined,
    headlab_shapley,
    headlab_slopes,
    watch,
)
from comparison.peers import ONE_EXAMPLE, PEERS, newer
from comparison.quiet import MOST_SHARE, ProcessorTime, wait_until_quiet
from comparison.race import Reference, Start, ratio_of_means
from comparison.setting import Setting
from headlab.methods.game import Game

JOINED = "headlab shapley"
SAMPLES = "headlab shapley, samples alone"
SLOPES = "headlab smoothed"
HEADLAB: dict[str, Start] = {
    JOINED: headlab_joined,
    SAMPLES: headlab_shapley,
    SLOPES: headlab_slopes,
}
SECONDS = {JOINED: 30.0, SAMPLES: 60.0, SLOPES: 15.0}
"""How long headlab's runs are."""
PEER_SECONDS = {"shapiq ProxySHAP": 225.0, "shapiq RegressionMSR": 300.0}
"""How long those peers run that come as far as the bound; others run for `OTHER_SECONDS`."""
OTHER_SECONDS = 60.0
OTHER_SEEDS = 3
"""How many runs others have, which are hundreds of times slower, and headlab's samples alone."""
LOWEST_SHARE = 0.1
"""Of the bound: errors below it count as this, as the reference's own error hides them."""


@dataclass(frozen=True)
class Entrant:
    """One estimator of the race.

    Attributes:
        title: Its name.
        start: Gives its estimates, of a game and a seed.
        seconds: How long each of its runs is.
        seeds: How many runs it has at most.
        uses: What it learns of the model: "values" of coalitions, or "gradients" too.
    """

    title: str
    start: Start
    seconds: float
    seeds: int
    uses: str = "values"


@dataclass(frozen=True)
class Arrival:
    """When a run reached the bound.

    Attributes:
        seconds: Since the run began. Between two estimates, of which the second is the first one
            below the bound, the squared error is taken to fall along a power of time: ProxySHAP and
            RegressionMSR give few estimates, and would wait for the next one.
        is_measured: Whether the run came there; otherwise its error at the end is extrapolated, as
            falling with one over the square root of time.
    """

    seconds: float
    is_measured: bool


def entrants(setting: Setting, most_seconds: float | None = None) -> Iterator[Entrant]:
    """Headlab's estimators, and the peers that play on single examples.

    Args:
        setting: Says how many seeds there are and which interpreter has shapiq's newest methods.
        most_seconds: That a run may take; None for as long as is usual.
    """
    longest = math.inf if most_seconds is None else most_seconds
    for title, start in HEADLAB.items():
        uses = "values" if title == SAMPLES else "gradients"
        seeds = min(OTHER_SEEDS, setting.seeds) if title == SAMPLES else setting.seeds
        yield Entrant(title, start, min(SECONDS[title], longest), seeds, uses)
    for peer in (*PEERS, *newer(setting.newer)):
        if peer.wrapping == ONE_EXAMPLE:
            is_close = peer.name in PEER_SECONDS
            seconds = PEER_SECONDS.get(peer.name, OTHER_SECONDS)
            seeds = setting.seeds if is_close else min(OTHER_SEEDS, setting.seeds)
            yield Entrant(peer.title, peer.start, min(seconds, longest), seeds)


def points_of_run(
    setting: Setting, entrant: Entrant, seed: int, *, only_when_quiet: bool
) -> list[Point]:
    """The points of one run, which is read if an earlier call has finished it.

    Args:
        setting: The model, its examples and the folder of finished runs.
        entrant: The estimator.
        seed: Of the run.
        only_when_quiet: Whether the run waits for an idle machine, and is done again if other
            programs used the processor meanwhile.
    """
    key = setting.key(estimator=entrant.title, seed=seed, seconds=entrant.seconds, to_error=1)
    path = setting.work / f"{key}.npz"
    if path.exists():
        return _read_points(path)
    points = None
    while points is None:
        if only_when_quiet:
            wait_until_quiet()
        time_before = ProcessorTime.now()
        points = _new_points(setting, entrant, seed)
        share_of_others = ProcessorTime.now().share_of_others_since(time_before)
        if only_when_quiet and share_of_others > MOST_SHARE:
            print(
                f"  {entrant.title}, seed {seed}: other programs used {share_of_others:.0%} of the "
                "processor, so it runs again",
                flush=True,
            )
            points = None
    _write_points(path, points)
    return points


def _new_points(setting: Setting, entrant: Entrant, seed: int) -> list[Point]:
    """The points of a new run; a peer in a process of its own has ended when they are returned."""
    game: Game = setting.small_rounds()
    estimates: Iterator[Estimate] = entrant.start(game, seed)
    return watch(estimates, setting.evaluator, entrant.seconds)


def _write_points(path: Path, points: Sequence[Point]) -> None:
    temporary = path.with_suffix(".tmp.npz")
    np.savez(
        temporary,
        seconds=np.array([point.seconds for point in points]),
        forwards=np.array([point.forwards for point in points]),
        values=np.stack([point.values for point in points]),
    )
    temporary.replace(path)


def _read_points(path: Path) -> list[Point]:
    with np.load(path) as stored:
        columns = zip(
            stored["seconds"].tolist(), stored["forwards"].tolist(), stored["values"], strict=True
        )
        return [Point(seconds, forwards, values) for seconds, forwards, values in columns]


def arrival(points: Sequence[Point], reference: Reference, error: float) -> Arrival:
    """When the error of a run's points is below a bound for good.

    Args:
        points: Of one run.
        reference: What errors are measured against.
        error: The bound: a root mean square over heads, as a share of the span.
    """
    squared_errors = [reference.squared_error(point.values) for point in points]
    if squared_errors[-1] > error**2:
        last = points[-1]
        return Arrival(last.seconds * squared_errors[-1] / error**2, False)
    first_of_rest = len(points) - 1
    while first_of_rest and squared_errors[first_of_rest - 1] <= error**2:
        first_of_rest -= 1
    if first_of_rest == 0:
        return Arrival(points[0].seconds, True)
    above, below = points[first_of_rest - 1], points[first_of_rest]
    error_above = squared_errors[first_of_rest - 1]
    error_below = max(squared_errors[first_of_rest], (LOWEST_SHARE * error) ** 2)
    share_of_way = math.log(error_above / error**2) / math.log(error_above / error_below)
    seconds = above.seconds * (below.seconds / above.seconds) ** share_of_way
    return Arrival(seconds, True)


def speedups(arrivals_by_title: dict[str, list[Arrival]]) -> dict[str, dict[str, float | None]]:
    """How many times more seconds than headlab's joined values each other estimator takes.

    Args:
        arrivals_by_title: Of all runs of each estimator.

    Returns:
        {title: {"times", "low", "high"}}, with the ends of a 95 % interval.
    """
    ours = [run.seconds for run in arrivals_by_title[JOINED]]
    rows = {}
    for title, arrivals in arrivals_by_title.items():
        if title != JOINED:
            ratio = ratio_of_means([run.seconds for run in arrivals], ours)
            rows[title] = vars(ratio)
    return rows
