"""Roles of the heads that remain, by how many remain."""

from __future__ import annotations

from headlab.core import Table


def counts_by_size(table: Table) -> tuple[list[int], dict[str, list[float]]]:
    """Sizes, and {role: heads with it at each size}."""
    sizes_column, roles, heads = (table.column(name) for name in ("heads left", "role", "heads"))
    sizes = list(dict.fromkeys(sizes_column))
    counts = {role: [0.0] * len(sizes) for role in roles}
    for size, role, count in zip(sizes_column, roles, heads, strict=True):
        counts[role][sizes.index(size)] = count
    return sizes, counts
