"""Intervals by resampling groups of examples, ratios of clustered counts, and p-values of many tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta, t

from headlab.core import Bools, Floats, Ints

# Intervals by resampling whole groups of examples, and their p-values.

DRAWS = 10_000
# One bin of a multinomial costs as much as picking this many groups one by one (benchmarks/bootstrap.py).
BIN_PICKS = 24
BLOCK = 1 << 17  # groups picked at once: as many as fit in a CPU's cache
# Digits to which resamples are rounded before they are compared with 0, so that sums that cancel give exactly 0.
DIGITS = 12


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
    draws: int = DRAWS,
    level: float = 0.95,
    answers: Ints | None = None,
) -> Bootstrap:
    """Percentile intervals for the means of several rows, by resampling whole groups of examples.

    values: float [row, example].  groups: label [example]; examples of one group are drawn together.
    made_up: two values added to the pool as pseudo-examples, so that rows without any
    difference do not get an interval of length 0 (after Agresti & Min 2005).  A row's result depends only on
    that row and the state of `rng`: rows share a random stream, not the groups that are drawn.  answers: int
    [example], of which `values` are the sums, and the result is their mean; by default one each.
    """
    return summary(
        resampled_means(values, groups, rng, made_up=made_up, draws=draws, answers=answers), level
    )


def stratified_bootstrap(
    strata: Sequence[tuple[Floats, tuple[str, ...]]],
    rng: np.random.Generator,
    *,
    made_up: tuple[float, float] = (1.0, -1.0),
    draws: int = DRAWS,
    level: float = 0.95,
) -> Bootstrap:
    """Percentile intervals for the mean over strata of their means, each stratum resampled separately.

    strata: values [row, example] and groups [example] of each, all with the same rows.  Strata have equal weight; each
    keeps its size, and has its own pseudo-examples and its own stream of `rng`.  The rest is as in `group_bootstrap`,
    which gives the same result for one stratum.
    """
    found = [
        resampled_means(values, groups, rng, made_up=made_up, draws=draws)
        for values, groups in strata
    ]
    return summary(np.mean(found, axis=0), level)


def resampled_means(
    values: Floats,
    groups: tuple[str, ...],
    rng: np.random.Generator,
    *,
    made_up: tuple[float, float],
    draws: int,
    answers: Ints | None = None,
) -> Floats:
    """Means of resamples of whole groups, float [row, draw]; arguments as in `group_bootstrap`.

    Groups without answers are left out where a resample would otherwise be of such groups alone.
    """
    _, member = np.unique(np.array(groups), return_inverse=True)
    sizes = np.append(np.bincount(member, answers), [1, 1]).astype(np.float64)
    sums = [
        np.append(np.bincount(member, row, minlength=len(sizes) - 2), made_up) for row in values
    ]
    seed = int(rng.integers(2**63))
    with np.errstate(invalid="ignore"):
        means = np.array(_resampled(sums, sizes, seed, draws))
    if np.isnan(means).any():
        answered = sizes > 0
        means = np.array(_resampled([row[answered] for row in sums], sizes[answered], seed, draws))
    return means


def summary(resampled: Floats, level: float) -> Bootstrap:
    """Interval and two-sided p of resampled means, or other statistics, float [row, draw]."""
    rounded, draws = np.round(resampled, DIGITS), resampled.shape[1]
    low, high = np.array(
        [np.quantile(row, [(1 - level) / 2, (1 + level) / 2]) for row in rounded]
    ).T
    tails = [1 + min((row <= 0).sum(), (row >= 0).sum()) for row in rounded]
    return Bootstrap(low, high, np.minimum(1.0, 2 * np.array(tails) / (draws + 1)))


def _resampled(sums: Sequence[Floats], sizes: Floats, seed: int, draws: int) -> list[Floats]:
    """Means of each row over resamples of as many groups, drawn with replacement: float [draw], row by row.

    Groups with the same sum and size are interchangeable, so the number drawn of each kind is multinomial: the same
    distribution, at a cost that does not grow with the number of groups. Rows with too many kinds pick groups instead.
    """
    kinds = [np.unique(row + 1j * sizes, return_counts=True) for row in sums]
    many = [i for i, (kind, _) in enumerate(kinds) if len(kind) * BIN_PICKS > len(sizes)]
    columns = np.stack([*(sums[i] for i in many), sizes], axis=1)
    *picked, size = resampled_sums(columns, seed, draws) if many else (sizes,)
    found = dict(zip(many, (total / size for total in picked), strict=True))
    return [
        found[i] if i in found else _counted(*kind, seed, draws) for i, kind in enumerate(kinds)
    ]


def _counted(kinds: Any, count: Ints, seed: int, draws: int) -> Floats:
    """Means of resamples [draw] of groups of a few kinds, each encoded as sum + i size."""
    groups = int(count.sum())
    drawn = (
        np.random.default_rng(seed)
        .multinomial(groups, count / groups, size=draws)
        .astype(np.float64)
    )
    return np.asarray((drawn @ kinds.real) / (drawn @ kinds.imag))


def resampled_sums(columns: Floats, seed: int | Sequence[int], draws: int) -> Floats:
    """Sums over resamples of as many groups, float [column, draw], of columns [group, column], block by block."""
    groups, wide = columns.shape
    rng, out, block = np.random.default_rng(seed), np.empty((wide, draws)), max(1, BLOCK // groups)
    for start in range(0, draws, block):
        chosen = rng.integers(groups, size=(min(block, draws - start), groups))
        chosen += groups * np.arange(len(chosen))[:, None]
        often = np.bincount(chosen.ravel(), minlength=chosen.size).reshape(chosen.shape)
        out[:, start : start + block] = (often.astype(np.float64) @ columns).T
    return out


class Paired(NamedTuple):
    """Mean paired difference, its interval, and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    before: Bools | Floats,
    after: Bools | Floats,
    groups: tuple[str, ...],
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> Paired:
    """Difference in accuracy on the same examples, by resampling whole groups (Koehn 2004).

    before, after: right or wrong, or a value in [0, 1], [example].  groups, draws: as in `group_bootstrap`.
    """
    gain = after.astype(np.float64) - before.astype(np.float64)
    low, high, p = group_bootstrap(gain[None], groups, rng, draws=draws)
    return Paired(float(gain.mean()), float(low[0]), float(high[0]), float(p[0]))


