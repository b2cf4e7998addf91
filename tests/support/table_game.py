"""Games with known answers: what every coalition is worth is written down, and what was asked is counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from headlab.core import Bools, Floats, Ints
from headlab.methods.game import Query, in_turn
from headlab.methods.screen import Scale, feasible

T = TypeVar("T")
# v(example, players present), in [0, 1]: a share of the game's span.
ValueFunction = Callable[[int, frozenset[int]], float]
# Bins and foreseen gains of rows, from their gains: how good a screen is, is up to it.
Foresight = Callable[[Floats], tuple[Ints, Floats]]
BINS = Scale((1.0, 2.0), (0.5, 0.05, 1e-6))


def right(gains: Floats) -> tuple[Ints, Floats]:
    """Knows every gain."""
    return np.where(gains == 0, 2, 0), gains


def blind(gains: Floats) -> tuple[Ints, Floats]:
    """Says what has nothing to do with the gains."""
    return np.broadcast_to(np.arange(gains.shape[1]) % 3, gains.shape), np.zeros(gains.shape)


def adversarial(gains: Floats) -> tuple[Ints, Floats]:
    """Takes gains for nothing, and nothing for gains, and foresees the opposite."""
    return np.where(gains == 0, 0, 2), -gains


def constant(gains: Floats) -> tuple[Ints, Floats]:
    """Says the same of every row."""
    return np.full(gains.shape, 2), np.full(gains.shape, 0.3)


def last(snapshots: Iterable[T]) -> T:
    """The last of an estimator's snapshots."""
    return deque(snapshots, maxlen=1)[0]


def same(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Whether two checkpoints hold the same arrays, to the bit and the type."""
    return set(one) == set(two) and all(
        np.array_equal(one[k], two[k]) and one[k].dtype == two[k].dtype for k in one
    )


SCREENS = {screen.__name__: screen for screen in (right, blind, adversarial, constant)}


@dataclass
class TableGame:
    """The game of a value function, as estimators see one.

    Attributes:
        weights: Share of the draws that each example is due, [example]; None: all alike.
        foresight: How gains are foreseen; None: they are not.
        asked: int [example, player], gains that were asked for.
        rows: Coalitions and walks that were asked for.
    """

    players: int
    examples: int
    value: ValueFunction
    span: float = 1.0
    steps: int = 1
    round: int = 16
    weights: Floats | None = None
    foresight: Foresight | None = None
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
    def costs(self) -> Floats:
        return np.linspace(1, 0.2, self.players)

    @property
    def scale(self) -> Scale | None:
        return None if self.foresight is None else BINS

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
        return self._gains(kept, examples) * wanted

    def screened(
        self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats
    ) -> Floats:
        self._check(kept, examples)
        assert self.foresight is not None
        assert uniforms.shape == wanted.shape == kept.shape
        assert halvings.shape == (BINS.bins, self.players)
        gains = self._gains(kept, examples)
        here = kept @ (1 << np.arange(self.players))
        bins, foreseen = self.foresight(gains)
        asked = wanted & (uniforms < 2.0 ** -halvings[bins, np.arange(self.players)])
        np.add.at(self.asked, examples, asked)
        found = [
            bins,
            feasible(foreseen, self.table[examples, here], kept),
            np.where(asked, gains, np.nan),
        ]
        return np.where(wanted, np.stack(found), np.nan)

    def _gains(self, kept: Bools, examples: Ints) -> Floats:
        bits = 1 << np.arange(self.players)
        here = (kept @ bits)[:, None]
        example = np.asarray(examples)[:, None]
        return self.table[example, here | bits] - self.table[example, here & ~bits]

    def answers(self, asks: Iterable[Query]) -> Iterator[Floats]:
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
    return int(
        sum(VOTES[p] * (-1 if p == 5 and example % 2 else 1) for p in present) >= 2 + example % 3
    )


def smooth(example: int, present: frozenset[int]) -> float:
    """A value between 0 and 1, no multiple of anything: the same votes through a logistic curve."""
    return float(1 / (1 + np.exp(1 + example % 3 - 0.7 * sum(VOTES[p] for p in present))))
