"""Rank correlation of rows of values, clustering by it, noise ceilings, and overlaps of heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from headlab.core import Bools, Floats, Ints
from headlab.stats.betting import Interval

# Rank correlation of rows, under any resampling of their items, and the cluster tree based on it.

DRAWS = 2000
TAILS = ((1 - 0.95) / 2, (1 + 0.95) / 2)  # shares below the ends of a 95 % interval
ELEMENTS_AT_ONCE = 1 << 19  # array elements handled at once: as many as fit in a CPU's cache


def spearman(values: Floats) -> Floats:
    """Rank correlation of every pair of rows: float [row, item] -> [row, row], 1 on the diagonal.

    A constant row has no correlations: its entries are NaN off the diagonal.
    """
    ranks = scipy.stats.rankdata(values, axis=1)
    centred_ranks = ranks - ranks.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred_ranks**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = (centred_ranks @ centred_ranks.T) / np.outer(norms, norms)
    np.fill_diagonal(rho, 1.0)
    return np.asarray(rho)


class _SortedRows(NamedTuple):
    """The sorted items of every row.

    Attributes:
        order: int [row, position], the item at each position.
        position: int [row, item], the position of each item.
        first_of_ties: int [row, position], the first position with the same value.
        last_of_ties: int [row, position], the last position with the same value.
    """

    order: Ints
    position: Ints
    first_of_ties: Ints
    last_of_ties: Ints


def _sort_rows(values: Floats) -> _SortedRows:
    """Sort every row of float [row, item] and find the ties in it."""
    order = np.argsort(values, axis=1, kind="stable")
    sorted_values = np.take_along_axis(values, order, axis=1)
    positions = np.arange(values.shape[1])
    ties_with_previous = np.zeros(values.shape, dtype=bool)
    ties_with_previous[:, 1:] = sorted_values[:, 1:] == sorted_values[:, :-1]
    first_of_ties = np.maximum.accumulate(np.where(ties_with_previous, 0, positions), axis=1)
    tie_ends = np.where(np.roll(ties_with_previous, -1, axis=1), positions[-1], positions)
    last_of_ties = np.minimum.accumulate(tie_ends[:, ::-1], axis=1)[:, ::-1]
    return _SortedRows(order, np.argsort(order, axis=1), first_of_ties, last_of_ties)


def spearman_of_counts(values: Floats, counts: Ints) -> Floats:
    """`spearman` with item i repeated `counts[draw, i]` times in each row: float [draw, row, row].

    A row that is constant in a draw has correlation 0 with the others there.

    Args:
        values: float [row, item].
        counts: int [draw, item].
    """
    sorted_rows = _sort_rows(values)
    draws_at_once = max(1, ELEMENTS_AT_ONCE // values.size)
    rho_of_blocks = []
    for start in range(0, len(counts), draws_at_once):
        block = counts[start : start + draws_at_once].astype(np.float64)
        rho_of_blocks.append(_weighted_spearman(sorted_rows, block))
    return np.concatenate(rho_of_blocks)


def _weighted_spearman(sorted_rows: _SortedRows, counts: Floats) -> Floats:
    """Pearson's correlation of the ranks in each draw, float [draw, row, row]; ties share a rank.

    Args:
        sorted_rows: The sorted items of each row.
        counts: float [draw, item], how often each item is drawn.
    """
    sorted_counts = counts[:, sorted_rows.order]
    running_count = np.cumsum(sorted_counts, axis=2)
    count_below = np.take_along_axis(
        running_count - sorted_counts, sorted_rows.first_of_ties[None], axis=2
    )
    count_up_to = np.take_along_axis(running_count, sorted_rows.last_of_ties[None], axis=2)
    # Twice the rank of tied items is count_below + count_up_to + 1; twice the mean over all items
    # is their number + 1. The factor 2 cancels in a correlation.
    centred_ranks = np.take_along_axis(
        count_below + count_up_to - counts.sum(axis=1)[:, None, None],
        sorted_rows.position[None],
        axis=2,
    )
    weighted_ranks = centred_ranks * np.sqrt(counts)[:, None, :]
    products = weighted_ranks @ weighted_ranks.transpose(0, 2, 1)
    norms = np.sqrt(np.einsum("dii->di", products))
    scale = norms[:, :, None] * norms[:, None, :]
    rho = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    rho[:, np.arange(len(sorted_rows.order)), np.arange(len(sorted_rows.order))] = 1.0
    return np.asarray(rho)


def resample_counts(items: int, rng: np.random.Generator, draws: int = DRAWS) -> Ints:
    """How often each item is drawn in each resample with replacement, int [draw, item]."""
    return np.asarray(rng.multinomial(items, np.full(items, 1 / items), size=draws), dtype=np.int64)


def jackknife_counts(items: int) -> Ints:
    """Jackknife counts, each leaving out one item: int [item, item]."""
    return 1 - np.eye(items, dtype=np.int64)


def bca_interval(point: Floats, resamples_of_point: Floats, jackknife: Floats) -> Interval:
    """95 % bias-corrected and accelerated bootstrap interval of any statistic (Efron 1987).

    It is computed elementwise, and is NaN where the point is.

    Args:
        point: float [...], the statistic of the data.
        resamples_of_point: float [draw, ...], the statistic of each resample.
        jackknife: float [item, ...], the statistic without each item.
    """
    draws = len(resamples_of_point)
    draws_below = (resamples_of_point < point).sum(axis=0)
    draws_equal = (resamples_of_point == point).sum(axis=0)
    bias = scipy.special.ndtri((draws_below + draws_equal / 2 + 0.5) / (draws + 1))
    influence = jackknife.mean(axis=0) - jackknife
    spread = (influence**2).sum(axis=0) ** 1.5
    skew = np.divide(
        (influence**3).sum(axis=0), 6 * spread, out=np.zeros_like(spread), where=spread > 0
    )
    sorted_resamples = np.sort(resamples_of_point, axis=0)
    bounds = []
    for z in scipy.special.ndtri(TAILS):
        biased_z = bias + z
        share_below = scipy.special.ndtr(bias + biased_z / np.maximum(1 - skew * biased_z, 1e-6))
        # Linear between order statistics, as in numpy's quantile.
        position = share_below * (draws - 1)
        whole_position = np.floor(position).astype(np.int64)
        row_below = np.minimum(whole_position, draws - 1)[None]
        row_above = np.minimum(whole_position + 1, draws - 1)[None]
        value_below = np.take_along_axis(sorted_resamples, row_below, axis=0)[0]
        value_above = np.take_along_axis(sorted_resamples, row_above, axis=0)[0]
        bound = value_below + (position - whole_position) * (value_above - value_below)
        bounds.append(np.where(np.isnan(point), np.nan, bound))
    return Interval(*bounds)


def spearman_interval(
    values: Floats, rng: np.random.Generator, draws: int = DRAWS
) -> tuple[Floats, Interval]:
    """`spearman` and its interval for every pair of rows, each float [row, row].

    The interval comes from resampling items. It reflects the choice of items, not the noise in
    their values.

    Args:
        values: float [row, item].
    """
    rho = spearman(values)
    items = values.shape[1]
    rho_of_resamples = spearman_of_counts(values, resample_counts(items, rng, draws))
    rho_of_jackknife = spearman_of_counts(values, jackknife_counts(items))
    return rho, bca_interval(rho, rho_of_resamples, rho_of_jackknife)


def cluster_tree(rho: Floats) -> Floats:
    """Average linkage on 1 - rho: float [merge, 4], as of `scipy.cluster.hierarchy.linkage`.

    Similar rows are placed side by side (Bar-Joseph et al. 2001).

    Args:
        rho: float [row, row], NaN counts as 0.
    """
    return np.asarray(
        scipy.cluster.hierarchy.linkage(_distances(rho), "average", optimal_ordering=True),
        dtype=np.float64,
    )


def _distances(rho: Floats) -> Floats:
    """1 - rho as scipy's condensed distances; NaN correlations count as 0."""
    distance = np.clip(1 - np.nan_to_num(rho), 0, 2)
    np.fill_diagonal(distance, 0)
    return np.asarray(scipy.spatial.distance.squareform((distance + distance.T) / 2, checks=False))


