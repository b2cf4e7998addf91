"""Gates learned with an L0 penalty: their distribution, and the record of learned gates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy

from headlab.core import (
    Bools,
    Floats,
    HeadGrid,
    HeadlabError,
    Ints,
    Json,
    JsonLike,
    RunSpec,
    arrays_sha256,
)
from headlab.masks import Mask

if TYPE_CHECKING:
    import torch


# The Hard Concrete distribution of a gate: exactly 0 or 1 with positive probability, yet
# differentiable.

MIN_UNIFORM = 1e-6  # minimum distance of a uniform draw from 0 and 1, so that its logit is finite
Numbers = npt.NDArray[np.floating[Any]]
MAX_FLOAT32 = 3.4e38  # largest float32, the type of a gate's parameter
NODES = 64  # Gauss-Legendre nodes for moments: the integrand is smooth


@dataclass(frozen=True)
class HardConcrete:
    """A binary concrete variable, stretched from (0, 1) to (low, high) and clipped to [0, 1].

    A gate has one parameter, log_alpha: the higher, the likelier it is open. Louizos et al. (2018),
    equations 10-12; the defaults are those of Voita et al. (2019), section 6.1.

    Attributes:
        temperature: The lower, the closer to binary.
        low: Lower end of the stretched variable, below 0.
        high: Its upper end, above 1.
    """

    temperature: float = 0.33
    low: float = -0.1
    high: float = 1.1

    def level(self, gate: float) -> float:
        """The log_alpha at which P(gate > `gate`) is one half, for 0 <= gate <= 1.

        P(gate > `gate`) = sigmoid(log_alpha - level(gate)); level(0) gives P(gate ≠ 0), equation
        12, and level(1) P(gate = 1).
        """
        stretched_share = (gate - self.low) / (self.high - self.low)
        return self.temperature * (math.log(stretched_share) - math.log1p(-stretched_share))

    @property
    def even_log_alpha(self) -> float:
        """The log_alpha at which P(gate = 1) = P(gate = 0): above it a head is kept."""
        return (self.level(0) + self.level(1)) / 2

    def start(self, probability: float) -> float:
        """The log_alpha at which P(gate ≠ 0) is `probability`, 0 < probability < 1."""
        return math.log(probability) - math.log1p(-probability) + self.level(0)

    def check(self, probability: float = 0.5) -> None:
        """Raise HeadlabError if its constants exceed float32.

        Args:
            probability: Initial P(gate ≠ 0).
        """
        try:
            thresholds = [
                self.level(0),
                self.level(1),
                self.even_log_alpha,
                self.start(probability),
            ]
        except (ValueError, ArithmeticError):
            thresholds = [math.inf]
        numbers = (self.high - self.low, *thresholds)
        if not all(abs(number) <= MAX_FLOAT32 for number in numbers):
            raise HeadlabError(
                f"low {self.low!r:.40}, high {self.high!r:.40} and temperature "
                f"{self.temperature!r:.40} make no gates that can be computed; choose values "
                f"closer to {HardConcrete.low:g}, {HardConcrete.high:g} and "
                f"{HardConcrete.temperature:g}",
                code="gate.distribution_invalid",
            )

    def probability_zero(self, log_alpha: Numbers) -> Floats:
        """P(gate = 0), float64 of the shape of log_alpha."""
        return np.asarray(scipy.special.expit(self.level(0) - np.asarray(log_alpha, np.float64)))

    def probability_one(self, log_alpha: Numbers) -> Floats:
        """P(gate = 1), float64 of the shape of log_alpha."""
        return np.asarray(scipy.special.expit(np.asarray(log_alpha, np.float64) - self.level(1)))

    def mean(self, log_alpha: float) -> float:
        """E[gate], the integral of P(gate > x) over x from 0 to 1.

        It has no closed form for general temperatures.
        """
        return self._moment(log_alpha, 1)

    def variance(self, log_alpha: float) -> float:
        """Var[gate], from E[gate²] as the integral of 2 x P(gate > x) over x from 0 to 1."""
        return self._moment(log_alpha, 2) - self.mean(log_alpha) ** 2

    def _moment(self, log_alpha: float, power: int) -> float:
        """E[gate ** power], by Gauss-Legendre quadrature of P(gate > x)."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        gates = (nodes + 1) / 2
        levels = np.array([self.level(gate) for gate in gates])
        probability_above = scipy.special.expit(log_alpha - levels)
        return float(weights @ (power * gates ** (power - 1) * probability_above)) / 2

    def sample(self, log_alpha: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """Random gates in [0, 1], of the shape to which both arguments broadcast.

        Louizos et al. 2018, equations 10 and 11.

        Args:
            log_alpha: The gates' parameters.
            uniform: Draws from the uniform distribution on (0, 1).
        """
        clipped_draws = uniform.clamp(MIN_UNIFORM, 1 - MIN_UNIFORM)
        soft_gates = (
            (clipped_draws.log() - (-clipped_draws).log1p() + log_alpha) / self.temperature
        ).sigmoid()
        return (soft_gates * (self.high - self.low) + self.low).clamp(0, 1)

    def probability_open(self, log_alpha: torch.Tensor) -> torch.Tensor:
        """P(gate ≠ 0), which the penalty sums up."""
        return (log_alpha - self.level(0)).sigmoid()


# The record of learned gates: the probability that each is open, over the training.


@dataclass(frozen=True)
class LearnedGates:
    """Gates of a model's heads, learned on a task under a penalty for every open gate.

    Voita et al., 2019. Flat arrays [head] are in the grid's order.

    Attributes:
        steps: int [time], the steps at which the history was recorded, from 0 to the last step.
        log_alpha: float32 [time, head], the gates' parameters; NaN for heads without a gate, which
            stay open.
        loss: float [time], mean task loss since the previous time, nats per answer (NaN at step 0).
        penalty: float [time], weight x sum of P(gate ≠ 0), in the same unit, at that time and with
            the full weight.
        weight: λ, the weight of the penalty.
        concrete: The gates' distribution.
        measured: {split: figures of the mask on it}, with n (answers), examples, accuracy,
            accuracy_low, accuracy_high, baseline, difference, low, high, p, flipped_right,
            flipped_wrong as in `Comparison`, kept and undecided.
        trained: Name, revision and fingerprint of the model trained jointly, and the folder that it
            was written to; empty if the model was frozen.
        notes: Caveats about the result.
        spec: Everything the numbers depend on.
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
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    spec: RunSpec = field(default_factory=RunSpec)
    trained: Mapping[str, Json] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", RunSpec.of(self.spec))

    @property
    def has_gate(self) -> Bools:
        """Heads that have a gate, bool [head]."""
        has_gate: Bools = ~np.isnan(self.log_alpha[-1])
        return has_gate

    @property
    def open_probability(self) -> Floats:
        """P(gate ≠ 0), float [time, head]; 1 for heads without a gate."""
        return np.where(
            np.isnan(self.log_alpha), 1.0, 1 - self.concrete.probability_zero(self.log_alpha)
        )

    @property
    def kept(self) -> Bools:
        """Heads kept at the end, bool [head]."""
        return self.kept_at(-1)

    def kept_at(self, time: int) -> Bools:
        """Heads kept at one time of the history, bool [head].

        They are those whose gate is likelier 1 than 0, and those without a gate.
        """
        is_kept: Bools = ~(self.log_alpha[time].astype(np.float64) < self.concrete.even_log_alpha)
        return is_kept

    def undecided_count(self) -> int:
        """Number of gates that are neither 0 nor 1 with a probability of 0.9 or more."""
        log_alpha = self.log_alpha[-1][self.has_gate]
        certainty = np.maximum(
            self.concrete.probability_zero(log_alpha), self.concrete.probability_one(log_alpha)
        )
        return int((certainty < 0.9).sum())

    def kept_by_stack(self, time: int = -1) -> dict[str, tuple[int, int]]:
        """{stack: (heads kept, heads)} at one time of the history."""
        is_kept = self.kept_at(time)
        stack_names = np.array([head.stack for head in self.grid.heads])
        sizes = {}
        for stack in self.grid.stacks:
            kept_count = int(is_kept[stack_names == stack.name].sum())
            sizes[stack.name] = (kept_count, stack.size)
        return sizes

    def mask(self, time: int = -1) -> Mask:
        """The mask of the heads kept at one time of the history, by default the last.

        It is made for the trained model if there is one.
        """
        choice: dict[str, JsonLike] = {
            "rule": "gates",
            "method": "l0",
            "weight": self.weight,
            "step": int(self.steps[time]),
            "languages": [self.language],
            "gates": self.spec.to_json(),
        }
        made_for = self.trained or self.spec.model.to_json()
        model = {name: value for name, value in made_for.items() if name != "folder"}
        return Mask(self.grid, self.kept_at(time), model, choice)

    def values_sha256(self) -> str:
        """sha256 of steps, log_alpha, losses and penalties (little endian), in that order."""
        return arrays_sha256(
            (self.steps, "<i8"), (self.log_alpha, "<f4"), (self.loss, "<f8"), (self.penalty, "<f8")
        )
