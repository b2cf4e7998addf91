"""The record of one score per head: what every method returns and every page shows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.masks import Mask, choose
from headlab.records import Bools, Floats, HeadGrid, Ints


@dataclass(frozen=True)
class HeadScores:
    """What a method says about every head of a model, in one language.

    Flat arrays [head] in the grid's order.  values: positive = the head helps; unit as in `unit`
    (for `accuracy`, 0.01 is one point lost when the head goes).  low, high: interval at `level`,
    None where the method draws no samples.  samples: draws behind each value.  p_values: of
    "the head does nothing", two-sided.  spec: everything the numbers depend on.
    """

    grid: HeadGrid
    language: str
    method: str
    values: Floats
    estimand: str
    unit: str
    example_forwards: int
    seconds: float
    low: Floats | None = None
    high: Floats | None = None
    samples: Ints | None = None
    p_values: Floats | None = None
    level: float = 0.95
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def half_width(self) -> Floats | None:
        """Half the interval's length, [head]."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def harmful(self) -> Bools:
        """Heads whose interval lies below 0, bool [head]; none where there is no interval."""
        return np.zeros(self.grid.size, bool) if self.high is None else self.high < 0

    @property
    def helpful(self) -> Bools:
        """Heads whose interval lies above 0, bool [head]; none where there is no interval."""
        return np.zeros(self.grid.size, bool) if self.low is None else self.low > 0

    @property
    def ranks(self) -> Ints:
        """1 = highest value; a tie goes to the lower (layer, head)."""
        out = np.empty(self.grid.size, np.int64)
        out[np.argsort(-self.values, kind="stable")] = np.arange(1, self.grid.size + 1)
        return out

    def values_sha256(self) -> str:
        """sha256 of the values' float64 bytes (little endian), in flat order."""
        return hashlib.sha256(np.ascontiguousarray(self.values, "<f8").tobytes()).hexdigest()

    def mask(self, rule: str = "harmful", *, k: int | None = None, threshold: float | None = None) -> Mask:
        """The mask a rule makes of these scores; rules and errors as in `headlab.masks.choose`."""
        kept = choose(self.grid, self.values, self.high, rule, k=k, threshold=threshold)
        options = {name: value for name, value in (("k", k), ("threshold", threshold)) if value is not None}
        chosen = {
            "rule": rule,
            **options,
            "method": self.method,
            "estimand": self.estimand,
            "languages": [self.language],
        }
        return Mask(self.grid, kept, self.spec.get("model", {}), chosen | {"score": dict(self.spec)})
