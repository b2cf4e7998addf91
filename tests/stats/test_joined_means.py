"""Means joined with guesses: against full matrices, at their limits, and with guesses that fail."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import joined_means

from headlab.core import Floats
from headlab.stats import join_means

HEADS = 144


class MadeUpMeans(NamedTuple):
    """Arguments of `join_means` but the guesses, and the true means."""

    truth: Floats
    means: Floats
    variances: Floats
    squares: Floats


def made_up_means(rng: np.random.Generator, draws: int) -> MadeUpMeans:
    """Means of gains of -1, 0 and 1 of heads that share their coalitions.

    As of e5-small: few heads matter, the mean square of a gain is about 0.02, and errors of two
    heads are correlated by 0.07.
    """
    truth = 0.005 * rng.standard_t(2.5, HEADS).clip(-20, 20)
    squares = 1.5 * np.abs(truth) + 0.012 * np.exp(0.6 * rng.normal(size=HEADS))
    variances = (squares - truth**2) / draws
    noise = np.sqrt(0.93) * rng.normal(size=HEADS) + np.sqrt(0.07) * rng.normal()
    return MadeUpMeans(truth, truth + np.sqrt(variances) * noise, variances, squares)


def good_guesses(rng: np.random.Generator, truth: Floats, squares: Floats) -> Floats:
    """Guesses that are off by a seventh of their size."""
    size = np.sqrt((truth**2).mean())
    return truth + 0.14 * size * np.sqrt(squares / squares.mean()) * rng.normal(size=HEADS)


def error(values: Floats, truth: Floats) -> float:
    return float(np.sqrt(((values - truth) ** 2).mean()))


@pytest.mark.parametrize("draws", [16, 512, 20_000])
@pytest.mark.parametrize("deviation_of_slope", [0.0, 0.3])
def test_it_is_the_conditional_mean_of_full_matrices(draws: int, deviation_of_slope: float) -> None:
    rng = np.random.default_rng(draws)
    made_up = made_up_means(rng, draws)
    some = slice(0, 20)
    guesses = good_guesses(rng, made_up.truth, made_up.squares)[some]
    guess_variances = np.full(20, 1e-6) * rng.uniform(0.5, 2, 20)
    arguments = (made_up.means[some], made_up.variances[some], guesses, guess_variances)
    squares = made_up.squares[some]
    joined = join_means(*arguments, squares, deviation_of_slope)
    expected = joined_means(*arguments, squares, deviation_of_slope)
    assert joined.values == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert ((joined.guess_shares >= 0) & (joined.guess_shares <= 1)).all()


def test_without_samples_it_is_the_guess_and_with_all_samples_their_mean() -> None:
    rng = np.random.default_rng(0)
    made_up = made_up_means(rng, 512)
    guesses = good_guesses(rng, made_up.truth, made_up.squares)
    arguments = (guesses, np.full(HEADS, 1e-6), made_up.squares)
    alone = join_means(np.zeros(HEADS), np.full(HEADS, np.inf), *arguments)
    assert alone.values == pytest.approx(guesses)
    assert alone.guess_shares == pytest.approx(1)
    certain = join_means(made_up.means, np.full(HEADS, 1e-15), *arguments)
    assert certain.values == pytest.approx(made_up.means, abs=1e-8)
    assert certain.guess_shares.max() < 1e-6


def test_a_head_without_samples_follows_the_guess_by_the_slope_of_the_others() -> None:
    rng = np.random.default_rng(1)
    made_up = made_up_means(rng, 100_000)
    variances = made_up.variances.copy()
    variances[7] = np.inf
    means = made_up.means.copy()
    means[7] = 0.0  # of no sample
    half = made_up.truth / 2
    joined = join_means(means, variances, half, np.full(HEADS, 1e-8), made_up.squares)
    assert joined.values[7] == pytest.approx(made_up.truth[7], rel=0.1)
    assert joined.guess_shares[7] == pytest.approx(1)


@pytest.mark.parametrize("draws", [64, 256, 1024, 4096])
def test_a_good_guess_helps_and_one_that_says_nothing_costs_little(draws: int) -> None:
    """A guess of other heads, of the opposite sign, or the same for all: at most a tenth is lost."""
    squared_errors: dict[str, list[float]] = {}
    for seed in range(40):
        rng = np.random.default_rng([seed, draws])
        made_up = made_up_means(rng, draws)
        good = good_guesses(rng, made_up.truth, made_up.squares)
        guesses_by_kind = {
            "good": good,
            "scrambled": rng.permutation(good),
            "opposite": -good,
            "constant": np.full(HEADS, good.mean()),
        }
        squared_errors.setdefault("samples", []).append(error(made_up.means, made_up.truth) ** 2)
        for kind, guesses in guesses_by_kind.items():
            joined = join_means(
                made_up.means,
                made_up.variances,
                guesses,
                np.full(HEADS, 1e-7),
                made_up.squares,
            )
            squared_errors.setdefault(kind, []).append(error(joined.values, made_up.truth) ** 2)
    errors = {kind: np.sqrt(np.mean(squares)) for kind, squares in squared_errors.items()}
    assert errors["good"] < 0.75 * errors["samples"]
    for kind in ("scrambled", "opposite", "constant"):
        assert errors[kind] < 1.1 * errors["samples"], kind


@settings(max_examples=60)
@given(
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1e-30, 1e-3, 1.0]),
    st.sampled_from([0.0, 1e-30, 1e-3, 1.0]),
    st.sampled_from([0.0, 1.0]),
)
def test_it_is_finite_for_any_numbers(
    heads: int, seed: int, variance: float, guess_variance: float, square: float
) -> None:
    rng = np.random.default_rng(seed)
    means = rng.uniform(-1, 1, heads) * rng.integers(0, 2, heads)
    guesses = rng.uniform(-1, 1, heads) * rng.integers(0, 2, heads)
    variances = np.where(rng.random(heads) < 0.3, np.inf, variance)
    joined = join_means(
        means, variances, guesses, np.full(heads, guess_variance), np.full(heads, square)
    )
    assert np.isfinite(joined.values).all()
    assert ((joined.guess_shares >= 0) & (joined.guess_shares <= 1)).all()
