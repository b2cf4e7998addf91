"""Points of a front, and the choice among them: pure functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headlab.records import Bools, Floats

NEAR = 1e-12  # differences are shares of whole answers: what is nearer is equal


@dataclass(frozen=True)
class Point:
    """A model with its first `removed` heads of an order gone, against the untouched one, on dev.

    kept: heads that are left.  parameters: that are left, None where heads cannot be taken out.  By language:
    accuracy, difference to the untouched model, the ends of its 95 % interval, and bound, one-sided, from below.
    mean, mean_low, mean_high: of the difference over languages.  0.01 = one point.
    """

    order: str
    removed: int
    kept: int
    parameters: int | None
    languages: tuple[str, ...]
    accuracy: tuple[float, ...]
    difference: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    bound: tuple[float, ...]
    mean: float
    mean_low: float
    mean_high: float

    @property
    def worst(self) -> float:
        """The smallest difference over the languages."""
        return min(self.difference)

    @property
    def weakest(self) -> str:
        """The language that loses most."""
        return self.languages[self.difference.index(self.worst)]

    @property
    def worst_bound(self) -> float:
        """The smallest lower bound over the languages."""
        return min(self.bound)

    @property
    def cost(self) -> tuple[int, int]:
        """What there should be little of: parameters where they are known, then heads."""
        return (self.kept if self.parameters is None else self.parameters), self.kept


def pareto(cost: Floats, value: Floats) -> Bools:
    """Points that no other one beats: none is as cheap and as good, and better in one of the two; bool [point]."""
    order = np.lexsort((-value, cost))
    out, best, at = np.zeros(len(cost), bool), -np.inf, -np.inf
    for i in order.tolist():
        if value[i] > best:
            out[i], best, at = True, value[i], cost[i]
        elif value[i] == best and cost[i] == at:
            out[i] = True  # the same point twice
    return out


def within(points: Sequence[Point], loss: float, by: str) -> Point:
    """The smallest model that loses no more than `loss` in any language. The untouched one always fits.

    loss: 0.01 is one point.  by: "estimate", whose differences are all at -loss or above, wherever it stands in its
    order; "bound", whose lower bounds are, and those of all before it in its order too (a fixed-sequence test: the
    first count that fails ends it, so that looking at many counts costs nothing; Maurer et al. 1995).
    """
    fit = [p for p in points if p.worst >= -loss - NEAR] if by == "estimate" else _before_failure(points, loss)
    return min(fit, key=lambda p: (*p.cost, -p.worst, -p.mean))


def _before_failure(points: Sequence[Point], loss: float) -> list[Point]:
    fit = []
    for name in dict.fromkeys(point.order for point in points):
        for point in sorted((p for p in points if p.order == name), key=lambda p: p.removed):
            if point.worst_bound < -loss - NEAR:
                break
            fit.append(point)
    return fit


def at_heads(points: Sequence[Point], heads: int) -> Point:
    """The point with so many heads left whose weakest language loses least; of equal ones, the best on average."""
    return max((p for p in points if p.kept == heads), key=lambda p: (p.worst, p.mean))
