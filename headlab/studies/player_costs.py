"""What other players than heads cost: counted, without torch or a smaller model being made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from headlab.core import HEADS, Bools, Floats, HeadlabError, Json, PlayerCells
from headlab.studies.savings import DEFAULT_TOKENS, Costs, ModelCost, checked_count


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
        player_set: The players; None where they cannot be removed from the weights.
        parts: What is no head, layer by layer.
    """

    player_set: PlayerCells | None = None
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
        if HEADS in player_set.grid.kinds:  # the first stacks of the grid
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

    def masked_heads(self, kept_heads: Bools) -> int:
        """See `Costs.masked_heads`: heads of skipped layers go, whatever they share.

        Args:
            kept_heads: Which players are kept, bool [player].
        """
        player_set = self.player_set
        if player_set is None or not self.layers or not player_set.head_cells:
            return 0
        kept = player_set.kept_heads(kept_heads)
        skipped = player_set.skipped_layers(player_set.grid.gates(kept_heads))
        count = 0
        for number, part in enumerate(self.parts):
            if not skipped or not skipped[number]:
                count += sum(self.layers[row].masked_heads(kept) for row in part.rows)
        return count

    def to_json(self) -> dict[str, Json]:
        """Everything, as JSON values."""
        whole = Costs(self.parameters, self.macs, self.layers, self.note, self.vocabulary)
        return whole.to_json() | {
            "player_set": None if self.player_set is None else self.player_set.cells_to_json(),
            "parts": [asdict(part) | {"rows": list(part.rows)} for part in self.parts],
        }

    @staticmethod
    def from_json(value: Any) -> PlayerCosts:
        """Inverse of `to_json`. Raises HeadlabError for malformed values."""
        whole = Costs.from_json(value)
        try:
            player_set = None
            if value["player_set"] is not None:
                player_set = PlayerCells.from_json(value["player_set"])
            parts = tuple(_part_cost_from(part, len(whole.layers)) for part in value["parts"])
            if player_set is not None:
                _require_parts(player_set, parts)
        except (KeyError, TypeError, ValueError) as error:
            raise HeadlabError(
                f"this is not the cost of a model's players ({type(error).__name__}: {error})",
                code="costs.malformed",
            ) from error
        return PlayerCosts(
            whole.parameters,
            whole.macs,
            whole.layers,
            whole.note,
            whole.vocabulary,
            player_set,
            parts,
        )

    def unknown(self, note: str) -> Costs:
        """The costs of the model where nothing can be removed from the weights.

        Args:
            note: Why it cannot.
        """
        return replace(self, layers=(), note=note, player_set=None, parts=())

    def _players_or_error(self) -> PlayerCells:
        """The players. Raises HeadlabError where they cannot be removed."""
        if self.player_set is None:
            raise HeadlabError(
                self.note or "the players of this model cannot be removed",
                code="costs.players_not_removable",
            )
        return self.player_set


def _part_cost_from(value: Any, row_count: int) -> PartCost:
    """A layer's parts. Raises KeyError, TypeError or ValueError for malformed values."""
    rows = tuple(checked_count(row) for row in value["rows"])
    if any(row >= row_count for row in rows):
        raise ValueError(f"rows {rows} are not of {row_count} layers of heads")
    names = ("neurons", "parameters", "macs_token", "all_parameters")
    return PartCost(rows, *(checked_count(value[name]) for name in names))


def _require_parts(player_set: PlayerCells, parts: tuple[PartCost, ...]) -> None:
    """Raise ValueError unless the players are in just these layers."""
    for cells in (player_set.neuron_cells, player_set.layer_rows):
        if cells and len(cells) != len(parts):
            raise ValueError(f"players of {len(cells)} layers, parts of {len(parts)}")
