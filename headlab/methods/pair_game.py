"""The game of a model, asked how pairs of its heads interact.

The interaction of two heads at a coalition T of the others is v(T with both) - v(T with the first)
- v(T with the second) + v(T). Values are shares of the span, so it lies in [-2, 2]; the answers are
halves of interactions, which lie in [-1, 1] as gains do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from headlab.core import Bools, Floats, Ints
from headlab.evaluation import StandIn
from headlab.hooks import Trunk, as_gate_tensor
from headlab.methods.costs import is_encoder
from headlab.methods.game import Game
from headlab.methods.model_game import CoalitionBatch, ModelGame, donors_of_rows
from headlab.methods.screen import SIZE_SCALE, Scale

# Bins of interactions of accuracy, by how near three toggled coalitions are to a flip that makes
# one (`pair_nearness`).
PAIR_SCALE = Scale(
    (-0.9, -0.5, -0.2, 0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.2, 1.6, 2.2, 3, 4.5, 7, 12, 25, 60),
    (0.22, 0.2, 0.16, 0.12, 0.1, 0.08, 0.06, 0.04, 0.025, 0.015, 0.008, 0.004, 0.002, 1e-3, 3e-4,
     1e-4, 3e-5, 1e-5, 1e-5, 1e-5),
)  # fmt: skip
SHARE_OF_TYPICAL_CHANGE = 0.1
LEAST_ERROR = 0.02
"""Likely error of a predicted change besides its own size, as in `headlab.methods.screen.nearness`:

a share of the coalition's typical change, and so many logits at least.
"""


class PairGame(Game, Protocol):
    """An estimator's view of a game whose pairs of players interact."""

    pairs: Ints
    """The pairs, int [pair, 2]; no player is paired with itself."""

    @property
    def pair_costs(self) -> Floats:
        """Cost of a pair's row, and of its part in the rows of its players, in passes, [pair]."""

    @property
    def pair_scale(self) -> Scale | None:
        """Bins of the interactions that "screened_interactions" predicts; None without any."""


def all_pairs(players: Ints) -> Ints:
    """All pairs of some players, int [pair, 2], in the order of the players.

    Args:
        players: int [player], each once.
    """
    first, second = np.triu_indices(len(players), 1)
    return np.stack([players[first], players[second]], axis=1)


def pairs_with(player: int, players: Ints) -> Ints:
    """The pairs of one player with each of some others, int [pair, 2], the lower one first.

    Args:
        player: The one.
        players: int [player], each once; itself is left out.
    """
    others = players[players != player]
    pairs = np.stack([np.full(len(others), player), others], axis=1)
    return np.sort(pairs, axis=1)


def pair_nearness(level: Floats, change: Floats, pairs: Ints) -> Floats:
    """Predicted distance of an answer from a flip that makes its pair interact, [row, pair].

    Its unit is the gradient's likely error. It is below 0 where the gradient itself predicts an
    interaction. One exists where toggling both players flips the answer otherwise than the flips of
    each alone add up to, so it takes a flip of one of three toggled coalitions that is not foreseen
    to make one where none is foreseen: the nearest of the three counts.

    Args:
        level: Distance of the margin from 0, [row].
        change: Change of the margin that the gradient predicts, [row, player].
        pairs: int [pair, 2].
    """
    typical_change = np.sqrt((change**2).mean(axis=1, keepdims=True))
    least_error = SHARE_OF_TYPICAL_CHANGE * typical_change + LEAST_ERROR
    first = change[:, pairs[:, 0]]
    second = change[:, pairs[:, 1]]
    margins = level[:, None] + np.stack([first, second, first + second])
    errors = np.stack([np.abs(first), np.abs(second), np.abs(first) + np.abs(second)]) + least_error
    distance = (np.abs(margins) / errors).min(axis=0)
    flips = margins < 0
    is_foreseen = flips[2].astype(int) != flips[0].astype(int) + flips[1].astype(int)
    return np.asarray(np.where(is_foreseen, -distance, distance))