def cluster_order(rho: Floats) -> Ints:
    """Row order that puts similar rows side by side: average linkage on 1 - rho."""
    if len(rho) < 3:
        return np.arange(len(rho), dtype=np.int64)
    return np.asarray(scipy.cluster.hierarchy.leaves_list(cluster_tree(rho)), dtype=np.int64)


def clusters_of_tree(tree: Floats) -> list[frozenset[int]]:
    """The rows below each merge of a tree, in merge order."""
    rows_below = [frozenset({row}) for row in range(len(tree) + 1)]
    for left_row, right_row, *_ in tree:
        rows_below.append(rows_below[int(left_row)] | rows_below[int(right_row)])
    return rows_below[len(tree) + 1 :]


def cluster_support(tree: Floats, rho_of_resamples: Floats) -> Floats:
    """Share of resamples whose own tree contains the same cluster, [merge] (Felsenstein 1985).

    The last merge contains every row, so its support is 1.

    Args:
        rho_of_resamples: float [draw, row, row], correlations.
    """
    tree_clusters = clusters_of_tree(tree)
    times_seen = np.zeros(len(tree))
    for rho in rho_of_resamples:
        resample_clusters = set(
            clusters_of_tree(scipy.cluster.hierarchy.linkage(_distances(rho), "average"))
        )
        times_seen += [cluster in resample_clusters for cluster in tree_clusters]
    return np.asarray(times_seen / len(rho_of_resamples))


