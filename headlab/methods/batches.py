"""Rows of coalitions that are computed together, and the halves of what was too much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headlab.records import Bools, Ints


@dataclass(frozen=True)
class Batch:
    """Rows to be computed together: places in the caller's arrays, and which players each row asks for."""

    places: Ints
    wanted: Bools

    def cut(self) -> tuple[Batch, ...]:
        """Two halves of it, by rows or, of one row, by players; nothing where it cannot be cut."""
        if len(self.places) > 1:
            middle = len(self.places) // 2
            return (
                Batch(self.places[:middle], self.wanted[:middle]),
                Batch(self.places[middle:], self.wanted[middle:]),
            )
        asked = np.flatnonzero(self.wanted[0])
        if len(asked) < 2:
            return ()
        first = np.isin(np.arange(self.wanted.shape[1]), asked[: len(asked) // 2])
        return Batch(self.places, self.wanted & first), Batch(self.places, self.wanted & ~first)
