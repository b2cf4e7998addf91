"""What work will cost: forward passes and seconds, and what they are based on.

Both are sums over its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from headlab.core import duration_text

Number = TypeVar("Number", int, float)


class Forecast(BaseModel):
    """What a job will cost.

    Attributes:
        forwards: Forward passes of one example each; None where unknown.
        seconds: How long it will take; None where unknown.
        basis: What both are based on, in words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    forwards: int | None
    seconds: float | None
    basis: str

    @property
    def sentence(self) -> str:
        """The forecast as a command prints it."""
        if not self.forwards and not self.seconds:
            return self.basis
        duration_clause = "" if self.seconds is None else f", about {duration_text(self.seconds)}"
        return f"{self.forwards or 0:,} forwards{duration_clause}: {self.basis}"


@dataclass(frozen=True)
class Part:
    """A part of the work that lies ahead.

    Attributes:
        forwards: Forward passes of one example each; None where unknown.
        pace: Seconds a forward pass; None where unknown.
        words: What both are based on.
    """

    forwards: int | None
    pace: float | None
    words: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """How long it will take; None where unknown."""
        if self.forwards == 0:
            return 0.0
        if self.forwards is None or self.pace is None:
            return None
        return self.forwards * self.pace


def forecast_of(parts: Sequence[Part]) -> Forecast:
    """The forecast of all parts together; a clause that several of them share is said once."""
    forwards = [part.forwards for part in parts]
    seconds = [part.seconds for part in parts]
    clauses = dict.fromkeys(clause for part in parts for clause in part.words)
    return Forecast(
        forwards=_sum_if_known(forwards),
        seconds=_sum_if_known(seconds),
        basis="; ".join(clauses),
    )


def _sum_if_known(costs: Sequence[Number | None]) -> Number | None:
    """The sum of the costs of all parts; None where one is unknown."""
    known_costs = [cost for cost in costs if cost is not None]
    if len(known_costs) < len(costs):
        return None
    return sum(known_costs)