# Agreement of rows of noisy values, its noise ceiling, and the outlier among the rows.

# If a ceiling's lower end is below this, noise dominates the correlation.
LOWEST_CEILING = 0.5


class IntervalEstimate(NamedTuple):
    """Values with an interval around each; three arrays of one shape."""

    value: Floats
    low: Floats
    high: Floats


class Outlier(NamedTuple):
    """The row that agrees least with the others.

    Attributes:
        row: The row with the lowest mean correlation.
        next: The row with the second lowest.
        share: [row], share of resamples in which each row is the lowest.
        gap: Mean correlation of `next` minus that of `row`, with its interval.
    """

    row: int
    next: int
    share: Floats
    gap: IntervalEstimate


@dataclass(frozen=True)
class NoiseEffect:
    """Effect of noise on the correlations; NaN where a row has no halves.

    Attributes:
        reliability: [row], expected rank correlation with a second measurement of the same size.
        ceiling: [row, row], expected correlation of two rows with the same true ranks.
        corrected: [row, row], correlation / ceiling.
        across: [row, row], corrected correlation from halves with different draws only, which share
            no noise; NaN where the halves of two rows do not match.
        clear: bool [row, row], whether the ceiling's interval is above LOWEST_CEILING.
        outlier: The outlier by `across`; None unless all ceilings are clear and known.
    """

    reliability: IntervalEstimate
    ceiling: IntervalEstimate
    corrected: IntervalEstimate
    across: IntervalEstimate
    clear: Bools
    outlier: Outlier | None


@dataclass(frozen=True)
class Agreement:
    """Rank correlations of rows.

    Attributes:
        rho: [row, row], correlation of every pair of rows.
        mean: [row], mean correlation with the other rows.
        tree: [merge, 4], average linkage on 1 - rho.
        support: [merge], share of resamples that contain each cluster.
        outlier: None for fewer than three rows.
    """

    rho: IntervalEstimate
    mean: IntervalEstimate
    tree: Floats
    support: Floats
    outlier: Outlier | None
    noise: NoiseEffect | None


def stepped_up(half_correlation: Floats) -> Floats:
    """Full-length reliability from the correlation r of two halves (Spearman 1910; Brown 1910).

    It is 2 r / (1 + r), in [0, 1], and 0 for a correlation of 0 or below.
    """
    return np.asarray(
        np.clip(2 * half_correlation / np.maximum(1 + half_correlation, 1e-9), 0.0, 1.0)
    )


def noise_ceiling(reliability: Floats) -> Floats:
    """Expected correlation of two rows with the same true ranks (Spearman 1904).

    It is sqrt(r_a r_b) for every pair of rows.

    Args:
        reliability: float [..., row].

    Returns:
        float [..., row, row], 1 on the diagonal.
    """
    ceiling = np.sqrt(reliability[..., :, None] * reliability[..., None, :])
    rows = np.arange(reliability.shape[-1])
    ceiling[..., rows, rows] = 1.0
    return np.asarray(ceiling)


