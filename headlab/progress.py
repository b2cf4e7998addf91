"""How far a run is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a run is: done of total (in the run's own steps), and a word about it."""

    done: int
    total: int
    note: str = ""
