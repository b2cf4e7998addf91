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
    correlated_share = correlation
    independent_share = np.sqrt(1 - correlation**2)
    first_values, noise = rng.normal(size=(2, items))
    second_values = correlated_share * first_values + independent_share * noise
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
    errors = rng.normal(size=(rows, 2, items))
    halves = true_values[:, None] + noise * errors
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
            first_values = repeated_values[i]
            second_values = repeated_values[j]
            expected = reference.spearman(first_values, second_values)
            assert_allclose(rho[i, j], expected, atol=1e-12)


def test_a_row_that_a_resample_leaves_without_differences_correlates_nothing_there() -> None:
    row_without_differences = [0.0, 0.0, 1.0]
    rising_row = [1.0, 2.0, 3.0]
    values = np.array([row_without_differences, rising_row])
    counts = np.array([[1, 2, 0]])
    (rho,) = stats.spearman_of_counts(values, counts)
    assert rho.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_the_corrected_interval_equals_the_textbook_formula(rng: np.random.Generator) -> None:
    values = rng.exponential(size=40)
    mean = values.mean()
    resamples = rng.choice(values, size=(500, 40))
    resampled_means = resamples.mean(axis=1)
    means_without_item = []
    for i in range(40):
        other_values = np.delete(values, i)
        means_without_item.append(other_values.mean())
    means_without_item = np.array(means_without_item)
    interval = bca_interval(mean, resampled_means, means_without_item)
    expected = reference.bca(mean, resampled_means, means_without_item)
    bounds = [float(bound) for bound in interval]
    assert_allclose(bounds, expected, rtol=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95])
def test_the_interval_of_a_rank_correlation_covers(
    correlation: float, rng: np.random.Generator
) -> None:
    """The truth is known from the correlation of two normal variables; there are 96 items."""
    truth = in_ranks(correlation)
    is_covered = []
    for _ in range(120):
        values = normal_pair(correlation, 96, rng)
        _, (lows, highs) = stats.spearman_interval(values, rng, draws=200)
        low = lows[0, 1]
        high = highs[0, 1]
        is_covered.append(low <= truth <= high)
    assert np.mean(is_covered) >= 0.9
    assert lows[0, 0] == highs[0, 0] == 1


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_the_interval_of_reliability_covers(noise: float, rng: np.random.Generator) -> None:
    """The correlation of two measurements is known, where true values have variance 1."""
    is_covered = []
    noise_in_mean = noise**2 / 2
    truth = in_ranks(1 / (1 + noise_in_mean))
    for _ in range(120):
        true_values = rng.normal(size=(1, 96))
        _, halves = noisy_measurement(true_values, noise, rng)
        reliability = stats.reliability(halves, rng, draws=200)
        low = reliability.low[0]
        high = reliability.high[0]
        is_covered.append(low <= truth <= high)
    assert np.mean(is_covered) >= 0.9


def test_reliability_is_the_halves_correlation_stepped_up(rng: np.random.Generator) -> None:
    true_values = rng.normal(size=(1, 50))
    _, little_noise = noisy_measurement(true_values, 0.3, rng)
    true_values = rng.normal(size=(1, 50))
    _, much_noise = noisy_measurement(true_values, 1.0, rng)
    halves = np.concatenate([little_noise, much_noise])
    reliability = stats.reliability(halves, rng, draws=50)
    expected = [reference.stepped_up(part) for part in halves]
    assert_allclose(reliability.value, expected)
    first_half = halves[:1, 0]
    opposite_halves = np.stack([first_half, -first_half], axis=1)
    reliability_of_opposites = stats.reliability(opposite_halves, rng, draws=50)
    assert reliability_of_opposites.value[0] == 0
    assert reliability_of_opposites.low[0] == 0
    reliabilities = np.array([0.25, 1.0])
    ceiling = stats.noise_ceiling(reliabilities)
    assert_allclose(ceiling, [[1, 0.5], [0.5, 1]])


def test_correction_finds_the_correlation_that_noise_hides_and_its_intervals_cover(
    rng: np.random.Generator,
) -> None:
    """The true correlation is 0.8; with reliabilities of about 0.65 the raw one is near 0.5."""
    truth = in_ranks(0.8)
    is_covered = {"ceiling": [], "corrected": [], "across": []}
    limits = {
        "ceiling": in_ranks(1 / 1.5),
        "corrected": truth,
        "across": truth,
    }
    for _ in range(60):
        true_values = normal_pair(0.8, 144, rng)
        values, halves = noisy_measurement(true_values, 1.0, rng)
        agreement = stats.agreement(values, halves, rng, draws=100)
        assert agreement.noise is not None
        for name, limit in limits.items():
            estimate = getattr(agreement.noise, name)
            low = estimate.low[0, 1]
            high = estimate.high[0, 1]
            is_covered[name].append(low <= limit <= high)
    raw_correlation = agreement.rho.value[0, 1]
    assert raw_correlation < 0.7
    for name, are_covered in is_covered.items():
        assert np.mean(are_covered) >= 0.85, name


