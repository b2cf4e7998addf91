"""The Hard Concrete distribution of a gate: 0 or 1 with real probability, yet with a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from headlab.errors import HeadlabError
from headlab.records import Floats

if TYPE_CHECKING:  # records name the distribution, and pages read them without torch
    import torch

TINY = 1e-6  # how near to 0 and 1 a uniform draw may come, so that its logit is finite
Numbers = npt.NDArray[np.floating[Any]]
LARGEST = 3.4e38  # what a float32 holds, as a gate's parameter is one
NODES = 64  # of Gauss and Legendre, for moments: the integrand is smooth


@dataclass(frozen=True)
class HardConcrete:
    """A binary concrete variable, stretched from (0, 1) to (low, high) and cut to [0, 1].

    A gate has one parameter, log_alpha: the higher, the likelier it is open.  temperature: the lower, the
    nearer to a coin.  Defaults as in Voita et al. (2019), section 6.1. Louizos et al. (2018), equations 10-12.
    """

    temperature: float = 0.33
    low: float = -0.1
    high: float = 1.1

    def level(self, gate: float) -> float:
        """The log_alpha at which P(gate > `gate`) is one half, for 0 <= gate <= 1.

        P(gate > `gate`) = sigmoid(log_alpha - level(gate)); level(0) gives P(gate ≠ 0), equation 12, and level(1)
        P(gate = 1).
        """
        place = (gate - self.low) / (self.high - self.low)
        return self.temperature * (math.log(place) - math.log1p(-place))

    @property
    def even(self) -> float:
        """The log_alpha at which a gate is 1 as likely as it is 0: above it a head is kept."""
        return (self.level(0) + self.level(1)) / 2

    def start(self, probability: float) -> float:
        """The log_alpha at which P(gate ≠ 0) is `probability`, 0 < probability < 1."""
        return math.log(probability) - math.log1p(-probability) + self.level(0)

    def check(self, probability: float = 0.5) -> None:
        """Raise HeadlabError where floats have no room for it. probability: P(gate ≠ 0) that gates start with."""
        try:
            needed = [self.level(0), self.level(1), self.even, self.start(probability)]
        except (ValueError, ArithmeticError):
            needed = [math.inf]
        if not all(abs(number) <= LARGEST for number in (self.high - self.low, *needed)):
            raise HeadlabError(
                f"low {self.low!r:.40}, high {self.high!r:.40} and temperature {self.temperature!r:.40} make no gates "
                f"that can be computed; choose values closer to {HardConcrete.low:g}, {HardConcrete.high:g} and "
                f"{HardConcrete.temperature:g}",
                code="gate.distribution_invalid",
            )

    def zero(self, log_alpha: Numbers) -> Floats:
        """P(gate = 0), float64 of the shape of log_alpha."""
        return np.asarray(expit(self.level(0) - np.asarray(log_alpha, np.float64)))

    def one(self, log_alpha: Numbers) -> Floats:
        """P(gate = 1), float64 of the shape of log_alpha."""
        return np.asarray(expit(np.asarray(log_alpha, np.float64) - self.level(1)))

    def mean(self, log_alpha: float) -> float:
        """E[gate], the integral of P(gate > x) over x from 0 to 1: it has no closed form for every temperature."""
        return self._moment(log_alpha, 1)

    def variance(self, log_alpha: float) -> float:
        """Var[gate], from E[gate²] as the integral of 2 x P(gate > x) over x from 0 to 1."""
        return self._moment(log_alpha, 2) - self.mean(log_alpha) ** 2

    def _moment(self, log_alpha: float, power: int) -> float:
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        at = (nodes + 1) / 2
        above = expit(log_alpha - np.array([self.level(x) for x in at]))
        return float(weights @ (power * at ** (power - 1) * above)) / 2

    def sample(self, log_alpha: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """Gates for draws from the uniform distribution on (0, 1), shapes broadcast; equations 10 and 11."""
        u = uniform.clamp(TINY, 1 - TINY)
        soft = ((u.log() - (-u).log1p() + log_alpha) / self.temperature).sigmoid()
        return (soft * (self.high - self.low) + self.low).clamp(0, 1)

    def open(self, log_alpha: torch.Tensor) -> torch.Tensor:
        """P(gate ≠ 0), which the penalty adds up."""
        return (log_alpha - self.level(0)).sigmoid()
