"""Which score to trust for a model: the one by which pruning keeps most accuracy, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from headlab.experiments.curve_tables import RANDOM, Pair, Walked, mean_areas, pairs_of
from headlab.experiments.method_tables import MEAN, listed
from headlab.tables import Cell, Table

LEVEL = 0.95
Ends = tuple[float, float, float]  # a difference in points, and its interval


class Verdict(NamedTuple):
    """The method whose curve has the largest area, against the next one and against random orders.

    areas: in percent, by method.  peers: methods that cannot be told from the best.  below: of `orders` random
    orders, how many have the smaller area.  worse: methods that are surely below random orders.
    """

    best: str
    following: str
    areas: Mapping[str, float]
    ahead: Ends
    above: Ends
    below: int
    orders: int
    peers: tuple[str, ...]
    worse: tuple[str, ...] = ()

    @property
    def beats_chance(self) -> bool:
        """Whether the interval against random orders lies above 0."""
        return self.above[1] > 0

    @property
    def settled(self) -> bool:
        """Whether its intervals against chance and against every other method lie above 0."""
        return self.beats_chance and not self.peers


def named_pairs(methods: Sequence[str]) -> list[tuple[str, str]]:
    """Every pair once: each method with random, then each with those before it."""
    return [(name, RANDOM) for name in methods] + [(b, a) for a, b in combinations(methods, 2)]


def level_of(methods: Sequence[str]) -> float:
    """Level of one interval, so that those of all pairs hold together at 95 % (Bonferroni; Dunn 1961)."""
    return 1 - (1 - LEVEL) / len(named_pairs(methods))


def compare(found: Sequence[Walked], methods: Sequence[str], seed: int, *, aligned: bool = False) -> list[Pair]:
    """All differences in area, with intervals that hold together; arguments as in `pairs_of`."""
    return pairs_of(found, named_pairs(methods), seed, aligned=aligned, level=level_of(methods))


def verdict(found: Sequence[Walked], methods: Sequence[str], pairs: Sequence[Pair]) -> Verdict:
    """The best method and what the differences say of it; pairs as `compare` gives them."""
    areas = {name: 100 * float(np.mean([mean_areas(of.curves[name]).mean() for of in found])) for name in methods}
    best, following, *_ = sorted(methods, key=lambda name: -areas[name])
    between = {(pair.ordering, pair.other): pair for pair in pairs}
    against = {name: _ends(between, best, name) for name in (RANDOM, *methods) if name != best}
    below = between[best, RANDOM].below
    return Verdict(
        best, following, areas, against[following], against[RANDOM], below or 0, len(found[0].curves[RANDOM]),
        tuple(name for name in methods if name != best and against[name][1] <= 0),
        tuple(name for name in methods if between[name, RANDOM].high < 0),
    )  # fmt: skip


def _ends(between: Mapping[tuple[str, str], Pair], one: str, other: str) -> Ends:
    """One area minus another, whichever way round it was compared."""
    if (one, other) in between:
        pair = between[one, other]
        return pair.difference, pair.low, pair.high
    pair = between[other, one]
    return 0.0 - pair.difference, 0.0 - pair.high, 0.0 - pair.low  # no -0.0


def verdict_table(found: Mapping[str, Verdict], level: float) -> Table:
    """A row per language (and their mean): the best method, the next, chance, and whether that is settled."""
    rows: list[tuple[Cell, ...]] = [
        (language, v.best, v.areas[v.best], v.following, *v.ahead, *v.above, v.below, ", ".join(v.peers), v.settled)
        for language, v in found.items()
    ]
    return Table(
        "methods-verdict",
        "The score whose pruning curve has the largest area on test",
        ("language", "best", "area, %", "next", "minus next, points", "low, points", "high, points",
         "minus random, points", "random low, points", "random high, points", "random orders below",
         "not told from it", "settled"),
        ("", "", ".1f", "", *["+.1f"] * 6, "d", "", ""),
        tuple(rows),
        (f"Intervals: {100 * level:.4g} % each, so that those of all pairs of a language hold together with 95 %: "
         "which method is the best and which the next was seen on the same examples. not told from it: methods whose "
         "interval of the difference holds 0. settled: there is none, and the interval against random lies above 0.",),
    )  # fmt: skip


def trust_words(found: Mapping[str, Verdict]) -> str:
    """Which score to trust for this model, and how sure that is: of the mean over languages if there are several."""
    where, v = list(found.items())[-1]
    alone = [one.best == v.best and one.settled for name, one in found.items() if name != MEAN]
    place = f"over {len(alone)} languages" if where == MEAN else f"in {where}"
    largest = f"{place} {v.best} has the largest area under its pruning curve on test"
    ahead = f"{_said(v.ahead)} against the next, {v.following}"
    above = f"{_said(v.above)} against random orders ({v.below} of {v.orders} lie below it)"
    if v.settled:
        words = f"For this model, trust {v.best}: {largest}, {ahead}, and {above}."
    else:
        words = f"Which score to trust for this model the data do not tell: {largest}, "
        words += (
            f"{ahead}, and {above}, but the interval of the difference to {listed(v.peers)} holds 0."
            if v.beats_chance
            else f"{above}, so not even chance is ruled out."
        )
    if v.worse:
        words += f" Surely worse than random orders: {listed(v.worse)}."
    if where == MEAN:
        words += f" In {sum(alone)} of {len(alone)} languages {v.best} is surely the best by itself."
    return words


def _said(ends: Ends) -> str:
    value, low, high = ends
    return f"{value:+.1f} points [{low:+.1f}, {high:+.1f}]"
