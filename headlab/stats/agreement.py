"""Rank correlation of rows of values, clustering by it, noise ceilings, and the overlap of chosen heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from scipy.special import ndtr, ndtri
from scipy.stats import hypergeom, rankdata

from headlab.core import Bools, Floats, Ints
from headlab.stats.betting import Interval

# Rank correlation of rows, under any resampling of their items, and the cluster tree based on it.

DRAWS = 2000
TAILS = ((1 - 0.95) / 2, (1 + 0.95) / 2)  # shares below the ends of a 95 % interval
BLOCK = 1 << 19  # array elements handled at once: as many as fit in a CPU's cache


def spearman(values: Floats) -> Floats:
    """Rank correlation of every pair of rows: float [row, item] -> [row, row], 1 on the diagonal.

    A constant row has no correlations: its entries are NaN off the diagonal.
    """
    ranks = rankdata(values, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    norm = np.sqrt((centred**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = (centred @ centred.T) / np.outer(norm, norm)
    np.fill_diagonal(rho, 1.0)
    return np.asarray(rho)


class _Order(NamedTuple):
    """Sorted rows, int [row, item] each: the item at each place, each item's place, and first and last of its ties."""

    order: Ints
    place: Ints
    first: Ints
    last: Ints


def _ordered(values: Floats) -> _Order:
    order = np.argsort(values, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=1)
    places = np.arange(values.shape[1])
    same = np.zeros(values.shape, dtype=bool)
    same[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    first = np.maximum.accumulate(np.where(same, 0, places), axis=1)
    ends = np.where(np.roll(same, -1, axis=1), places[-1], places)
    last = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    return _Order(order, np.argsort(order, axis=1), first, last)


def spearman_of_counts(values: Floats, counts: Ints) -> Floats:
    """`spearman` with item i repeated `counts[draw, i]` times in each row: float [draw, row, row].

    values: float [row, item].  counts: int [draw, item].  A row that is constant in a draw has correlation 0
    with the others there.
    """
    ordered, rows = _ordered(values), max(1, BLOCK // values.size)
    parts = [counts[at : at + rows].astype(np.float64) for at in range(0, len(counts), rows)]
    return np.concatenate([_weighted(ordered, part) for part in parts])


def _weighted(ordered: _Order, counts: Floats) -> Floats:
    """Pearson's correlation of the mean ranks in each draw, float [draw, row, row]."""
    often = counts[:, ordered.order]
    upto = np.cumsum(often, axis=2)
    below = np.take_along_axis(upto - often, ordered.first[None], axis=2)
    upto = np.take_along_axis(upto, ordered.last[None], axis=2)
    # Twice a rank is below + upto + 1, and twice the mean rank is the number of items + 1.
    centred = np.take_along_axis(
        below + upto - counts.sum(axis=1)[:, None, None], ordered.place[None], axis=2
    )
    centred *= np.sqrt(counts)[:, None, :]
    products = centred @ centred.transpose(0, 2, 1)
    norm = np.sqrt(np.einsum("dii->di", products))
    scale = norm[:, :, None] * norm[:, None, :]
    rho = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    rho[:, np.arange(len(ordered.order)), np.arange(len(ordered.order))] = 1.0
    return np.asarray(rho)


def resamples(items: int, rng: np.random.Generator, draws: int = DRAWS) -> Ints:
    """How often each item is drawn in a resample of the same size with replacement: int [draw, item]."""
    return np.asarray(rng.multinomial(items, np.full(items, 1 / items), size=draws), dtype=np.int64)


def left_out(items: int) -> Ints:
    """Jackknife counts, each leaving out one item: int [item, item]."""
    return 1 - np.eye(items, dtype=np.int64)


def bca(point: Floats, resampled: Floats, jackknife: Floats) -> Interval:
    """95 % bias-corrected and accelerated bootstrap interval of any statistic, elementwise (Efron 1987).

    point: float [...].  resampled: float [draw, ...].  jackknife: float [item, ...], the statistic without each
    item.  NaN where the point is.
    """
    draws = len(resampled)
    under = (resampled < point).sum(axis=0) + (resampled == point).sum(axis=0) / 2
    bias = ndtri((under + 0.5) / (draws + 1))
    gap = jackknife.mean(axis=0) - jackknife
    spread = (gap**2).sum(axis=0) ** 1.5
    skew = np.divide((gap**3).sum(axis=0), 6 * spread, out=np.zeros_like(spread), where=spread > 0)
    ranked = np.sort(resampled, axis=0)
    ends = []
    for z in ndtri(TAILS):
        # Linear between order statistics, as in numpy's quantile.
        at = ndtr(bias + (bias + z) / np.maximum(1 - skew * (bias + z), 1e-6)) * (draws - 1)
        lower = np.floor(at).astype(np.int64)[None]
        low, high = (
            np.take_along_axis(ranked, np.minimum(i, draws - 1), axis=0)[0]
            for i in (lower, lower + 1)
        )
        ends.append(np.where(np.isnan(point), np.nan, low + (at - lower[0]) * (high - low)))
    return Interval(*ends)


def spearman_interval(
    values: Floats, rng: np.random.Generator, draws: int = DRAWS
) -> tuple[Floats, Interval]:
    """`spearman` with an interval for every pair of rows, by resampling items: each float [row, row].

    values: float [row, item].  The interval reflects the choice of items, not the noise in their values.
    """
    rho, items = spearman(values), values.shape[1]
    drawn, without = (
        spearman_of_counts(values, c) for c in (resamples(items, rng, draws), left_out(items))
    )
    return rho, bca(rho, drawn, without)


def cluster_tree(rho: Floats) -> Floats:
    """Average linkage on 1 - rho: float [merge, 4] in the form of `scipy.cluster.hierarchy.linkage`.

    rho: float [row, row], NaN counts as 0.  Similar rows are placed side by side (Bar-Joseph et al. 2001).
    """
    return np.asarray(linkage(_distances(rho), "average", optimal_ordering=True), dtype=np.float64)


def _distances(rho: Floats) -> Floats:
    distance = np.clip(1 - np.nan_to_num(rho), 0, 2)
    np.fill_diagonal(distance, 0)
    return np.asarray(squareform((distance + distance.T) / 2, checks=False))


def cluster_order(rho: Floats) -> Ints:
    """Row order that puts similar rows side by side: average linkage on 1 - rho."""
    if len(rho) < 3:
        return np.arange(len(rho), dtype=np.int64)
    return np.asarray(leaves_list(cluster_tree(rho)), dtype=np.int64)


def clusters(tree: Floats) -> list[frozenset[int]]:
    """The rows below each merge of a tree, in merge order."""
    below = [frozenset({row}) for row in range(len(tree) + 1)]
    for left, right, *_ in tree:
        below.append(below[int(left)] | below[int(right)])
    return below[len(tree) + 1 :]


def cluster_support(tree: Floats, resampled: Floats) -> Floats:
    """Share of resamples whose own tree contains the same cluster, [merge] (Felsenstein 1985).

    resampled: float [draw, row, row], correlations.  The last merge contains every row, so its support is 1.
    """
    wanted, count = clusters(tree), np.zeros(len(tree))
    for rho in resampled:
        found = set(clusters(linkage(_distances(rho), "average")))
        count += [cluster in found for cluster in wanted]
    return np.asarray(count / len(resampled))


# Agreement of rows of noisy values, its noise ceiling, and the outlier among the rows.

# If a ceiling's lower end is below this, noise dominates the correlation.
LOWEST_CEILING = 0.5


class Estimate(NamedTuple):
    """Values with an interval around each; three arrays of one shape."""

    value: Floats
    low: Floats
    high: Floats


class Outlier(NamedTuple):
    """The row that agrees least with the others.

    row, next: rows with the lowest and second lowest mean correlation.  share: [row], share of resamples in which each
    row is the lowest.  gap: mean correlation of `next` minus that of `row`, with its interval.
    """

    row: int
    next: int
    share: Floats
    gap: Estimate


@dataclass(frozen=True)
class Noise:
    """Effect of noise on the correlations; NaN where a row has no halves.

    reliability: [row], expected rank correlation with a second measurement of the same size.  ceiling: [row,
    row], expected correlation of two rows with the same true ranks.  corrected: [row, row], correlation / ceiling.
    across: [row, row], the same from halves with different draws only, which share no noise; NaN where the halves of
    two rows do not match.  clear: bool [row, row], whether the ceiling's interval is above LOWEST_CEILING.  outlier: by
    `across`; None unless all are clear and known.
    """

    reliability: Estimate
    ceiling: Estimate
    corrected: Estimate
    across: Estimate
    clear: Bools
    outlier: Outlier | None


@dataclass(frozen=True)
class Agreement:
    """Rank correlations of rows.

    rho: [row, row].  mean: [row], mean correlation with the other rows.  tree: [merge, 4], average linkage on
    1 - rho.  support: [merge], share of resamples that contain each cluster.  outlier: None for fewer than three rows.
    """

    rho: Estimate
    mean: Estimate
    tree: Floats
    support: Floats
    outlier: Outlier | None
    noise: Noise | None


def stepped_up(half: Floats) -> Floats:
    """Full-length reliability from the correlation r of two halves, in [0, 1] (Spearman 1910; Brown 1910).

    2 r / (1 + r), and 0 for a correlation of 0 or below.
    """
    return np.asarray(np.clip(2 * half / np.maximum(1 + half, 1e-9), 0.0, 1.0))


def noise_ceiling(reliability: Floats) -> Floats:
    """Expected correlation of two rows with the same true ranks: sqrt(r_a r_b) for every pair (Spearman 1904).

    reliability: float [..., row] -> float [..., row, row], 1 on the diagonal.
    """
    ceiling = np.sqrt(reliability[..., :, None] * reliability[..., None, :])
    rows = np.arange(reliability.shape[-1])
    ceiling[..., rows, rows] = 1.0
    return np.asarray(ceiling)


class _Draws(NamedTuple):
    """A statistic of the data [1, ...], of its resamples [draw, ...] and of its jackknife samples [item, ...]."""

    point: Floats
    resampled: Floats
    without: Floats

    def of(self, statistic: Callable[[Floats], Floats]) -> _Draws:
        return _Draws(*map(statistic, self))

    def estimate(self) -> Estimate:
        return Estimate(self.point[0], *bca(self.point[0], self.resampled, self.without))


def reliability(halves: Floats, rng: np.random.Generator, draws: int = DRAWS) -> Estimate:
    """Split-half reliability of the rows' ranks: Spearman's rho of two halves, stepped up to full length.

    halves: float [row, half, item], values from each half of the examples alone.  The noise is that from the choice
    of examples and of samples.  Returns [row]; NaN where halves are NaN.
    """
    rows, _, items = halves.shape
    return (
        _correlations(halves.reshape(2 * rows, items), rng, draws)
        .of(_own)
        .of(stepped_up)
        .estimate()
    )


def agreement(
    values: Floats,
    halves: Floats | None,
    rng: np.random.Generator,
    draws: int = DRAWS,
    *,
    matched: Bools | None = None,
) -> Agreement:
    """Agreement of rows, with intervals by resampling items.

    values: float [row, item].  halves: float [row, half, item], NaN where a row has none; None if no row has any.
    matched: bool [row, row], whether the first half of one row and the second half of the other share no draws;
    None if this holds for all.
    """
    rows = len(values)
    matched = np.ones((rows, rows), bool) if matched is None else matched | np.eye(rows, dtype=bool)
    every = values if halves is None else np.concatenate([values, halves.reshape(2 * rows, -1)])
    found = _correlations(every, rng, draws)
    rho = found.of(lambda part: part[:, :rows, :rows])
    tree = cluster_tree(rho.point[0])
    return Agreement(
        rho.estimate(),
        rho.of(_mean_to_others).estimate(),
        tree,
        cluster_support(tree, rho.resampled),
        _outlier(rho),
        None
        if halves is None
        else _noise(rho, found.of(lambda part: part[:, rows:, rows:]), matched),
    )


def _correlations(values: Floats, rng: np.random.Generator, draws: int) -> _Draws:
    """Correlations of all rows, [..., row, row]; NaN in the data where a row is constant."""
    items = values.shape[1]
    counts = (np.ones((1, items), np.int64), resamples(items, rng, draws), left_out(items))
    found = _Draws(*(spearman_of_counts(values, drawn) for drawn in counts))
    lacking = np.isnan(values).any(axis=1) | (values == values[:, :1]).all(axis=1)
    found.point[0, (lacking[:, None] | lacking) & ~np.eye(len(values), dtype=bool)] = np.nan
    return found


def _own(of_halves: Floats) -> Floats:
    """Correlation of each row's two halves, [..., row], from those of all halves [..., 2 row, 2 row]."""
    first = np.arange(0, of_halves.shape[-1], 2)
    return np.asarray(of_halves[..., first, first + 1])


def _across(of_halves: Floats) -> Floats:
    """Correlation of one row's half with the other row's opposite half, divided by its noise ceiling: [..., row, row].

    Matched halves use different examples and draws, so they share no noise.
    """
    mean = (of_halves[..., ::2, 1::2] + of_halves[..., 1::2, ::2]) / 2
    return _over(mean, noise_ceiling(np.maximum(_own(of_halves), 0)))


def _over(rho: Floats, ceiling: Floats) -> Floats:
    """Correlation / ceiling, in [-1, 1], 1 on the diagonal; NaN where the ceiling is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        out = np.where(ceiling > 0, np.clip(rho / ceiling, -1, 1), np.nan)
    rows = np.arange(rho.shape[-1])
    out[..., rows, rows] = 1.0
    return np.asarray(out)


def _mean_to_others(rho: Floats) -> Floats:
    """Mean correlation of each row with the others, [..., row]; missing ones count as 0."""
    return np.asarray((np.nan_to_num(rho).sum(axis=-1) - 1) / max(1, rho.shape[-1] - 1))


def _outlier(rho: _Draws) -> Outlier | None:
    mean = rho.of(_mean_to_others)
    rows = mean.point.shape[1]
    if rows < 3 or np.isnan(rho.point).any():
        return None
    lowest, second = (int(row) for row in np.argsort(mean.point[0], kind="stable")[:2])
    gap = mean.of(lambda part: part[:, second] - part[:, lowest]).estimate()
    share = np.bincount(mean.resampled.argmin(axis=1), minlength=rows) / len(mean.resampled)
    return Outlier(lowest, second, share, gap)


def _noise(rho: _Draws, of_halves: _Draws, matched: Bools) -> Noise:
    whole = of_halves.of(_own).of(stepped_up)
    ceiling = whole.of(noise_ceiling)
    across = of_halves.of(_across).of(lambda part: np.where(matched, part, np.nan))
    bounds = ceiling.estimate()
    clear = np.asarray(bounds.low > LOWEST_CEILING)
    corrected = _Draws(*(_over(r, c) for r, c in zip(rho, ceiling, strict=True)))
    return Noise(
        whole.estimate(),
        bounds,
        _filled(corrected).estimate(),
        _filled(across).estimate(),
        clear,
        _outlier(_filled(across)) if clear.all() else None,
    )


def _filled(draws: _Draws) -> _Draws:
    """Resamples without any agreement between halves (NaN) take the data's value."""
    point = np.nan_to_num(draws.point)
    return _Draws(draws.point, *(np.where(np.isnan(part), point, part) for part in draws[1:]))


# Number of heads that two selections share by chance: the hypergeometric distribution.


class Chance(NamedTuple):
    """Number of heads shared with a random choice: mean, and a range that covers at least 95 % of all choices."""

    mean: float
    low: int
    high: int


def by_chance(heads: int, one: int, other: int) -> Chance:
    """Overlap of `one` chosen heads and `other` random ones out of `heads` (Feller 1968, section II.6)."""
    law = hypergeom(heads, one, other)
    return Chance(one * other / heads, *(int(law.ppf(share)) for share in TAILS))


def chance_of_more(heads: int, one: int, other: int, shared: int) -> float:
    """Probability that `one` chosen heads and `other` random ones share `shared` or more (Fisher 1935)."""
    return min(1.0, float(hypergeom.sf(shared - 1, heads, one, other)))
