"""Games with known answers: what every coalition is worth is written down, and what was asked is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.methods.game import Ask, in_turn
from headlab.records import Bools, Floats, Ints

# v(example, players present), in [0, 1]: a share of the game's span.
ValueFunction = Callable[[int, frozenset[int]], float]


@dataclass
class TableGame:
    """The game of a value function, as estimators see one.

    weights: share of the draws that each example is due, [example]; None: all alike.  asked: int [example,
    player], gains that were asked for.  rows: coalitions and walks that were asked for.
    """

    players: int
    examples: int
    value: ValueFunction
    span: float = 1.0
    steps: int = 1
    round: int = 16
    weights: Floats | None = None
    asked: Ints = field(init=False)
    rows: int = field(init=False, default=0)
    table: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.asked = np.zeros((self.examples, self.players), np.int64)
        self.table = np.array(
            [
                [self.value(e, members(place, self.players)) for place in range(2**self.players)]
                for e in range(self.examples)
            ],
            np.float64,
        ).reshape(self.examples, -1)
        assert (self.table >= 0).all()
        assert (self.table <= 1).all()

    @property
    def lengths(self) -> Ints:
        return np.ones(self.examples, np.int64)

    @property
    def mean(self) -> ValueOfCoalition:
        """v(players present), the mean over all examples by their weights, for `reference`."""
        means = np.average(self.table, axis=0, weights=self.weights)
        return lambda present: float(means[sum(1 << p for p in present)])

    def values(self, kept: Bools, examples: Ints) -> Floats:
        self._check(kept, examples)
        self.rows += len(kept)
        return self.table[examples, kept @ (1 << np.arange(self.players))]

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        assert all(len(set(order)) == len(order) for order in orders.tolist())
        asked = np.ones(orders.shape, bool) if wanted is None else wanted[orders]
        self.rows += len(orders)
        row, step = np.nonzero(asked)
        np.add.at(self.asked, (np.asarray(examples)[row], orders[row, step]), 1)
        gone = np.cumsum(1 << orders, axis=1)
        left = (1 << self.players) - 1 - np.hstack([np.zeros((len(orders), 1), np.int64), gone])
        value = self.table[np.asarray(examples)[:, None], left]
        return (value[:, :-1] - value[:, 1:]) * asked

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        self._check(kept, examples)
        assert wanted.shape == kept.shape
        self.rows += len(kept)
        np.add.at(self.asked, examples, wanted)
        bits = 1 << np.arange(self.players)
        here, example = (kept @ bits)[:, None], np.asarray(examples)[:, None]
        return (self.table[example, here | bits] - self.table[example, here & ~bits]) * wanted

    def answers(self, asks: Iterable[Ask]) -> Iterator[Floats]:
        return in_turn(self, asks)

    def _check(self, kept: Any, examples: Any) -> None:
        assert kept.dtype == bool
        assert kept.shape == (len(examples), self.players)


ValueOfCoalition = Callable[[frozenset[int]], float]


def members(place: int, players: int) -> frozenset[int]:
    """The players whose bits are set."""
    return frozenset(p for p in range(players) if place >> p & 1)


VOTES = (2, 2, -1, 1, 0, 3, -2)


def majority(example: int, present: frozenset[int]) -> int:
    """Right if the votes of those present reach a bar: 0 and 1 are twins, 2 harms, 4 is ignored."""
    return int(sum(VOTES[p] * (-1 if p == 5 and example % 2 else 1) for p in present) >= 2 + example % 3)


def smooth(example: int, present: frozenset[int]) -> float:
    """A value between 0 and 1, no multiple of anything: the same votes through a logistic curve."""
    return float(1 / (1 + np.exp(1 + example % 3 - 0.7 * sum(VOTES[p] for p in present))))
