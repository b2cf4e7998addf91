"""Anytime-valid intervals and tests by betting on draws in [-1, 1], and Equation 4 of Held & Yang."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize.elementwise import find_root

from headlab.core import Floats, Ints

# Fractions of the capital staked, and the share of the capital allotted to each. Any fixed choice
# is valid; this one suits gains that are mostly 0 (benchmarks/intervals.py).
FRACTIONS = (0.003, 0.01, 0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.8, 0.95)
SHARES = (0.01, 0.02, 0.04, 0.09, 0.14, 0.15, 0.15, 0.14, 0.12, 0.09, 0.05)
# Tolerance of the search for an interval's end; the result lies outside the exact end.
NEAR = 1e-12
# How sharply learned shares favour the fractions that grew most: one that grew 10 % less gets e^-0.8 of the share.
KEEN = 8.0
# Part of the capital that keeps the usual shares, in case early draws mislead.
SPARE = 0.05


class Interval(NamedTuple):
    """Lower and upper ends, same shape and unit as the mean they enclose."""

    low: Floats
    high: Floats


class Learned(NamedTuple):
    """Early draws, and the stakes learned from them for the draws after them.

    counts: int [value, head], counts of the early draws.  shares: float [fraction, head], of the capital.
    """

    counts: Ints
    shares: Floats

    def of(self, heads: Ints) -> Learned:
        """The same for some heads."""
        return Learned(self.counts[:, heads], self.shares[:, heads])


def learn(support: Floats, counts: Ints, width: float | Floats) -> Learned:
    """Stakes for later draws, tuned to draws like these with a target half-width of `width`.

    support: float [value], symmetric.  counts: int [value, head].  width: one for all heads, or [head].  A fraction's
    share decreases with how much less its wealth would grow against a mean that is `width` below the true one, with
    gains and losses taken as equally likely.
    """
    alike = (counts + counts[::-1]) / (2 * np.maximum(counts.sum(axis=0), 1))
    growth = _growth(support, alike, -np.minimum(np.broadcast_to(width, counts.shape[1:]), 0.5))
    best = growth.max(axis=0)
    usual = np.array(SHARES)[:, None]
    shares = np.where(best > 0, np.exp(KEEN * (growth / np.where(best > 0, best, 1.0) - 1)), usual)
    return Learned(counts, (1 - SPARE) * shares / shares.sum(axis=0) + SPARE * usual)


def log_capital(
    support: Floats, counts: Ints, mean: Floats, learned: Learned | None = None
) -> Floats:
    """Log wealth of a bettor against "the mean is at most `mean`", with the capital split over fixed fractions.

    support: float [value] in [-1, 1], the values a draw can take.  counts: int [value, head].
    mean: float [head].  learned: from earlier draws, which are included in `counts`; without it the shares are SHARES.
    Returns float [head].  Under the hypothesis the wealth is a nonnegative supermartingale whatever the order of
    the draws, so 1 / wealth is a p-value at any stopping time. Waudby-Smith & Ramdas 2023, section 4, with a mixture
    of constant bets in place of an adaptive one: the wealth then depends on the counts alone.
    """
    usual = np.array(SHARES)[:, None]
    if learned is None:
        return _mixed(_growth(support, counts, mean), usual)
    early = _mixed(_growth(support, learned.counts, mean), usual)
    return early + _mixed(_growth(support, counts - learned.counts, mean), learned.shares)


def _growth(support: Floats, counts: Ints | Floats, mean: Floats) -> Floats:
    """Log wealth of a capital that always stakes the same fraction, [fraction, head]."""
    share = (1 + support)[:, None] / np.maximum(1 + mean, 1e-300)[None, :]  # [value, head]
    growth = np.log1p(
        np.array(FRACTIONS)[:, None, None] * (share - 1)[None]
    )  # [fraction, value, head]
    return np.asarray(np.einsum("vh,fvh->fh", counts.astype(np.float64), growth))


def _mixed(wealth: Floats, shares: Floats) -> Floats:
    return np.asarray(np.logaddexp.reduce(wealth + np.log(shares), axis=0))


def sample_mean(support: Floats, counts: Ints) -> Floats:
    """Mean of the draws, [head]; 0 without draws."""
    return np.asarray(support @ counts / np.maximum(counts.sum(axis=0), 1), dtype=np.float64)


def _lower(support: Floats, counts: Ints, alpha: float, learned: Learned | None) -> Floats:
    """Smallest mean that the draws do not reject at `alpha`, one-sided, [head]; -1 where they reject none."""

    def excess(mean: Floats, heads: Ints) -> Floats:
        few = learned and learned.of(heads)
        return np.asarray(log_capital(support, counts[:, heads], mean, few) + np.log(alpha))

    heads, mean = np.arange(counts.shape[1]), sample_mean(support, counts)
    # Learned stakes may reject even the mean, if later draws differ from the early ones: it is then the lower end.
    low = np.where(excess(mean, heads) > 0, mean, -1.0)
    some = heads[(low < mean) & (excess(low, heads) > 0)]
    if some.size:
        found = find_root(
            excess, (low[some], mean[some]), args=(some,), tolerances={"xatol": NEAR, "xrtol": 0}
        )
        low[some] = np.where(found.success, found.bracket[0], -1.0)
    return low


def betting_interval(
    support: Floats, counts: Ints, level: float = 0.95, learned: Learned | None = None
) -> Interval:
    """Anytime-valid interval for the mean of draws in [-1, 1].

    support: float [value] in [-1, 1].  counts: int [value, head], how often each value occurred.  learned: stakes for
    the draws after the early ones (`learn`).  Two one-sided confidence sequences at (1 - level) / 2 each; with no
    draws the interval is [-1, 1].  It stays valid at whole cycles of draws without replacement from a finite set: by
    Maclaurin's inequality the expected wealth is then no larger (docs/statistics.md).
    """
    seen = counts.any(axis=1)  # most of the levels never occur
    few = learned and learned._replace(counts=learned.counts[seen])
    low, high = (
        sign * _lower(sign * support[seen], counts[seen], (1 - level) / 2, few) for sign in (1, -1)
    )
    empty = counts.sum(axis=0) == 0
    return Interval(np.where(empty, -1.0, low), np.where(empty, 1.0, high))


def betting_p(support: Floats, counts: Ints, learned: Learned | None = None) -> Floats:
    """Anytime-valid two-sided p-value of "the mean is 0", [head]. learned: as in `betting_interval`."""
    zero = np.zeros(counts.shape[1])
    both = np.logaddexp(
        *(log_capital(side, counts, zero, learned) for side in (support, -support))
    ) - np.log(2)
    return np.asarray(np.minimum(1.0, np.exp(-both)))


def bernstein_width(variance: Floats, count: Ints, delta: float, span: float) -> Floats:
    """Empirical Bernstein half-width at one fixed number of draws; not valid when looked at repeatedly.

    Audibert, Munos & Szepesvári 2009, theorem 1, as in Held & Yang 2023, equation 4: sqrt(2 variance
    log(3 / delta) / count) + 3 span log(3 / delta) / count.  Infinite without draws.
    """
    draws, log = np.maximum(count, 1), np.log(3 / delta)
    width = np.sqrt(2 * variance * log / draws) + 3 * span * log / draws
    return np.asarray(np.where(count == 0, np.inf, width))
