"""Random scores: the baseline that every other method has to beat."""

from __future__ import annotations

import numpy as np

from headlab.methods.work import Outcome, Work


def run(work: Work) -> Outcome:
    """Independent uniform draws in [0, 1), from the seed alone."""
    return Outcome(np.random.default_rng([work.seed, 3]).random(work.evaluator.model.grid.size))