@dataclass
class ModelPairGame(ModelGame):
    """The game whose players are a model's heads, asked for interactions of pairs.

    Attributes:
        pairs: The pairs, int [pair, 2].
    """

    pairs: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    @property
    def pair_costs(self) -> Floats:
        """A pair's row branches off at the first of its heads' layers.

        All pairs share the rows of their heads.
        """
        rows_a_pair = 1 + len(np.unique(self.pairs)) / max(1, len(self.pairs))
        return np.asarray(self.costs[self.pairs].max(axis=1) * rows_a_pair)

    @property
    def pair_scale(self) -> Scale | None:
        """See `PairGame.pair_scale`: slopes foresee an encoder's gains, and no decoder's."""
        model = self.evaluator.model
        if not model.resumable or not is_encoder(model.grid):
            return None
        if self.value.key == "accuracy":
            return PAIR_SCALE
        return SIZE_SCALE

    def interactions(
        self, kept: Bools, wanted: Bools, examples: Ints, donors: Ints | None = None
    ) -> Floats:
        """Half the interaction of each pair of players at a coalition of the others, [row, pair].

        It is 0 for pairs that are not wanted. The coalition is `kept` without the pair's players;
        which of them are in `kept` matters not.

        Args:
            kept: The players that are present, bool [row, player].
            wanted: The pairs that are asked for, bool [row, pair].
            examples: The example of each row, int [row].
            donors: As in `ModelGame.values`; all values of an interaction have the same.
        """
        halves = np.zeros(wanted.shape)
        rows_with_pairs = np.flatnonzero(wanted.any(axis=1))
        pairs = wanted[rows_with_pairs]

        def run(lane: ModelGame, batch: CoalitionBatch) -> Floats:
            rows = rows_with_pairs[batch.rows]
            assert isinstance(lane, ModelPairGame)
            stand_in = lane._stand_in(examples[rows], donors_of_rows(donors, rows))
            return lane._interactions_of_batch(kept[rows], batch.wanted, examples[rows], stand_in)

        row_weights = 1 + pairs.sum(axis=1) + _members(pairs, self.pairs, self.players).sum(axis=1)
        for batch, batch_halves in self._in_batches(
            examples[rows_with_pairs], pairs, row_weights, run
        ):
            # Added, since the pairs of one row may come in several batches.
            halves[rows_with_pairs[batch.rows]] += batch_halves
        return halves

    def _interactions_of_batch(
        self, kept: Bools, wanted: Bools, examples: Ints, stand_in: StandIn
    ) -> Floats:
        """`interactions` of one batch."""
        model = self.evaluator.model
        trunk = Trunk(model.depth, first_token=model.first_token)
        inputs = self.evaluator.tensors(examples)
        gates = as_gate_tensor(model, model.grid.gates(kept))
        states = trunk if model.resumable else None
        values = self._worth(examples, stand_in.active(gates, states), inputs)
        halves = self._half_interactions(
            values, kept, wanted, gates, examples, inputs, trunk, stand_in
        )
        return np.where(wanted, halves, 0.0)

    def screened_interactions(
        self,
        kept: Bools,
        wanted: Bools,
        examples: Ints,
        halvings: Ints,
        uniforms: Floats,
        donors: Ints | None = None,
    ) -> Floats:
        """Bin, predicted and computed half-interaction of every pair, float [3, row, pair].

        One backward pass predicts how near a coalition is to an interaction, and rows branch off its
        layers. What is not computed is NaN; every prediction is 0.

        Args:
            kept: As in `interactions`.
            wanted: As in `interactions`; all three are NaN for pairs that are not wanted.
            examples: As in `interactions`.
            halvings: An interaction is computed with probability 2 ** -halvings, int [bin, pair].
            uniforms: Numbers in [0, 1), float [row, pair]; an interaction is computed where its
                number is below the probability.
            donors: As in `interactions`.
        """

        def screen(lane: ModelGame, rows: Ints, wanted_pairs: Bools) -> Floats:
            assert isinstance(lane, ModelPairGame)
            stand_in = lane._stand_in(examples[rows], donors_of_rows(donors, rows))
            return lane._screen_pairs_of_batch(
                kept[rows], wanted_pairs, examples[rows], halvings, uniforms[rows], stand_in
            )

        return self._screened_in_batches(examples, wanted, screen)

    def _screen_pairs_of_batch(
        self,
        kept: Bools,
        wanted: Bools,
        examples: Ints,
        halvings: Ints,
        uniforms: Floats,
        stand_in: StandIn,
    ) -> Floats:
        """`screened_interactions` of one batch."""
        model = self.evaluator.model
        trunk = Trunk(model.depth, first_token=model.first_token)
        # The caller may be in inference mode, which forbids gradients.
        with torch.inference_mode(False):
            inputs = self.evaluator.tensors(examples)
            gates = as_gate_tensor(model, model.grid.gates(kept)).requires_grad_()
            values, level, slope = self.graded_values(gates, examples, inputs, trunk, stand_in)
        change = np.where(kept, -slope, slope)
        if self.value.key == "accuracy":
            bins = PAIR_SCALE.bins_of(pair_nearness(level, change, self.pairs))
        else:  # a pair interacts little if one of its heads does little
            bins = SIZE_SCALE.bins_of(-np.abs(change)[:, self.pairs].min(axis=2))
        probability = 2.0 ** -halvings[bins, np.arange(len(self.pairs))]
        is_computed = wanted & (uniforms < probability)
        halves = self._half_interactions(
            values, kept, is_computed, gates, examples, inputs, trunk, stand_in
        )
        return np.stack([bins, np.zeros(halves.shape), halves])

    def _half_interactions(
        self,
        values: Floats,
        kept: Bools,
        is_computed: Bools,
        gates: torch.Tensor,
        examples: Ints,
        inputs: dict[str, torch.Tensor],
        trunk: Trunk,
        stand_in: StandIn,
    ) -> Floats:
        """Half the interaction of each pair that is computed, [row, pair]; NaN for others.

        A row is computed for each of these pairs, with both of its heads toggled, and one for each
        head that any of them has.

        Args:
            values: Of the coalitions, [row].
            kept: The players that are present, bool [row, player].
            is_computed: bool [row, pair].
            gates: Of the coalitions, [row, layer, head].
            examples: Of the rows.
            inputs: Of the rows.
            trunk: Layer inputs of the rows.
            stand_in: What stands in closed players' places in the rows.
        """
        row, pair = np.nonzero(is_computed)
        first, second = self.pairs[pair].T
        single_row, single = np.nonzero(_members(is_computed, self.pairs, self.players))
        toggled_players = np.concatenate([np.stack([single, single], axis=1), self.pairs[pair]])
        toggled_rows = np.concatenate([single_row, row])
        toggled_values = self._branch_values(
            gates, examples, inputs, trunk, toggled_rows, toggled_players, stand_in
        )
        single_values = np.zeros(kept.shape)
        single_values[single_row, single] = toggled_values[: len(single)]
        both_values = toggled_values[len(single) :]
        second_difference = (
            values[row] - single_values[row, first] - single_values[row, second] + both_values
        )
        # Where one of the two is present and the other is not, the coalitions with exactly one of
        # them are those that are toggled in both or in none.
        sign = np.where(kept[row, first] == kept[row, second], 1, -1)
        halves = np.full(is_computed.shape, np.nan)
        halves[row, pair] = sign * second_difference / 2
        return halves


def _members(is_computed: Bools, pairs: Ints, players: int) -> Bools:
    """Which players belong to a pair that is computed, bool [row, player]."""
    is_member = np.zeros((len(is_computed), players), bool)
    row, pair = np.nonzero(is_computed)
    is_member[row[:, None], pairs[pair]] = True
    return is_member
