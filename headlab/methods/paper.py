"""The method of Held & Yang (2023) with their equation 4, for comparison.

Its intervals are not anytime-valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from headlab.core import Bools, Floats, Ints, Progress, integer_in, number_in, value_function_of
from headlab.methods.game import Game, Query, donor_arguments
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.sampling import random_order
from headlab.methods.tmab import removal_sizes
from headlab.methods.work import Arrays, Outcome, Work, final_outcome
from headlab.stats import bernstein_width

GAIN_RANGE = 1.0
# Examples per batch of walks.
BATCH_EXAMPLES = 64


@dataclass(frozen=True)
class Moments:
    """A snapshot: sums over the orders in which a head was measured.

    Attributes:
        count: Number of these orders, int [head].
        total: Sum of the gains, as shares of the span, float [head].
        square: Sum of their squares, float [head].
        draws: Number of orders so far.
        samples: Number of orders at most.
        delta: Of Equation 4.
        span: Of the value function.
    """

    count: Ints
    total: Floats
    square: Floats
    draws: int
    samples: int
    delta: float
    span: float

    def arrays(self) -> Arrays:
        """What `restore` needs."""
        return {
            "count": self.count,
            "total": self.total,
            "square": self.square,
            "draws": np.array(self.draws),
        }

    @property
    def mean(self) -> Floats:
        """Mean gain, [head]; 0 before the first order."""
        return np.asarray(self.total / np.maximum(self.count, 1))

    @property
    def width(self) -> Floats:
        """Half-width of Equation 4, [head]."""
        mean_square = self.square / np.maximum(self.count, 1)
        variance = np.maximum(mean_square - self.mean**2, 0)
        return bernstein_width(variance, self.count, self.delta, GAIN_RANGE)

    @property
    def active(self) -> Bools:
        """Heads whose interval still contains 0, bool [head]."""
        return np.asarray(np.abs(self.mean) <= self.width)

    @property
    def is_finished(self) -> bool:
        """Whether all signs are decided, or all orders drawn."""
        return self.draws >= self.samples or not self.active.any()

    def outcome(self) -> Outcome:
        """Values and Equation 4's intervals, clipped to the possible range."""
        low = np.maximum(self.mean - self.width, -1)
        high = np.minimum(self.mean + self.width, 1)
        span = self.span
        return Outcome(self.mean * span, low * span, high * span, self.count, None, 1 - self.delta)

    def progress(self) -> Progress:
        """Orders drawn, out of at most `samples`; the run may end earlier."""
        decided_heads = int((~self.active).sum())
        return Progress(
            self.draws,
            self.samples,
            f"orders at most; {decided_heads} of {len(self.count)} signs decided",
        )


def estimate(game: Game, start: Moments, *, seed: int, estimand: str) -> Iterator[Moments]:
    """Snapshots after each order, until every sign is decided or `samples` orders are drawn.

    Each order is walked with all examples, until half the heads are removed (`shapley-top50`) or to
    the end; a head's gain is its mean over the examples. Heads whose interval excludes 0 are no
    longer measured.

    Args:
        game: The game.
        start: The snapshot to go on from.
        seed: Seed of the orders.
        estimand: Which coalitions count.
    """
    moments = start
    by_length = np.argsort(game.lengths, kind="stable")
    part_starts = range(BATCH_EXAMPLES, game.examples, BATCH_EXAMPLES)
    parts = np.array_split(by_length, part_starts)
    steps = removal_sizes(estimand, game.players)
    while not moments.is_finished:
        removed_heads = random_order(seed, moments.draws, game.players)[:steps]
        active = moments.active
        gains_by_example = np.empty((game.examples, len(removed_heads)))
        asks = []
        for part in parts:
            orders = np.tile(removed_heads, (len(part), 1))
            arrays = {"orders": orders, "examples": part, "wanted": active}
            donors = donor_arguments(game, seed, moments.draws, part)
            asks.append(Query("gains", {**arrays, **donors}))
        for part, gains_of_part in zip(parts, game.answers(asks), strict=True):
            gains_by_example[part] = gains_of_part
        head_gains = np.zeros(game.players)
        head_gains[removed_heads] = np.average(gains_by_example, axis=0, weights=game.weights)
        is_measured = np.isin(np.arange(game.players), removed_heads) & active
        head_gains = np.where(is_measured, head_gains, 0)
        moments = replace(
            moments,
            count=moments.count + is_measured,
            total=moments.total + head_gains,
            square=moments.square + head_gains**2,
            draws=moments.draws + 1,
        )
        yield moments


def run(work: Work) -> Outcome:
    """Sample until every sign is decided, or for `samples` orders."""
    game = game_of(work)
    start = restore(work.saved or {}, work.options, game.players)
    estimand = str(work.options["estimand"])
    snapshots = estimate(game, start, seed=work.seed, estimand=estimand)
    return final_outcome(work, start, snapshots)


def restore(saved: Arrays, options: Options, players: int) -> Moments:
    """The snapshot stored in a checkpoint; an empty one if it does not fit."""
    empty = Moments(
        count=np.zeros(players, np.int64),
        total=np.zeros(players),
        square=np.zeros(players),
        draws=0,
        samples=integer_in(options, "samples"),
        delta=float(number_in(options, "delta")),
        span=value_function_of(str(options["value"])).span,
    )
    if not {"count", "total", "square", "draws"} <= set(saved):
        return empty
    if saved["count"].shape != (players,):
        return empty
    return replace(
        empty,
        count=saved["count"].astype(np.int64),
        total=saved["total"].astype(np.float64),
        square=saved["square"].astype(np.float64),
        draws=int(saved["draws"]),
    )
