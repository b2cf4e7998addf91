"""Statistics: second derivations, known answers, and coverage under the very stopping rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from support.group_labels import equal_groups

from headlab import stats
from headlab.stats import bootstrap

TERNARY = np.array([-1.0, 0.0, 1.0])
FIVE_LEVELS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def test_capital_equals_betting_draw_by_draw() -> None:
    counts = np.array(
        [
            [3, 0],
            [10, 40],
            [5, 2],
        ]
    )
    means = np.array([0.1, -0.2])
    capital = stats.log_capital(TERNARY, counts, means)
    stakes = (stats.FRACTIONS, stats.SHARES)
    expected = [
        reference.log_capital(TERNARY, counts[:, 0], 0.1, *stakes),
        reference.log_capital(TERNARY, counts[:, 1], -0.2, *stakes),
    ]
    assert_allclose(capital, expected, rtol=1e-12)


def test_learned_stakes_are_those_that_would_have_grown_most() -> None:
    counts = np.array(
        [
            [0, 1, 20],
            [3, 2, 30],
            [90, 200, 10],
            [2, 0, 30],
            [0, 0, 21],
        ]
    )
    stakes = stats.learn_stakes(FIVE_LEVELS, counts, 0.04)
    expected = [
        reference.learned_shares(FIVE_LEVELS, counts[:, head], 0.04, stats.FRACTIONS, stats.SHARES)
        for head in range(3)
    ]
    assert_allclose(stakes.shares.T, expected, rtol=1e-9)
    largest_stakes = []
    for shares in stakes.shares.T:
        largest_stakes.append(stats.FRACTIONS[shares.argmax()])
    assert largest_stakes[0] > largest_stakes[2]


def test_capital_with_learned_stakes_equals_betting_draw_by_draw() -> None:
    early_counts = np.array([[3], [10], [5]])
    later_counts = np.array([[1], [20], [2]])
    stakes = stats.learn_stakes(TERNARY, early_counts, 0.1)
    all_counts = early_counts + later_counts
    mean = np.array([0.1])
    capital = stats.log_capital(TERNARY, all_counts, mean, stakes)
    early_capital = reference.log_capital(
        TERNARY,
        early_counts[:, 0],
        0.1,
        stats.FRACTIONS,
        stats.SHARES,
    )
    later_capital = reference.log_capital(
        TERNARY,
        later_counts[:, 0],
        0.1,
        stats.FRACTIONS,
        tuple(stakes.shares[:, 0]),
    )
    assert_allclose(capital, [early_capital + later_capital], rtol=1e-12)


@pytest.mark.parametrize("width", [1e-9, 0.01, 5.0])
def test_learned_shares_are_of_one_capital_whatever_was_drawn(width: float) -> None:
    """Nothing was drawn, only zeros, only extremes; some widths are goals that no stake reaches."""
    counts = np.array(
        [
            [0, 0, 50, 100],
            [0, 9, 0, 0],
            [0, 0, 50, 0],
        ]
    )
    shares = stats.learn_stakes(TERNARY, counts, width).shares
    assert shares.shape == (len(stats.FRACTIONS), 4)
    assert (shares > 0).all()
    assert_allclose(shares.sum(axis=0), 1, rtol=1e-12)


def test_shares_are_of_one_capital_and_no_fraction_can_lose_it_all() -> None:
    assert sum(stats.SHARES) == pytest.approx(1, abs=1e-12)
    assert len(stats.SHARES) == len(stats.FRACTIONS)
    assert min(stats.SHARES) > 0
    smallest_fraction = min(stats.FRACTIONS)
    largest_fraction = max(stats.FRACTIONS)
    assert 0 < smallest_fraction < largest_fraction < 1


def test_values_that_were_never_drawn_change_nothing() -> None:
    """Of 129 levels three were drawn, as for gains in 64 steps."""
    fine_levels = np.linspace(-1, 1, 129)
    counts = np.zeros((129, 2), np.int64)
    counts[[0, 64, 128]] = [
        [3, 0],
        [90, 500],
        [11, 2],
    ]
    ternary_counts = counts[[0, 64, 128]]
    interval = stats.betting_interval(fine_levels, counts)
    expected = stats.betting_interval(TERNARY, ternary_counts)
    assert_allclose(interval.low, expected.low, rtol=1e-12)
    assert_allclose(interval.high, expected.high, rtol=1e-12)
    p_values = stats.betting_p(fine_levels, counts)
    expected_p = stats.betting_p(TERNARY, ternary_counts)
    assert_allclose(p_values, expected_p, rtol=1e-12)


def test_equation_4_against_its_formula() -> None:
    """Held & Yang 2023, equation 4, by hand: 100 draws of variance 0.04, delta 0.1, range 2."""
    variances = np.array([0.04, 0.04, 0.0])
    draws = np.array([100, 0, 10])
    width = stats.bernstein_width(variances, draws, 0.1, 2.0)
    log = 3.4011973816621555  # log 30
    deviation = (0.08 * log / 100) ** 0.5
    first_width = deviation + 6 * log / 100
    last_width = 6 * log / 10
    assert_allclose(width, [first_width, np.inf, last_width])


def test_expected_capital_is_at_most_one_at_the_true_mean() -> None:
    """The bound behind the intervals holds exactly in the sum over all outcomes of 6 draws."""
    probabilities = np.array([0.2, 0.5, 0.3])
    mean = np.array([float(TERNARY @ probabilities)])
    total = 0.0
    for outcome in np.ndindex(3, 3, 3, 3, 3, 3):
        counts = np.bincount(outcome, minlength=3)[:, None]
        (log_capital,) = stats.log_capital(TERNARY, counts, mean)
        capital = np.exp(log_capital)
        probability = np.prod(probabilities[list(outcome)])
        total += float(probability * capital)
    assert total == pytest.approx(1.0, abs=1e-12)


def test_expected_capital_is_at_most_one_with_stakes_learned_on_the_way() -> None:
    """The same holds with stakes for the last 3 of 6 draws that are learned from the first 3."""
    probabilities = np.array([0.2, 0.5, 0.3])
    mean = np.array([float(TERNARY @ probabilities)])
    total = 0.0
    for outcome in np.ndindex(3, 3, 3, 3, 3, 3):
        early_counts = np.bincount(outcome[:3], minlength=3)[:, None]
        counts = np.bincount(outcome, minlength=3)[:, None]
        stakes = stats.learn_stakes(TERNARY, early_counts, 0.05)
        (log_capital,) = stats.log_capital(TERNARY, counts, mean, stakes)
        capital = np.exp(log_capital)
        probability = np.prod(probabilities[list(outcome)])
        total += float(probability * capital)
    assert total == pytest.approx(1.0, abs=1e-12)


def test_stakes_that_refute_even_the_mean_leave_an_interval_at_it() -> None:
    """Where later draws differ from early ones, the product of both capitals may refute any mean."""
    support = np.array([-1.0, -0.25, 0.0, 0.25, 1.0])
    early_counts = np.array([0, 0, 206, 50, 0])[:, None]
    later_counts = np.array([0, 60, 4940, 0, 0])[:, None]
    stakes = stats.learn_stakes(support, early_counts, 0.0025)
    counts = early_counts + later_counts
    mean = stats.sample_mean(support, counts)
    capital_at_mean = stats.log_capital(support, counts, mean, stakes)
    assert capital_at_mean > np.log(2 / 0.05)
    interval = stats.betting_interval(support, counts, stakes=stakes)
    assert_allclose(interval.low, mean)
    assert mean < interval.high < 0


def rounded_column(values: np.ndarray) -> np.ndarray:
    """The values as whole numbers, [value, 1]."""
    whole_numbers = np.rint(values).astype(np.int64)
    return whole_numbers[:, None]


def test_learned_stakes_narrow_an_interval_sooner() -> None:
    """Of the gains of the embedded model 2 % are not 0, and some of these have the weight 4."""
    support = np.array([-4, -1, 0, 1, 4]) / 4
    share = np.array([4, 100, 9792, 100, 4]) / 10_000
    for draws, rarity in ((1500, 10), (3000, 1), (12_000, 0.2)):
        weights = share / [rarity, rarity, 1, rarity, rarity]
        weights[2] += 1 - weights.sum()
        counts = rounded_column(draws * weights)
        early_counts = rounded_column(512 * weights)
        stakes = stats.learn_stakes(support, early_counts, 0.0025)
        plain_interval = stats.betting_interval(support, counts)
        learned_interval = stats.betting_interval(support, counts, stakes=stakes)
        plain_width = plain_interval.high - plain_interval.low
        learned_width = learned_interval.high - learned_interval.low
        assert learned_width < 0.93 * plain_width


def test_interval_mirrors_when_gains_change_sign() -> None:
    counts = np.array([[7], [90], [20]])
    low, high = stats.betting_interval(TERNARY, counts)
    mirrored_interval = stats.betting_interval(TERNARY, counts[::-1])
    assert_allclose(low, -mirrored_interval.high, atol=1e-12)
    assert_allclose(high, -mirrored_interval.low, atol=1e-12)
    (mean,) = stats.sample_mean(TERNARY, counts)
    assert low[0] < mean < high[0]


def test_interval_without_draws_says_nothing() -> None:
    no_counts = np.zeros((3, 2), dtype=np.int64)
    low, high = stats.betting_interval(TERNARY, no_counts)
    assert (low == -1).all()
    assert (high == 1).all()


def test_p_value_agrees_with_the_interval() -> None:
    counts = np.array(
        [
            [0, 30],
            [500, 500],
            [30, 28],
        ]
    )
    low, high = stats.betting_interval(TERNARY, counts, level=0.95)
    p = stats.betting_p(TERNARY, counts)
    assert low[0] > 0
    assert p[0] < 0.05
    assert low[1] < 0 < high[1]
    assert p[1] > 0.05


SHARES = (
    (0, 1, 0),
    (0, 0.99, 0.01),
    (0.01, 0.99, 0),
    (0.005, 0.99, 0.005),
    (0.02, 0.95, 0.03),
    (0.05, 0.9, 0.05),
    (0.1, 0.8, 0.1),
    (0.3, 0.4, 0.3),
    (0, 0.5, 0.5),
    (0.5, 0, 0.5),
    (0.2, 0.2, 0.6),
    (0, 0, 1),
    (0.001, 0.997, 0.002),
)
DISTRIBUTIONS = [np.array(share, dtype=float) for share in SHARES]


@pytest.mark.parametrize("probabilities", DISTRIBUTIONS, ids=str)
def test_coverage_when_stopped_at_the_first_decision(
    probabilities: np.ndarray, rng: np.random.Generator
) -> None:
    """Coverage is still 95 % if every 16 draws may end a run.

    A run ends once the sign is decided or the half-width is below 0.02.
    """
    runs = 400
    looks = 64
    draws = rng.choice(3, size=(runs, looks, 16), p=probabilities)
    counts_of_values = []
    for value in range(3):
        count_at_look = (draws == value).sum(axis=2)
        counts_of_values.append(count_at_look.cumsum(axis=1))
    counts = np.stack(counts_of_values)  # [value, run, look]
    low = np.full(runs, -1.0)
    high = np.full(runs, 1.0)
    is_running = np.ones(runs, bool)
    for look in range(looks):
        interval = stats.betting_interval(TERNARY, counts[:, is_running, look])
        low[is_running] = interval.low
        high[is_running] = interval.high
        is_decided = (low > 0) | (high < 0)
        is_narrow = high - low < 0.04
        is_running &= ~(is_decided | is_narrow)
    mean = float(TERNARY @ probabilities)
    is_covered = (low <= mean + 1e-12) & (mean - 1e-12 <= high)
    standard_error = np.sqrt(0.95 * 0.05 / runs)
    assert is_covered.mean() >= 0.95 - 2 * standard_error


@pytest.mark.parametrize("learning", [None, 1, 8])
def test_coverage_with_balanced_cycles(learning: int | None, rng: np.random.Generator) -> None:
    """Examples drawn without replacement, looked at after each cycle and stopped at a decided sign.

    Args:
        learning: Cycles that stakes are learned from.
    """
    # The mean gain of each example.
    mean_gains = rng.choice(
        [0.0, 0.02, 0.5, -0.4],
        size=32,
        p=[0.6, 0.2, 0.1, 0.1],
    )
    runs = 400
    cycles = 12
    uniforms = rng.random((runs, cycles, 32))
    has_gain = uniforms < np.abs(mean_gains)
    gain = has_gain * np.sign(mean_gains)
    counts_of_values = []
    for value in (-1, 0, 1):
        count_in_cycle = (gain == value).sum(axis=2)
        counts_of_values.append(count_in_cycle.cumsum(axis=1))
    counts = np.stack(counts_of_values)
    flat_counts = counts.reshape(3, -1)
    stakes = None
    if learning:
        # While learning goes on, all cycles so far are early ones.
        early_cycles = np.minimum(np.arange(cycles), learning - 1)
        early_counts = counts[:, :, early_cycles].reshape(3, -1)
        stakes = stats.learn_stakes(TERNARY, early_counts, 0.05)
    interval = stats.betting_interval(TERNARY, flat_counts, 0.95, stakes)
    low = interval.low.reshape(runs, cycles)
    high = interval.high.reshape(runs, cycles)
    is_decided = (low > 0) | (high < 0)
    stop_cycle = np.where(
        is_decided.any(axis=1),
        is_decided.argmax(axis=1),
        cycles - 1,
    )
    run_indices = np.arange(runs)
    low_at_stop = low[run_indices, stop_cycle]
    high_at_stop = high[run_indices, stop_cycle]
    true_mean = mean_gains.mean()
    is_covered = (low_at_stop <= true_mean) & (true_mean <= high_at_stop)
    assert is_covered.mean() >= 0.95


@pytest.mark.parametrize("flip_rate", [0.0, 0.01, 0.1])
def test_paired_bootstrap_covers_with_groups(flip_rate: float, rng: np.random.Generator) -> None:
    """Groups of 4 flip together: the interval for the difference still covers, near 95 %."""
    is_covered = []
    mean_difference = -flip_rate * 0.4
    for _ in range(200):
        is_right_before = rng.random(400) < 0.7
        group_is_flipped = rng.random(100) < flip_rate
        is_flipped = np.repeat(group_is_flipped, 4)
        is_right_after = np.where(is_flipped, ~is_right_before, is_right_before)
        interval = stats.paired_bootstrap(
            is_right_before,
            is_right_after,
            equal_groups(400, 4),
            rng,
            draws=400,
        )
        is_covered.append(interval.low <= mean_difference <= interval.high)
    assert np.mean(is_covered) >= 0.9


def test_paired_bootstrap_of_no_flips_is_no_certainty(rng: np.random.Generator) -> None:
    all_right = np.ones(512, dtype=bool)
    interval = stats.paired_bootstrap(all_right, all_right, equal_groups(512), rng)
    assert interval.difference == 0
    assert interval.low < -0.002 < 0.002 < interval.high
    assert interval.p > 0.9


def test_paired_bootstrap_finds_a_large_difference(rng: np.random.Generator) -> None:
    is_right_before = np.zeros(200, dtype=bool)
    is_right_after = np.arange(200) < 60
    interval = stats.paired_bootstrap(is_right_before, is_right_after, equal_groups(200), rng)
    assert interval.difference == pytest.approx(0.3)
    assert interval.p < 0.01
    assert 0.2 < interval.low < 0.3 < interval.high < 0.4


def test_adjusted_p_values() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert_allclose(stats.holm(p), [0.03, 0.06, 0.06, 0.02])
    assert_allclose(stats.benjamini_hochberg(p), [0.02, 0.04, 0.04, 0.02])


def test_spearman_agrees_with_two_others(rng: np.random.Generator) -> None:
    whole_numbers = rng.integers(0, 6, size=(3, 40))
    values = whole_numbers.astype(float)
    rho = stats.spearman(values)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        rho_by_hand = reference.spearman(values[i], values[j])
        rho_of_scipy = spearmanr(values[i], values[j]).statistic
        assert rho[i, j] == pytest.approx(rho_by_hand)
        assert rho[i, j] == pytest.approx(rho_of_scipy)
    values_and_constant = np.vstack([values[0], np.ones(40)])
    rho_with_constant = stats.spearman(values_and_constant)
    assert np.isnan(rho_with_constant[0, 1])


def test_cluster_order_puts_twins_together(rng: np.random.Generator) -> None:
    first_row, second_row = rng.normal(size=(2, 50))
    rows = np.stack(
        [
            first_row,
            second_row,
            first_row + 0.01,
            second_row + 0.01,
        ]
    )
    order = list(stats.cluster_order(stats.spearman(rows)))
    for row, twin in ((0, 2), (1, 3)):
        distance = abs(order.index(row) - order.index(twin))
        assert distance == 1


def test_share_interval_covers_with_groups(rng: np.random.Generator) -> None:
    """All answers of a group of 5 are right or all wrong: the interval for the accuracy covers."""
    groups = equal_groups(400, 5)
    is_covered = []
    for _ in range(150):
        group_is_right = rng.random(80) < 0.7
        is_right = np.repeat(group_is_right, 5)
        low, high = stats.share_interval(is_right, groups, rng)
        is_covered.append(low <= 0.7 <= high)
    assert np.mean(is_covered) >= 0.9
    all_right = np.ones(50, bool)
    low, high = stats.share_interval(all_right, equal_groups(50), rng)
    assert low < 0.99
    assert high <= 1


BIN_PICKS_BY_WAY = {"kinds of groups are counted": 0, "groups are picked": 10**9}


def normalised(values: np.ndarray) -> np.ndarray:
    return np.asarray(values / np.linalg.norm(values))


@pytest.mark.parametrize("transform", [np.asarray, normalised])
def test_the_interval_of_sizes_equals_leaving_out_one_group_after_another(
    transform: Any, rng: np.random.Generator
) -> None:
    sums = rng.exponential(size=(20, 3)) * [1, 5, 0]
    weights = rng.integers(0, 4, size=20).astype(float)
    groups = list(equal_groups(20, 2))
    weight_columns = np.repeat(weights[:, None], 3, axis=1)
    interval = stats.jackknife_interval(
        sums * weight_columns,
        weight_columns,
        groups,
        transform,
        level=0.9,
    )
    assert interval is not None
    expected = reference.left_out_interval(
        sums * weights[:, None],
        weights.tolist(),
        groups,
        transform,
        level=0.9,
    )
    assert_allclose(np.stack(interval, axis=1), expected, rtol=1e-9)
    assert interval[0][2] == 0
    assert interval[1][2] == 0


def test_few_groups_have_no_interval_of_sizes(rng: np.random.Generator) -> None:
    sums = rng.exponential(size=(9, 2))
    names = list("abcdefghi")
    weights = np.ones((9, 2))
    assert stats.jackknife_interval(sums, weights, names) is not None
    names_of_seven_groups = list("abcdefggg")
    assert stats.jackknife_interval(sums, weights, names_of_seven_groups) is None
    weights_of_seven = weights.copy()
    weights_of_seven[7:] = 0
    assert stats.jackknife_interval(sums, weights_of_seven, names) is None


def test_no_upper_end_is_above_the_largest_possible_size(rng: np.random.Generator) -> None:
    sums = rng.uniform(0, 1, size=(8, 50))
    interval = stats.jackknife_interval(
        sums,
        np.ones((8, 50)),
        list("abcdefgh"),
        upper_limit=0.7,
    )
    assert interval is not None
    _, high = interval
    assert high.max() == 0.7


def draw_alike(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(0.5, 1.5, n)


def draw_half_of_a_normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.abs(rng.normal(size=n))


def draw_exponential(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.exponential(size=n)


def draw_mostly_0(rng: np.random.Generator, n: int) -> np.ndarray:
    is_not_0 = rng.random(n) < 0.2
    return is_not_0 * rng.exponential(size=n)


def draw_skewed(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.lognormal(0, 1, n)


# Sizes of one head on examples: a function that draws n of them, and their mean.
SIZES = {
    "alike": (draw_alike, 1.0),
    "half of a normal": (draw_half_of_a_normal, np.sqrt(2 / np.pi)),
    "exponential": (draw_exponential, 1.0),
    "mostly 0": (draw_mostly_0, 0.2),
    "skewed": (draw_skewed, np.exp(0.5)),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("has_weights", [False, True], ids=["one each", "weights"])
@pytest.mark.parametrize(("n", "min_coverage"), [(64, 0.9), (512, 0.93)])
def test_intervals_of_sizes_cover(
    name: str,
    n: int,
    min_coverage: float,
    has_weights: bool,
    rng: np.random.Generator,
) -> None:
    """Intervals cover approximately: skewed sizes, whose largest are rare, cost a few percent."""
    draw, mean = SIZES[name]
    groups = list(equal_groups(n, 2))
    runs = 1000
    weights = np.ones((n, runs))
    if has_weights:
        weights = rng.integers(1, 9, (n, runs)).astype(float)
    sums = np.empty((n, runs))
    for run in range(runs):
        group_sizes = np.repeat(draw(rng, n // 2), 2)
        factors = rng.uniform(0.5, 1.5, n)
        sums[:, run] = group_sizes * factors
    interval = stats.jackknife_interval(sums * weights, weights, groups)
    assert interval is not None
    low, high = interval
    is_covered = (low <= mean) & (mean <= high)
    coverage = float(is_covered.mean())
    standard_error = np.sqrt(min_coverage * (1 - min_coverage) / runs)
    assert coverage >= min_coverage - 3 * standard_error


def test_rare_large_sizes_are_covered_less_and_missed_below_as_the_document_says(
    rng: np.random.Generator,
) -> None:
    sums = rng.lognormal(0, 2, size=(32, 1000))
    weights = np.ones(sums.shape)
    groups = list(equal_groups(32))
    interval = stats.jackknife_interval(sums, weights, groups)
    assert interval is not None
    low, high = interval
    missed_below = (high < np.exp(2)).mean()
    missed_above = (low > np.exp(2)).mean()
    assert 0.65 < 1 - missed_below - missed_above < 0.82
    assert missed_above < 0.02


@pytest.fixture(params=BIN_PICKS_BY_WAY)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make each of the two ways to resample the one that is used, whatever the values."""
    monkeypatch.setattr(bootstrap, "BIN_PICKS", BIN_PICKS_BY_WAY[request.param])
    return str(request.param)


