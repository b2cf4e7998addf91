"""Whether other programs used the processor while something was timed; on Linux only."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

STAT = Path("/proc/stat")
"""Processor time of the whole machine; missing on systems other than Linux."""
MOST_SHARE = 0.03
"""Of the processor's time: what others may use beside a run."""
GLANCE_SECONDS = 2.0
"""How long is looked at before a run begins."""


@dataclass(frozen=True)
class ProcessorTime:
    """Processor time until one moment, in seconds of all cores together.

    Attributes:
        total: Of everybody, idle time included.
        idle: Of nobody.
        own: Of this process and of its children that have ended.
    """

    total: float
    idle: float
    own: float

    @classmethod
    def now(cls) -> Self:
        """The times of this moment; all zero where the system does not say them."""
        if not STAT.exists():
            return cls(0.0, 0.0, 0.0)
        tick_seconds = 1 / os.sysconf("SC_CLK_TCK")
        # user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of user.
        ticks = [int(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:9]]
        own = sum(os.times()[:4])
        return cls(sum(ticks) * tick_seconds, (ticks[3] + ticks[4]) * tick_seconds, own)

    def share_of_others_since(self, earlier: ProcessorTime) -> float:
        """The share of the processor's time that others used, the host's own use included."""
        total = self.total - earlier.total
        if total <= 0:
            return 0.0
        own_and_idle = (self.idle - earlier.idle) + (self.own - earlier.own)
        return max(0.0, 1 - own_and_idle / total)


def wait_until_quiet() -> None:
    """Wait until others leave the processor alone; says so once if they do not."""
    is_said = False
    while True:
        before = ProcessorTime.now()
        time.sleep(GLANCE_SECONDS)
        if ProcessorTime.now().share_of_others_since(before) <= MOST_SHARE:
            return
        if not is_said:
            print("  waiting until other programs leave the processor alone", flush=True)
            is_said = True
