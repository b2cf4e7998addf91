"""The record of gates that were learned: how likely each was open, over the training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headlab.concrete import HardConcrete
from headlab.masks import Mask
from headlab.records import Bools, Floats, HeadGrid, Ints


@dataclass(frozen=True)
class LearnedGates:
    """Gates of a model's heads, learned on a task under a penalty for every one that is open (Voita et al., 2019).

    Flat arrays [head] are in the grid's order.  steps: int [time], after how many steps the history was kept,
    0 first and the last step last.  log_alpha: float32 [time, head], the gates' parameters; NaN for heads without a
    gate, which stay open.  loss: float [time], mean task loss since the time before, nats an answer (NaN at
    step 0).  penalty: float [time], weight x sum of P(gate ≠ 0), in the same unit, at that time and with the whole
    weight.  weight: λ.  concrete: the gates' distribution.  measured: {split: what the mask is worth on it}, with n
    (answers), examples, accuracy, accuracy_low, accuracy_high, baseline, difference, low, high, p, flipped_right,
    flipped_wrong as a `Comparison` has them, kept and undecided.  trained: name, revision and fingerprint of the model
    that was trained along, and the folder it was written to; empty where the model stayed as it was.  notes: what
    to know before believing it.  spec: everything the numbers depend on.
    """

    grid: HeadGrid
    language: str
    steps: Ints
    log_alpha: npt.NDArray[np.float32]
    loss: Floats
    penalty: Floats
    weight: float
    example_forwards: int
    seconds: float
    concrete: HardConcrete = field(default_factory=HardConcrete)
    measured: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    trained: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def gated(self) -> Bools:
        """Heads that have a gate, bool [head]."""
        found: Bools = ~np.isnan(self.log_alpha[-1])
        return found

    @property
    def open_probability(self) -> Floats:
        """P(gate ≠ 0), float [time, head]; 1 for heads without a gate."""
        return np.where(np.isnan(self.log_alpha), 1.0, 1 - self.concrete.zero(self.log_alpha))

    @property
    def kept(self) -> Bools:
        """Heads that stay at the end, bool [head]."""
        return self.kept_at(-1)

    def kept_at(self, time: int) -> Bools:
        """Heads whose gate is likelier 1 than 0 at one time of the history, and those without one, bool [head]."""
        found: Bools = ~(self.log_alpha[time].astype(np.float64) < self.concrete.even)
        return found

    def undecided(self, sure: float = 0.9) -> int:
        """How many gates are neither 0 nor 1 with a probability of `sure` or more."""
        last = self.log_alpha[-1][self.gated]
        return int((np.maximum(self.concrete.zero(last), self.concrete.one(last)) < sure).sum())

    def kept_by_stack(self, time: int = -1) -> dict[str, tuple[int, int]]:
        """{stack: (heads kept, heads)} at one time of the history."""
        kept, names = self.kept_at(time), np.array([head.stack for head in self.grid.heads])
        return {s.name: (int(kept[names == s.name].sum()), s.size) for s in self.grid.stacks}

    def mask(self, time: int = -1) -> Mask:
        """The kept and the other heads at one time of the history, the last if none is named, as a mask.

        It is of the trained model where there is one.
        """
        kept = self.kept_at(time)
        chosen = {
            "rule": "gates", "method": "l0", "weight": self.weight, "step": int(self.steps[time]),
            "languages": [self.language], "gates": dict(self.spec),
        }  # fmt: skip
        made_for = self.trained or self.spec.get("model", {})
        return Mask(self.grid, kept, {k: v for k, v in made_for.items() if k != "folder"}, chosen)

    def values_sha256(self) -> str:
        """sha256 of steps, gates' parameters, losses and penalties (little endian), in that order."""
        digest = hashlib.sha256()
        for array, kind in ((self.steps, "<i8"), (self.log_alpha, "<f4"), (self.loss, "<f8"), (self.penalty, "<f8")):
            digest.update(np.ascontiguousarray(array, kind).tobytes())
        return digest.hexdigest()
