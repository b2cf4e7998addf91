"""The first version of `shapley`, which computes every gain: what screened branching is measured against."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headlab.core import Bools
from headlab.methods.game import Game, Query
from headlab.methods.sampling import (
    SamplingPlan,
    Tally,
    cycled_example,
    even_support,
    level_indices_of,
    random_order,
)
from headlab.methods.tmab import ALL_SIZES, TOP50


def estimate(
    game: Game, plan: SamplingPlan, *, seed: int, estimand: str = TOP50, saved: Tally | None = None
) -> Iterator[Tally]:
    """Tallies that grow by a round each, as `headlab.methods.tmab.estimate`.

    A draw cuts a random order in half and takes a random number of heads of one half away: every head of the other
    half shows its gain; then the halves change places. `shapley` does the same from the other end (few heads there,
    each added) on another example, and a sample is the mean of the two.
    """
    ends = 2 if estimand == ALL_SIZES else 1
    tally = saved or Tally.start(game.players, even_support(ends * game.steps), plan)
    while not tally.finished:
        end = tally.draws + min(
            plan.samples - tally.draws, game.examples - tally.draws % game.examples
        )
        parts = [range(at, min(at + game.round, end)) for at in range(tally.draws, end, game.round)]
        found = game.answers(_ask(game, numbers, tally.active, seed, estimand) for numbers in parts)
        for numbers, gains in zip(parts, found, strict=True):
            gains = gains.reshape(len(numbers), -1, game.players)
            rounded = [
                level_indices_of(g, even_support(game.steps), seed, n) - game.steps
                for g, n in zip(gains, numbers, strict=True)
            ]
            places = np.stack([levels.sum(axis=0) for levels in rounded]) + ends * game.steps
            tally = tally.add(places, tally.active, len(numbers), np.zeros(len(numbers), bool))
            if tally.draws % game.examples == 0:
                tally = tally.looked_at()
            yield tally


def _ask(game: Game, numbers: range, active: Bools, seed: int, estimand: str) -> Query:
    drawn = [coalitions(seed, number, game.players, estimand) for number in numbers]
    kept, wanted = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
    ends = range(len(kept) // len(numbers) // 2)  # each end of the order has an example of its own
    examples = np.array(
        [cycled_example(seed, n, game.examples, game.weights, end) for n in numbers for end in ends]
    )
    return Query(
        "marginals", {"kept": kept, "wanted": wanted & active, "examples": np.repeat(examples, 2)}
    )


def coalitions(seed: int, number: int, players: int, estimand: str) -> tuple[Bools, Bools]:
    """Coalitions of a draw and the heads that each measures, both bool [coalition, player]."""
    line = random_order(seed, number, players)
    half = players // 2
    fronts = (line, line[::-1])  # heads leave from the front; those of the back half are measured
    measured = np.zeros((2, players), bool)
    measured[0, line[half:]] = measured[1, line[:half]] = True
    full = estimand == ALL_SIZES
    high = players if full else (players + 1) // 2
    drawn = np.random.default_rng([seed, 5, number]).integers(high, size=4 if full else 2)
    if full:  # how many are gone, or there, counted from the nearer end
        drawn = np.minimum(drawn, players - 1 - drawn)
    kept = np.ones((len(drawn), players), bool)
    for row, cut in enumerate(drawn):
        kept[row, fronts[row % 2][:cut]] = False
    kept[2:] = ~kept[2:]
    return kept, np.tile(measured, (len(drawn) // 2, 1))
