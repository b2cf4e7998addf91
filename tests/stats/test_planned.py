"""Wald intervals at planned looks: against a second derivation, and how often they miss."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose

from benchmarks.planned import CYCLE, TARGET, MadeUpGains, play
from benchmarks.planned_tails import FAMILIES, counts_of
from benchmarks.planned_tails import play as tails
from headlab.methods.planned_looks import PlannedLooks
from headlab.methods.sampling import level_indices_of, weighted_support
from headlab.stats import (
    PLANNED_LOOKS,
    critical_values,
    largest_gain,
    made_up_gains,
    planned_interval,
    planned_p,
    share_by,
)

SUPPORT = np.array([-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0])
LEVEL = 0.95
HEADS = 3000


@pytest.mark.parametrize("gain", [1.0, 0.2])
@pytest.mark.parametrize("share", [1.0, 0.8, 0.03])
def test_an_interval_is_that_of_its_samples_and_of_made_up_gains(share: float, gain: float) -> None:
    rng = np.random.default_rng(3)
    counts = rng.multinomial(600, [0.01, 0.0, 0.02, 0.05, 0.84, 0.05, 0.02, 0.01, 0.0], size=4).T
    shares = np.full(4, share)
    low, high = planned_interval(SUPPORT, counts, shares, LEVEL, np.full(4, gain))
    p_values = planned_p(SUPPORT, counts, shares, np.full(4, gain))
    for head in range(4):
        samples = np.repeat(SUPPORT, counts[:, head]).tolist()
        expected = reference.planned_interval_of(samples, share, LEVEL, gain)
        assert_allclose((low[head], high[head], p_values[head]), expected, rtol=1e-9)


def test_p_is_small_just_where_the_interval_leaves_out_0() -> None:
    rng = np.random.default_rng(4)
    counts = rng.multinomial(400, [0, 0, 0, 0.03, 0.92, 0.05, 0, 0, 0], size=500).T
    shares = rng.uniform(0.001, 1, 500)
    low, high = planned_interval(SUPPORT, counts, shares, LEVEL, np.ones(500))
    leaves_out_0 = (low > 0) | (high < 0)
    assert 0 < leaves_out_0.sum() < 500
    assert (leaves_out_0 == (planned_p(SUPPORT, counts, shares, np.ones(500)) < 1 - LEVEL)).all()


def test_the_shares_of_all_looks_are_the_whole_and_the_last_has_nearly_all_of_it() -> None:
    shares = np.diff(share_by(np.arange(PLANNED_LOOKS + 1) / PLANNED_LOOKS))
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).all()
    assert_allclose(critical_values(shares, LEVEL)[-1], 2.04, atol=0.01)
    assert critical_values(np.array([0.0]), LEVEL)[0] > 6


def test_without_samples_nothing_is_known() -> None:
    counts = np.zeros((len(SUPPORT), 2), np.int64)
    low, high = planned_interval(SUPPORT, counts, np.ones(2), LEVEL, np.ones(2))
    assert low.tolist() == [-1, -1]
    assert high.tolist() == [1, 1]
    assert planned_p(SUPPORT, counts, np.ones(2), np.ones(2)).tolist() == [1, 1]
    assert largest_gain(SUPPORT, counts) == 1


def test_a_made_up_gain_is_as_large_as_the_largest_that_came_and_1_at_most() -> None:
    support = np.array([-8.0, -0.1, 0.0, 0.1, 8.0])
    assert largest_gain(support, np.array([[0], [5], [90], [5], [0]])) == pytest.approx(0.1)
    assert largest_gain(support, np.array([[0], [0], [90], [0], [1]])) == 1


FINE_SUPPORT = weighted_support(4096, 1)


def test_made_up_gains_of_probabilities_are_of_the_size_of_rare_ones() -> None:
    rng = np.random.default_rng(6)
    scales = np.geomspace(0.001, 0.05, 7)
    level_indices = level_indices_of(scales * rng.standard_t(3, size=(40, 7)), FINE_SUPPORT, 1, 0)
    counts = np.zeros((len(FINE_SUPPORT), 7), np.int64)
    for head in range(7):
        np.add.at(counts[:, head], level_indices[:, head], 1)
    expected = reference.made_up_gains_of(FINE_SUPPORT[level_indices].T.tolist())
    assert_allclose(made_up_gains(FINE_SUPPORT, counts), expected, rtol=1e-9)


def test_made_up_gains_of_answers_that_turn_are_as_large_as_the_largest() -> None:
    support = np.array([-1.0, -1 / 64, 0.0, 1 / 64, 1.0])
    counts = np.array([[0, 0], [3, 5], [10, 9], [3, 2], [0, 0]])
    assert made_up_gains(support, counts).tolist() == [1 / 64, 1 / 64]
    assert made_up_gains(np.array([-1.0, 0, 1]), np.array([[0], [9], [0]])).tolist() == [1]


def test_a_head_without_gains_has_made_up_ones_all_the_same() -> None:
    counts = np.zeros((len(FINE_SUPPORT), 3), np.int64)
    middle = len(FINE_SUPPORT) // 2
    counts[middle] = 50
    assert made_up_gains(FINE_SUPPORT, counts).tolist() == [1, 1, 1]
    counts[middle, :2] = 40
    counts[middle + 5, :2] = 10
    gains = made_up_gains(FINE_SUPPORT, counts)
    assert gains[2] == gains[0] > 0
    assert (made_up_gains(FINE_SUPPORT, np.zeros_like(counts)) == 1).all()


@pytest.mark.parametrize("name", ["normal", "heavy tails", "one heavy tail", "rare large ones"])
def test_heads_whose_tails_are_alike_miss_no_more_often_than_may(name: str) -> None:
    figures = tails(FAMILIES[name], np.zeros(270), samples=128, runs=20)
    assert figures["missed"] <= 0.05
    assert figures["wrong_holm"] <= 0.5


def test_a_larger_made_up_gain_than_needed_would_decide_nothing() -> None:
    """The largest gain of all heads leaves those of small gains undecided whatever their means."""
    rng = np.random.default_rng(8)
    scales = np.geomspace(0.001, 0.05, 270)
    counts = counts_of(scales * (1 + rng.standard_t(3, size=(128, 270))), 0)
    one = np.ones(270)
    pooled = np.full(270, largest_gain(FINE_SUPPORT, counts))
    p_of_pooled = planned_p(FINE_SUPPORT, counts, one, pooled)
    p_values = planned_p(FINE_SUPPORT, counts, one, made_up_gains(FINE_SUPPORT, counts))
    assert (p_values < 0.05).mean() > 0.9
    assert (p_of_pooled < 0.05).mean() < 0.7


def test_rare_gains_of_other_heads_keep_intervals_wide_where_gains_are_mostly_small() -> None:
    """Of 144 heads, 6 in 10 gains are 1/64 in size and one in 500 is 1: all of one sign."""
    rng = np.random.default_rng(5)
    support = np.array([-1.0, -1 / 64, 0.0, 1 / 64, 1.0])
    misses = 0
    for _ in range(40):
        counts = rng.multinomial(CYCLE, [0, 0.3, 0.398, 0.3, 0.002], size=144).T
        gains = np.full(144, largest_gain(support, counts))
        low, high = planned_interval(support, counts, np.ones(144), LEVEL, gains)
        misses += int(((low > 0.002) | (high < 0.002)).sum())
    assert misses <= 0.05 * 40 * 144


@pytest.mark.parametrize("rule", ["width", "sign"])
@pytest.mark.parametrize("lean", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("rate", [0.005, 0.02, 0.1, 0.9, 0.99])
def test_no_more_heads_miss_than_may(rate: float, lean: float, rule: str) -> None:
    """Three in a hundred gains are seen with one chance in eight, and weigh eight."""
    rng = np.random.default_rng(round(1000 * rate + 10 * lean))
    gains = MadeUpGains(rate, lean, weight=8, weighted=0.03)
    stops = play(gains, rule, HEADS, rng)
    assert stops.misses.mean() <= 0.05 + 3 * (0.05 * 0.95 / HEADS) ** 0.5
    assert (stops.looks <= PLANNED_LOOKS).all()
    variance = 1.21 * rate - gains.mean**2
    samples_expected = 1.5 * variance * (2.04 / TARGET) ** 2
    assert stops.samples.mean() < max(2 * CYCLE, samples_expected)


def test_looks_are_restored_from_their_arrays_only() -> None:
    looks = PlannedLooks.start(3).with_looks(
        np.array([50, 90, 10]), np.array([100.0, 80.0, 100.0]), np.array([True, True, False]), 0.5
    )
    assert looks.is_last.tolist() == [False, True, False]
    assert looks.gain.tolist() == [0.5, 0.5, 1.0]
    restored = PlannedLooks.restore(looks.arrays(), 3)
    assert restored is not None
    for name, array in looks.arrays().items():
        assert_allclose(restored.arrays()[name], array)
    assert PlannedLooks.restore(looks.arrays(), 4) is None
    assert PlannedLooks.restore({}, 3) is None