def test_many_rows_at_once_equal_one_at_a_time(way: str) -> None:
    rng = np.random.default_rng(1)
    ternary_rows = rng.choice(
        [-1.0, 0.0, 1.0],
        size=(3, 60),
        p=[0.1, 0.8, 0.1],
    )
    normal_rows = rng.normal(size=(2, 60))
    rows = np.concatenate([ternary_rows, normal_rows])
    groups = equal_groups(60, 3)
    rng_of_all = np.random.default_rng(2)
    of_all_rows = stats.group_bootstrap(rows, groups, rng_of_all, draws=200)
    for index, row in enumerate(rows):
        rng_of_row = np.random.default_rng(2)
        of_one_row = stats.group_bootstrap(row[None], groups, rng_of_row, draws=200)
        assert_allclose(of_all_rows.low[index], of_one_row.low[0])
        assert_allclose(of_all_rows.high[index], of_one_row.high[0])
        assert_allclose(of_all_rows.p[index], of_one_row.p[0])


@pytest.mark.parametrize(
    "values",
    [
        [1, 0, 0, -1, 0, 1],
        [0.3, 0.1, -0.2, 0.45, 0.05, 0.6],
    ],
    ids=["whole", "other"],
)
def test_the_bootstrap_follows_the_law_of_all_resamples(way: str, values: list[float]) -> None:
    """Groups of 1, 2 and 3 and two pseudo-groups have 5^5 equally likely resamples."""
    row = np.array(values, float)
    groups = ("a", "b", "b", "c", "c", "c")
    draws = 20_000
    all_means = reference.resampled_means(row, groups, (1.0, -1.0))
    low, high, p = stats.group_bootstrap(
        row[None],
        groups,
        np.random.default_rng(3),
        draws=draws,
        level=0.9,
    )
    for bound, share in ((low[0], 0.05), (high[0], 0.95)):
        variance = share * (1 - share)
        tolerance = 4 * (variance / draws) ** 0.5
        share_below = np.mean(all_means < bound - 1e-9)
        share_not_above = np.mean(all_means <= bound + 1e-9)
        assert share_below <= share + tolerance
        assert share_not_above >= share - tolerance
    share_not_above_0 = np.mean(all_means <= 1e-12)
    share_not_below_0 = np.mean(all_means >= -1e-12)
    expected_p = min(1, 2 * share_not_above_0, 2 * share_not_below_0)
    largest_error = (0.25 / draws) ** 0.5
    assert p[0] == pytest.approx(expected_p, abs=8 * largest_error)


