"""Whether a loss of accuracy stays within a margin: it holds, it fails, or that is undecided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from headlab.core import Bools, Floats
from headlab.stats.bootstrap import DIGITS, DRAWS, MIN_GROUPS, resampled_means


class Verdict(StrEnum):
    """The answer to "is no more than the margin lost?"."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class MarginInterval:
    """A paired difference with an interval whose ends are made to be claimed by.

    Attributes:
        difference: Mean of after - before, 0.01 is one point.
        low: Lower end of its interval, by itself at 95 %, two-sided.
        high: Upper end, adjusted for the number of claims.
        groups: Number of groups of answers.
    """

    difference: float
    low: float
    high: float
    groups: int

    @property
    def has_enough_groups(self) -> bool:
        """Whether there are so many groups that the ends say something."""
        return self.groups >= MIN_GROUPS

    def verdict(self, margin: float) -> Verdict:
        """The answer for a margin, a share: it holds if the interval lies above -margin wholly.

        It fails if the interval lies below, and neither can be with few groups.
        """
        if self.has_enough_groups and self.low > -margin:
            return Verdict.HOLDS
        if self.has_enough_groups and self.high < -margin:
            return Verdict.FAILS
        return Verdict.UNDECIDED


def margin_interval(
    values_before: Bools | Floats,
    values_after: Bools | Floats,
    groups: tuple[str, ...],
    rng: np.random.Generator,
    *,
    claims: int = 1,
    level: float = 0.95,
    draws: int = DRAWS,
) -> MarginInterval:
    """The interval of a paired difference that a claim about a margin may rest on.

    Whole groups are resampled, as in `paired_bootstrap`; but two made-up groups stand against each
    claim instead of one on each side, as large as groups are on average: two that lose all their
    answers for the lower end, and two that gain them all for the upper end. So each end is wrong no
    more often than it says where few answers flip, or whole groups of them.

    Args:
        values_before: [example], right or wrong, or a value in [0, 1].
        values_after: [example], the same afterwards.
        groups: Label [example]; examples of one group are drawn together.
        rng: Of the draws.
        claims: Number of languages of which any may be said to fail: the upper end is
            Bonferroni's. The lower end is not adjusted, as all must hold (Berger 1982).
        level: Of the interval, two-sided.
        draws: Number of resamples.
    """
    gain = values_after.astype(np.float64) - values_before.astype(np.float64)
    group_count = len(set(groups))
    tail = (1 - level) / 2
    ends = []
    for made_up_gain, share in ((-1.0, tail), (1.0, 1 - tail / claims)):
        (means,) = resampled_means(
            gain[None],
            groups,
            rng,
            pseudo_values=(made_up_gain, made_up_gain),
            draws=draws,
            pseudo_answers=len(gain) / group_count,
        )
        ends.append(float(np.quantile(np.round(means, DIGITS), share)))
    low, high = ends
    return MarginInterval(float(gain.mean()), low, high, group_count)


def verdict_of_all(verdicts: Iterable[Verdict]) -> Verdict:
    """The answer for several languages: it fails if one fails, and holds only if all hold."""
    verdict_set = set(verdicts)
    if Verdict.FAILS in verdict_set:
        return Verdict.FAILS
    if verdict_set == {Verdict.HOLDS}:
        return Verdict.HOLDS
    return Verdict.UNDECIDED
