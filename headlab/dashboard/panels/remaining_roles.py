"""Roles of the heads that remain, by how many remain."""

from __future__ import annotations

from headlab.core import Table


def counts_by_size(table: Table) -> tuple[list[int], dict[str, list[float]]]:
    """Sizes, and {role: heads with it at each size}."""
    left, roles, heads = (table.column(name) for name in ("heads left", "role", "heads"))
    every = list(dict.fromkeys(left))
    counts = {role: [0.0] * len(every) for role in roles}
    for size, role, count in zip(left, roles, heads, strict=True):
        counts[role][every.index(size)] = count
    return every, counts
