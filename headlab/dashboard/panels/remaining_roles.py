"""Roles of the heads that remain, by how many remain."""

from __future__ import annotations

from headlab.core import Table


def role_counts_by_size(table: Table) -> tuple[list[int], dict[str, list[float]]]:
    """How many heads with each role remain, by how many heads remain in all.

    Args:
        table: With the columns "heads left", "role" and "heads".

    Returns:
        The numbers of remaining heads, and {role: heads with it at each of these}.
    """
    sizes_column = table.column("heads left")
    roles = table.column("role")
    sizes = list(dict.fromkeys(sizes_column))
    counts = {role: [0.0] * len(sizes) for role in roles}
    for size, role, count in zip(sizes_column, roles, table.column("heads"), strict=True):
        counts[role][sizes.index(size)] = count
    return sizes, counts