def test_the_bootstrap_covers_with_uneven_groups_and_uneven_gains(
    way: str, rng: np.random.Generator
) -> None:
    """Groups of 1 to 6 answers share most of their gains; pseudo-values are among them."""
    is_covered = []
    sizes = rng.integers(1, 7, size=70)
    group_numbers = np.repeat(np.arange(70), sizes)
    groups = tuple(str(number) for number in group_numbers)
    for _ in range(150):
        gain_by_group = rng.choice([-0.5, 0.0, 0.0, 0.5], size=70)
        group_gains = np.repeat(gain_by_group, sizes)
        noise = 0.2 * rng.normal(size=len(groups)).round(1)
        gains = np.clip(group_gains + 0.1 + noise, -1, 1)
        low, high, _ = stats.group_bootstrap(gains[None], groups, rng, draws=400)
        is_covered.append(low[0] <= 0.1 <= high[0])
    assert np.mean(is_covered) >= 0.9


def test_strata_are_averaged_draw_by_draw_and_one_stratum_is_the_plain_bootstrap() -> None:
    rng = np.random.default_rng(4)
    strata = []
    for size in (30, 12):
        values = rng.normal(size=(2, size))
        strata.append((values, equal_groups(size, 3)))
    of_one_stratum = stats.stratified_bootstrap(
        strata[:1],
        np.random.default_rng(5),
        draws=200,
    )
    plain_bootstrap = stats.group_bootstrap(
        *strata[0],
        np.random.default_rng(5),
        draws=200,
    )
    for bound, expected in zip(of_one_stratum, plain_bootstrap, strict=True):
        assert_allclose(bound, expected, rtol=0)
    of_both_strata = stats.stratified_bootstrap(
        strata,
        np.random.default_rng(5),
        draws=200,
    )
    rng_of_both = np.random.default_rng(5)
    first_means, second_means = (
        stats.resampled_means(*stratum, rng_of_both, pseudo_values=(1.0, -1.0), draws=200)
        for stratum in strata
    )
    assert first_means.shape == (2, 200)
    assert second_means.shape == (2, 200)
    means = (first_means + second_means) / 2
    expected_low = np.quantile(means, 0.025, axis=1)
    assert_allclose(of_both_strata.low, expected_low, atol=1e-11)


