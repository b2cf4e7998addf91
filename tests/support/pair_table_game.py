"""Games with known interactions: a table holds the value of every coalition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import reference

from headlab.core import Bools, Floats, Ints
from headlab.methods.pair_game import all_pairs
from headlab.methods.screen import Scale
from support.table_game import BINS, TableGame

# Gives the bin of each true half-interaction, [row, pair]. It decides how good a screen is.
PairForesight = Callable[[Floats], Ints]


def right_pairs(halves: Floats) -> Ints:
    """Foresee every interaction."""
    return np.where(halves == 0, 2, 0)


def scrambled_pairs(halves: Floats) -> Ints:
    """Foresee without regard to the interactions."""
    return np.broadcast_to(np.arange(halves.shape[1]) * 7919 % 3, halves.shape)


def constant_pairs(halves: Floats) -> Ints:
    """Foresee that no pair interacts."""
    return np.full(halves.shape, 2)


def opposite_pairs(halves: Floats) -> Ints:
    """Foresee interactions where there are none, and none where there are."""
    return np.where(halves == 0, 0, 2)


PAIR_SCREENS: dict[str, PairForesight] = {
    "right": right_pairs,
    "scrambled": scrambled_pairs,
    "constant": constant_pairs,
    "opposite": opposite_pairs,
}


@dataclass
class PairTableGame(TableGame):
    """The game of a value function, asked for interactions.

    Attributes:
        pair_foresight: Predicts interactions; None where prediction is impossible.
        chosen: The players whose pairs are asked for; None for all.
        pairs: int [pair, 2].
        pair_counts: How many interactions were computed of each pair, int [pair].
    """

    pair_foresight: PairForesight | None = None
    chosen: tuple[int, ...] | None = None
    pairs: Ints = field(init=False)
    pair_counts: Ints = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = range(self.players) if self.chosen is None else self.chosen
        self.pairs = all_pairs(np.array(chosen))
        self.pair_counts = np.zeros(len(self.pairs), np.int64)

    @property
    def pair_costs(self) -> Floats:
        return np.ones(len(self.pairs))

    @property
    def pair_scale(self) -> Scale | None:
        return None if self.pair_foresight is None else BINS

    @property
    def truth(self) -> Floats:
        """The index of each pair by enumeration, float [pair]."""
        indices = [
            reference.interaction_index(self.mean, self.players, int(first), int(second))
            for first, second in self.pairs
        ]
        return np.array(indices)

    def interactions(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        self._check(kept, examples)
        assert wanted.shape == (len(kept), len(self.pairs))
        self.pair_counts += wanted.sum(axis=0)
        return self._halves(kept, examples) * wanted

    def screened_interactions(
        self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats
    ) -> Floats:
        assert self.pair_foresight is not None
        assert uniforms.shape == wanted.shape
        halves = self._halves(kept, examples)
        bins = self.pair_foresight(halves)
        chances = 2.0 ** -halvings[bins, np.arange(len(self.pairs))]
        is_computed = wanted & (uniforms < chances)
        self.pair_counts += is_computed.sum(axis=0)
        answers = [bins, np.zeros(halves.shape), np.where(is_computed, halves, np.nan)]
        return np.where(wanted, np.stack(answers), np.nan)

    def _halves(self, kept: Bools, examples: Ints) -> Floats:
        """Half of each pair's interaction, from the four values themselves, [row, pair]."""
        halves = np.zeros((len(kept), len(self.pairs)))
        bits = 1 << np.arange(self.players)
        for index, (first, second) in enumerate(self.pairs):
            without = (kept @ bits) & ~bits[first] & ~bits[second]
            both = self.table[examples, without | bits[first] | bits[second]]
            one = self.table[examples, without | bits[first]]
            other = self.table[examples, without | bits[second]]
            halves[:, index] = (both - one - other + self.table[examples, without]) / 2
        return halves
