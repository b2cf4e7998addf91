"""Which heads, neurons and layers players of any kind contain, and which of them a mask closes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headlab.core.errors import HeadlabError
from headlab.core.json_types import Json, as_plain_object
from headlab.core.players import NEURONS
from headlab.core.records import Bools, HeadGrid, Ints


@dataclass(frozen=True)
class Cells:
    """Which players contain some heads or neurons: places in a gate array of players.

    Attributes:
        rows: int, of any shape.
        columns: int, of the same shape.
    """

    rows: Ints
    columns: Ints


@dataclass(frozen=True, eq=False)
class PlayerCells:
    """What the players of a model contain.

    Attributes:
        grid: The players.
        heads: The heads of the model.
        head_cells: For each kind of players that are made of heads, those of [layer row, head].
        neuron_cells: For each kind made of neurons, those of each layer's [neuron].
        layer_rows: The row of each whole layer; empty where layers are no players.
    """

    grid: HeadGrid
    heads: HeadGrid
    head_cells: tuple[Cells, ...]
    neuron_cells: tuple[tuple[Cells, ...], ...]
    layer_rows: tuple[int, ...]

    def closed_heads(self, gates: npt.NDArray[np.generic]) -> Bools:
        """Which heads are closed by gates of players, bool [layer row, head]."""
        closed = np.zeros((self.heads.layers, self.heads.width), bool)
        for cells in self.head_cells:
            closed |= gates[cells.rows, cells.columns] == 0
        return closed

    def kept_heads(self, kept_players: Bools) -> Bools:
        """Which heads no closed player contains, but for whole layers; bool [head].

        Args:
            kept_players: Which players are on, bool [player].
        """
        rows, columns = self.heads.flat.T
        return np.asarray(~self.closed_heads(self.grid.gates(kept_players))[rows, columns])

    def skipped_layers(self, gates: npt.NDArray[np.generic]) -> list[bool]:
        """Which layers are skipped whole by gates of players."""
        return [bool(gates[row, 0] == 0) for row in self.layer_rows]

    def closed_neurons(self, gates: npt.NDArray[np.generic], layer: int) -> Bools:
        """Which neurons of a layer are closed by gates of players, bool [neuron]."""
        cells_by_kind = self.neuron_cells[layer]
        closed = np.zeros(cells_by_kind[0].rows.shape, bool)
        for cells in cells_by_kind:
            closed |= gates[cells.rows, cells.columns] == 0
        return closed

    def cells_to_json(self) -> dict[str, Json]:
        """Everything, as JSON values.

        Neurons are one by one in the grid's groups, so of each layer only its rows are given.
        """
        neuron_rows = []
        for cells_by_kind in self.neuron_cells:
            neuron_rows.append([int(cells.rows[:1].sum()) for cells in cells_by_kind])
        return as_plain_object(
            {
                "grid": self.grid.to_json(),
                "members": self.grid.members_json(),
                "heads": self.heads.to_json(),
                "head_cells": [
                    [cells.rows.tolist(), cells.columns.tolist()] for cells in self.head_cells
                ],
                "neurons": [len(cells_by_kind[0].rows) for cells_by_kind in self.neuron_cells],
                "neuron_rows": neuron_rows,
                "layer_rows": self.layer_rows,
            }
        )

    @staticmethod
    def from_json(value: Any) -> PlayerCells:
        """Inverse of `cells_to_json`. Raises HeadlabError for malformed values."""
        try:
            grid = HeadGrid.from_json(value["grid"], value["members"] or None)
            if any(stack.kind == NEURONS and not stack.members for stack in grid.stacks):
                raise ValueError("the groups of neurons are missing")
            heads = HeadGrid.from_json(value["heads"])
            head_cells = tuple(_cells_of(pair, grid) for pair in value["head_cells"])
            if any(cells.rows.shape != (heads.layers, heads.width) for cells in head_cells):
                raise ValueError("cells are not of the heads")
            neuron_cells = tuple(
                tuple(_cells_of_neurons(row, count, grid) for row in rows)
                for rows, count in zip(value["neuron_rows"], value["neurons"], strict=True)
            )
            layer_rows = tuple(_row_in(grid, row) for row in value["layer_rows"])
            return PlayerCells(grid, heads, head_cells, neuron_cells, layer_rows)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise HeadlabError(
                f"these are not the players of a model ({type(error).__name__}: {error})",
                code="players.malformed",
            ) from error


def _row_in(grid: HeadGrid, row: Any) -> int:
    """The number of a row of a grid. Raises ValueError for anything else."""
    if type(row) is not int or not 0 <= row < grid.layers:
        raise ValueError(f"{row!r:.40} is no row of the players")
    return row


def _cells_of(pair: Any, grid: HeadGrid) -> Cells:
    """Cells from [rows, columns]. Raises ValueError where they are not in the grid."""
    rows, columns = (np.array(numbers, dtype=np.int64) for numbers in pair)
    is_inside = rows.shape == columns.shape and rows.ndim == 2
    for numbers, limit in ((rows, grid.layers), (columns, grid.width)):
        is_inside = is_inside and bool(((numbers >= 0) & (numbers < limit)).all())
    if not is_inside:
        raise ValueError("cells are not of the players")
    return Cells(rows, columns)


def _cells_of_neurons(row: Any, count: Any, grid: HeadGrid) -> Cells:
    """The cells of a layer's neurons, which are in the groups of a row of the grid, or all in one.

    Raises ValueError where the row has other neurons.
    """
    row = _row_in(grid, row)
    columns = np.zeros(int(count), np.int64)
    first_row = 0
    for stack in grid.stacks:
        if first_row <= row < first_row + stack.layers and stack.members is not None and count:
            columns = np.array(stack.members[row - first_row], dtype=np.int64)
        first_row += stack.layers
    if len(columns) != count:
        raise ValueError(f"row {row} has {len(columns)} neurons, not {count!r:.40}")
    return Cells(np.full(len(columns), row, np.int64), columns)
