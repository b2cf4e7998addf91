"""How many heads two choices share, and how many they would share by chance: the hypergeometric distribution."""

from __future__ import annotations

from typing import NamedTuple

from scipy.stats import hypergeom


class Chance(NamedTuple):
    """Heads shared with a random choice: their mean, and the range that holds at least `level` of all choices."""

    mean: float
    low: int
    high: int


def by_chance(heads: int, one: int, other: int, level: float = 0.95) -> Chance:
    """What `one` chosen heads and `other` drawn at random share, of `heads` in all (Feller 1968, section II.6)."""
    law = hypergeom(heads, one, other)
    low, high = (int(law.ppf(share)) for share in ((1 - level) / 2, (1 + level) / 2))
    return Chance(one * other / heads, low, high)


def chance_of_more(heads: int, one: int, other: int, shared: int) -> float:
    """Probability that `one` chosen heads and `other` drawn at random share `shared` or more (Fisher 1935)."""
    return min(1.0, float(hypergeom.sf(shared - 1, heads, one, other)))
