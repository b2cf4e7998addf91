"""Random scores: the baseline that every other method has to beat."""

from __future__ import annotations

import numpy as np

from headlab.methods.run import Outcome, Work


def run(work: Work) -> Outcome:
    """Independent uniform draws in [0, 1), from the seed and the language."""
    entropy = [work.seed, 3, *work.evaluator.language.encode()]
    return Outcome(np.random.default_rng(entropy).random(work.evaluator.model.grid.size))
