"""Which heads to remove, and differences in accuracy with intervals and tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headlab.core import Bools, Evaluation, Floats, HeadlabError
from headlab.masks import RISKY_SHARE, removal_order
from headlab.results import HeadScores, kept_heads_without
from headlab.stats import holm, stratified_bootstrap
from headlab.studies.result import Columns

# Which heads to remove: the harmful ones or the k lowest.


def without_harmful(scores: HeadScores) -> Bools:
    """Heads kept, bool [head], without those whose interval lies below 0."""
    return ~scores.harmful


def without_lowest(scores: HeadScores, k: int) -> Bools:
    """Heads kept, bool [head], without the k lowest scores.

    Raises HeadlabError if k is out of range.
    """
    if not 0 <= k <= scores.grid.size:
        raise HeadlabError(
            f"k is {k}; the model has {scores.grid.size} heads ({scores.grid})",
            code="head.count_out_of_range",
        )
    return kept_heads_without(removal_order(scores.values)[:k], scores.grid.size)


def kept_heads_of(scores: HeadScores, k: int | None) -> Bools:
    """Heads kept, bool [head]: without the harmful ones (k None), or without the k lowest."""
    if k is None:
        return without_harmful(scores)
    return without_lowest(scores, k)


def removed_count(kept_heads: Bools) -> int:
    """Number of heads removed."""
    return int((~kept_heads).sum())


def caution(kept_heads: Bools) -> str:
    """A caveat about a mask, or empty."""
    if removed_count(kept_heads) <= RISKY_SHARE * kept_heads.size:
        return ""
    removed = removed_count(kept_heads)
    return f"{removed} of {kept_heads.size} heads are removed; few models keep their accuracy beyond half"


# Differences in accuracy with intervals and tests, in one language and over several.

DRAWS = 10_000
ALPHA = 0.05
Groups = tuple[str, ...]


class Gain(NamedTuple):
    """What each answer gains, and the groups that are resampled together.

    Attributes:
        values: float [answer] in [-1, 1].
        groups: The label of each answer's group, [answer].
        runs: Values are multiples of 1 / runs; 0 if they are not. Multiples are resampled as whole
            numbers, so that rounding does not tell apart groups of equal sum and size.
    """

    values: Floats
    groups: Groups
    runs: int = 1


class MeanDifference(NamedTuple):
    """A mean gain with its 95 % interval and a two-sided p; as shares, 0.01 is one point.

    Attributes:
        mean: Of the gains; 0 by definition if nothing was changed.
        low: Lower end of the interval; None if nothing was changed.
        high: Upper end.
        p: None if nothing was changed.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None

    @property
    def cells(self) -> tuple[float, float | None, float | None, float | None]:
        """Mean, low and high in points, and p."""
        low = None if self.low is None else 100 * self.low
        high = None if self.high is None else 100 * self.high
        return 100 * self.mean, low, high, self.p

    @property
    def points(self) -> PointDifference:
        """The same in points."""
        return PointDifference(*self.cells)

    @property
    def mark(self) -> str:
        """Direction of the difference if p is below 0.05, else empty."""
        if self.p is None or self.p >= ALPHA:
            return ""
        return "higher" if self.mean > 0 else "lower"


class PointDifference(NamedTuple):
    """A difference in percentage points, as a record of a study holds it.

    Attributes:
        value: The mean gain.
        low: Lower end of its 95 % interval; None where nothing was changed.
        high: Upper end.
        p: Two-sided; None where there is no test.
    """

    value: float
    low: float | None
    high: float | None
    p: float | None

    @property
    def is_significant(self) -> bool:
        """Whether p is below 0.05."""
        return self.p is not None and self.p < ALPHA

    @property
    def interval(self) -> PointInterval | None:
        """The difference with its interval; None without one."""
        if self.low is None or self.high is None:
            return None
        return PointInterval(self.value, self.low, self.high)


class PointInterval(NamedTuple):
    """A difference in percentage points with its 95 % interval."""

    value: float
    low: float
    high: float


NO_DIFFERENCE = MeanDifference(0.0, None, None, None)
COLUMNS = ("difference, points", "low, points", "high, points", "p")
FORMATS = ("+.2f", "+.2f", "+.2f", ".4f")
POINTS = Columns(COLUMNS, FORMATS)


