"""Leave-one-out: accuracy lost when one head goes and all others stay."""

from __future__ import annotations

import numpy as np

from headlab.methods.game import ModelGame
from headlab.methods.work import Outcome, Work, reporting
from headlab.stats import betting_interval, betting_p, sample_mean

SUPPORT = np.array([-1.0, 0.0, 1.0])


def run(work: Work) -> Outcome:
    """Exact on these examples; the interval says how far it may lie from that of unseen examples.

    Sign: positive = accuracy falls without the head. Examples are taken as independent draws.
    """
    game = ModelGame(work.evaluator, work.ablation)
    with reporting(work, game.examples, game.players + 1, "heads left out"):
        gains = game.without_each()
    counts = np.stack([(gains == value).sum(axis=1) for value in (-1, 0, 1)]).astype(np.int64)
    level = float(work.options["level"])
    low, high = betting_interval(SUPPORT, counts, level)
    return Outcome(sample_mean(SUPPORT, counts), low, high, counts.sum(axis=0), betting_p(SUPPORT, counts), level)
