"""Points of a front from the answers along each order, paired with the untouched model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headlab.experiments.differences import NOTHING, Difference, Gain, over_languages
from headlab.front.choose import Point
from headlab.records import Bools, Floats
from headlab.scores import Curve, kept_without
from headlab.stats import group_bootstrap, holm, resampled_means
from headlab.worth.costs import Costs

DRAWS, ALPHA, DIGITS = 10_000, 0.05, 12
MADE_UP = (1.0, -1.0)
Groups = tuple[str, ...]


@dataclass(frozen=True)
class Judge:
    """How points are judged.

    groups: of every language, the label [answer] of the examples that are resampled together.  orders: how many are
    looked at, among which the chance of a wrong bound is shared out.  aligned: groups of one name are the same
    texts in every language.
    """

    groups: Mapping[str, Groups]
    orders: int
    seed: int
    aligned: bool

    @property
    def tail(self) -> float:
        """Chance that a lower bound of one order lies above the truth."""
        return ALPHA / self.orders


def points_of(key: str, curves: Mapping[str, Curve], judge: Judge, costs: Costs) -> list[Point]:
    """A point for every count of heads gone. curves: of every language along one order, on the same counts."""
    languages = tuple(curves)
    gains = {name: gains_of(curve) for name, curve in curves.items()}
    bounds = np.array([_bounds(gains[name], judge.groups[name], judge) for name in languages])
    first, out = next(iter(curves.values())), []
    for at, gone in enumerate(first.removed.tolist()):
        mean = _mean({name: gains[name][at] for name in languages}, judge) if gone else NOTHING
        kept = kept_without(first.order[:gone], first.grid.size)
        accuracy, difference, low, high = (
            tuple(float(getattr(curves[name], part)[at]) for name in languages)
            for part in ("accuracy", "difference", "low", "high")
        )
        ends = [mean.mean if end is None else end for end in (mean.low, mean.high)]
        out.append(
            Point(
                key, gone, int(kept.sum()), parameters_left(costs, kept), languages, accuracy, difference, low, high,
                tuple(bounds[:, at].tolist()), mean.mean, *ends,
            )
        )  # fmt: skip
    return out


def gains_of(curve: Curve) -> Floats:
    """What each answer gains at every point, float [point, answer] in -1, 0 and 1."""
    return np.asarray(curve.correct.astype(np.float64) - curve.correct[0])


def _bounds(gains: Floats, groups: Groups, judge: Judge) -> Floats:
    """One-sided lower bounds of the mean gains, float [point]; 0 where no head is gone."""
    rng = np.random.default_rng(judge.seed)
    low = group_bootstrap(gains, groups, rng, draws=DRAWS, level=1 - 2 * judge.tail).low
    low[0] = 0.0
    return low


def _mean(gains: Mapping[str, Floats], judge: Judge) -> Difference:
    told = {name: Gain(values, judge.groups[name]) for name, values in gains.items()}
    return over_languages(told, judge.seed, aligned=judge.aligned)


def parameters_left(costs: Costs, kept: Bools) -> int | None:
    """Parameters of the shrunk model; None where heads cannot be taken out."""
    return costs.shrunk(kept).parameters if costs.layers else None


@dataclass(frozen=True)
class Verdict:
    """One language on test: the paired difference with its 95 % interval, and whether a loss is ruled out.

    bound: 95 % lower bound, one-sided.  p: two-sided, of "the difference is 0".  p_loss: of "more than `loss` is
    lost", one-sided; None where no loss was asked about.  Where no head is gone the difference is 0 by definition,
    and all of these are None.
    """

    language: str
    n: int
    untouched: float
    accuracy: float
    difference: float
    low: float | None
    high: float | None
    bound: float | None
    p: float | None
    p_loss: float | None


def untouched(language: str, correct: Bools) -> Verdict:
    """The verdict on a mask that removes nothing. correct: bool [answer]."""
    share = float(correct.mean())
    return Verdict(language, len(correct), share, share, 0.0, None, None, None, None, None)


def verdict(language: str, before: Bools, after: Bools, groups: Groups, loss: float | None, seed: int) -> Verdict:
    """Judge a mask in one language. before, after: bool [answer].  loss: 0.01 is one point."""
    gain = after.astype(np.float64) - before
    means = np.round(
        resampled_means(gain[None], groups, np.random.default_rng(seed), made_up=MADE_UP, draws=DRAWS)[0], DIGITS
    )
    low, bound, high = np.quantile(means, [ALPHA / 2, ALPHA, 1 - ALPHA / 2])
    p = min(1.0, 2 * _tail(min((means <= 0).sum(), (means >= 0).sum()), len(means)))
    return Verdict(
        language, len(gain), float(before.mean()), float(after.mean()), float(gain.mean()), float(low), float(high),
        float(bound), p, None if loss is None else p_loss(means, loss),
    )  # fmt: skip


def p_loss(means: Floats, loss: float) -> float:
    """One-sided p of "more than `loss` is lost" from resampled mean gains [draw]."""
    return _tail(int((means <= -loss).sum()), len(means))


def _tail(count: int, draws: int) -> float:
    return float((1 + count) / (draws + 1))


def corrected(values: Sequence[float | None]) -> list[float | None]:
    """Holm's p-values of those that are there."""
    given = [p for p in values if p is not None]
    found = iter(holm(np.array(given)).tolist() if given else [])
    return [None if p is None else next(found) for p in values]


def losing(verdicts: Sequence[Verdict]) -> list[str]:
    """Languages that lose: to name some of many is many claims, so their p-values are Holm's."""
    adjusted = corrected([one.p for one in verdicts])
    return [
        one.language
        for one, p in zip(verdicts, adjusted, strict=True)
        if p is not None and p < ALPHA and one.difference < 0
    ]


def all_within(verdicts: Sequence[Verdict]) -> float:
    """The p of "more than the loss is lost in some language": the largest of theirs.

    The claim that all languages are within is one claim; it is rejected only if each is, so nothing is to be adjusted
    (an intersection-union test; Berger 1982, Technometrics 24).
    """
    return max(one.p_loss for one in verdicts if one.p_loss is not None)