def gain_of(baseline: Evaluation, evaluations: Sequence[Evaluation]) -> Gain:
    """What a change gains on each answer; the mean over its runs, answer by answer."""
    correct = np.mean([evaluation.correct for evaluation in evaluations], axis=0)
    return Gain(
        np.asarray(correct - baseline.correct, dtype=np.float64), baseline.groups, len(evaluations)
    )


def gain_over(gain: Gain, other_gain: Gain) -> Gain:
    """What one change gains over another on the same answers."""
    return Gain(gain.values - other_gain.values, gain.groups, math.lcm(gain.runs, other_gain.runs))


def difference(gain: Gain, seed: int) -> MeanDifference:
    """The mean gain, resampled by group."""
    return _mean_of_strata([gain], seed)


def over_languages(gains: Mapping[str, Gain], seed: int, *, are_aligned: bool) -> MeanDifference:
    """Mean over languages of the mean gains.

    Every language has equal weight, however many answers it has.

    Args:
        gains: By language.
        seed: Of the bootstrap.
        are_aligned: Whether groups of the same name are the same texts in every language and are
            drawn together; otherwise each language is resampled separately, so that the number of
            answers drawn from each adds no noise.
    """
    gains_of_languages = list(gains.values())
    if are_aligned:
        return difference(pool_gains(gains_of_languages), seed)
    return _mean_of_strata(gains_of_languages, seed)


def pool_gains(gains: Sequence[Gain]) -> Gain:
    """Answers of all languages as one Gain, groups of the same name merged.

    Its mean is the mean over languages.
    """
    sizes = [len(gain.values) for gain in gains]
    weighted_values = [
        gain.values * (sum(sizes) / (len(gains) * size))
        for gain, size in zip(gains, sizes, strict=True)
    ]
    groups = tuple(label for gain in gains for label in gain.groups)
    # With unequal numbers of answers the weighted values have no common divisor.
    runs = _common_runs(gains) if len(set(sizes)) == 1 else 0
    return Gain(np.concatenate(weighted_values), groups, runs)


def _common_runs(gains: Sequence[Gain]) -> int:
    """The smallest number of runs of which all values are multiples; 0 if there is none."""
    return math.lcm(*(gain.runs for gain in gains))


def _mean_of_strata(gains: Sequence[Gain], seed: int) -> MeanDifference:
    """The mean over languages, each resampled separately."""
    runs = _common_runs(gains)
    scale = runs or 1
    scaled_values = [np.rint(gain.values * runs) if runs else gain.values for gain in gains]
    strata = [
        (values[None], gain.groups) for values, gain in zip(scaled_values, gains, strict=True)
    ]
    rng = np.random.default_rng(seed)
    pseudo_values = (float(scale), float(-scale))
    low, high, p = stratified_bootstrap(strata, rng, pseudo_values=pseudo_values, draws=DRAWS)
    mean = float(np.mean([values.mean() for values in scaled_values])) / scale
    return MeanDifference(mean, float(low[0]) / scale, float(high[0]) / scale, float(p[0]))


def holm_where_known(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm-adjusted p-values; None stays None."""
    known_p_values = [p for p in p_values if p is not None]
    if not known_p_values:
        return list(p_values)
    adjusted_p_values = iter(holm(np.array(known_p_values)).tolist())
    return [None if p is None else next(adjusted_p_values) for p in p_values]


def holm_of_differences(differences: Sequence[MeanDifference]) -> list[float | None]:
    """Holm-adjusted p-values of the differences that have one; None for the others."""
    return holm_where_known([difference.p for difference in differences])


def difference_between(first: MeanDifference, second: MeanDifference) -> MeanDifference:
    """One mean minus another on different examples, with an interval from both; no p.

    Zou & Donner 2008, equation 5: the distance of each end from the difference is the root of the
    summed squares of the two distances that move it that way.
    """
    mean = first.mean - second.mean
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return NO_DIFFERENCE
    distance_down = np.hypot(first.mean - first.low, second.high - second.mean)
    distance_up = np.hypot(first.high - first.mean, second.mean - second.low)
    return MeanDifference(mean, float(mean - distance_down), float(mean + distance_up), None)