class _Resampled(NamedTuple):
    """A statistic of the data, of its resamples and of its jackknife samples.

    Attributes:
        point: float [1, ...], of the data.
        resamples: float [draw, ...], of each resample.
        jackknife: float [item, ...], of the data without each item.
    """

    point: Floats
    resamples: Floats
    jackknife: Floats

    def apply(self, statistic: Callable[[Floats], Floats]) -> _Resampled:
        """The values of a statistic of each of the three arrays."""
        return _Resampled(*map(statistic, self))

    def estimate(self) -> IntervalEstimate:
        """The statistic of the data with its BCa interval."""
        return IntervalEstimate(
            self.point[0], *bca_interval(self.point[0], self.resamples, self.jackknife)
        )


def reliability(halves: Floats, rng: np.random.Generator, draws: int = DRAWS) -> IntervalEstimate:
    """Split-half reliability of the rows' ranks: rho of two halves, stepped up to full length.

    The noise is that from the choice of examples and of samples.

    Args:
        halves: float [row, half, item], values from each half of the examples alone.

    Returns:
        [row]; NaN where halves are NaN.
    """
    rows, _, items = halves.shape
    correlations = _correlations(halves.reshape(2 * rows, items), rng, draws)
    return correlations.apply(_correlation_of_own_halves).apply(stepped_up).estimate()


def agreement(
    values: Floats,
    halves: Floats | None,
    rng: np.random.Generator,
    draws: int = DRAWS,
    *,
    halves_match: Bools | None = None,
) -> Agreement:
    """Agreement of rows, with intervals by resampling items.

    Args:
        values: float [row, item].
        halves: float [row, half, item], NaN where a row has none; None if no row has any.
        halves_match: bool [row, row], whether the first half of one row and the second half of the
            other share no draws; None if this holds for all.
    """
    rows = len(values)
    halves_match = (
        np.ones((rows, rows), bool)
        if halves_match is None
        else halves_match | np.eye(rows, dtype=bool)
    )
    rows_and_halves = (
        values if halves is None else np.concatenate([values, halves.reshape(2 * rows, -1)])
    )
    correlations = _correlations(rows_and_halves, rng, draws)
    rho = correlations.apply(lambda part: part[:, :rows, :rows])
    tree = cluster_tree(rho.point[0])
    noise = None
    if halves is not None:
        half_correlations = correlations.apply(lambda part: part[:, rows:, rows:])
        noise = _noise(rho, half_correlations, halves_match)
    return Agreement(
        rho.estimate(),
        rho.apply(_mean_to_others).estimate(),
        tree,
        cluster_support(tree, rho.resamples),
        _outlier(rho),
        noise,
    )


def _correlations(values: Floats, rng: np.random.Generator, draws: int) -> _Resampled:
    """Correlations of all rows, [..., row, row]; NaN in the data where a row is constant."""
    items = values.shape[1]
    counts = (
        np.ones((1, items), np.int64),
        resample_counts(items, rng, draws),
        jackknife_counts(items),
    )
    correlations = _Resampled(
        *(spearman_of_counts(values, sample_counts) for sample_counts in counts)
    )
    undefined_rows = np.isnan(values).any(axis=1) | (values == values[:, :1]).all(axis=1)
    correlations.point[
        0, (undefined_rows[:, None] | undefined_rows) & ~np.eye(len(values), dtype=bool)
    ] = np.nan
    return correlations


def _correlation_of_own_halves(half_correlations: Floats) -> Floats:
    """Correlation of each row's two halves, [..., row], out of those of all halves."""
    first_halves = np.arange(0, half_correlations.shape[-1], 2)
    second_halves = first_halves + 1
    return np.asarray(half_correlations[..., first_halves, second_halves])


def _correlation_across_halves(half_correlations: Floats) -> Floats:
    """Correlation of opposite halves of two rows, over its noise ceiling: [..., row, row].

    Matched halves use different examples and draws, so they share no noise.
    """
    mean = (half_correlations[..., ::2, 1::2] + half_correlations[..., 1::2, ::2]) / 2
    reliability_of_halves = np.maximum(_correlation_of_own_halves(half_correlations), 0)
    return _divide_by_ceiling(mean, noise_ceiling(reliability_of_halves))