def share_interval(
    correct: Bools, groups: tuple[str, ...], rng: np.random.Generator
) -> tuple[float, float]:
    """Interval for an accuracy, by resampling whole groups; one right and one wrong pseudo-example are added."""
    low, high, _ = group_bootstrap(
        correct[None].astype(np.float64), groups, rng, made_up=(1.0, 0.0)
    )
    return float(low[0]), float(high[0])


# Means of sizes, such as those of gradients: leaving out one group of examples at a time.

FEW = 8  # groups below which there is no interval: the error is not known well enough


def jackknife_interval(
    sums: Floats,
    weights: Floats,
    groups: Sequence[str],
    of: Callable[[Floats], Floats] = np.asarray,
    level: float = 0.95,
    most: float = np.inf,
) -> tuple[Floats, Floats] | None:
    """Interval of `of(sum of sums / sum of weights)`, float [item] each; None where there are fewer than `FEW` groups.

    sums, weights: float [example, item], none below 0; an example without any weight is not there.
    groups: label [example]; examples of one group are left out together.  of: of the ratios [item], which gives as
    many numbers that are not below 0.  most: none of these is above.  The variance is the delete-one jackknife's (Efron
    & Tibshirani 1993, equation 11.5), and the interval is a t interval of the logarithm, exp(log value ± t · error /
    value): sizes are skewed, so the same on their own scale would reach below 0 and miss above.
    """
    there = weights.any(axis=1)
    names, member = np.unique(np.asarray(groups)[there], return_inverse=True)
    if len(names) < FEW:
        return None
    each = np.zeros((len(names), 2, sums.shape[1]))
    np.add.at(each, member, np.stack([sums, weights], axis=1)[there])
    every = each.sum(axis=0)
    value = of(every[0] / every[1])
    without = np.array([of(above / below) for above, below in every - each])
    error = np.sqrt((len(names) - 1) * without.var(axis=0))
    away = t.ppf((1 + level) / 2, len(names) - 1) * np.divide(
        error, value, out=np.zeros_like(error), where=value > 0
    )
    return value * np.exp(-away), np.minimum(value * np.exp(away), most)


# Shares of answers that are clustered by sentence: ratios of sums, with the sentence as the cluster.

# Terms summed over sentences with answers: 1, h (hits), n (answers), c (hits expected by chance) and products.
TERMS = ("1", "h", "n", "c", "hh", "hn", "nn", "hc", "nc", "cc")


