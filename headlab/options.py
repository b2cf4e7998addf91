"""An option that a user sets: of a method, an experiment or an analysis; what it may be, in words and as a check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One option.

    choices, if any, are all it may be; numbers lie in [low, high], or strictly between if `open`; None
    fits if `optional`.
    """

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    kind: type = str
    low: float = -math.inf
    high: float = math.inf
    open: bool = False
    optional: bool = False

    def fits(self, value: Any) -> bool:
        """Whether a value has the right type and lies in range."""
        good = type(value) is self.kind or (self.kind is float and type(value) is int)
        if not good or (self.choices and value not in self.choices):
            return False
        if self.kind not in (int, float):
            return True
        try:
            number = float(value)
        except OverflowError:
            return False
        return self.low < number < self.high if self.open else self.low <= number <= self.high

    @property
    def range(self) -> str:
        """What fits, in words."""
        return self._numbers() + (", or none" if self.optional else "")

    def _numbers(self) -> str:
        if self.choices:
            return " or ".join(self.choices)
        if self.open:
            above = f"above {self.low:g}" if self.high == math.inf else f"between {self.low:g} and {self.high:g}"
            return f"a {self.kind.__name__} {above}"
        if self.high < math.inf:
            return f"a {self.kind.__name__} from {self.low:g} to {self.high:g}"
        return self.kind.__name__ + (f" of {self.low:g} or more" if self.low > -math.inf else "")
