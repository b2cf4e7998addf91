"""Leave-one-out: accuracy lost when one head is removed and all others are kept."""

from __future__ import annotations

from functools import partial

import numpy as np

from headlab.core import Floats, number_in
from headlab.methods.game import Ask, Game
from headlab.methods.model_game import game_of
from headlab.methods.work import Outcome, Work, reporting, saving
from headlab.stats import group_bootstrap


def run(work: Work) -> Outcome:
    """Accuracy lost without each head, exact on these examples; intervals cover the sampling of the examples.

    Sign: positive = accuracy falls without the head. Intervals and p-values resample groups of examples, each with as
    many answers as it has, and one made-up answer each way: as for a mask, an example with 60 answers is no flip of 60.
    """
    game, level = game_of(work), float(number_in(work.options, "level"))
    with reporting(work, game.examples, game.players + 1, "heads left out"):
        gains = _gains(work, game)
    groups, answers = tuple(e.cluster for e in work.evaluator.examples), work.evaluator.inputs.units
    lost, rng = np.rint(gains * answers), np.random.default_rng([work.seed, 4])  # whole answers
    low, high, p = group_bootstrap(lost, groups, rng, level=level, answers=answers)
    if (
        game.weights is not None
    ):  # every answer has the same weight, whichever example it belongs to
        gains = gains * game.weights * game.examples
    samples = np.full(game.players, game.examples, dtype=np.int64)
    halves = (
        np.stack([part.mean(axis=1) for part in np.array_split(gains, 2, axis=1)])
        if game.examples > 1
        else None
    )
    return Outcome(gains.mean(axis=1), low, high, samples, p, level, halves)


def _gains(work: Work, game: Game) -> Floats:
    """Gain of each head on each example, float [head, example]; saved round by round."""
    saved = work.saved or {}
    gains, done = np.zeros((game.players, game.examples)), 0
    if "gains" in saved and saved["gains"].shape == gains.shape and "done" in saved:
        gains, done = saved["gains"].astype(np.float64), int(saved["done"])
    by_length = np.argsort(game.lengths, kind="stable")
    every = np.ones((game.round, game.players), dtype=bool)
    parts = [by_length[at : at + game.round] for at in range(done, game.examples, game.round)]
    with saving(work.save) as saver:
        asks = (
            Ask("marginals", {"kept": every[: len(r)], "wanted": every[: len(r)], "examples": r})
            for r in parts
        )
        for rows, found in zip(parts, game.answers(asks), strict=True):
            gains[:, rows] = found.T
            done += len(rows)
            forwards = np.array(work.evaluator.forwards)
            saver.offer(partial(dict, gains=gains, done=np.array(done), forwards=forwards))
    return gains
