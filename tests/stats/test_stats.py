"""Statistics: second derivations, known answers, and coverage under the very stopping rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose
from scipy.stats import spearmanr

from headlab import stats
from headlab.stats import bootstrap

TERNARY = np.array([-1.0, 0.0, 1.0])
FIVE = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def test_capital_equals_betting_draw_by_draw() -> None:
    counts = np.array([[3, 0], [10, 40], [5, 2]])
    got = stats.log_capital(TERNARY, counts, np.array([0.1, -0.2]))
    want = [
        reference.log_capital(TERNARY, counts[:, h], m, stats.FRACTIONS, stats.SHARES)
        for h, m in ((0, 0.1), (1, -0.2))
    ]
    assert_allclose(got, want, rtol=1e-12)


def test_learned_stakes_are_those_that_would_have_grown_most() -> None:
    counts = np.array([[0, 1, 20], [3, 2, 30], [90, 200, 10], [2, 0, 30], [0, 0, 21]])
    found = stats.learn_stakes(FIVE, counts, 0.04)
    want = [
        reference.learned_shares(FIVE, counts[:, h], 0.04, stats.FRACTIONS, stats.SHARES)
        for h in range(3)
    ]
    assert_allclose(found.shares.T, want, rtol=1e-9)
    assert (
        stats.FRACTIONS[found.shares[:, 0].argmax()] > stats.FRACTIONS[found.shares[:, 2].argmax()]
    )


def test_capital_with_learned_stakes_equals_betting_draw_by_draw() -> None:
    early = np.array([[3], [10], [5]])
    later = np.array([[1], [20], [2]])
    learned = stats.learn_stakes(TERNARY, early, 0.1)
    got = stats.log_capital(TERNARY, early + later, np.array([0.1]), learned)
    want = reference.log_capital(TERNARY, early[:, 0], 0.1, stats.FRACTIONS, stats.SHARES)
    want += reference.log_capital(
        TERNARY, later[:, 0], 0.1, stats.FRACTIONS, tuple(learned.shares[:, 0])
    )
    assert_allclose(got, [want], rtol=1e-12)


@pytest.mark.parametrize("width", [1e-9, 0.01, 5.0])
def test_learned_shares_are_of_one_capital_whatever_came(width: float) -> None:
    """Nothing drawn, only zeros, only extremes, goals that no stake grows at."""
    counts = np.array([[0, 0, 50, 100], [0, 9, 0, 0], [0, 0, 50, 0]])
    shares = stats.learn_stakes(TERNARY, counts, width).shares
    assert shares.shape == (len(stats.FRACTIONS), 4)
    assert (shares > 0).all()
    assert_allclose(shares.sum(axis=0), 1, rtol=1e-12)


def test_shares_are_of_one_capital_and_no_fraction_can_lose_it_all() -> None:
    assert sum(stats.SHARES) == pytest.approx(1, abs=1e-12)
    assert len(stats.SHARES) == len(stats.FRACTIONS)
    assert min(stats.SHARES) > 0
    assert 0 < min(stats.FRACTIONS) < max(stats.FRACTIONS) < 1


def test_values_that_never_came_change_nothing() -> None:
    """129 levels of which three were seen, as for gains in 64 steps."""
    fine = np.linspace(-1, 1, 129)
    counts = np.zeros((129, 2), np.int64)
    counts[[0, 64, 128]] = [[3, 0], [90, 500], [11, 2]]
    got = stats.betting_interval(fine, counts)
    want = stats.betting_interval(TERNARY, counts[[0, 64, 128]])
    assert_allclose([got.low, got.high], [want.low, want.high], rtol=1e-12)
    assert_allclose(
        stats.betting_p(fine, counts), stats.betting_p(TERNARY, counts[[0, 64, 128]]), rtol=1e-12
    )


def test_equation_4_against_its_formula() -> None:
    """Held & Yang 2023, equation 4, by hand: 100 draws of variance 0.04, delta 0.1, range 2."""
    got = stats.bernstein_width(np.array([0.04, 0.04, 0.0]), np.array([100, 0, 10]), 0.1, 2.0)
    log = 3.4011973816621555  # log 30
    assert_allclose(got, [(0.08 * log / 100) ** 0.5 + 6 * log / 100, np.inf, 6 * log / 10])


def test_expected_capital_is_at_most_one_at_the_true_mean() -> None:
    """The bound behind the intervals, exactly: sum over all outcomes of 6 draws."""
    p = np.array([0.2, 0.5, 0.3])
    mean = np.array([float(TERNARY @ p)])
    total = 0.0
    for outcome in np.ndindex(3, 3, 3, 3, 3, 3):
        counts = np.bincount(outcome, minlength=3)[:, None]
        total += float(
            np.prod(p[list(outcome)]) * np.exp(stats.log_capital(TERNARY, counts, mean)[0])
        )
    assert total == pytest.approx(1.0, abs=1e-12)


def test_expected_capital_is_at_most_one_with_stakes_learned_on_the_way() -> None:
    """The same, with stakes for the last 3 of 6 draws that were learned from the first 3."""
    p = np.array([0.2, 0.5, 0.3])
    mean = np.array([float(TERNARY @ p)])
    total = 0.0
    for outcome in np.ndindex(3, 3, 3, 3, 3, 3):
        early, counts = (np.bincount(part, minlength=3)[:, None] for part in (outcome[:3], outcome))
        capital = stats.log_capital(TERNARY, counts, mean, stats.learn_stakes(TERNARY, early, 0.05))
        total += float(np.prod(p[list(outcome)]) * np.exp(capital[0]))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_stakes_that_refute_even_the_mean_leave_an_interval_at_it() -> None:
    """Early draws that later ones do not resemble: the product of the two capitals may refute every mean."""
    support = np.array([-1.0, -0.25, 0.0, 0.25, 1.0])
    early = np.array([[0], [0], [206], [50], [0]])
    later = np.array([[0], [60], [4940], [0], [0]])
    learned = stats.learn_stakes(support, early, 0.0025)
    counts = early + later
    mean = stats.sample_mean(support, counts)
    assert stats.log_capital(support, counts, mean, learned) > np.log(2 / 0.05)
    found = stats.betting_interval(support, counts, stakes=learned)
    assert_allclose(found.low, mean)
    assert mean < found.high < 0


def test_learned_stakes_narrow_an_interval_sooner() -> None:
    """Counts as on the embedded model: 2 % of the gains are not 0, some of them weighted with 4."""
    support = np.array([-4, -1, 0, 1, 4]) / 4
    share = np.array([4, 100, 9792, 100, 4]) / 10_000
    for draws, rare in ((1500, 10), (3000, 1), (12_000, 0.2)):
        weights = share / [rare, rare, 1, rare, rare]
        weights[2] += 1 - weights.sum()
        counts, early = (np.rint(n * weights).astype(np.int64)[:, None] for n in (draws, 512))
        plain, learned = (
            stats.betting_interval(support, counts, stakes=by)
            for by in (None, stats.learn_stakes(support, early, 0.0025))
        )
        assert learned.high - learned.low < 0.93 * (plain.high - plain.low)


def test_interval_mirrors_when_gains_change_sign() -> None:
    counts = np.array([[7], [90], [20]])
    low, high = stats.betting_interval(TERNARY, counts)
    mirrored = stats.betting_interval(TERNARY, counts[::-1])
    assert_allclose([low, high], [-mirrored.high, -mirrored.low], atol=1e-12)
    assert low[0] < stats.sample_mean(TERNARY, counts)[0] < high[0]


def test_interval_without_draws_says_nothing() -> None:
    low, high = stats.betting_interval(TERNARY, np.zeros((3, 2), dtype=np.int64))
    assert (low == -1).all()
    assert (high == 1).all()


def test_p_value_agrees_with_the_interval() -> None:
    counts = np.array([[0, 30], [500, 500], [30, 28]])
    low, high = stats.betting_interval(TERNARY, counts, level=0.95)
    p = stats.betting_p(TERNARY, counts)
    assert low[0] > 0
    assert p[0] < 0.05
    assert low[1] < 0 < high[1]
    assert p[1] > 0.05


SHARES = (
    (0, 1, 0), (0, 0.99, 0.01), (0.01, 0.99, 0), (0.005, 0.99, 0.005), (0.02, 0.95, 0.03), (0.05, 0.9, 0.05),
    (0.1, 0.8, 0.1), (0.3, 0.4, 0.3), (0, 0.5, 0.5), (0.5, 0, 0.5), (0.2, 0.2, 0.6), (0, 0, 1), (0.001, 0.997, 0.002),
)  # fmt: skip
DISTRIBUTIONS = [np.array(share, dtype=float) for share in SHARES]


@pytest.mark.parametrize("p", DISTRIBUTIONS, ids=str)
def test_coverage_when_stopped_at_the_first_decision(
    p: np.ndarray, rng: np.random.Generator
) -> None:
    """Look after every 16 draws, stop at a decided sign or a half-width of 0.02: still 95 %."""
    runs = 400
    looks = 64
    draws = rng.choice(3, size=(runs, looks, 16), p=p)
    # [value, run, look]
    counts = np.stack([(draws == v).sum(axis=2).cumsum(axis=1) for v in range(3)])
    low = np.full(runs, -1.0)
    high = np.full(runs, 1.0)
    going = np.ones(runs, bool)
    for look in range(looks):
        low[going], high[going] = stats.betting_interval(TERNARY, counts[:, going, look])
        going &= ~((low > 0) | (high < 0) | (high - low < 0.04))
    mean = float(TERNARY @ p)
    covered = (low <= mean + 1e-12) & (mean - 1e-12 <= high)
    assert covered.mean() >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize("learning", [None, 1, 8])
def test_coverage_with_balanced_cycles(learning: int | None, rng: np.random.Generator) -> None:
    """Examples drawn without replacement, looked at after each cycle and stopped at a decided sign.

    Args:
        learning: Cycles that stakes are learned from.
    """
    # each example's mean gain
    chance = rng.choice([0.0, 0.02, 0.5, -0.4], size=32, p=[0.6, 0.2, 0.1, 0.1])
    runs = 400
    cycles = 12
    fired = rng.random((runs, cycles, 32)) < np.abs(chance)
    gain = fired * np.sign(chance)
    counts = np.stack([(gain == v).sum(axis=2).cumsum(axis=1) for v in (-1, 0, 1)])
    learned = None
    if learning:
        early = np.minimum(np.arange(cycles), learning - 1)  # while learning goes on, all is early
        learned = stats.learn_stakes(TERNARY, counts[:, :, early].reshape(3, -1), 0.05)
    low, high = (
        b.reshape(runs, cycles)
        for b in stats.betting_interval(TERNARY, counts.reshape(3, -1), 0.95, learned)
    )
    stop = (low > 0) | (high < 0)
    at = np.where(stop.any(axis=1), stop.argmax(axis=1), cycles - 1)
    row = np.arange(runs)
    assert ((low[row, at] <= chance.mean()) & (chance.mean() <= high[row, at])).mean() >= 0.95


@pytest.mark.parametrize("flip", [0.0, 0.01, 0.1])
def test_paired_bootstrap_covers_with_groups(flip: float, rng: np.random.Generator) -> None:
    """Groups of 4 flip together: the interval for the difference still covers, near 95 %."""
    covered = []
    for _ in range(200):
        before = rng.random(400) < 0.7
        hit = np.repeat(rng.random(100) < flip, 4)
        after = np.where(hit, ~before, before)
        got = stats.paired_bootstrap(
            before, after, tuple(str(i // 4) for i in range(400)), rng, draws=400
        )
        covered.append(got.low <= -flip * 0.4 <= got.high)
    assert np.mean(covered) >= 0.9


def test_paired_bootstrap_of_no_flips_is_no_certainty(rng: np.random.Generator) -> None:
    same = np.ones(512, dtype=bool)
    got = stats.paired_bootstrap(same, same, tuple(map(str, range(512))), rng)
    assert got.difference == 0
    assert got.low < -0.002 < 0.002 < got.high
    assert got.p > 0.9


def test_paired_bootstrap_finds_a_large_difference(rng: np.random.Generator) -> None:
    before = np.zeros(200, dtype=bool)
    after = np.arange(200) < 60
    got = stats.paired_bootstrap(before, after, tuple(map(str, range(200))), rng)
    assert got.difference == pytest.approx(0.3)
    assert got.p < 0.01
    assert 0.2 < got.low < 0.3 < got.high < 0.4


def test_adjusted_p_values() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert_allclose(stats.holm(p), [0.03, 0.06, 0.06, 0.02])
    assert_allclose(stats.benjamini_hochberg(p), [0.02, 0.04, 0.04, 0.02])


def test_spearman_agrees_with_two_others(rng: np.random.Generator) -> None:
    values = rng.integers(0, 6, size=(3, 40)).astype(float)
    rho = stats.spearman(values)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert rho[i, j] == pytest.approx(reference.spearman(values[i], values[j]))
        assert rho[i, j] == pytest.approx(spearmanr(values[i], values[j]).statistic)
    assert np.isnan(stats.spearman(np.vstack([values[0], np.ones(40)]))[0, 1])


def test_cluster_order_puts_twins_together(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 50))
    rows = np.stack([a, b, a + 0.01, b + 0.01])
    order = list(stats.cluster_order(stats.spearman(rows)))
    assert abs(order.index(0) - order.index(2)) == 1
    assert abs(order.index(1) - order.index(3)) == 1


def test_share_interval_covers_with_groups(rng: np.random.Generator) -> None:
    """Right or wrong by whole groups of 5: the interval for the accuracy still covers."""
    groups = tuple(str(i // 5) for i in range(400))
    covered = []
    for _ in range(150):
        low, high = stats.share_interval(np.repeat(rng.random(80) < 0.7, 5), groups, rng)
        covered.append(low <= 0.7 <= high)
    assert np.mean(covered) >= 0.9
    low, high = stats.share_interval(np.ones(50, bool), tuple(map(str, range(50))), rng)
    assert low < 0.99
    assert high <= 1


WAYS = {"kinds of groups are counted": 0, "groups are picked": 10**9}


def normed(values: np.ndarray) -> np.ndarray:
    return np.asarray(values / np.linalg.norm(values))


@pytest.mark.parametrize("of", [np.asarray, normed])
def test_the_interval_of_sizes_equals_leaving_out_one_group_after_another(
    of: Any, rng: np.random.Generator
) -> None:
    sums = rng.exponential(size=(20, 3)) * [1, 5, 0]
    weights = rng.integers(0, 4, size=20).astype(float)
    groups = [f"g{at // 2}" for at in range(20)]
    weighted = np.repeat(weights[:, None], 3, axis=1)
    found = stats.jackknife_interval(sums * weighted, weighted, groups, of, level=0.9)
    assert found is not None
    want = reference.left_out_interval(
        sums * weights[:, None], weights.tolist(), groups, of, level=0.9
    )
    assert_allclose(np.stack(found, axis=1), want, rtol=1e-9)
    assert found[0][2] == 0
    assert found[1][2] == 0


def test_few_groups_have_no_interval_of_sizes(rng: np.random.Generator) -> None:
    sums = rng.exponential(size=(9, 2))
    names = list("abcdefghi")
    assert stats.jackknife_interval(sums, np.ones((9, 2)), names) is not None
    assert stats.jackknife_interval(sums, np.ones((9, 2)), [*"abcdefgg", "g"]) is None
    assert stats.jackknife_interval(sums, np.array([[1.0, 1]] * 7 + [[0, 0]] * 2), names) is None


def test_no_end_is_above_what_a_size_can_be(rng: np.random.Generator) -> None:
    found = stats.jackknife_interval(
        rng.uniform(0, 1, size=(8, 50)), np.ones((8, 50)), list("abcdefgh"), upper_limit=0.7
    )
    assert found is not None
    assert found[1].max() == 0.7


SIZES = {  # sizes of one head on examples: (draws of n, their mean)
    "alike": (lambda rng, n: rng.uniform(0.5, 1.5, n), 1.0),
    "half of a normal": (lambda rng, n: np.abs(rng.normal(size=n)), np.sqrt(2 / np.pi)),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
    "mostly 0": (lambda rng, n: (rng.random(n) < 0.2) * rng.exponential(size=n), 0.2),
    "skewed": (lambda rng, n: rng.lognormal(0, 1, n), np.exp(0.5)),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("weighted", [False, True], ids=["one each", "weights"])
@pytest.mark.parametrize(("n", "least"), [(64, 0.9), (512, 0.93)])
def test_intervals_of_sizes_cover(
    name: str, n: int, least: float, weighted: bool, rng: np.random.Generator
) -> None:
    """Approximately: skewed sizes, of which the largest are seldom drawn, cost a few percent."""
    draw, mean = SIZES[name]
    groups = [str(at // 2) for at in range(n)]
    runs = 1000
    weights = rng.integers(1, 9, (n, runs)).astype(float) if weighted else np.ones((n, runs))
    sums = np.stack(
        [np.repeat(draw(rng, n // 2), 2) * rng.uniform(0.5, 1.5, n) for _ in range(runs)], axis=1
    )
    found = stats.jackknife_interval(sums * weights, weights, groups)
    assert found is not None
    covered = float(((found[0] <= mean) & (mean <= found[1])).mean())
    assert covered >= least - 3 * np.sqrt(least * (1 - least) / runs)


def test_rare_large_sizes_are_covered_less_and_missed_below_as_the_document_says(
    rng: np.random.Generator,
) -> None:
    sums = rng.lognormal(0, 2, size=(32, 1000))
    found = stats.jackknife_interval(sums, np.ones(sums.shape), [str(at) for at in range(32)])
    assert found is not None
    below = (found[1] < np.exp(2)).mean()
    above = (found[0] > np.exp(2)).mean()
    assert 0.65 < 1 - below - above < 0.82
    assert above < 0.02


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two ways to resample, whatever the values."""
    monkeypatch.setattr(bootstrap, "BIN_PICKS", WAYS[request.param])
    return str(request.param)


