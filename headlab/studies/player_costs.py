"""What other players than heads cost: counted, without a smaller model being made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import nn

from headlab.core import HEADS, KINDS_OF_HEADS, LAYERS, Bools, Floats, HeadlabError
from headlab.hooks import Model, PlayerSet, parts_of, widths_of, with_players
from headlab.shrink import parameters_of
from headlab.studies.savings import DEFAULT_TOKENS, Costs, ModelCost


@dataclass(frozen=True)
class PartCost:
    """What the parts of one layer cost that are no heads.

    Attributes:
        rows: Of its attention among the costs of heads.
        neurons: Number of neurons; 0 where none is a player.
        parameters: Of one neuron.
        macs_token: Multiply-accumulates of one neuron per token.
        all_parameters: Of the whole layer, norms included.
    """

    rows: tuple[int, ...]
    neurons: int
    parameters: int
    macs_token: int
    all_parameters: int


@dataclass(frozen=True)
class PlayerCosts(Costs):
    """A model's costs, and those of players of any kind.

    `layers` are the costs of its heads, whatever is switched.

    Attributes:
        player_set: The players.
        parts: What is no head, layer by layer.
    """

    player_set: PlayerSet | None = None
    parts: tuple[PartCost, ...] = ()

    @property
    def noun(self) -> str:
        """What is removed, in a word; "players" where nothing can be."""
        return "players" if self.player_set is None else self.player_set.grid.noun

    @property
    def are_known(self) -> bool:
        """Whether it is known what leaves the weights with each player."""
        return self.player_set is not None

    @property
    def are_even(self) -> bool:
        """Whether all players cost the same."""
        costs_alone = self._alone
        return bool((costs_alone == costs_alone[0]).all()) and super().are_even

    def shrunk(self, kept_heads: Bools, tokens: int = DEFAULT_TOKENS) -> ModelCost:
        """The cost of the model without the players that are not kept.

        Args:
            kept_heads: Which players are kept, bool [player].
            tokens: Length of the text.

        Raises:
            HeadlabError: The mask has another number of players.
        """
        player_set = self._players_or_error()
        if kept_heads.shape != (player_set.grid.size,):
            raise HeadlabError(
                f"the mask has {kept_heads.size} {self.noun}; this model has {player_set.grid.size}",
                code="mask.shape_mismatch",
            )
        gates = player_set.grid.gates(kept_heads)
        kept = ~player_set.closed_heads(gates)
        rows, columns = player_set.heads.flat.T
        kept_of_heads = kept[rows, columns]
        skipped = player_set.skipped_layers(gates) or [False] * len(self.parts)
        cost = self.baseline(tokens)
        parameters = cost.parameters
        macs = cost.macs
        for number, part in enumerate(self.parts):
            closed_neurons = part.neurons
            if not skipped[number]:
                closed_neurons = 0
                if player_set.neuron_cells:
                    closed_neurons = int(player_set.closed_neurons(gates, number).sum())
                parameters -= closed_neurons * part.parameters
            else:
                parameters -= part.all_parameters
            macs -= closed_neurons * part.macs_token * tokens
            for row in part.rows:
                layer = self.layers[row]
                removed_groups = layer.removed_groups(kept_of_heads)
                if skipped[number]:
                    removed_groups = layer.heads // layer.group_size
                else:
                    parameters -= layer.saved_parameters(removed_groups)
                macs -= removed_groups * layer.macs(tokens)
        return ModelCost(parameters, macs, tokens)

    def per_parameter(self, values: Floats) -> Floats:
        """Each player's value per parameter that leaves with it alone, float [player].

        Heads that can only be removed together share one value.

        Args:
            values: float [player].
        """
        head_count = 0
        per_parameter = values / np.maximum(self._alone, 1)
        player_set = self._players_or_error()
        if HEADS in player_set.players.kinds:  # the first stacks of the grid
            head_count = player_set.heads.size
            per_parameter[:head_count] = super().per_parameter(values[:head_count])
        return per_parameter

    @cached_property
    def _alone(self) -> Floats:
        """Parameters that leave with each player alone, float [player]."""
        size = self._players_or_error().grid.size
        costs_alone = np.empty(size)
        for player in range(size):
            kept = np.ones(size, bool)
            kept[player] = False
            costs_alone[player] = self.parameters - self.shrunk(kept).parameters
        return costs_alone

    def unknown(self, note: str) -> Costs:
        """The costs of the model where nothing can be removed from the weights.

        Args:
            note: Why it cannot.
        """
        return replace(self, layers=(), note=note, player_set=None, parts=())

    def _players_or_error(self) -> PlayerSet:
        """The players. Raises HeadlabError where they cannot be removed."""
        if self.player_set is None:
            raise HeadlabError(
                self.note or "the players of this model cannot be removed",
                code="costs.players_not_removable",
            )
        return self.player_set


def player_costs(model: Model, whole: Costs) -> PlayerCosts:
    """The costs of a model whose players are other than heads alone.

    Args:
        model: The model with these players.
        whole: The costs of the same model and its heads.
    """
    player_set = model.player_set
    assert player_set is not None
    costs = PlayerCosts(whole.parameters, whole.macs, whole.layers, "", whole.vocabulary)
    kinds = set(player_set.players.kinds)
    if not whole.layers and kinds & {*KINDS_OF_HEADS, LAYERS}:
        return replace(costs, note=whole.note)
    if LAYERS in kinds and not with_players(model, HEADS).resumable:
        return replace(costs, layers=(), note="its layers give more than states")
    parts = parts_of(model)
    for linears in (parts.downs, parts.modules if LAYERS in kinds else ()):
        if len(set(linears)) < len(linears):
            note = f"the layers of {model.name} share their weights, so nothing leaves with one"
            return replace(costs, layers=(), note=note)
    if LAYERS in kinds and not parts.downs:
        return replace(costs, layers=(), note=f"a layer cannot be counted: {parts.why_no_neurons}")
    part_costs = []
    for number, layer in enumerate(parts.layers):
        neurons = parameters = macs = all_parameters = 0
        if parts.downs:
            neurons = parts.neurons[number]
            parameters, macs = _neuron_cost(parts.downs[number], parts.ups[number], neurons)
        if LAYERS in kinds:
            all_parameters = parameters_of(parts.modules[number])
        rows = layer.rows if whole.layers else ()
        part_costs.append(PartCost(rows, neurons, parameters, macs, all_parameters))
    return replace(costs, player_set=player_set, parts=tuple(part_costs))


def _neuron_cost(down: nn.Module, ups: Sequence[nn.Module], neurons: int) -> tuple[int, int]:
    """Parameters of one neuron, and its multiply-accumulates per token.

    Args:
        down: Down projection.
        ups: What makes the neurons.
        neurons: Their number.
    """
    weights = widths_of(down)[1]
    biases = 0
    for up in ups:
        inputs, outputs = widths_of(up)
        copies = outputs // neurons
        weights += copies * inputs
        biases += copies * (up.bias is not None)
    return weights + biases, weights
