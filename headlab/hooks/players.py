"""Players of any kind: their grid, and how their gates become those of heads, neurons and layers.

A gate of a head, a neuron or a layer is the product of the gates of all players that contain it, so
that gradients by the players' gates come out of the pass itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch

from headlab.core import (
    ATTENTION,
    FEED_FORWARD,
    HEADS,
    KINDS_OF_HEADS,
    KV_GROUPS,
    LAYERS,
    NEURONS,
    Cells,
    HeadGrid,
    HeadlabError,
    Ints,
    PlayerCells,
    Players,
    Stack,
    stack_name,
)
from headlab.hooks.parts import Parts
from headlab.hooks.state import ActiveGates

# The group of every neuron, by layer, in the order of `Parts.layers`.
NeuronGroups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class PlayerSet(PlayerCells):
    """The players of a model, what each of them contains, and their gates.

    Attributes:
        players: The kinds.
        layer_of_row: The layer that a row of the grid is in, as rows of a model with one stack are
            numbered, int [row]: a change of its gates changes nothing before.
    """

    players: Players
    layer_of_row: Ints
    _on_device: dict[tuple[torch.device, int], tuple[torch.Tensor, torch.Tensor]] = field(
        default_factory=dict, repr=False
    )

    @property
    def of_heads(self) -> bool:
        """Whether all players are made of heads, so that means can stand in their place."""
        return KINDS_OF_HEADS.issuperset(self.players.kinds)

    def expanded(self, active: ActiveGates) -> ActiveGates:
        """What is in effect, with gates of heads, neurons and layers in place of the players'.

        Args:
            active: With gates of players, [row of the grid, column] or [row, ...].
        """
        gates = active.gates
        if gates is None:
            return active
        parts = None
        if self.neuron_cells or self.layer_rows:
            parts = PlayerGates(self, gates)
        return replace(active, gates=self.product(gates, self.head_cells), parts=parts)

    def product(self, gates: torch.Tensor, cells: Sequence[Cells]) -> torch.Tensor | None:
        """Product of the gates of the players in some cells; None where there are no cells."""
        result: torch.Tensor | None = None
        for some_cells in cells:
            rows, columns = self._indices(some_cells, gates.device)
            factor = gates[..., rows, columns]
            result = factor if result is None else result * factor
        return result

    def _indices(self, cells: Cells, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column numbers on a device, where they are brought once."""
        key = (device, id(cells))  # the cells live as long as this
        if key not in self._on_device:
            # The caller may be in inference mode, whose tensors no later gradient may use.
            with torch.inference_mode(False):
                self._on_device[key] = (
                    torch.as_tensor(cells.rows, device=device),
                    torch.as_tensor(cells.columns, device=device),
                )
        return self._on_device[key]


@dataclass(frozen=True, eq=False)
class PlayerGates:
    """`PartGates` of gates of players.

    Attributes:
        player_set: The players.
        gates: Theirs, [row of the grid, column] or [row, ...].
    """

    player_set: PlayerSet
    gates: torch.Tensor

    def of_neurons(self, layer: int) -> torch.Tensor | None:
        """Gates of a layer's neurons, [neuron] or [row, neuron]; None where none is a player."""
        if not self.player_set.neuron_cells:
            return None
        return self.player_set.product(self.gates, self.player_set.neuron_cells[layer])

    def of_layer(self, layer: int) -> torch.Tensor | None:
        """Gate of a whole layer, a single number or [row]; None where layers are no players."""
        if not self.player_set.layer_rows:
            return None
        return self.gates[..., self.player_set.layer_rows[layer], 0]


