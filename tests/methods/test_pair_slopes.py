"""Interactions of all pairs by slopes, which are measured and not offered: right by enumeration."""

from __future__ import annotations

from itertools import product
from math import comb, lcm
from typing import Any

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose
from support.table_game import majority, smooth

from benchmarks.pair_slopes import pairs_by_presence

PLAYERS = 5


def every_coalition() -> np.ndarray:
    """All coalitions, as often as coalitions of all sizes are drawn, bool [draw, player].

    Each number of players is as frequent as every other, and so is each coalition of one number.
    """
    often = lcm(*(comb(PLAYERS, size) for size in range(PLAYERS + 1)))
    rows: list[tuple[bool, ...]] = []
    for kept in product([False, True], repeat=PLAYERS):
        rows += [kept] * (often // comb(PLAYERS, sum(kept)))
    return np.array(rows)


def gains_at(value: Any, kept: np.ndarray) -> np.ndarray:
    """Each player's gain at the coalition of the others in each row, [row, player]."""
    gains = np.zeros(kept.shape)
    for row, coalition in enumerate(kept):
        present = frozenset(np.flatnonzero(coalition).tolist())
        for player in range(kept.shape[1]):
            gains[row, player] = value(present | {player}) - value(present - {player})
    return gains


@pytest.mark.parametrize("value", [majority, smooth])
@pytest.mark.parametrize("example", [0, 3])
def test_with_true_gains_the_mean_over_the_draws_is_the_index(value: Any, example: int) -> None:
    def value_of(present: frozenset[int]) -> float:
        return float(value(example, present))

    kept = every_coalition()
    estimates = pairs_by_presence(kept, gains_at(value_of, kept))
    for first in range(PLAYERS):
        for second in range(first):
            index = reference.interaction_index(value_of, PLAYERS, first, second)
            assert estimates.means[first, second] == pytest.approx(index, abs=1e-12)
            assert estimates.means[second, first] == pytest.approx(index, abs=1e-12)


def test_a_gain_that_nobody_changes_is_no_interaction() -> None:
    kept = every_coalition()
    own = np.arange(PLAYERS) / 8
    means = pairs_by_presence(kept, np.broadcast_to(own, kept.shape)).means
    assert_allclose(means, 0, atol=1e-12)


def test_means_and_errors_are_those_of_one_draw_after_the_other(rng: np.random.Generator) -> None:
    kept = rng.random((40, PLAYERS)) < rng.random((40, 1))
    kept[:2] = [[False] * PLAYERS, [True] * PLAYERS]
    gains = rng.normal(size=kept.shape)
    estimates = pairs_by_presence(kept, gains)
    for first in range(PLAYERS):
        for second in range(first):
            samples = [
                reference.interaction_by_presence(coalition, gain, first, second)
                for coalition, gain in zip(kept.tolist(), gains.tolist(), strict=True)
            ]
            assert estimates.means[first, second] == pytest.approx(np.mean(samples))
            variance = np.var(samples) / (len(samples) - 1)
            assert estimates.variances[first, second] == pytest.approx(variance)
