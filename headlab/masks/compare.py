"""Two masks side by side: what only one of them removes, and how alike they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.masks.mask import Mask
from headlab.records import Bools, Head, HeadGrid, by_layer
from headlab.tables import Cell, Table


@dataclass(frozen=True)
class Difference:
    """What two masks of one grid remove: bool [head] of each."""

    grid: HeadGrid
    a: Bools
    b: Bools

    @property
    def only_a(self) -> tuple[Head, ...]:
        """Heads that the first mask alone removes, in grid order."""
        return self._heads(self.a & ~self.b)

    @property
    def only_b(self) -> tuple[Head, ...]:
        """Heads that the second mask alone removes, in grid order."""
        return self._heads(self.b & ~self.a)

    @property
    def both(self) -> tuple[Head, ...]:
        """Heads that both remove, in grid order."""
        return self._heads(self.a & self.b)

    @property
    def jaccard(self) -> float:
        """Heads that both remove, as a share of those that either removes; 1 where neither removes any."""
        return jaccard(self.a, self.b)

    def _heads(self, which: Bools) -> tuple[Head, ...]:
        return tuple(self.grid.heads[i] for i in np.flatnonzero(which))


def jaccard(a: Bools, b: Bools) -> float:
    """|a and b| / |a or b| of two sets given as bool [head]; 1 for two empty ones."""
    either = int((a | b).sum())
    return int((a & b).sum()) / either if either else 1.0


def compare(a: Mask, b: Mask) -> Difference:
    """What two masks remove. Raises HeadlabError, naming both grids, unless they are of one grid."""
    same_grid([a, b])
    return Difference(a.grid, ~a.kept, ~b.kept)


def same_grid(masks: Sequence[Mask]) -> HeadGrid:
    """The grid of all these masks. Raises HeadlabError if there is none, or more than one."""
    if not masks:
        raise HeadlabError("no mask is given; name at least one mask file", code="mask.none")
    for mask in masks[1:]:
        if mask.grid != masks[0].grid:
            raise HeadlabError(
                f"the masks are of different models: one has {masks[0].grid}, another {mask.grid}. "
                "Give masks of one model",
                code="mask.other_grid",
            )
    return masks[0].grid


COUNTS = ("heads", "off in A", "off in B", "off in both", "only A", "only B", "Jaccard")


def by_layer_table(found: Difference) -> Table:
    """Heads off in each mask, in both and in one alone, layer by layer."""
    parts = zip(by_layer(found.grid, found.a), by_layer(found.grid, found.b), strict=True)
    rows = [(stack, layer, *_counts(a, b)) for (stack, layer, a), (_, _, b) in parts]
    return Table("mask-layers", "Heads off, by layer", ("stack", "layer", *COUNTS), ("", "d", *FORMATS), tuple(rows))


def by_stack_table(found: Difference) -> Table:
    """Heads off in each mask, in both and in one alone, stack by stack and in all."""
    names = np.array([head.stack for head in found.grid.heads])
    rows: list[tuple[Cell, ...]] = [
        (stack.name, *_counts(found.a[names == stack.name], found.b[names == stack.name]))
        for stack in found.grid.stacks
    ]
    if len(rows) > 1:
        rows.append(("all", *_counts(found.a, found.b)))
    return Table("mask-stacks", "Heads off, by stack", ("stack", *COUNTS), ("", *FORMATS), tuple(rows))


FORMATS = ("d", "d", "d", "d", "d", "d", ".2f")


def _counts(a: Bools, b: Bools) -> tuple[Any, ...]:
    counts = (a, b, a & b, a & ~b, b & ~a)
    return (len(a), *(int(which.sum()) for which in counts), jaccard(a, b))