def test_noise_that_two_rows_share_is_no_agreement_across_halves(rng: np.random.Generator) -> None:
    true_values = rng.normal(size=(2, 600))
    shared_noise = rng.normal(size=(1, 2, 600))
    halves = true_values[:, None] + shared_noise
    means = halves.mean(axis=1)
    noise_estimates = stats.agreement(means, halves, rng, draws=50).noise
    assert noise_estimates is not None
    corrected = noise_estimates.corrected.value[0, 1]
    across = noise_estimates.across.value[0, 1]
    assert corrected > 0.3
    assert abs(across) < 0.15


def test_halves_without_agreement_leave_the_correction_open(rng: np.random.Generator) -> None:
    values = rng.normal(size=(3, 60))
    halves = rng.normal(size=(3, 2, 60))
    agreement = stats.agreement(values, halves, rng, draws=100)
    noise_estimates = agreement.noise
    assert noise_estimates is not None
    is_pair = ~np.eye(3, dtype=bool)
    assert not noise_estimates.clear[is_pair].any()
    lowest_ceilings = noise_estimates.ceiling.low[is_pair]
    assert (lowest_ceilings < LOWEST_CEILING).all()
    assert noise_estimates.outlier is None


def test_what_is_not_known_is_not_a_number(rng: np.random.Generator) -> None:
    """Row 1 has no differences, row 2 no halves."""
    true_values = rng.normal(size=(3, 40))
    values, halves = noisy_measurement(true_values, 0.2, rng)
    values[1] = 0.0
    halves[2] = np.nan
    agreement = stats.agreement(values, halves, rng, draws=50)
    is_unknown = np.isnan(agreement.rho.value)
    has_no_low = np.isnan(agreement.rho.low)
    assert is_unknown.tolist() == has_no_low.tolist()
    assert is_unknown[1].tolist() == [True, False, True]
    assert agreement.outlier is None
    assert agreement.noise is not None
    has_no_reliability = np.isnan(agreement.noise.reliability.value)
    assert has_no_reliability.tolist() == [False, False, True]
    assert not agreement.noise.clear[2, 0]
    without_halves = stats.agreement(values, None, rng, draws=50)
    assert without_halves.noise is None


def test_the_outlier_is_found_with_its_gap(rng: np.random.Generator) -> None:
    """The gap of mean correlations is known: rows 0, 1 and 3 share most of their variance."""
    is_covered = []
    close_correlation = in_ranks(0.8)
    far_correlation = in_ranks(0.2)
    mean_of_outlier = far_correlation
    mean_of_others = (2 * close_correlation + far_correlation) / 3
    truth = mean_of_others - mean_of_outlier
    for _ in range(40):
        shared_values = rng.normal(size=144)
        own_values = rng.normal(size=(4, 144))
        rows = np.sqrt(0.2) * own_values
        rows += np.sqrt(0.8) * shared_values
        other_values = rng.normal(size=144)
        rows[2] = np.sqrt(0.05) * shared_values
        rows[2] += np.sqrt(0.95) * other_values
        agreement = stats.agreement(rows, None, rng, draws=100)
        outlier = agreement.outlier
        assert outlier is not None
        assert outlier.row == 2
        assert outlier.share[2] > 0.9
        assert outlier.share.sum() == pytest.approx(1)
        gap = outlier.gap
        is_covered.append(gap.low <= truth <= gap.high)
    assert np.mean(is_covered) >= 0.85


def test_of_rows_that_are_alike_none_is_certainly_the_outlier(rng: np.random.Generator) -> None:
    is_settled = []
    for _ in range(30):
        shared_values = rng.normal(size=144)
        own_values = rng.normal(size=(5, 144))
        rows = shared_values + own_values
        agreement = stats.agreement(rows, None, rng, draws=100)
        outlier = agreement.outlier
        assert outlier is not None
        outlier_share = outlier.share[outlier.row]
        is_settled.append(outlier_share > 0.95)
    assert np.mean(is_settled) <= 0.15
    two_rows = rng.normal(size=(2, 30))
    agreement_of_two = stats.agreement(two_rows, None, rng, draws=50)
    assert agreement_of_two.outlier is None


def test_the_tree_equals_average_linkage_by_hand(rng: np.random.Generator) -> None:
    own_values = rng.normal(size=(7, 25))
    shared_values = rng.normal(size=25)
    rho = stats.spearman(own_values + shared_values)
    tree = stats.cluster_tree(rho)
    expected = reference.average_linkage(1 - rho)
    expected_clusters = [members for members, _ in expected]
    expected_heights = [height for _, height in expected]
    assert stats.clusters_of_tree(tree) == expected_clusters
    assert_allclose(tree[:, 2], expected_heights)
    order = stats.cluster_order(rho)
    assert sorted(order) == list(range(7))


def test_support_is_high_for_twins_and_full_for_all_rows(rng: np.random.Generator) -> None:
    first_values, second_values = rng.normal(size=(2, 60))
    twins = np.stack(
        [
            first_values,
            second_values,
            first_values,
            second_values,
        ]
    )
    noise = rng.normal(size=(4, 60))
    rows = twins + 0.3 * noise
    agreement = stats.agreement(rows, None, rng, draws=200)
    clusters = stats.clusters_of_tree(agreement.tree)
    first_twins = frozenset({0, 2})
    second_twins = frozenset({1, 3})
    assert set(clusters[:2]) == {first_twins, second_twins}
    support_of_twins = agreement.support[:2]
    assert (support_of_twins > 0.9).all()
    assert agreement.support[-1] == 1
