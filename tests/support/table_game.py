"""Games with known answers: a table holds the value of every coalition, and queries count."""

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
# v(example, present players), in [0, 1]: a share of the game's span.
ValueFunction = Callable[[int, frozenset[int]], float]
# Predicts gains: gives the bin and the predicted gain of each true gain. It decides how good a
# screen is.
Foresight = Callable[[Floats], tuple[Ints, Floats]]
BINS = Scale((1.0, 2.0), (0.5, 0.05, 1e-6))


def right(gains: Floats) -> tuple[Ints, Floats]:
    """Predict every gain rightly."""
    bins = np.where(gains == 0, 2, 0)
    return bins, gains


def blind(gains: Floats) -> tuple[Ints, Floats]:
    """Predict without regard to the gains."""
    bins = np.arange(gains.shape[1]) % 3
    bins_of_rows = np.broadcast_to(bins, gains.shape)
    return bins_of_rows, np.zeros(gains.shape)


def adversarial(gains: Floats) -> tuple[Ints, Floats]:
    """Swap the bins of gains and zeros, and predict gains of the opposite sign."""
    bins = np.where(gains == 0, 0, 2)
    return bins, -gains


def constant(gains: Floats) -> tuple[Ints, Floats]:
    """Predict the same for every row."""
    bins = np.full(gains.shape, 2)
    predictions = np.full(gains.shape, 0.3)
    return bins, predictions


def last_snapshot(snapshots: Iterable[T]) -> T:
    """The last of an estimator's snapshots."""
    return deque(snapshots, maxlen=1)[0]


def same_arrays(
    one: Mapping[str, Any],
    two: Mapping[str, Any],
) -> bool:
    """Whether two checkpoints hold the same arrays, to the bit and the type."""
    if set(one) != set(two):
        return False
    for name, array in one.items():
        if array.dtype != two[name].dtype:
            return False
        if not np.array_equal(array, two[name]):
            return False
    return True


SCREENS = {
    "right": right,
    "blind": blind,
    "adversarial": adversarial,
    "constant": constant,
}


@dataclass
class TableGame:
    """The game of a value function, as estimators see it (`headlab.methods.game.Game`).

    Attributes:
        players: Number of players.
        examples: Number of examples.
        value: The value function.
        span: Size of a gain of 1 in the value's unit.
        steps: Number of levels of a gain of 1.
        round: Suitable number of samples for one call.
        weights: Weight of each example in the value, [example]; None where all are equal.
        foresight: Predicts gains for "screened"; None where prediction is impossible.
        asked: How often each gain was asked for, int [example, player].
        rows: How many coalitions and walks were asked for.
        table: Value of every coalition, float [example, bits of the coalition].
    """

    players: int
    examples: int
    value: ValueFunction
    span: float = 1.0
    steps: int = 1
    round: int = 16
    weights: Floats | None = None
    foresight: Foresight | None = None
    gain_counts: Ints = field(init=False)
    row_count: int = field(init=False, default=0)
    table: Floats = field(init=False)

    def __post_init__(self) -> None:
        size = (self.examples, self.players)
        self.gain_counts = np.zeros(size, np.int64)
        coalitions = []
        for bits in range(2**self.players):
            coalitions.append(members(bits, self.players))
        self.table = np.zeros((self.examples, len(coalitions)))
        for example in range(self.examples):
            for bits, present in enumerate(coalitions):
                self.table[example, bits] = self.value(example, present)
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
    def mean(self) -> CoalitionValue:
        """v(present players): the weighted mean over all examples, as `reference` needs it."""
        means = np.average(self.table, axis=0, weights=self.weights)

        def mean_of(present: frozenset[int]) -> float:
            bits = sum(1 << player for player in present)
            return float(means[bits])

        return mean_of

    def values(self, kept: Bools, examples: Ints) -> Floats:
        self._check(kept, examples)
        self.row_count += len(kept)
        bits = 1 << np.arange(self.players)
        return self.table[examples, kept @ bits]

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        for order in orders.tolist():
            assert len(set(order)) == len(order)
        is_asked = np.ones(orders.shape, bool) if wanted is None else wanted[orders]
        self.row_count += len(orders)
        row, step = np.nonzero(is_asked)
        examples = np.asarray(examples)
        players = orders[row, step]
        np.add.at(self.gain_counts, (examples[row], players), 1)
        removed_bits = np.cumsum(1 << orders, axis=1)
        none_removed = np.zeros((len(orders), 1), np.int64)
        all_bits = (1 << self.players) - 1
        remaining_bits = all_bits - np.hstack([none_removed, removed_bits])
        value = self.table[examples[:, None], remaining_bits]
        gains = value[:, :-1] - value[:, 1:]
        return gains * is_asked

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        self._check(kept, examples)
        assert wanted.shape == kept.shape
        self.row_count += len(kept)
        np.add.at(self.gain_counts, examples, wanted)
        return self._gains(kept, examples) * wanted

    def screened(
        self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats
    ) -> Floats:
        self._check(kept, examples)
        assert self.foresight is not None
        assert uniforms.shape == wanted.shape == kept.shape
        assert halvings.shape == (BINS.bins, self.players)
        gains = self._gains(kept, examples)
        players = np.arange(self.players)
        coalition_bits = kept @ (1 << players)
        bins, foreseen = self.foresight(gains)
        probabilities = 2.0 ** -halvings[bins, players]
        is_computed = wanted & (uniforms < probabilities)
        np.add.at(self.gain_counts, examples, is_computed)
        values = self.table[examples, coalition_bits]
        answers = [
            bins,
            feasible(foreseen, values, kept),
            np.where(is_computed, gains, np.nan),
        ]
        return np.where(wanted, np.stack(answers), np.nan)

    def _gains(self, kept: Bools, examples: Ints) -> Floats:
        bits = 1 << np.arange(self.players)
        coalition_bits = (kept @ bits)[:, None]
        example = np.asarray(examples)[:, None]
        with_player = self.table[example, coalition_bits | bits]
        without_player = self.table[example, coalition_bits & ~bits]
        return with_player - without_player

    def answers(self, asks: Iterable[Query]) -> Iterator[Floats]:
        return in_turn(self, asks)

    def _check(self, kept: Any, examples: Any) -> None:
        assert kept.dtype == bool
        assert kept.shape == (len(examples), self.players)


CoalitionValue = Callable[[frozenset[int]], float]


def members(bits: int, players: int) -> frozenset[int]:
    """The players whose bits are set."""
    present = []
    for player in range(players):
        if bits >> player & 1:
            present.append(player)
    return frozenset(present)


VOTES = (2, 2, -1, 1, 0, 3, -2)


def majority(example: int, present: frozenset[int]) -> int:
    """1 if the votes of the present players reach a bar that depends on the example, else 0.

    Players 0 and 1 are twins, 2 harms, and 4 does nothing; 5 votes the other way in odd examples.
    """
    votes = sum(VOTES[player] for player in present)
    if 5 in present and example % 2:
        votes -= 2 * VOTES[5]
    bar = 2 + example % 3
    return int(votes >= bar)


def smooth(example: int, present: frozenset[int]) -> float:
    """A value between 0 and 1 with no smallest step: the votes through a logistic curve."""
    votes = sum(VOTES[player] for player in present)
    exponent = 1 + example % 3 - 0.7 * votes
    return float(1 / (1 + np.exp(exponent)))