def _divide_by_ceiling(rho: Floats, ceiling: Floats) -> Floats:
    """Correlation / ceiling, in [-1, 1], 1 on the diagonal; NaN where the ceiling is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        corrected_rho = np.where(ceiling > 0, np.clip(rho / ceiling, -1, 1), np.nan)
    rows = np.arange(rho.shape[-1])
    corrected_rho[..., rows, rows] = 1.0
    return np.asarray(corrected_rho)


def _mean_to_others(rho: Floats) -> Floats:
    """Mean correlation of each row with the others, [..., row]; missing ones count as 0."""
    return np.asarray((np.nan_to_num(rho).sum(axis=-1) - 1) / max(1, rho.shape[-1] - 1))


def _outlier(rho: _Resampled) -> Outlier | None:
    """The row with the lowest mean correlation; None for fewer than three rows or unknown ones."""
    mean = rho.apply(_mean_to_others)
    rows = mean.point.shape[1]
    if rows < 3 or np.isnan(rho.point).any():
        return None
    rows_by_mean = np.argsort(mean.point[0], kind="stable")
    lowest = int(rows_by_mean[0])
    second = int(rows_by_mean[1])
    gap = mean.apply(lambda part: part[:, second] - part[:, lowest]).estimate()
    share = np.bincount(mean.resamples.argmin(axis=1), minlength=rows) / len(mean.resamples)
    return Outlier(lowest, second, share, gap)


def _noise(rho: _Resampled, half_correlations: _Resampled, halves_match: Bools) -> NoiseEffect:
    """The effect of noise on correlations.

    Args:
        rho: Correlations of the rows, [..., row, row].
        half_correlations: Correlations of all halves, [..., 2 row, 2 row].
        halves_match: bool [row, row], whether opposite halves of two rows share no draws.
    """
    row_reliability = half_correlations.apply(_correlation_of_own_halves).apply(stepped_up)
    ceiling = row_reliability.apply(noise_ceiling)
    across = _fill_missing_resamples(
        half_correlations.apply(_correlation_across_halves).apply(
            lambda part: np.where(halves_match, part, np.nan)
        )
    )
    ceiling_estimate = ceiling.estimate()
    is_clear = np.asarray(ceiling_estimate.low > LOWEST_CEILING)
    corrected_rho = _Resampled(*map(_divide_by_ceiling, rho, ceiling))
    return NoiseEffect(
        row_reliability.estimate(),
        ceiling_estimate,
        _fill_missing_resamples(corrected_rho).estimate(),
        across.estimate(),
        is_clear,
        _outlier(across) if is_clear.all() else None,
    )


def _fill_missing_resamples(draws: _Resampled) -> _Resampled:
    """Resamples without any agreement between halves (NaN) take the data's value."""
    point = np.nan_to_num(draws.point)
    return _Resampled(draws.point, *(np.where(np.isnan(part), point, part) for part in draws[1:]))


# Number of heads that two selections share by chance: the hypergeometric distribution.


class ExpectedOverlap(NamedTuple):
    """Number of heads shared with a random choice: its mean, and a range.

    The range from `low` to `high` covers at least 95 % of all choices.
    """

    mean: float
    low: int
    high: int


def expected_overlap(heads: int, first_size: int, second_size: int) -> ExpectedOverlap:
    """How many heads a choice of heads and a random one share (Feller 1968, section II.6).

    Args:
        heads: Number of heads that both sets are chosen from.
        first_size: Number of chosen heads.
        second_size: Number of random heads.
    """
    distribution = scipy.stats.hypergeom(heads, first_size, second_size)
    low, high = (int(distribution.ppf(share)) for share in TAILS)
    return ExpectedOverlap(first_size * second_size / heads, low, high)


def overlap_p_value(heads: int, first_size: int, second_size: int, shared_heads: int) -> float:
    """Probability that chosen and random heads share `shared_heads` or more (Fisher 1935).

    Args:
        heads: Number of heads that both sets are chosen from.
        first_size: Number of chosen heads.
        second_size: Number of random heads.
        shared_heads: Number of heads in both sets.
    """
    return min(
        1.0, float(scipy.stats.hypergeom.sf(shared_heads - 1, heads, first_size, second_size))
    )
