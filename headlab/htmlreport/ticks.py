"""Where an axis has its ticks, and what is written there."""

from __future__ import annotations

import math
from dataclasses import dataclass

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    low, high: at the left or lower end, and at the other; low may be the larger.  ticks: (place, words).
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str = ""
    lines: bool = True

    def share(self, value: float) -> float:
        """Where a value lies between the ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def axis(low: float, high: float, *, title: str = "", form: str = "g", most: int = 7, unit: str = "") -> Axis:
    """An axis of numbers with round ticks. form: as in `format`; unit: written behind each."""
    if not high > low:
        low, high = low - 0.5, low + 0.5
    places = rounded(low, high, most)
    return Axis(low, high, tuple((place, written(place, form) + unit) for place in places), title)


def named(names: list[str], *, title: str = "", downwards: bool = False) -> Axis:
    """An axis of names, at 0, 1, 2, ...; downwards: the first is at the top."""
    ends = (-0.5, max(len(names), 1) - 0.5)
    low, high = ends[::-1] if downwards else ends
    return Axis(low, high, tuple((float(place), name) for place, name in enumerate(names)), title, lines=False)


def rounded(low: float, high: float, most: int) -> list[float]:
    """Round places between two ends, `most` at most."""
    raw = (high - low) / max(most - 1, 1)
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * step for step in STEPS if scale * step >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def written(value: float, form: str) -> str:
    """A tick's words: without a minus before nothing."""
    return format(value + 0.0 if value else 0.0, form)


def widened(values: list[float], *, zero: bool = False, room: float = 0.04) -> tuple[float, float]:
    """The ends of an axis that all finite values lie on, with some room; 0 to 1 where there are none."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    more = room * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low - more, high + more
    return (min(low, 0.0) if low < 0 and min(known) < 0 else 0.0, max(high, 0.0)) if zero else (low, high)
