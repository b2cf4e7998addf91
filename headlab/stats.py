"""Intervals, tests and agreement: pure functions of arrays, no model in sight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from scipy.special import logsumexp
from scipy.stats import rankdata

from headlab.records import Bools, Floats, Ints

# Fractions of the capital put at stake, and the share of the capital that each is given. Any fixed choice
# is valid; this one suits gains that are mostly 0 (benchmarks/intervals.py).
FRACTIONS = (0.003, 0.01, 0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.8, 0.95)
SHARES = (0.01, 0.02, 0.04, 0.09, 0.14, 0.15, 0.15, 0.14, 0.12, 0.09, 0.05)
BISECTIONS = 60


class Interval(NamedTuple):
    """Lower and upper ends, same shape and unit as the mean they enclose."""

    low: Floats
    high: Floats


def log_capital(support: Floats, counts: Ints, mean: Floats) -> Floats:
    """Log wealth of a bettor against "the mean is at most `mean`", over fixed fractions in fixed shares.

    support: float [value] in [-1, 1], the values a draw can take.  counts: int [value, head].
    mean: float [head].  Returns float [head].  Under the hypothesis the wealth is a nonnegative
    supermartingale whatever the order of the draws, so 1 / wealth is a p-value at any stopping
    time. Waudby-Smith & Ramdas 2023, section 4, with a mixture of constant bets in place of a
    running one: the wealth then depends on the counts alone.
    """
    share = (1 + support)[:, None] / np.maximum(1 + mean, 1e-300)[None, :]  # [value, head]
    fractions = np.array(FRACTIONS)
    growth = np.log1p(fractions[:, None, None] * (share - 1)[None])  # [fraction, value, head]
    wealth = np.einsum("vh,fvh->fh", counts.astype(np.float64), growth)
    return np.asarray(logsumexp(wealth + np.log(SHARES)[:, None], axis=0))


def sample_mean(support: Floats, counts: Ints) -> Floats:
    """Mean of the draws, [head]; 0 where there are none."""
    return np.asarray(support @ counts / np.maximum(counts.sum(axis=0), 1), dtype=np.float64)


def _lower(support: Floats, counts: Ints, alpha: float) -> Floats:
    """Smallest mean that the draws do not refute at `alpha`, one-sided, by bisection [head]."""
    low, high = np.full(counts.shape[1], -1.0), sample_mean(support, counts)
    high = np.where(counts.sum(axis=0) == 0, 1.0, high)
    threshold = -np.log(alpha)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        refuted = log_capital(support, counts, middle) >= threshold
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low


def betting_interval(support: Floats, counts: Ints, level: float = 0.95) -> Interval:
    """Interval for the mean of draws in [-1, 1], valid at every look at once.

    support: float [value] in [-1, 1].  counts: int [value, head], how often each value came.
    Two one-sided confidence sequences at (1 - level) / 2 each; with no draws the answer is [-1, 1].
    Draws from a finite set without replacement stay valid at whole cycles: by Maclaurin's
    inequality the expected wealth only falls (docs/statistics.md).
    """
    alpha = (1 - level) / 2
    seen = counts.any(axis=1)  # of many levels most never come
    support, counts = support[seen], counts[seen]
    order = np.argsort(-support)
    low = _lower(support, counts, alpha)
    high = -_lower(-support[order], counts[order], alpha)
    empty = counts.sum(axis=0) == 0
    return Interval(np.where(empty, -1.0, low), np.where(empty, 1.0, high))


def betting_p(support: Floats, counts: Ints) -> Floats:
    """Two-sided p-value of "the mean is 0", valid at every look at once, [head]."""
    zero = np.zeros(counts.shape[1])
    both = np.logaddexp(log_capital(support, counts, zero), log_capital(-support, counts, zero)) - np.log(2)
    return np.asarray(np.minimum(1.0, np.exp(-both)))


def bernstein_width(variance: Floats, count: Ints, delta: float, span: float) -> Floats:
    """Empirical Bernstein half-width at one fixed number of draws; not valid when looked at repeatedly.

    Audibert, Munos & Szepesvári 2009, theorem 1, as in Held & Yang 2023, equation 4: sqrt(2 variance
    log(3 / delta) / count) + 3 span log(3 / delta) / count.  Infinite where nothing was drawn.
    """
    draws, log = np.maximum(count, 1), np.log(3 / delta)
    width = np.sqrt(2 * variance * log / draws) + 3 * span * log / draws
    return np.asarray(np.where(count == 0, np.inf, width))


def holm(p: Floats) -> Floats:
    """Holm's adjusted p-values: controls the chance of any false claim (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, steps)
    return out


