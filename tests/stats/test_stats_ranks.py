"""Rank agreement: second derivations, known answers and coverage."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose

from headlab import stats
from headlab.core import Floats
from headlab.stats import LOWEST_CEILING, bca_interval, resample_counts


def in_ranks(correlation: float) -> float:
    """Spearman's rho of two normal variables of this correlation (Pearson 1907)."""
    return float(6 / np.pi * np.arcsin(correlation / 2))


def normal_pair(correlation: float, items: int, rng: np.random.Generator) -> Floats:
    """Two normal variables of this correlation, float [2, item]."""
    first_values, noise = rng.normal(size=(2, items))
    second_values = correlation * first_values + np.sqrt(1 - correlation**2) * noise
    return np.stack([first_values, second_values])


def noisy_measurement(
    true_values: Floats, noise: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Values that are the mean of two halves, and these halves, float [row, half, item].

    Args:
        true_values: What is measured, float [row, item].
        noise: The standard deviation of the independent noise in each half.
        rng: Draws the noise.
    """
    rows, items = true_values.shape
    halves = true_values[:, None] + noise * rng.normal(size=(rows, 2, items))
    return halves.mean(axis=1), halves


def test_correlations_under_counts_equal_those_of_repeated_items(rng: np.random.Generator) -> None:
    distinct_values = rng.normal(size=30)
    four_values = rng.integers(0, 4, 30)
    two_values = rng.integers(0, 2, 30)
    values = np.stack([distinct_values, four_values, two_values])
    counts = resample_counts(30, rng, 20)
    correlations = stats.spearman_of_counts(values, counts)
    for item_counts, rho in zip(counts, correlations, strict=True):
        repeated_values = np.repeat(values, item_counts, axis=1)
        for i, j in np.ndindex(3, 3):
            expected = reference.spearman(repeated_values[i], repeated_values[j])
            assert_allclose(rho[i, j], expected, atol=1e-12)


def test_a_row_that_a_resample_leaves_without_differences_correlates_nothing_there() -> None:
    values = np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 3.0]])
    (rho,) = stats.spearman_of_counts(values, np.array([[1, 2, 0]]))
    assert rho.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_the_corrected_interval_equals_the_textbook_formula(rng: np.random.Generator) -> None:
    values = rng.exponential(size=40)
    resampled_means = rng.choice(values, size=(500, 40)).mean(axis=1)
    means_without_item = np.array([np.delete(values, i).mean() for i in range(40)])
    interval = bca_interval(values.mean(), resampled_means, means_without_item)
    expected = reference.bca(values.mean(), resampled_means, means_without_item)
    assert_allclose([float(bound) for bound in interval], expected, rtol=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95])
def test_the_interval_of_a_rank_correlation_covers(
    correlation: float, rng: np.random.Generator
) -> None:
    """The truth is known from the correlation of two normal variables; there are 96 items."""
    truth = in_ranks(correlation)
    is_covered = []
    for _ in range(120):
        values = normal_pair(correlation, 96, rng)
        _, (low, high) = stats.spearman_interval(values, rng, draws=200)
        is_covered.append(low[0, 1] <= truth <= high[0, 1])
    assert np.mean(is_covered) >= 0.9
    assert low[0, 0] == high[0, 0] == 1


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_the_interval_of_reliability_covers(noise: float, rng: np.random.Generator) -> None:
    """The correlation of two measurements is known, where true values have variance 1."""
    is_covered = []
    truth = in_ranks(1 / (1 + noise**2 / 2))
    for _ in range(120):
        _, halves = noisy_measurement(rng.normal(size=(1, 96)), noise, rng)
        reliability = stats.reliability(halves, rng, draws=200)
        is_covered.append(reliability.low[0] <= truth <= reliability.high[0])
    assert np.mean(is_covered) >= 0.9


def test_reliability_is_the_halves_correlation_stepped_up(rng: np.random.Generator) -> None:
    _, little_noise = noisy_measurement(rng.normal(size=(1, 50)), 0.3, rng)
    _, much_noise = noisy_measurement(rng.normal(size=(1, 50)), 1.0, rng)
    halves = np.concatenate([little_noise, much_noise])
    reliability = stats.reliability(halves, rng, draws=50)
    assert_allclose(reliability.value, [reference.stepped_up(part) for part in halves])
    opposite_halves = np.stack([halves[:1, 0], -halves[:1, 0]], axis=1)
    reliability_of_opposites = stats.reliability(opposite_halves, rng, draws=50)
    assert reliability_of_opposites.value[0] == 0
    assert reliability_of_opposites.low[0] == 0
    ceiling = stats.noise_ceiling(np.array([0.25, 1.0]))
    assert_allclose(ceiling, [[1, 0.5], [0.5, 1]])


def test_correction_finds_the_correlation_that_noise_hides_and_its_intervals_cover(
    rng: np.random.Generator,
) -> None:
    """The true correlation is 0.8; with reliabilities of about 0.65 the raw one is near 0.5."""
    truth = in_ranks(0.8)
    is_covered = {"ceiling": [], "corrected": [], "across": []}
    limits = {"ceiling": in_ranks(1 / 1.5), "corrected": truth, "across": truth}
    for _ in range(60):
        values, halves = noisy_measurement(normal_pair(0.8, 144, rng), 1.0, rng)
        agreement = stats.agreement(values, halves, rng, draws=100)
        assert agreement.noise is not None
        for name, limit in limits.items():
            estimate = getattr(agreement.noise, name)
            low = estimate.low[0, 1]
            high = estimate.high[0, 1]
            is_covered[name].append(low <= limit <= high)
    assert agreement.rho.value[0, 1] < 0.7
    for name, are_covered in is_covered.items():
        assert np.mean(are_covered) >= 0.85, name


def test_noise_that_two_rows_share_is_no_agreement_across_halves(rng: np.random.Generator) -> None:
    true_values = rng.normal(size=(2, 600))
    halves = true_values[:, None] + rng.normal(size=(1, 2, 600))
    noise_estimates = stats.agreement(halves.mean(axis=1), halves, rng, draws=50).noise
    assert noise_estimates is not None
    assert noise_estimates.corrected.value[0, 1] > 0.3
    assert abs(noise_estimates.across.value[0, 1]) < 0.15


def test_halves_without_agreement_leave_the_correction_open(rng: np.random.Generator) -> None:
    values = rng.normal(size=(3, 60))
    halves = rng.normal(size=(3, 2, 60))
    noise_estimates = stats.agreement(values, halves, rng, draws=100).noise
    assert noise_estimates is not None
    is_pair = ~np.eye(3, dtype=bool)
    assert not noise_estimates.clear[is_pair].any()
    assert (noise_estimates.ceiling.low[is_pair] < LOWEST_CEILING).all()
    assert noise_estimates.outlier is None


def test_what_is_not_known_is_not_a_number(rng: np.random.Generator) -> None:
    """Row 1 has no differences, row 2 no halves."""
    values, halves = noisy_measurement(rng.normal(size=(3, 40)), 0.2, rng)
    values[1] = 0.0
    halves[2] = np.nan
    agreement = stats.agreement(values, halves, rng, draws=50)
    is_unknown = np.isnan(agreement.rho.value)
    assert is_unknown.tolist() == np.isnan(agreement.rho.low).tolist()
    assert is_unknown[1].tolist() == [True, False, True]
    assert agreement.outlier is None
    assert agreement.noise is not None
    assert np.isnan(agreement.noise.reliability.value).tolist() == [False, False, True]
    assert not agreement.noise.clear[2, 0]
    assert stats.agreement(values, None, rng, draws=50).noise is None


def test_the_outlier_is_found_with_its_gap(rng: np.random.Generator) -> None:
    """The gap of mean correlations is known: rows 0, 1 and 3 share most of their variance."""
    is_covered = []
    close_correlation = in_ranks(0.8)
    far_correlation = in_ranks(0.2)
    truth = (2 * close_correlation + far_correlation) / 3 - far_correlation
    for _ in range(40):
        shared_values = rng.normal(size=144)
        own_values = rng.normal(size=(4, 144))
        rows = np.sqrt(0.2) * own_values + np.sqrt(0.8) * shared_values
        other_values = rng.normal(size=144)
        rows[2] = np.sqrt(0.05) * shared_values + np.sqrt(0.95) * other_values
        outlier = stats.agreement(rows, None, rng, draws=100).outlier
        assert outlier is not None
        assert outlier.row == 2
        assert outlier.share[2] > 0.9
        assert outlier.share.sum() == pytest.approx(1)
        is_covered.append(outlier.gap.low <= truth <= outlier.gap.high)
    assert np.mean(is_covered) >= 0.85


def test_of_rows_that_are_alike_none_is_certainly_the_outlier(rng: np.random.Generator) -> None:
    is_settled = []
    for _ in range(30):
        shared_values = rng.normal(size=144)
        rows = shared_values + rng.normal(size=(5, 144))
        outlier = stats.agreement(rows, None, rng, draws=100).outlier
        assert outlier is not None
        is_settled.append(outlier.share[outlier.row] > 0.95)
    assert np.mean(is_settled) <= 0.15
    agreement_of_two = stats.agreement(rng.normal(size=(2, 30)), None, rng, draws=50)
    assert agreement_of_two.outlier is None


def test_the_tree_equals_average_linkage_by_hand(rng: np.random.Generator) -> None:
    own_values = rng.normal(size=(7, 25))
    rho = stats.spearman(own_values + rng.normal(size=25))
    tree = stats.cluster_tree(rho)
    expected = reference.average_linkage(1 - rho)
    assert stats.clusters_of_tree(tree) == [members for members, _ in expected]
    assert_allclose(tree[:, 2], [height for _, height in expected])
    assert sorted(stats.cluster_order(rho)) == list(range(7))


def test_support_is_high_for_twins_and_full_for_all_rows(rng: np.random.Generator) -> None:
    first_values, second_values = rng.normal(size=(2, 60))
    twins = np.stack([first_values, second_values, first_values, second_values])
    rows = twins + 0.3 * rng.normal(size=(4, 60))
    agreement = stats.agreement(rows, None, rng, draws=200)
    first_clusters = stats.clusters_of_tree(agreement.tree)[:2]
    assert set(first_clusters) == {frozenset({0, 2}), frozenset({1, 3})}
    assert (agreement.support[:2] > 0.9).all()
    assert agreement.support[-1] == 1
