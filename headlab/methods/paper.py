"""The method of Held & Yang (2023) with their Equation 4, for comparison: its intervals are not anytime-valid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headlab.core import Bools, Floats, Ints, Progress, integer_in, number_in, value_of
from headlab.methods.game import Ask, Game
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.sampling import order
from headlab.methods.tmab import sizes
from headlab.methods.work import Arrays, Outcome, Work, drive
from headlab.stats import bernstein_width

RANGE = 1.0
# Examples per batch of walks.
PART = 64


@dataclass(frozen=True)
class Moments:
    """A snapshot: sums over the orders in which a head was measured.

    count: int [head].  total, square: float [head], sums of gains and of their squares, as shares of the
    span.  draws: orders so far.  delta: of Equation 4.
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
        variance = np.maximum(self.square / np.maximum(self.count, 1) - self.mean**2, 0)
        return bernstein_width(variance, self.count, self.delta, RANGE)

    @property
    def active(self) -> Bools:
        """Heads whose interval still contains 0, bool [head]."""
        return np.asarray(np.abs(self.mean) <= self.width)

    @property
    def finished(self) -> bool:
        """Whether all signs are decided, or all orders drawn."""
        return self.draws >= self.samples or not self.active.any()

    def outcome(self) -> Outcome:
        """Values and Equation 4's intervals, clipped to the possible range."""
        low, high = np.maximum(self.mean - self.width, -1), np.minimum(self.mean + self.width, 1)
        span = self.span
        return Outcome(self.mean * span, low * span, high * span, self.count, None, 1 - self.delta)

    def progress(self) -> Progress:
        """Orders drawn, out of at most `samples`; the run may end earlier."""
        decided = int((~self.active).sum())
        return Progress(
            self.draws,
            self.samples,
            f"orders at most; {decided} of {len(self.count)} signs decided",
        )


def estimate(game: Game, start: Moments, *, seed: int, estimand: str) -> Iterator[Moments]:
    """Snapshots after each order, until every sign is decided or `samples` orders are drawn.

    Each order is walked with all examples, until half the heads are removed (`shapley-top50`) or to the end;
    a head's gain is its mean over the examples. Heads whose interval excludes 0 are no longer measured.
    """
    now = start
    parts = np.array_split(
        np.argsort(game.lengths, kind="stable"), range(PART, game.examples, PART)
    )
    steps = sizes(estimand, game.players)
    while not now.finished:
        line = order(seed, now.draws, game.players)[:steps]
        active = now.active
        gains = np.zeros(game.players)
        walked = np.empty((game.examples, len(line)))
        asks = (
            Ask(
                "gains",
                {"orders": np.tile(line, (len(part), 1)), "examples": part, "wanted": active},
            )
            for part in parts
        )
        for part, found in zip(parts, game.answers(asks), strict=True):
            walked[part] = found
        gains[line] = np.average(walked, axis=0, weights=game.weights)
        turn = np.isin(np.arange(game.players), line) & active
        gains = np.where(turn, gains, 0)
        now = Moments(
            now.count + turn,
            now.total + gains,
            now.square + gains**2,
            now.draws + 1,
            now.samples,
            now.delta,
            now.span,
        )
        yield now


def run(work: Work) -> Outcome:
    """Sample until every sign is decided, or for `samples` orders."""
    game = game_of(work)
    start = restore(work.saved or {}, work.options, game.players)
    return drive(
        work, start, estimate(game, start, seed=work.seed, estimand=str(work.options["estimand"]))
    )


def restore(saved: Arrays, options: Options, players: int) -> Moments:
    """The snapshot stored in a checkpoint; an empty one if it does not fit."""
    samples, delta = integer_in(options, "samples"), float(number_in(options, "delta"))
    span = value_of(str(options["value"])).span
    if {"count", "total", "square", "draws"} <= set(saved) and saved["count"].shape == (players,):
        count = saved["count"].astype(np.int64)
        total, square = saved["total"].astype(np.float64), saved["square"].astype(np.float64)
        return Moments(count, total, square, int(saved["draws"]), samples, delta, span)
    return Moments(
        np.zeros(players, np.int64), np.zeros(players), np.zeros(players), 0, samples, delta, span
    )
