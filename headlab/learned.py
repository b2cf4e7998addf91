"""The record of gates that were learned: how likely each was open, over the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from headlab.concrete import HardConcrete
from headlab.records import Bools, Floats, HeadGrid, Ints


@dataclass(frozen=True)
class LearnedGates:
    """Gates of a model's heads, learned on a task under a penalty for every one that is open (Voita et al., 2019).

    Flat arrays [head] are in the grid's order.  steps: int [time], after how many steps the history was kept,
    0 first and the last step last.  log_alpha: float32 [time, head], the gates' parameters; NaN for heads without a
    gate, which stay open.  loss: float [time], mean task loss since the time before, nats an answer (NaN at
    step 0).  penalty: float [time], weight x sum of P(gate ≠ 0), in the same unit.  weight: λ.  concrete: the
    gates' distribution.  measured: what the mask and the untouched model are worth, by split.
    spec: everything the numbers depend on.
    """

    grid: HeadGrid
    language: str
    steps: Ints
    log_alpha: Floats
    loss: Floats
    penalty: Floats
    weight: float
    example_forwards: int
    seconds: float
    concrete: HardConcrete = field(default_factory=HardConcrete)
    measured: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gated(self) -> Bools:
        """Heads that have a gate, bool [head]."""
        found: Bools = ~np.isnan(self.log_alpha[-1])
        return found

    @property
    def open_probability(self) -> Floats:
        """P(gate ≠ 0), float [time, head]; 1 for heads without a gate."""
        found = expit(self.log_alpha.astype(np.float64) - self.concrete.level(0))
        return np.where(np.isnan(found), 1.0, found)

    @property
    def kept(self) -> Bools:
        """Heads that are likelier open than closed at the end, bool [head]."""
        found: Bools = self.open_probability[-1] >= 0.5
        return found

    def undecided(self, sure: float = 0.9) -> int:
        """How many gates are neither open nor closed with a probability of `sure` or more."""
        likely = self.open_probability[-1]
        return int(((likely > 1 - sure) & (likely < sure)).sum())
