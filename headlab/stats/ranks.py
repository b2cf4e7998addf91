"""Rank correlation of rows, under any resampling of their items, and the tree that it gives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from headlab.records import Floats, Ints
from headlab.stats.betting import Interval

DRAWS = 2000
BLOCK = 1 << 19  # numbers of an array at once: what stays in a processor's cache


def spearman(values: Floats) -> Floats:
    """Rank correlation of every pair of rows: float [row, item] -> [row, row], 1 on the diagonal.

    A row without any differences correlates with nothing: its entries are NaN off the diagonal.
    """
    ranks = rankdata(values, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    norm = np.sqrt((centred**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = (centred @ centred.T) / np.outer(norm, norm)
    np.fill_diagonal(rho, 1.0)
    return np.asarray(rho)


class _Order(NamedTuple):
    """Rows sorted, int [row, item] each: which item stands where, where an item stands, and its ties' ends."""

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
    """`spearman` where item i stands `counts[draw, i]` times in each row: float [draw, row, row].

    values: float [row, item].  counts: int [draw, item].  A row that a draw leaves without differences correlates
    0 with others there.
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
    # Twice a rank is below + upto + 1, and twice the mean rank is 1 more than there are items.
    centred = np.take_along_axis(below + upto - counts.sum(axis=1)[:, None, None], ordered.place[None], axis=2)
    centred *= np.sqrt(counts)[:, None, :]
    products = centred @ centred.transpose(0, 2, 1)
    norm = np.sqrt(np.einsum("dii->di", products))
    scale = norm[:, :, None] * norm[:, None, :]
    rho = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    rho[:, np.arange(len(ordered.order)), np.arange(len(ordered.order))] = 1.0
    return np.asarray(rho)


def resamples(items: int, rng: np.random.Generator, draws: int = DRAWS) -> Ints:
    """How often each item is drawn when as many are drawn with replacement: int [draw, item]."""
    return np.asarray(rng.multinomial(items, np.full(items, 1 / items), size=draws), dtype=np.int64)


def left_out(items: int) -> Ints:
    """Counts that leave out one item after another: int [item, item]."""
    return 1 - np.eye(items, dtype=np.int64)


def bca(point: Floats, resampled: Floats, jackknife: Floats, level: float = 0.95) -> Interval:
    """Bias-corrected and accelerated bootstrap interval of any statistic, elementwise (Efron 1987).

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
    for z in ndtri([(1 - level) / 2, (1 + level) / 2]):
        # Linear between order statistics, as numpy's quantile.
        at = ndtr(bias + (bias + z) / np.maximum(1 - skew * (bias + z), 1e-6)) * (draws - 1)
        lower = np.floor(at).astype(np.int64)[None]
        low, high = (np.take_along_axis(ranked, np.minimum(i, draws - 1), axis=0)[0] for i in (lower, lower + 1))
        ends.append(np.where(np.isnan(point), np.nan, low + (at - lower[0]) * (high - low)))
    return Interval(*ends)


def spearman_interval(
    values: Floats, rng: np.random.Generator, draws: int = DRAWS, level: float = 0.95
) -> tuple[Floats, Interval]:
    """`spearman` with an interval for every pair of rows, by resampling items: each float [row, row].

    values: float [row, item].  The interval says how much the correlation hangs on which items there are, not
    how noisy their values are.
    """
    rho, items = spearman(values), values.shape[1]
    drawn, without = (spearman_of_counts(values, c) for c in (resamples(items, rng, draws), left_out(items)))
    return rho, bca(rho, drawn, without, level)


def cluster_tree(rho: Floats) -> Floats:
    """Average linkage on 1 - rho: float [merge, 4] as `scipy.cluster.hierarchy.linkage` has it.

    rho: float [row, row], NaN counts as 0.  Similar rows stand side by side (Bar-Joseph et al. 2001).
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
    """The rows below each merge of a tree, in the order of its merges."""
    below = [frozenset({row}) for row in range(len(tree) + 1)]
    for left, right, *_ in tree:
        below.append(below[int(left)] | below[int(right)])
    return below[len(tree) + 1 :]


def cluster_support(tree: Floats, resampled: Floats) -> Floats:
    """Share of resamples whose own tree has the same cluster, [merge] (Felsenstein 1985).

    resampled: float [draw, row, row], correlations.  The last merge holds every row, so its support is 1.
    """
    wanted, count = clusters(tree), np.zeros(len(tree))
    for rho in resampled:
        found = set(clusters(linkage(_distances(rho), "average")))
        count += [cluster in found for cluster in wanted]
    return np.asarray(count / len(resampled))
