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
    first, second = rng.normal(size=(2, items))
    return np.stack([first, correlation * first + np.sqrt(1 - correlation**2) * second])


def measured(true: Floats, noise: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Values, and halves [row, half, item] with independent noise of this deviation, that they are the mean of."""
    halves = true[:, None] + noise * rng.normal(size=(len(true), 2, true.shape[1]))
    return halves.mean(axis=1), halves


def test_correlations_under_counts_equal_those_of_repeated_items(rng: np.random.Generator) -> None:
    values = np.stack([rng.normal(size=30), rng.integers(0, 4, 30), rng.integers(0, 2, 30)])
    counts = resample_counts(30, rng, 20)
    got = stats.spearman_of_counts(values, counts)
    for drawn, rho in zip(counts, got, strict=True):
        repeated = np.repeat(values, drawn, axis=1)
        want = [[reference.spearman(a, b) for a in repeated] for b in repeated]
        assert_allclose(rho, want, atol=1e-12)


def test_a_row_that_a_resample_leaves_without_differences_correlates_nothing_there() -> None:
    values = np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 3.0]])
    (rho,) = stats.spearman_of_counts(values, np.array([[1, 2, 0]]))
    assert rho.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_the_corrected_interval_equals_the_books(rng: np.random.Generator) -> None:
    data = rng.exponential(size=40)
    drawn = rng.choice(data, size=(500, 40)).mean(axis=1)
    without = np.array([np.delete(data, i).mean() for i in range(40)])
    got = bca_interval(data.mean(), drawn, without)
    assert_allclose(
        [float(end) for end in got], reference.bca(data.mean(), drawn, without), rtol=1e-9
    )


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95])
def test_the_interval_of_a_rank_correlation_covers(
    correlation: float, rng: np.random.Generator
) -> None:
    """Pairs of normal variables, 96 items: the truth is known from the correlation."""
    covered = []
    for _ in range(120):
        _, (low, high) = stats.spearman_interval(normal_pair(correlation, 96, rng), rng, draws=200)
        covered.append(low[0, 1] <= in_ranks(correlation) <= high[0, 1])
    assert np.mean(covered) >= 0.9
    assert low[0, 0] == high[0, 0] == 1


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_the_interval_of_reliability_covers(noise: float, rng: np.random.Generator) -> None:
    """True values of variance 1, noise in each half: what two whole measurements would correlate is known."""
    covered = []
    truth = in_ranks(1 / (1 + noise**2 / 2))
    for _ in range(120):
        _, halves = measured(rng.normal(size=(1, 96)), noise, rng)
        found = stats.reliability(halves, rng, draws=200)
        covered.append(found.low[0] <= truth <= found.high[0])
    assert np.mean(covered) >= 0.9


def test_reliability_is_the_halves_correlation_stepped_up(rng: np.random.Generator) -> None:
    halves = np.stack(
        [measured(rng.normal(size=(1, 50)), noise, rng)[1][0] for noise in (0.3, 1.0)]
    )
    found = stats.reliability(halves, rng, draws=50)
    assert_allclose(found.value, [reference.stepped_up(part) for part in halves])
    opposed = stats.reliability(np.stack([halves[:1, 0], -halves[:1, 0]], axis=1), rng, draws=50)
    assert opposed.value[0] == 0
    assert opposed.low[0] == 0
    assert_allclose(stats.noise_ceiling(np.array([0.25, 1.0])), [[1, 0.5], [0.5, 1]])


def test_correction_finds_the_correlation_that_noise_hides_and_its_intervals_cover(
    rng: np.random.Generator,
) -> None:
    """True correlation 0.8, reliabilities of about 0.65: the raw one is near 0.5."""
    truth = in_ranks(0.8)
    covered = {"ceiling": [], "corrected": [], "across": []}
    limits = {"ceiling": in_ranks(1 / 1.5), "corrected": truth, "across": truth}
    for _ in range(60):
        values, halves = measured(normal_pair(0.8, 144, rng), 1.0, rng)
        found = stats.agreement(values, halves, rng, draws=100)
        assert found.noise is not None
        for name, limit in limits.items():
            part = getattr(found.noise, name)
            covered[name].append(part.low[0, 1] <= limit <= part.high[0, 1])
    assert found.rho.value[0, 1] < 0.7
    assert {name: np.mean(held) >= 0.85 for name, held in covered.items()} == dict.fromkeys(
        limits, True
    )


def test_noise_that_two_rows_share_is_no_agreement_across_halves(rng: np.random.Generator) -> None:
    true = rng.normal(size=(2, 600))
    halves = true[:, None] + rng.normal(size=(1, 2, 600))
    found = stats.agreement(halves.mean(axis=1), halves, rng, draws=50).noise
    assert found is not None
    assert found.corrected.value[0, 1] > 0.3
    assert abs(found.across.value[0, 1]) < 0.15


def test_halves_without_agreement_leave_the_correction_open(rng: np.random.Generator) -> None:
    values = rng.normal(size=(3, 60))
    halves = rng.normal(size=(3, 2, 60))
    found = stats.agreement(values, halves, rng, draws=100).noise
    assert found is not None
    assert not found.clear[~np.eye(3, dtype=bool)].any()
    assert (found.ceiling.low[~np.eye(3, dtype=bool)] < LOWEST_CEILING).all()
    assert found.outlier is None


def test_what_is_not_known_is_not_a_number(rng: np.random.Generator) -> None:
    """A row without differences, and a row without halves."""
    values, halves = measured(rng.normal(size=(3, 40)), 0.2, rng)
    values[1], halves[2] = 0.0, np.nan
    found = stats.agreement(values, halves, rng, draws=50)
    assert np.isnan(found.rho.value).tolist() == np.isnan(found.rho.low).tolist()
    assert np.isnan(found.rho.value[1]).tolist() == [True, False, True]
    assert found.outlier is None
    assert found.noise is not None
    assert np.isnan(found.noise.reliability.value).tolist() == [False, False, True]
    assert not found.noise.clear[2, 0]
    assert stats.agreement(values, None, rng, draws=50).noise is None


def test_the_row_apart_is_found_with_its_gap(rng: np.random.Generator) -> None:
    """Rows 0, 1 and 3 share most of what they are, row 2 little: the gap of mean correlations is known."""
    covered = []
    close = in_ranks(0.8)
    far = in_ranks(0.2)
    truth = (2 * close + far) / 3 - far
    for _ in range(40):
        shared = rng.normal(size=144)
        rows = np.sqrt(0.2) * rng.normal(size=(4, 144)) + np.sqrt(0.8) * shared
        rows[2] = np.sqrt(0.05) * shared + np.sqrt(0.95) * rng.normal(size=144)
        found = stats.agreement(rows, None, rng, draws=100).outlier
        assert found is not None
        assert found.row == 2
        assert found.share[2] > 0.9
        assert found.share.sum() == pytest.approx(1)
        covered.append(found.gap.low <= truth <= found.gap.high)
    assert np.mean(covered) >= 0.85


def test_of_rows_alike_none_is_surely_apart(rng: np.random.Generator) -> None:
    sure = []
    for _ in range(30):
        found = stats.agreement(
            rng.normal(size=144) + rng.normal(size=(5, 144)), None, rng, draws=100
        ).outlier
        assert found is not None
        sure.append(found.share[found.row] > 0.95)
    assert np.mean(sure) <= 0.15
    assert stats.agreement(rng.normal(size=(2, 30)), None, rng, draws=50).outlier is None


def test_the_tree_equals_average_linkage_by_hand(rng: np.random.Generator) -> None:
    rho = stats.spearman(rng.normal(size=(7, 25)) + rng.normal(size=25))
    tree = stats.cluster_tree(rho)
    want = reference.average_linkage(1 - rho)
    assert stats.clusters_of_tree(tree) == [members for members, _ in want]
    assert_allclose(tree[:, 2], [height for _, height in want])
    assert sorted(stats.cluster_order(rho)) == list(range(7))


def test_support_is_high_for_twins_and_whole_for_everything(rng: np.random.Generator) -> None:
    one, other = rng.normal(size=(2, 60))
    rows = np.stack([one, other, one, other]) + 0.3 * rng.normal(size=(4, 60))
    found = stats.agreement(rows, None, rng, draws=200)
    assert set(stats.clusters_of_tree(found.tree)[:2]) == {frozenset({0, 2}), frozenset({1, 3})}
    assert (found.support[:2] > 0.9).all()
    assert found.support[-1] == 1