class Ratio(NamedTuple):
    """A share and its interval, each float [...] in 0..1; NaN where there are no answers."""

    share: Floats
    low: Floats
    high: Floats


class Excess(NamedTuple):
    """Share minus chance with its interval, and a one-sided p-value of "no more than chance"; each float [...]."""

    difference: Floats
    low: Floats
    high: Floats
    p: Floats


def ratio_sums(hits: Floats, asked: Floats, chance: Floats) -> Floats:
    """Sums over some sentences, float [..., TERMS].

    hits: [..., sentence].  asked, chance: [sentence], answers, expected hits.  Sentences without answers are omitted.
    """
    there = asked > 0
    h, n, c = hits[..., there], asked[there], chance[there]
    same = (len(n), n.sum(), c.sum(), (n * n).sum(), (n * c).sum(), (c * c).sum())
    own = (h.sum(axis=-1), (h * h).sum(axis=-1), (h * n).sum(axis=-1), (h * c).sum(axis=-1))
    count, sn, sc, snn, snc, scc = (
        np.broadcast_to(np.float64(value), own[0].shape) for value in same
    )
    sh, shh, shn, shc = own
    return np.stack([count, sh, sn, sc, shh, shn, snn, shc, snc, scc], axis=-1)


def ratio_interval(sums: Floats, level: float = 0.95) -> Ratio:
    """Share R = sum h / sum n, between the Clopper-Pearson bounds of its effective sample size.

    The linearised variance is v = S / (S - 1) * sum (h_s - R n_s)^2 / (sum n)^2 over S sentences (Cochran 1977,
    chapter 6); the effective sample size is R (1 - R) / v, the number of independent answers with that variance, and at
    most sum n. Where all sentences agree (R is 0 or 1) v is uninformative, and each sentence counts as one answer. The
    sample size is reduced for the few degrees of freedom, S - 1 (Korn & Graubard 1998, Survey Methodology 24).
    """
    count, h, n, hh, hn, nn = (
        sums[..., TERMS.index(name)] for name in ("1", "h", "n", "hh", "hn", "nn")
    )
    tail = (1 - level) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        share = h / n
        spread = np.maximum(hh - 2 * share * hn + share**2 * nn, 0)
        variance = count / (count - 1) * spread / n**2
        alone = share * (1 - share) / variance
        fewer = (t.ppf(tail, np.maximum(n - 1, 1)) / t.ppf(tail, np.maximum(count - 1, 1))) ** 2
        agree = (h <= 0) | (h >= n) | (count < 2)
        size = np.where(agree, count, np.minimum(alone * fewer, n))
        x = share * size
        low = np.where(x <= 0, 0, beta.ppf(tail, x, size - x + 1))
        high = np.where(x >= size, 1, beta.ppf(1 - tail, x + 1, size - x))
    nothing = n <= 0
    return Ratio(*(np.where(nothing, np.nan, value) for value in (share, low, high)))


def ratio_excess(sums: Floats, level: float = 0.95) -> Excess:
    """How far the share is above chance, (sum h - sum c) / sum n, with a t interval of its linearised variance.

    Two pseudo-sentences of the mean size are added, one with all hits and none by chance and one the other way
    round (after Agresti & Min 2005), so that a few sentences that agree do not give certainty.
    """
    count, h, n, c, hh, hn, nn, hc, nc, cc = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = n / count
        total, sentences = n + 2 * size, count + 2
        centre = (h - c) / total
        spread = (
            (hh - 2 * hc + cc)
            - 2 * centre * (hn - nc)
            + centre**2 * nn
            + 2 * size**2 * (1 + centre**2)
        )
        error = np.sqrt(sentences / (sentences - 1) * np.maximum(spread, 0)) / total
        width = t.ppf((1 + level) / 2, sentences - 1) * error
        p = t.sf(centre / error, sentences - 1)
        found = ((h - c) / n, np.maximum(centre - width, -1), np.minimum(centre + width, 1), p)
    return Excess(*(np.where(n <= 0, np.nan, value) for value in found))


# p-values of many tests at once.


def holm(p: Floats) -> Floats:
    """Holm's adjusted p-values, which control the family-wise error rate (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, steps)
    return out


def benjamini_hochberg(p: Floats) -> Floats:
    """Benjamini–Hochberg adjusted p-values, which control the false discovery rate (1995)."""
    order = np.argsort(p, kind="stable")[::-1]
    steps = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, steps)
    return out
