"""A ratio of times, with the interval of its median."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from headlab.errors import HeadlabError
from headlab.records import Floats

LEVEL = 0.95


class Ratio(NamedTuple):
    """Time of one model over that of another, below 1 is faster: median over rounds and its interval at `level`."""

    ratio: float
    low: float
    high: float
    level: float
    rounds: int

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 1, which is the same speed."""
        return not self.low <= 1 <= self.high


def ratio_of(before: Floats, after: Floats, level: float = LEVEL) -> Ratio:
    """The median over rounds of after / before, with its interval. before, after: seconds [round]."""
    ratios = after / before
    low, high = median_interval(ratios, level)
    return Ratio(float(np.median(ratios)), low, high, level, len(ratios))


def median_interval(values: Floats, level: float = LEVEL) -> tuple[float, float]:
    """Interval for the median of what values [draw] were drawn from, whatever its distribution (the sign test's).

    Its ends are the values of rank k and n + 1 - k, k as large as 1 - 2 P(Binomial(n, 1/2) < k) >= level allows; it
    takes draws that do not depend on each other.  Raises HeadlabError where there are too few of them.
    """
    n = len(values)
    k = int(binom.ppf((1 - level) / 2, n, 0.5))  # the smallest with P(Binomial <= k) at the tail or above
    if k < 1:
        raise HeadlabError(
            f"{n} values are too few for an interval of their median at {level:.0%}; take more",
            code="ratio.values_too_few",
        )
    ordered = np.sort(values)
    return float(ordered[k - 1]), float(ordered[n - k])
