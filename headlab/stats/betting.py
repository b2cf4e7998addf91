"""Anytime-valid intervals and tests by betting on draws in [-1, 1], and Bernstein widths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headlab.core import Floats, Ints

# Fractions of the capital staked, and the share of the capital allotted to each. Any fixed choice
# is valid; this one suits gains that are mostly 0 (benchmarks/intervals.py).
FRACTIONS = (0.003, 0.01, 0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.8, 0.95)
SHARES = (0.01, 0.02, 0.04, 0.09, 0.14, 0.15, 0.15, 0.14, 0.12, 0.09, 0.05)
# Tolerance of the search for an interval's bound; the result lies outside the exact bound.
ROOT_TOLERANCE = 1e-12
# How sharply learned shares favour the fractions that grew most: one that grew 10 % less gets
# e^-0.8 of the share.
SHARPNESS = 8.0
# Part of the capital that keeps the usual shares, in case early draws mislead.
RESERVED_SHARE = 0.05


class Interval(NamedTuple):
    """Lower and upper bounds, same shape and unit as the mean that they enclose."""

    low: Floats
    high: Floats


class LearnedStakes(NamedTuple):
    """Early draws, and the stakes learned from them for the draws after them.

    Attributes:
        counts: int [value, head], counts of the early draws.
        shares: float [fraction, head], of the capital.
    """

    counts: Ints
    shares: Floats

    def of_heads(self, heads: Ints) -> LearnedStakes:
        """The early draws and stakes of some heads, int [index]."""
        return LearnedStakes(self.counts[:, heads], self.shares[:, heads])


def learn_stakes(support: Floats, counts: Ints, width: float | Floats) -> LearnedStakes:
    """Stakes for later draws, tuned to draws like these with a target half-width of `width`.

    A fraction's share decreases with how much less its wealth would grow against a mean that is
    `width` below the true one, with gains and losses taken as equally likely.

    Args:
        support: float [value], symmetric.
        counts: int [value, head].
        width: One for all heads, or [head].
    """
    symmetric_shares = (counts + counts[::-1]) / (2 * np.maximum(counts.sum(axis=0), 1))
    width_of_head = np.minimum(np.broadcast_to(width, counts.shape[1:]), 0.5)
    growth = _log_growth(support, symmetric_shares, -width_of_head)
    best_growth = growth.max(axis=0)
    relative_growth = growth / np.where(best_growth > 0, best_growth, 1.0)
    default_shares = np.array(SHARES)[:, None]
    shares = np.where(best_growth > 0, np.exp(SHARPNESS * (relative_growth - 1)), default_shares)
    learned_shares = (1 - RESERVED_SHARE) * shares / shares.sum(axis=0)
    return LearnedStakes(counts, learned_shares + RESERVED_SHARE * default_shares)


def log_capital(
    support: Floats, counts: Ints, mean: Floats, stakes: LearnedStakes | None = None
) -> Floats:
    """Log wealth of a bettor against "the mean is at most `mean`", float [head].

    The capital is split over bettors who each always stake a fixed fraction of theirs. Under the
    hypothesis the wealth is a nonnegative supermartingale whatever the order of the draws, so 1 /
    wealth is a p-value at any stopping time. Waudby-Smith & Ramdas 2023, section 4, with a mixture
    of constant bets in place of an adaptive one: the wealth then depends on the counts alone.

    Args:
        support: float [value] in [-1, 1], the values a draw can take.
        counts: int [value, head], how often each value occurred.
        mean: float [head].
        stakes: Stakes learned from earlier draws, which are included in `counts`; without them the
            shares are SHARES.
    """
    default_shares = np.array(SHARES)[:, None]
    if stakes is None:
        return _log_of_mixture(_log_growth(support, counts, mean), default_shares)
    early_growth = _log_growth(support, stakes.counts, mean)
    later_growth = _log_growth(support, counts - stakes.counts, mean)
    return _log_of_mixture(early_growth, default_shares) + _log_of_mixture(
        later_growth, stakes.shares
    )


def _log_growth(support: Floats, counts: Ints | Floats, mean: Floats) -> Floats:
    """Log wealth of a capital that always stakes the same fraction, [fraction, head]."""
    # The stake grows by this factor with each value: [value, head].
    stake_factor = (1 + support)[:, None] / np.maximum(1 + mean, 1e-300)[None, :]
    fractions = np.array(FRACTIONS)[:, None, None]
    growth = np.log1p(fractions * (stake_factor - 1)[None])  # [fraction, value, head]
    return np.asarray(np.einsum("vh,fvh->fh", counts.astype(np.float64), growth))


def _log_of_mixture(log_wealth: Floats, shares: Floats) -> Floats:
    """Log wealth [head] of a capital whose shares [fraction, head] have all grown."""
    return np.asarray(np.logaddexp.reduce(log_wealth + np.log(shares), axis=0))


def sample_mean(support: Floats, counts: Ints) -> Floats:
    """Mean of the draws, [head]; 0 without draws."""
    return np.asarray(support @ counts / np.maximum(counts.sum(axis=0), 1), dtype=np.float64)


def _lower_bounds(
    support: Floats, counts: Ints, alpha: float, stakes: LearnedStakes | None
) -> Floats:
    """Smallest mean that the draws do not reject at `alpha`, one-sided, [head].

    It is -1 where they reject no mean.
    """

    def excess(mean: Floats, heads: Ints) -> Floats:
        """Log wealth above what rejects a mean."""
        stakes_of_heads = stakes and stakes.of_heads(heads)
        return np.asarray(
            log_capital(support, counts[:, heads], mean, stakes_of_heads) + np.log(alpha)
        )

    heads = np.arange(counts.shape[1])
    mean = sample_mean(support, counts)
    # Learned stakes may reject even the mean, if later draws differ from the early ones: it is then
    # the lower bound.
    low = np.where(excess(mean, heads) > 0, mean, -1.0)
    heads_to_search = heads[(low < mean) & (excess(low, heads) > 0)]
    if heads_to_search.size:
        from scipy.optimize.elementwise import find_root  # here, as pages start sooner without it

        roots = find_root(
            excess,
            (low[heads_to_search], mean[heads_to_search]),
            args=(heads_to_search,),
            tolerances={"xatol": ROOT_TOLERANCE, "xrtol": 0},
        )
        low[heads_to_search] = np.where(roots.success, roots.bracket[0], -1.0)
    return low


def betting_interval(
    support: Floats, counts: Ints, level: float = 0.95, stakes: LearnedStakes | None = None
) -> Interval:
    """Anytime-valid interval for the mean of draws in [-1, 1].

    It joins two one-sided confidence sequences at (1 - level) / 2 each; without draws it is [-1,
    1]. It stays valid at whole cycles of draws without replacement from a finite set: by
    Maclaurin's inequality the expected wealth is then no larger (docs/statistics.md).

    Args:
        support: float [value] in [-1, 1].
        counts: int [value, head], how often each value occurred.
        stakes: Stakes for the draws after the early ones, as of `learn_stakes`.
    """
    occurs = counts.any(axis=1)  # most of the values never do
    stakes_of_values = stakes and stakes._replace(counts=stakes.counts[occurs])
    alpha = (1 - level) / 2
    low = _lower_bounds(support[occurs], counts[occurs], alpha, stakes_of_values)
    high = -_lower_bounds(-support[occurs], counts[occurs], alpha, stakes_of_values)
    empty = counts.sum(axis=0) == 0
    return Interval(np.where(empty, -1.0, low), np.where(empty, 1.0, high))


def betting_p(support: Floats, counts: Ints, stakes: LearnedStakes | None = None) -> Floats:
    """Anytime-valid two-sided p-value of "the mean is 0", [head].

    The arguments are as in `betting_interval`.
    """
    zero_means = np.zeros(counts.shape[1])
    log_capital_above = log_capital(support, counts, zero_means, stakes)
    log_capital_below = log_capital(-support, counts, zero_means, stakes)
    log_mean_capital = np.logaddexp(log_capital_above, log_capital_below) - np.log(2)
    return np.asarray(np.minimum(1.0, np.exp(-log_mean_capital)))


def bernstein_width(variance: Floats, count: Ints, delta: float, span: float) -> Floats:
    """Empirical Bernstein half-width at one fixed number of draws.

    Not valid when looked at repeatedly.

    Audibert, Munos & Szepesvári 2009, theorem 1, as in Held & Yang 2023, equation 4: sqrt(2
    variance log(3 / delta) / count) + 3 span log(3 / delta) / count.  Infinite without draws.
    """
    draws = np.maximum(count, 1)
    log_term = np.log(3 / delta)
    width = np.sqrt(2 * variance * log_term / draws) + 3 * span * log_term / draws
    return np.asarray(np.where(count == 0, np.inf, width))