def test_many_rows_equal_one_at_a_time(way: str) -> None:
    rng = np.random.default_rng(1)
    rows = np.concatenate(
        [rng.choice([-1.0, 0.0, 1.0], size=(3, 60), p=[0.1, 0.8, 0.1]), rng.normal(size=(2, 60))]
    )
    groups = tuple(str(i // 3) for i in range(60))
    together = stats.group_bootstrap(rows, groups, np.random.default_rng(2), draws=200)
    for i, row in enumerate(rows):
        alone = stats.group_bootstrap(row[None], groups, np.random.default_rng(2), draws=200)
        assert_allclose(
            [together.low[i], together.high[i], together.p[i]],
            [alone.low[0], alone.high[0], alone.p[0]],
        )


@pytest.mark.parametrize(
    "values", [[1, 0, 0, -1, 0, 1], [0.3, 0.1, -0.2, 0.45, 0.05, 0.6]], ids=["whole", "other"]
)
def test_the_bootstrap_follows_the_law_of_all_resamples(way: str, values: list[float]) -> None:
    """Groups of 1, 2 and 3 with the two made up: 5^5 resamples, each as likely as the next."""
    row = np.array(values, float)
    groups = ("a", "b", "b", "c", "c", "c")
    draws = 20_000
    every = reference.resampled_means(row, groups, (1.0, -1.0))
    low, high, p = stats.group_bootstrap(
        row[None], groups, np.random.default_rng(3), draws=draws, level=0.9
    )
    for end, share in ((low[0], 0.05), (high[0], 0.95)):
        near = 4 * (share * (1 - share) / draws) ** 0.5
        assert np.mean(every < end - 1e-9) <= share + near
        assert np.mean(every <= end + 1e-9) >= share - near
    tail = min(np.mean(every <= 1e-12), np.mean(every >= -1e-12))
    assert p[0] == pytest.approx(min(1, 2 * tail), abs=8 * (0.25 / draws) ** 0.5)


def test_the_bootstrap_covers_with_uneven_groups_and_uneven_gains(
    way: str, rng: np.random.Generator
) -> None:
    """Groups of 1 to 6 that share most of what they gain, the made-up values among them."""
    covered = []
    sizes = rng.integers(1, 7, size=70)
    groups = tuple(str(i) for i in np.repeat(np.arange(70), sizes))
    for _ in range(150):
        shared = np.repeat(rng.choice([-0.5, 0.0, 0.0, 0.5], size=70), sizes)
        gains = np.clip(shared + 0.1 + 0.2 * rng.normal(size=len(groups)).round(1), -1, 1)
        low, high, _ = stats.group_bootstrap(gains[None], groups, rng, draws=400)
        covered.append(low[0] <= 0.1 <= high[0])
    assert np.mean(covered) >= 0.9


def test_strata_are_averaged_draw_by_draw_and_one_stratum_is_the_plain_bootstrap() -> None:
    rng = np.random.default_rng(4)
    strata = [(rng.normal(size=(2, n)), tuple(str(i // 3) for i in range(n))) for n in (30, 12)]
    one = stats.stratified_bootstrap(strata[:1], np.random.default_rng(5), draws=200)
    plain = stats.group_bootstrap(*strata[0], np.random.default_rng(5), draws=200)
    for got, want in zip(one, plain, strict=True):
        assert_allclose(got, want, rtol=0)
    both = stats.stratified_bootstrap(strata, np.random.default_rng(5), draws=200)
    again = np.random.default_rng(5)
    drawn = [
        stats.resampled_means(*stratum, again, pseudo_values=(1.0, -1.0), draws=200)
        for stratum in strata
    ]
    assert [d.shape for d in drawn] == [(2, 200)] * 2
    assert_allclose(
        both.low, [np.quantile((a + b) / 2, 0.025) for a, b in zip(*drawn, strict=True)], atol=1e-11
    )


def test_the_stratified_bootstrap_covers_when_strata_have_other_means(
    rng: np.random.Generator,
) -> None:
    missed = 0
    for _ in range(200):
        strata = [
            (
                np.repeat(rng.random(size // 2) < share, 2)[None].astype(float),
                tuple(str(i // 2) for i in range(size)),
            )
            for size, share in ((100, 0.9), (60, 0.2), (160, 0.4))
        ]
        low, high, _ = stats.stratified_bootstrap(strata, rng, pseudo_values=(1.0, 0.0), draws=400)
        missed += not low[0] <= 0.5 <= high[0]
    assert 2 <= missed <= 20  # 10 expected


def test_resamples_that_cancel_out_but_for_a_last_bit_are_ties() -> None:
    """0.1 + 0.2 - 0.3 is not 0 in binary."""
    tenths = np.array([1.0, 2.0, -3.0, 1.0, 2.0, -3.0])
    groups = tuple("abcdef")
    exact = stats.group_bootstrap(
        tenths[None], groups, np.random.default_rng(6), pseudo_values=(10.0, -10.0)
    )
    found = stats.group_bootstrap(tenths[None] / 10, groups, np.random.default_rng(6))
    assert found.p == exact.p


def test_the_smallest_p_is_one_of_as_many_resamples_as_are_documented(
    rng: np.random.Generator,
) -> None:
    after = np.ones(300, dtype=bool)
    got = stats.paired_bootstrap(~after, after, tuple(map(str, range(300))), rng)
    assert got.p == pytest.approx(2 / 10_001)
