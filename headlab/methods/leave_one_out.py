"""Leave-one-out: what is lost when one head is removed and all others are kept."""

from __future__ import annotations

from functools import partial

import numpy as np

from headlab.core import Floats, Ints, number_in
from headlab.methods.game import Game, Query, donor_arguments
from headlab.methods.model_game import game_of
from headlab.methods.work import Outcome, Work, reporting, saves_of
from headlab.stats import Bootstrap, group_bootstrap


def run(work: Work) -> Outcome:
    """Accuracy lost without each head, exact on these examples.

    Intervals cover the sampling of the examples.

    A value is positive where accuracy, or what the option `value` names in its place, falls without
    the head. Intervals and p-values resample groups of examples, each with as many answers as it
    has. Two pseudo-answers (one gained, one lost) are added, as for a mask; not two pseudo-examples,
    of which each could have 60 answers.
    """
    game = game_of(work)
    level = float(number_in(work.options, "level"))
    with reporting(work, game.examples, game.players + 1, "heads left out"):
        gains = _gains(work, game)
    gains = gains * game.span
    groups = tuple(example.cluster for example in work.evaluator.examples)
    answer_counts = work.evaluator.inputs.units
    low, high, p = intervals_of_means(
        gains,
        groups,
        answer_counts,
        np.random.default_rng([work.seed, 4]),
        whole_answers=work.options.get("value", "accuracy") == "accuracy",
        level=level,
    )
    if game.weights is not None:
        # Every answer has the same weight, whichever example it belongs to.
        gains = gains * game.weights * game.examples
    samples = np.full(game.players, game.examples, dtype=np.int64)
    halves = None
    if game.examples > 1:
        halves = np.stack([half.mean(axis=1) for half in np.array_split(gains, 2, axis=1)])
    return Outcome(gains.mean(axis=1), low, high, samples, p, level, halves)


def intervals_of_means(
    gains: Floats,
    groups: tuple[str, ...],
    answer_counts: Ints,
    rng: np.random.Generator,
    *,
    whole_answers: bool,
    level: float,
) -> Bootstrap:
    """Intervals and p-values of each head's mean gain of an answer, for unseen examples.

    Args:
        gains: Mean gain of each example's answers, float [head, example].
        groups: Of each example; those of one group are drawn together.
        answer_counts: Of each example, int [example].
        rng: Of the resampling.
        whole_answers: Whether answers are gained or lost as wholes.
        level: Confidence level.
    """
    sums_lost = gains * answer_counts
    if whole_answers:
        sums_lost = np.rint(sums_lost)
        pseudo_gains = np.ones(len(gains))
    else:
        pseudo_gains = _usual_sizes(sums_lost, answer_counts)
    scaled_sums = sums_lost / pseudo_gains[:, None]
    scaled = group_bootstrap(scaled_sums, groups, rng, level=level, answers=answer_counts)
    return Bootstrap(scaled.low * pseudo_gains, scaled.high * pseudo_gains, scaled.p)


def _usual_sizes(sums_lost: Floats, answer_counts: Ints) -> Floats:
    """The root mean square of each head's gains, 1 where all are 0, float [head].

    So large are the two pseudo-answers of a head whose gains are no whole answers.

    Args:
        sums_lost: What an example's answers lose without a head, float [head, example].
        answer_counts: Of each example, int [example].
    """
    gain_per_answer = sums_lost / np.maximum(answer_counts, 1)
    squares = np.average(np.square(gain_per_answer), axis=1, weights=answer_counts)
    return np.where(squares > 0, np.sqrt(squares), 1.0)


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