def benjamini_hochberg(p: Floats) -> Floats:
    """Benjamini–Hochberg adjusted p-values: controls the share of false claims (1995)."""
    order = np.argsort(p, kind="stable")[::-1]
    steps = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, steps)
    return out


class Bootstrap(NamedTuple):
    """Interval for a mean, and a two-sided p-value of "the mean is 0"; each float [row]."""

    low: Floats
    high: Floats
    p: Floats


def group_bootstrap(
    values: Floats,
    groups: tuple[str, ...],
    rng: np.random.Generator,
    *,
    made_up: tuple[float, float] = (1.0, -1.0),
    draws: int = 2000,
    level: float = 0.95,
) -> Bootstrap:
    """Percentile intervals for the means of several rows, by resampling whole groups of examples.

    values: float [row, example].  groups: label [example]; examples of one group are drawn together.
    made_up: two values added to the pool as examples of their own, so that rows without any
    difference do not get an interval of length 0 (after Agresti & Min 2005).
    """
    _, member = np.unique(np.array(groups), return_inverse=True)
    count = int(member.max()) + 1
    sums = np.stack([np.bincount(member, row, minlength=count) for row in values])
    sums = np.concatenate([sums, np.tile(made_up, (len(sums), 1))], axis=1)
    sizes = np.append(np.bincount(member), [1, 1])
    picks = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=draws).astype(np.float64)
    resampled = (picks @ sums.T) / np.maximum(picks @ sizes, 1)[:, None]
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0)
    tail = 1 + np.minimum((resampled <= 0).sum(axis=0), (resampled >= 0).sum(axis=0))
    return Bootstrap(low, high, np.minimum(1.0, 2 * tail / (draws + 1)))


class Paired(NamedTuple):
    """Mean paired difference, its interval, and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    before: Bools,
    after: Bools,
    groups: tuple[str, ...],
    rng: np.random.Generator,
    draws: int = 2000,
    level: float = 0.95,
) -> Paired:
    """Difference in accuracy on the same examples, by resampling whole groups (Koehn 2004).

    before, after: bool [example].  groups, draws, level: as in `group_bootstrap`.
    """
    gain = after.astype(np.float64) - before.astype(np.float64)
    low, high, p = group_bootstrap(gain[None], groups, rng, draws=draws, level=level)
    return Paired(float(gain.mean()), float(low[0]), float(high[0]), float(p[0]))


def share_interval(
    correct: Bools, groups: tuple[str, ...], rng: np.random.Generator, level: float = 0.95
) -> tuple[float, float]:
    """Interval for an accuracy, by resampling whole groups; one example right and one wrong are made up."""
    low, high, _ = group_bootstrap(correct[None].astype(np.float64), groups, rng, made_up=(1.0, 0.0), level=level)
    return float(low[0]), float(high[0])


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


def cluster_order(rho: Floats) -> Ints:
    """Row order that puts similar rows side by side: average linkage on 1 - rho."""
    if len(rho) < 3:
        return np.arange(len(rho), dtype=np.int64)
    distance = np.clip(1 - np.nan_to_num(rho), 0, 2)
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform((distance + distance.T) / 2, checks=False), "average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), dtype=np.int64)
