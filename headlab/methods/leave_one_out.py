"""Leave-one-out: accuracy lost when one head goes and all others stay."""

from __future__ import annotations

import numpy as np

from headlab.methods.game import ModelGame
from headlab.methods.work import Outcome, Work, reporting
from headlab.records import Floats
from headlab.stats import group_bootstrap


def run(work: Work) -> Outcome:
    """Exact on these examples; the interval says how far it may lie from that of unseen examples.

    Sign: positive = accuracy falls without the head. Intervals and p-values resample groups of examples.
    """
    game, level = ModelGame(work.evaluator, work.ablation), float(work.options["level"])
    with reporting(work, game.examples, game.players + 1, "heads left out"):
        gains = _gains(work, game)
    if game.weights is not None:  # answers count alike, whatever example they are of
        gains = gains * game.weights * game.examples
    groups = tuple(e.group or e.id for e in work.evaluator.examples)
    low, high, p = group_bootstrap(gains, groups, np.random.default_rng([work.seed, 4]), level=level)
    samples = np.full(game.players, game.examples, dtype=np.int64)
    return Outcome(gains.mean(axis=1), low, high, samples, p, level)


def _gains(work: Work, game: ModelGame) -> Floats:
    """What each head was worth on each example, float [head, example]; saved round by round."""
    saved = work.saved or {}
    gains, done = np.zeros((game.players, game.examples)), 0
    if "gains" in saved and saved["gains"].shape == gains.shape and "done" in saved:
        gains, done = saved["gains"].astype(np.float64), int(saved["done"])
        work.evaluator.forwards = int(saved.get("forwards", 0))
    by_length = np.argsort(work.evaluator.lengths, kind="stable")
    for start in range(done, game.examples, game.round):
        rows = by_length[start : start + game.round]
        every = np.ones((len(rows), game.players), dtype=bool)
        gains[:, rows] = game.marginals(every, every, rows).T
        work.save({"gains": gains, "done": np.array(start + len(rows)), "forwards": np.array(work.evaluator.forwards)})
    return gains
