"""How far a job is that has several steps, of which some have many batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headlab.jobs.lab import RunningJob

BeginStep = Callable[[str], None]
"""Says which step of a job begins."""


@dataclass(frozen=True)
class Step:
    """One step of a job.

    Attributes:
        note: What is done in it.
        units: How much of the job's work it is, in forward passes of an example.
        ticks: How often it calls back, about; 0 where that is not known.
    """

    note: str
    units: int
    ticks: int = 0


class StepProgress:
    """Tells a running job how far it is, from the steps that begin and the ticks within them.

    A step that calls back more often than was foreseen stays just before its end, and the next one
    begins where it ends, so that the share never falls.
    """

    def __init__(self, running: RunningJob, steps: Sequence[Step]) -> None:
        self._running = running
        self._steps = steps
        self._index = -1
        self._ticks = 0

    def begin(self, note: str) -> None:
        """Begin a step; those before it are done. One that is not foreseen changes the note alone.

        Args:
            note: Of the step.
        """
        later_steps = range(self._index + 1, len(self._steps))
        index = next((number for number in later_steps if self._steps[number].note == note), None)
        if index is not None:
            self._index = index
            self._ticks = 0
        # Steps take different times, so the pace of one says nothing about the next.
        self._running.progress(self._done_units(), self._all_units(), note, fresh=True)

    def tick(self) -> None:
        """Called between the batches of a step. Raises to stop the job."""
        self._running.tick()
        self._ticks += 1
        if self._index >= 0 and self._steps[self._index].ticks:
            step = self._steps[self._index]
            self._running.progress(self._done_units(), self._all_units(), step.note)

    def end(self) -> None:
        """Say that the job is done."""
        self._running.progress(self._all_units(), self._all_units(), "done", fresh=True)

    def _all_units(self) -> int:
        return sum(step.units for step in self._steps)

    def _done_units(self) -> int:
        if self._index < 0:
            return 0
        step = self._steps[self._index]
        done_before = sum(earlier.units for earlier in self._steps[: self._index])
        if not step.ticks:
            return done_before
        share = min(1.0, self._ticks / step.ticks)
        return done_before + min(round(share * step.units), step.units - 1)