def test_the_stratified_bootstrap_covers_when_strata_have_other_means(
    rng: np.random.Generator,
) -> None:
    missed_count = 0
    for _ in range(200):
        strata = []
        for size, share in ((100, 0.9), (60, 0.2), (160, 0.4)):
            group_is_right = rng.random(size // 2) < share
            is_right = np.repeat(group_is_right, 2)
            row = is_right[None].astype(float)
            strata.append((row, equal_groups(size, 2)))
        low, high, _ = stats.stratified_bootstrap(
            strata,
            rng,
            pseudo_values=(1.0, 0.0),
            draws=400,
        )
        missed_count += not low[0] <= 0.5 <= high[0]
    assert 2 <= missed_count <= 20  # 10 expected


def test_resamples_that_cancel_out_but_for_a_last_bit_are_ties() -> None:
    """The sum 0.1 + 0.2 - 0.3 is not 0 in binary."""
    tenths = np.array([1.0, 2.0, -3.0, 1.0, 2.0, -3.0])
    groups = tuple("abcdef")
    ends = (10.0, -10.0)
    exact_interval = stats.group_bootstrap(
        tenths[None],
        groups,
        np.random.default_rng(6),
        pseudo_values=ends,
    )
    row = tenths[None] / 10
    interval = stats.group_bootstrap(row, groups, np.random.default_rng(6))
    assert interval.p == exact_interval.p


def test_the_smallest_p_is_that_of_as_many_resamples_as_are_documented(
    rng: np.random.Generator,
) -> None:
    all_right = np.ones(300, dtype=bool)
    interval = stats.paired_bootstrap(~all_right, all_right, equal_groups(300), rng)
    assert interval.p == pytest.approx(2 / 10_001)
