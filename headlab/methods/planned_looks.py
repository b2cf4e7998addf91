"""Which heads of a run have had a planned look at their intervals, and what each may spend.

A run whose intervals are `planned` looks at a head five times at most: after each fifth of the
samples that its target width is expected to take, and at their end. How many these are is foreseen
anew at each look by the variance so far, not by the mean (`headlab.stats.planned`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headlab.core import Bools, Floats, Ints
from headlab.stats import PLANNED_LOOKS, share_by


@dataclass(frozen=True)
class PlannedLooks:
    """The looks so far.

    Attributes:
        taken: Number of looks, int [head].
        spent: Share of the chance of error that they have spent, 1 after a head's last look,
            float [head].
        share: What the latest of them has spent, float [head].
        gain: Size of the made-up gains that it counted, float [head].
    """

    taken: Ints
    spent: Floats
    share: Floats
    gain: Floats

    @classmethod
    def start(cls, players: int) -> PlannedLooks:
        """No look so far."""
        nothing = np.zeros(players)
        return cls(np.zeros(players, np.int64), nothing, nothing, np.ones(players))

    @classmethod
    def restore(
        cls, saved: Mapping[str, npt.NDArray[np.generic]], players: int
    ) -> PlannedLooks | None:
        """The looks that `arrays` returned; None if the arrays do not fit."""
        empty = cls.start(players).arrays()
        if any(name not in saved or saved[name].shape != empty[name].shape for name in empty):
            return None
        return cls(*(saved[name].astype(empty[name].dtype) for name in empty))

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """What `restore` needs, in its order."""
        return {f"looks_{name}": np.asarray(value) for name, value in vars(self).items()}

    def of_heads(self, heads: Bools) -> PlannedLooks:
        """The looks at some heads."""
        return PlannedLooks(*(array[heads] for array in vars(self).values()))

    @property
    def is_last(self) -> Bools:
        """Whether a head has had its last look, bool [head]."""
        return self.spent >= 1

    def due(self, samples: Ints, samples_planned: Floats) -> Bools:
        """Whether a head's next look is due, bool [head].

        Args:
            samples: Samples of each head so far, int [head].
            samples_planned: Samples that each head is expected to need in all, float [head].
        """
        next_part = (self.taken + 1) / PLANNED_LOOKS
        is_early_look = (self.taken < PLANNED_LOOKS - 1) & (samples >= next_part * samples_planned)
        is_last_look = samples >= samples_planned
        return ~self.is_last & (is_early_look | is_last_look)

    def with_looks(
        self, samples: Ints, samples_planned: Floats, heads: Bools, gains: Floats | float
    ) -> PlannedLooks:
        """The looks once more of these heads have been looked at.

        Args:
            samples: Samples of each head so far, int [head].
            samples_planned: Samples that each head is expected to need in all, float [head].
            heads: The heads that are looked at now, bool [head].
            gains: Size of each head's made-up gains that are counted now, float [head].
        """
        share_of_look = np.where(heads, self.share_now(samples, samples_planned), 0.0)
        spent = np.where(heads, self.spent + share_of_look, self.spent)
        is_last_look = heads & (samples >= samples_planned)
        return replace(
            self,
            taken=self.taken + heads,
            spent=np.where(is_last_look, 1.0, spent),
            share=np.where(heads, share_of_look, self.share),
            gain=np.where(heads, gains, self.gain),
        )

    def share_now(self, samples: Ints, samples_planned: Floats) -> Floats:
        """What a look after so many samples may spend: all that is left if it is the last.

        Args:
            samples: Samples of each head so far, int [head].
            samples_planned: Samples that each head is expected to need in all, float [head].
        """
        fraction = samples / np.maximum(samples_planned, 1.0)
        return np.asarray(np.maximum(share_by(fraction) - self.spent, 0.0))