class _Rows:
    """The stacks of a grid of players as they are added, and which rows they have."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = []
        self.layers: list[int] = []

    def add(self, stack: Stack, layers: Sequence[int]) -> int:
        """Add a stack whose rows are in these layers; returns its first row."""
        first_row = len(self.layers)
        self.stacks.append(stack)
        self.layers += layers
        return first_row


def player_set_of(
    players: Players,
    heads: HeadGrid,
    parts: Parts,
    heads_per_group: Sequence[int],
    groups: NeuronGroups | None,
) -> PlayerSet:
    """The players of some kinds in a model.

    Args:
        players: The kinds.
        heads: The heads of the model.
        parts: Its layers and their feed-forward parts.
        heads_per_group: For each row of the grid of heads, how many share keys and values.
        groups: The group of every neuron, by layer, where neurons are players.

    Raises:
        HeadlabError: The model has no players of a kind, with the reason.
    """
    rows = _Rows()
    head_cells: list[Cells] = []
    neuron_cells: list[list[Cells]] = [[] for _ in parts.layers]
    layer_rows: list[int] = []
    layer_of_head_row = [0] * heads.layers
    for number, layer in enumerate(parts.layers):
        for row in layer.rows:
            layer_of_head_row[row] = number
    for kind in players.kinds:
        if kind in KINDS_OF_HEADS:
            head_cells.append(_add_heads(rows, kind, heads, layer_of_head_row, heads_per_group))
        elif kind == LAYERS:
            layer_rows = _add_layers(rows, parts)
        else:
            _add_neurons(rows, kind, parts, groups if kind == NEURONS else None, neuron_cells)
    has_neurons = bool({FEED_FORWARD, NEURONS} & set(players.kinds))
    return PlayerSet(
        players=players,
        grid=HeadGrid(tuple(rows.stacks)),
        heads=heads,
        layer_of_row=np.array(rows.layers, dtype=np.int64),
        head_cells=tuple(head_cells),
        neuron_cells=tuple(map(tuple, neuron_cells)) if has_neurons else (),
        layer_rows=tuple(layer_rows),
    )


def _add_heads(
    rows: _Rows,
    kind: str,
    heads: HeadGrid,
    layer_of_head_row: Sequence[int],
    heads_per_group: Sequence[int],
) -> Cells:
    """Add players made of heads: each alone, those that share keys and values, or a layer's."""
    if kind == KV_GROUPS and max(heads_per_group) == 1:
        raise HeadlabError(
            "this model has no kv-groups: each of its heads has keys and values of its own; use "
            "heads",
            code="players.no_kv_groups",
        )
    cell_rows = np.zeros((heads.layers, heads.width), np.int64)
    cell_columns = np.zeros_like(cell_rows)
    head_row = 0
    for stack in heads.stacks:
        sizes = []
        for count in heads_per_group[head_row : head_row + stack.layers]:
            sizes.append({HEADS: 1, KV_GROUPS: count, ATTENTION: heads.width}[kind])
        counts = [
            -(-head_count // size) for head_count, size in zip(stack.heads, sizes, strict=True)
        ]
        players = Stack(stack_name(stack.name, kind), tuple(counts))
        first_row = rows.add(players, layer_of_head_row[head_row : head_row + stack.layers])
        for layer, (head_count, size) in enumerate(zip(stack.heads, sizes, strict=True)):
            # Cells without a head are read by nobody, and lead to some player.
            cell_rows[head_row + layer] = first_row + layer
            cell_columns[head_row + layer, :head_count] = np.arange(head_count) // size
        head_row += stack.layers
    return Cells(cell_rows, cell_columns)


def _layers_by_stack(parts: Parts) -> dict[str, list[int]]:
    """The numbers of the layers of each stack."""
    numbers: dict[str, list[int]] = {}
    for number, layer in enumerate(parts.layers):
        numbers.setdefault(layer.stack, []).append(number)
    return numbers


def _add_layers(rows: _Rows, parts: Parts) -> list[int]:
    """Add whole layers; returns the row of each."""
    if parts.why_no_layers:
        raise HeadlabError(
            f"headlab cannot skip layers of this model: {parts.why_no_layers}; use other players",
            code="players.no_layers",
        )
    layer_rows = [0] * len(parts.layers)
    for base, numbers in _layers_by_stack(parts).items():
        first_row = rows.add(Stack(stack_name(base, LAYERS), (1,) * len(numbers)), numbers)
        for offset, number in enumerate(numbers):
            layer_rows[number] = first_row + offset
    return layer_rows


def _add_neurons(
    rows: _Rows,
    kind: str,
    parts: Parts,
    groups: NeuronGroups | None,
    neuron_cells: list[list[Cells]],
) -> None:
    """Add groups of neurons, or all of a layer's; and to each layer's cells which it contains."""
    if parts.why_no_neurons:
        raise HeadlabError(
            f"headlab cannot gate feed-forward parts of this model: {parts.why_no_neurons}; use "
            "other players",
            code="players.no_feed_forward",
        )
    for base, numbers in _layers_by_stack(parts).items():
        members = [(0,) * parts.neurons[number] for number in numbers]
        if groups is not None:
            members = [groups[number] for number in numbers]
        stack = Stack(
            stack_name(base, kind),
            # A layer whose neurons were all taken out has no players.
            tuple(max(layer_groups, default=-1) + 1 for layer_groups in members),
            tuple(members) if groups is not None else None,
        )
        first_row = rows.add(stack, numbers)
        for offset, number in enumerate(numbers):
            columns = np.array(members[offset], dtype=np.int64)
            cells = Cells(np.full(len(columns), first_row + offset, np.int64), columns)
            neuron_cells[number].append(cells)


# Groups of neurons.


def groups_by_importance(
    importance: Sequence[Sequence[float] | npt.NDArray[np.float64]], count: int
) -> NeuronGroups:
    """Groups of equal size, the most important neurons of a layer in its first.

    Where the number of neurons cannot be divided, the first groups have one more. Of neurons of
    equal importance the earlier comes first. A layer without neurons has no groups.

    Args:
        importance: Of every neuron, by layer.
        count: Number of groups of a layer.

    Raises:
        HeadlabError: A layer has fewer neurons than groups.
    """
    groups = []
    for layer, values in enumerate(importance):
        if 0 < len(values) < count:
            raise HeadlabError(
                f"neurons:{count} asks for more groups than layer {layer} has neurons; ask for "
                f"{len(values):,} at most",
                code="players.too_many_groups",
            )
        order = np.argsort(-np.asarray(values, np.float64), kind="stable")
        group_of = np.empty(len(values), np.int64)
        for group, neurons in enumerate(np.array_split(order, count)):
            group_of[neurons] = group
        groups.append(tuple(group_of.tolist()))
    return tuple(groups)
