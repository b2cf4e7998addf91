"""Leave-one-out: intervals of gains that are no whole answers."""

from __future__ import annotations

import numpy as np
import pytest

from headlab.core import Floats
from headlab.methods.leave_one_out import intervals_of_means

RUNS = 400
EXAMPLES = 64


def mostly_small(dice: np.random.Generator) -> Floats:
    """Gains of which one in ten is ten times as large, as those of a log-probability are."""
    sizes = np.where(dice.random((RUNS, EXAMPLES)) < 0.1, 1.0, 0.1)
    return dice.normal(0.3, 1.0, (RUNS, EXAMPLES)) * sizes


def alike(dice: np.random.Generator) -> Floats:
    return dice.normal(0.02, 0.05, (RUNS, EXAMPLES))


@pytest.mark.parametrize(
    ("draw", "truth"), [(alike, 0.02), (mostly_small, 0.3 * (0.1 * 1.0 + 0.9 * 0.1))]
)
@pytest.mark.parametrize("answers", [1, 5])
def test_intervals_of_gains_in_nats_cover(draw, truth: float, answers: int):
    gains = draw(np.random.default_rng(3))
    groups = tuple(str(example) for example in range(EXAMPLES))
    counts = np.full(EXAMPLES, answers)
    low, high, _ = intervals_of_means(
        gains, groups, counts, np.random.default_rng(4), whole_answers=False, level=0.95
    )
    covered = np.mean((low <= truth) & (truth <= high))
    assert covered >= 0.9


def test_the_unit_of_gains_does_not_matter():
    gains = mostly_small(np.random.default_rng(5))[:7]
    groups = tuple(str(example // 2) for example in range(EXAMPLES))
    counts = np.full(EXAMPLES, 1)

    def intervals(factor: float):
        dice = np.random.default_rng(6)
        return intervals_of_means(
            gains * factor, groups, counts, dice, whole_answers=False, level=0.95
        )

    small, large = intervals(1.0), intervals(1000.0)
    np.testing.assert_allclose(large.low, 1000 * small.low, rtol=1e-6)
    np.testing.assert_allclose(large.high, 1000 * small.high, rtol=1e-6)
    np.testing.assert_array_equal(large.p, small.p)


def test_gains_of_nothing_have_an_interval_around_nothing():
    groups = tuple(str(example) for example in range(EXAMPLES))
    low, high, p = intervals_of_means(
        np.zeros((1, EXAMPLES)),
        groups,
        np.full(EXAMPLES, 1),
        np.random.default_rng(7),
        whole_answers=False,
        level=0.95,
    )
    assert low[0] < 0 < high[0]
    assert p[0] == 1
