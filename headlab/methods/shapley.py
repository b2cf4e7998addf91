"""Shapley values of heads from sampled orders: one order and one example a sample (Held & Yang 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headlab.errors import HeadlabError
from headlab.methods.game import Gains, Game, ModelGame
from headlab.methods.work import Outcome, Progress, Work, reporting
from headlab.records import Floats, Ints
from headlab.stats import betting_interval, betting_p, sample_mean

TOP50 = "shapley-top50"
FULL = "shapley"
# A pair's two gains are averaged for the full estimand; each head has one gain a pair in the top half.
SUPPORT = {TOP50: np.array([-1.0, 0.0, 1.0]), FULL: np.array([-1.0, -0.5, 0.0, 0.5, 1.0])}


@dataclass(frozen=True)
class Tally:
    """All that an estimate is made of: how often each head gained each value.

    counts: int [value, head], values as in SUPPORT[estimand].  pairs: antithetic pairs of walks so far.
    """

    estimand: str
    counts: Ints
    pairs: int

    @property
    def mean(self) -> Floats:
        """Mean gain of each head: accuracy lost when it goes."""
        return sample_mean(SUPPORT[self.estimand], self.counts)

    def outcome(self, level: float) -> Outcome:
        """Values, anytime-valid intervals and p-values."""
        support = SUPPORT[self.estimand]
        low, high = betting_interval(support, self.counts, level)
        return Outcome(self.mean, low, high, self.counts.sum(axis=0), betting_p(support, self.counts), level)


def estimate(
    game: Game, *, seed: int, estimand: str = TOP50, pairs_per_round: int = 64, start: Tally | None = None
) -> Iterator[Tally]:
    """Tallies that grow by a round of walks each, without end; whoever runs it decides when to stop.

    A sample is one example and an antithetic pair of orders (an order and its reverse). `shapley-top50`
    walks each until half the heads are gone, so that a pair gives every head one gain; `shapley` walks
    to the end and averages the pair (Castro et al. 2009). Examples come in balanced
    cycles. Every pair's randomness comes from (seed, pair), so that a run started from a saved tally
    equals an uninterrupted one.
    """
    if estimand not in SUPPORT:
        raise HeadlabError(f"unknown estimand {estimand!r}; use {' or '.join(SUPPORT)}")
    tally = start or Tally(estimand, np.zeros((len(SUPPORT[estimand]), game.players), dtype=np.int64), 0)
    while True:
        pairs = range(tally.pairs, tally.pairs + pairs_per_round)
        orders = np.stack([_order(seed, pair, game.players) for pair in pairs])
        examples = np.array([_example(seed, pair, game.examples) for pair in pairs])
        tally = Tally(estimand, tally.counts + _round(game, estimand, orders, examples), pairs.stop)
        yield tally


def _order(seed: int, pair: int, players: int) -> Ints:
    return np.random.default_rng([seed, 1, pair]).permutation(players)


def _example(seed: int, pair: int, examples: int) -> int:
    """Balanced cycling: every cycle is a fresh random order of all examples."""
    cycle, place = divmod(pair, examples)
    return int(np.random.default_rng([seed, 2, cycle]).permutation(examples)[place])


def _round(game: Game, estimand: str, orders: Ints, examples: Ints) -> Ints:
    """Counts [value, head] of one round of pairs."""
    players = game.players
    both = np.concatenate([orders, orders[:, ::-1]])
    steps = walk_length(estimand, players)
    gains = game.gains(both[:, :steps], np.concatenate([examples, examples]))
    by_head = np.zeros((len(both), players), dtype=np.int8)
    np.put_along_axis(by_head, both[:, :steps], gains, axis=1)
    if estimand == TOP50 and players % 2:
        by_head[len(orders) :][np.arange(len(orders)), orders[:, steps - 1]] = 0  # the middle head counts once
    return _count(by_head[: len(orders)] + by_head[len(orders) :], len(SUPPORT[estimand]))


def walk_length(estimand: str, players: int) -> int:
    """Heads removed in one walk."""
    return players if estimand == FULL else (players + 1) // 2


def _count(sums: Gains, values: int) -> Ints:
    """How often each sum of a pair's gains came, [value, head]; the middle value is 0."""
    return np.stack([(sums == value - values // 2).sum(axis=0) for value in range(values)]).astype(np.int64)


def decided(outcome: Outcome, target: float) -> bool:
    """Whether every head has a decided sign or an interval as narrow as asked."""
    assert outcome.low is not None
    assert outcome.high is not None
    sign = (outcome.low > 0) | (outcome.high < 0)
    return bool((sign | ((outcome.high - outcome.low) / 2 <= target)).all())


def run(work: Work) -> Outcome:
    """Sample until `samples` gains a head, or until all heads are decided to within `target`.

    The stopping rule looks at whole cycles only, where the intervals are exactly anytime-valid.
    """
    options, game = work.options, ModelGame(work.evaluator, work.ablation)
    samples, target, level = int(options["samples"]), options["target"], float(options["level"])
    tally = _restore(work, game)
    with reporting(work, 2 * (walk_length(options["estimand"], game.players) + 1), samples, "samples a head"):
        while tally is None or not _finished(tally, game, samples, target, level):
            done = tally.pairs if tally else 0
            size = min(int(options["round"]), samples - done, game.examples - done % game.examples)
            tally = next(
                estimate(game, seed=work.seed, estimand=options["estimand"], pairs_per_round=size, start=tally)
            )
            forwards = np.array(work.evaluator.forwards)
            work.save({"counts": tally.counts, "pairs": np.array(tally.pairs), "forwards": forwards})
    work.report(Progress(tally.pairs, tally.pairs, "samples a head"))
    return tally.outcome(level)


def _finished(tally: Tally, game: Game, samples: int, target: float | None, level: float) -> bool:
    if tally.pairs >= samples:
        return True
    whole = tally.pairs % game.examples == 0
    return target is not None and whole and decided(tally.outcome(level), target)


def _restore(work: Work, game: Game) -> Tally | None:
    if work.saved is None:
        return None
    estimand, counts = work.options["estimand"], work.saved.get("counts")
    if counts is None or counts.shape != (len(SUPPORT[estimand]), game.players) or "pairs" not in work.saved:
        return None
    work.evaluator.forwards = int(work.saved.get("forwards", 0))
    return Tally(estimand, counts.astype(np.int64), int(work.saved["pairs"]))
