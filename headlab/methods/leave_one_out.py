"""Leave-one-out: accuracy lost when one head is removed and all others are kept."""

from __future__ import annotations

from functools import partial

import numpy as np

from headlab.core import Floats, Ints, number_in
from headlab.methods.game import Game, Query, donor_arguments
from headlab.methods.model_game import game_of
from headlab.methods.work import Outcome, Work, reporting, saves_of
from headlab.stats import group_bootstrap


def run(work: Work) -> Outcome:
    """Accuracy lost without each head, exact on these examples.

    Intervals cover the sampling of the examples.

    A value is positive where accuracy falls without the head. Intervals and p-values resample
    groups of examples, each with as many answers as it has. Two pseudo-answers (one right, one
    wrong) are added, as for a mask; not two pseudo-examples, of which each could have 60 answers.
    """
    game = game_of(work)
    level = float(number_in(work.options, "level"))
    with reporting(work, game.examples, game.players + 1, "heads left out"):
        gains = _gains(work, game)
    groups = tuple(example.cluster for example in work.evaluator.examples)
    answer_counts = work.evaluator.inputs.units
    answers_lost = np.rint(gains * answer_counts)  # gains are shares of an example's answers
    rng = np.random.default_rng([work.seed, 4])
    low, high, p = group_bootstrap(answers_lost, groups, rng, level=level, answers=answer_counts)
    if game.weights is not None:
        # Every answer has the same weight, whichever example it belongs to.
        gains = gains * game.weights * game.examples
    samples = np.full(game.players, game.examples, dtype=np.int64)
    halves = None
    if game.examples > 1:
        halves = np.stack([half.mean(axis=1) for half in np.array_split(gains, 2, axis=1)])
    return Outcome(gains.mean(axis=1), low, high, samples, p, level, halves)


def _gains(work: Work, game: Game) -> Floats:
    """Gain of each head on each example, float [head, example]; saved round by round."""
    saved = work.saved or {}
    gains = np.zeros((game.players, game.examples))
    examples_done = 0
    if "gains" in saved and saved["gains"].shape == gains.shape and "done" in saved:
        gains = saved["gains"].astype(np.float64)
        examples_done = int(saved["done"])
    by_length = np.argsort(game.lengths, kind="stable")
    parts = []
    for start in range(examples_done, game.examples, game.round):
        parts.append(by_length[start : start + game.round])

    def gains_without_each_head(rows: Ints) -> Query:
        all_heads = np.ones((len(rows), game.players), dtype=bool)
        arrays = {"kept": all_heads, "wanted": all_heads, "examples": rows}
        return Query("marginals", {**arrays, **donor_arguments(game, work.seed, 0, rows)})

    with saves_of(work.save) as saver:
        answers = game.answers(map(gains_without_each_head, parts))
        for rows, gains_of_part in zip(parts, answers, strict=True):
            gains[:, rows] = gains_of_part.T
            examples_done += len(rows)
            forwards = np.array(work.evaluator.forwards)
            saver.offer(partial(dict, gains=gains, done=np.array(examples_done), forwards=forwards))
    return gains
