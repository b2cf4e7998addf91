"""Wald intervals at a few planned looks, in place of intervals that hold at every look.

The chance of error is divided among the looks beforehand: a look after a fraction t of the samples
may have spent the share t^8 of it. Like O'Brien and Fleming's rule this keeps most of it for the
last look, which costs 4 % of width for having looked before. Shares are added up (Bonferroni),
so that nothing is assumed of how the looks depend on each other.

The intervals are approximate: they take a mean of samples to be normal. Where gains are rare, the
variance of the samples that happened to come is too small, so gains that did not come are counted
with them (docs/statistics.md; benchmarks/planned.py has the coverage).
"""

from __future__ import annotations

import numpy as np
import scipy

from headlab.core import Floats, Ints
from headlab.stats.betting import Interval, sample_mean

PLANNED_LOOKS = 5
"""Planned looks of a head at most."""
SPENDING_POWER = 8
"""Of the fraction of the samples, in the share of the chance of error that may be spent by then."""
MADE_UP_GAINS = 2
"""Gains that are counted in each direction though none came."""
COARSEST_OF_SIZES = 1 / 128
"""Values of samples that are closer together are of probabilities, not of answers that turn."""
SMALLEST_SHARE = 1e-12
"""Share of the chance of error below which a look decides nothing."""


def share_by(fraction: Floats) -> Floats:
    """The share of the chance of error that may be spent after a fraction of the samples."""
    return np.asarray(np.clip(fraction, 0.0, 1.0) ** SPENDING_POWER)


def critical_values(shares: Floats, level: float) -> Floats:
    """How many standard errors an interval reaches to each side of the mean.

    Args:
        shares: Share of the chance of error that its look may spend, from 0 to 1.
        level: Confidence level of all looks together.
    """
    return np.asarray(scipy.stats.norm.isf(np.maximum(shares, SMALLEST_SHARE) * (1 - level) / 2))


def largest_gain(support: Floats, counts: Ints) -> float:
    """Size of the largest gain that came in any head; 1 at most, and where none came.

    Args:
        support: Values of samples, float [value].
        counts: How often each head had each value, int [value, head].
    """
    sizes = np.abs(support[counts.any(axis=1)])
    if not sizes.any():
        return 1.0
    return min(1.0, float(sizes.max()))


def made_up_gains(support: Floats, counts: Ints) -> Floats:
    """Size of a made-up gain of each head, float [head]; 1 at most.

    Where gains are answers that turn, it is the largest that came in any head. Probabilities have
    gains of all sizes, and heads differ in theirs: there it is what a gain should be that comes less
    than once in the head's samples. How much larger than usual such gains are, all heads say
    together; and it is no smaller than the head's own largest gain.

    Args:
        support: Values of samples, float [value].
        counts: How often each head had each value, int [value, head].
    """
    heads = counts.shape[1]
    if np.diff(support).min() >= COARSEST_OF_SIZES:
        return np.full(heads, largest_gain(support, counts))
    sizes = np.abs(support)
    samples = counts.sum(axis=0)
    own_largest = np.where(counts > 0, sizes[:, None], 0.0).max(axis=0)
    usual_sizes = sizes @ counts / np.maximum(samples, 1)
    has_gains = usual_sizes > 0
    if not has_gains.any():
        return np.ones(heads)
    value, head = np.nonzero(counts * has_gains)
    ratios = sizes[value] / usual_sizes[head]
    weights = counts[value, head].astype(np.float64)
    largest_first = np.argsort(-ratios, kind="stable")
    shares = np.cumsum(weights[largest_first]) / weights.sum()
    squares = np.cumsum((weights * ratios**2)[largest_first]) / weights.sum()
    rare_shares = MADE_UP_GAINS / np.maximum(samples, MADE_UP_GAINS)
    squares_of_rare = np.interp(rare_shares, np.append(0.0, shares), np.append(0.0, squares))
    rare_ratios = np.sqrt(squares_of_rare / rare_shares)
    usual_sizes = np.where(has_gains, usual_sizes, usual_sizes.max())
    return np.asarray(np.minimum(np.maximum(own_largest, rare_ratios * usual_sizes), 1.0))


def guarded_variances(support: Floats, counts: Ints, gains: Floats) -> Floats:
    """Variance of a sample of each head, with made-up gains counted among those that came, [head].

    Args:
        support: Values of samples, float [value].
        counts: How often each head had each value, int [value, head].
        gains: Size of a made-up gain of each head, float [head].
    """
    made_up = 2 * MADE_UP_GAINS
    counted = counts.sum(axis=0) + made_up
    mean_squares = (support**2 @ counts + made_up * gains**2) / counted
    return np.asarray(mean_squares - (support @ counts / counted) ** 2)


def _standard_errors(support: Floats, counts: Ints, gains: Floats) -> Floats:
    """Standard error of each head's mean, by its guarded variance, [head]."""
    samples = np.maximum(counts.sum(axis=0), 1)
    return np.asarray(np.sqrt(guarded_variances(support, counts, gains) / samples))


def planned_interval(
    support: Floats, counts: Ints, shares: Floats, level: float, gains: Floats
) -> Interval:
    """Interval of each head's mean at a planned look, [head]; [-1, 1] without samples.

    Args:
        support: Values of samples, float [value].
        counts: How often each head had each value until the look, int [value, head].
        shares: Share of the chance of error that each head's look may spend, float [head].
        level: Confidence level of all looks together.
        gains: Size of a made-up gain of each head, float [head].
    """
    samples = counts.sum(axis=0)
    standard_errors = _standard_errors(support, counts, gains)
    half_widths = critical_values(shares, level) * standard_errors
    means = np.clip(sample_mean(support, counts), -1.0, 1.0)
    low = np.where(samples > 0, np.maximum(means - half_widths, -1.0), -1.0)
    high = np.where(samples > 0, np.minimum(means + half_widths, 1.0), 1.0)
    return Interval(low, high)


def planned_p(support: Floats, counts: Ints, shares: Floats, gains: Floats) -> Floats:
    """Two-sided p-value of "the mean is 0" at a planned look, [head]; 1 without samples.

    It is at most 1 - level where the interval of `planned_interval` leaves out 0, for every level.

    Args:
        support: Values of samples, float [value].
        counts: How often each head had each value until the look, int [value, head].
        shares: Share of the chance of error that each head's look may spend, float [head].
        gains: Size of a made-up gain of each head, float [head].
    """
    samples = counts.sum(axis=0)
    standard_errors = _standard_errors(support, counts, gains)
    distances = np.abs(sample_mean(support, counts)) / np.maximum(standard_errors, 1e-300)
    p_of_look = 2 * scipy.stats.norm.sf(distances)
    p_values = np.minimum(p_of_look / np.maximum(shares, SMALLEST_SHARE), 1.0)
    return np.asarray(np.where(samples > 0, p_values, 1.0))


def samples_for_width(variances: Floats, width: float, share: Floats, level: float) -> Floats:
    """Samples after which an interval reaches a half-width, [head].

    Args:
        variances: Of a sample of each head, float [head].
        width: The half-width.
        share: Share of the chance of error that the look may then spend, float [head].
        level: Confidence level of all looks together.
    """
    return np.asarray(variances * (critical_values(share, level) / width) ** 2)
