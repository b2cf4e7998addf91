"""Rows of a table by what they hold."""

from __future__ import annotations

from typing import Any

from headlab.core import Table


def rows_where(table: Table, **cells: Any) -> list[dict[str, Any]]:
    """The rows that hold these cells, each as its cells by column.

    Args:
        table: The table to look in.
        cells: The cell that a row must hold, by column; `removed_by` is the column "removed by".
    """
    wanted_cells = {column.replace("_", " "): cell for column, cell in cells.items()}
    matches = []
    for row in table.rows:
        row_cells = dict(zip(table.columns, row, strict=True))
        if all(row_cells[column] == cell for column, cell in wanted_cells.items()):
            matches.append(row_cells)
    return matches
