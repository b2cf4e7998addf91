"""Random scores: the baseline for every other method."""

from __future__ import annotations

import numpy as np

from headlab.methods.work import Outcome, Work


def run(work: Work) -> Outcome:
    """Independent uniform draws from [0, 1), seeded by the seed and the language."""
    entropy = [work.seed, 3, *work.evaluator.language.encode()]
    return Outcome(np.random.default_rng(entropy).random(work.evaluator.model.grid.size))
