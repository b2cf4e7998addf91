"""Intervals that hold on average over many heads: against a linear program, and how many miss."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose

from headlab.core import Floats
from headlab.stats import average_half_widths, join_means, reach_of
from headlab.stats.average import upper_end

LEVEL = 0.95
HEADS = 144
RUNS = 60


@pytest.mark.parametrize("mean_square", [0.0, 0.02, 0.3, 1.0, 4.0, 30.0])
def test_the_worst_distribution_of_biases_just_misses_as_often_as_it_may(
    mean_square: float,
) -> None:
    reach = float(reach_of(np.array([mean_square]), LEVEL)[0])
    chance = reference.largest_chance_to_miss(reach, mean_square)
    assert chance == pytest.approx(1 - LEVEL, rel=0.02)


def test_without_bias_it_is_the_usual_reach_and_it_grows_with_the_bias() -> None:
    reaches = reach_of(np.array([0.0, 1e-5, 0.1, 1.0, 10.0, 1e4, 1e6]), LEVEL)
    assert reaches[0] == pytest.approx(1.96, abs=0.01)
    assert (np.diff(reaches) >= 0).all()
    assert reaches[-1] == pytest.approx(10 * reaches[-2])


def offsets(shape: str, rng: np.random.Generator) -> Floats:
    """Distances of the true means from the guesses, of mean square 1."""
    if shape == "normal":
        return rng.normal(size=HEADS)
    if shape == "few large":
        return rng.normal(size=HEADS) * (rng.random(HEADS) < 0.1) / np.sqrt(0.1)
    return rng.exponential(size=HEADS) - 1


@pytest.mark.parametrize("size", [0.0005, 0.002, 0.01])
@pytest.mark.parametrize("shape", ["normal", "few large", "skewed"])
@pytest.mark.parametrize("samples", [300, 2000])
def test_most_true_values_lie_within_whatever_the_guess_is_wrong_by(
    shape: str, samples: int, size: float
) -> None:
    """Gains of -1, 0 and 1, whose rates differ from head to head; guesses off by `size`."""
    covered = []
    half_widths = []
    raw_half_widths = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        guesses = rng.normal(0, 0.008, HEADS) * (1 + 3 * (rng.random(HEADS) < 0.1))
        truth = guesses + size * offsets(shape, rng)
        rates = np.maximum(rng.uniform(0.002, 0.04, HEADS), 1.1 * np.abs(truth))
        ups = rng.binomial(samples, (rates + truth) / 2)
        downs = rng.binomial(samples, (rates - truth) / 2)
        means = (ups - downs) / samples
        variances = rates / samples + 1 / samples**2
        guess_variances = np.full(HEADS, 0.002 / 1024)
        noisy_guesses = guesses + rng.normal(0, np.sqrt(guess_variances))
        joined = join_means(means, variances, noisy_guesses, guess_variances, rates)
        widths = average_half_widths(
            joined.values,
            means,
            variances,
            joined.guess_shares,
            guess_variances,
            rates,
            LEVEL,
        )
        covered.append((np.abs(joined.values - truth) <= widths).mean())
        half_widths.append(widths.mean())
        raw_half_widths.append(1.96 * np.sqrt(variances).mean())
    assert np.mean(covered) >= LEVEL - 0.005
    assert np.mean(half_widths) <= 1.1 * np.mean(raw_half_widths)


def test_values_that_are_means_of_samples_have_the_usual_width() -> None:
    means = np.array([0.01, -0.02, 0.0])
    variances = np.array([1e-4, 4e-4, 1e-6])
    nothing = np.zeros(3)
    widths = average_half_widths(means, means, variances, nothing, nothing, variances, LEVEL)
    assert_allclose(widths, 1.96 * np.sqrt(variances), rtol=1e-2)


def test_heads_without_samples_have_no_width() -> None:
    values = np.array([0.01, 0.02])
    none = np.full(2, np.inf)
    guess_shares = np.ones(2)
    variances = np.array([1e-6, 1e-6])
    widths = average_half_widths(values, values, none, guess_shares, variances, variances, LEVEL)
    assert np.isinf(widths).all()
    some = np.array([1e-4, np.inf])
    shares = np.array([0.5, 1.0])
    widths = average_half_widths(values, values, some, shares, variances, variances, LEVEL)
    assert np.isfinite(widths).tolist() == [True, False]


@pytest.mark.parametrize("distance", [-6.0, -2.0, 0.0, 3.0])
def test_the_upper_end_leaves_out_one_in_twenty_of_what_is_not_below_0(distance: float) -> None:
    draws = np.random.default_rng(0).normal(distance, 1, 4_000_000)
    draws = draws[draws > 0] if distance > -4 else np.empty(0)
    end = upper_end(2 * distance, 2.0) / 2
    assert end > max(distance, 0)
    if len(draws):
        assert (draws > end).mean() == pytest.approx(0.05, abs=0.002)
    else:
        assert end == pytest.approx(np.log(20) / 6, rel=0.1)  # nearly exponential there
    assert upper_end(0.3, 0.0) == 0.3
