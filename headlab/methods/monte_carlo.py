"""Shapley values of heads by plain permutation sampling (Castro et al. 2009)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headlab.core import FINE_STEPS, Floats, Ints
from headlab.methods.game import Game, Query, donor_arguments
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.sampling import (
    SamplingPlan,
    Tally,
    even_support,
    independent_example,
    level_indices_of,
    plan_of,
    random_order,
)
from headlab.methods.tmab import ALL_SIZES, removal_sizes
from headlab.methods.work import Arrays, Outcome, Work, final_outcome

# Draws between two checks of the intervals: the same on every device, whatever its round size.
CHECK_INTERVAL = 64


def estimate(
    game: Game,
    plan: SamplingPlan,
    *,
    seed: int,
    estimand: str = ALL_SIZES,
    saved: Tally | None = None,
) -> Iterator[Tally]:
    """Tallies that grow by a round of orders each.

    From Castro et al. 2009, and Held & Yang 2023, equation 3.

    A draw is one random example and one random order; heads are removed one by one, all of them or,
    for `shapley-top50`, half of them, and each removed head yields one gain. Draws are independent,
    so the intervals are valid at every round; the run stops when every head is satisfied.

    Args:
        game: The game.
        plan: When to stop.
        seed: Seed of the draws.
        estimand: Which coalitions count.
        saved: The tally to go on from.
    """
    steps = removal_sizes(estimand, game.players)  # heads removed in one walk
    tally = saved or Tally.start(game.players, even_support(min(game.steps, FINE_STEPS)), plan)
    if tally.is_finished:
        return
    ranges = _draw_ranges(tally.draws, plan.samples, game.round)
    ranges_to_ask = _draw_ranges(tally.draws, plan.samples, game.round)  # the game reads ahead
    gains_by_range = game.answers(_ask(game, numbers, steps, seed) for numbers in ranges_to_ask)
    for numbers, gains in zip(ranges, gains_by_range, strict=True):
        tally = _add(tally, game, numbers, gains, seed)
        if tally.draws % CHECK_INTERVAL == 0 and tally.satisfied().all():
            tally = tally.without_satisfied_heads()
        yield tally
        if tally.is_finished:
            return


def _draw_ranges(start: int, end: int, size: int) -> Iterator[range]:
    """Numbers of the draws from start to end, in ranges.

    A range ends where the intervals are checked.
    """
    while start < end:
        next_check = start - start % CHECK_INTERVAL + CHECK_INTERVAL
        stop = min(start + size, next_check, end)
        yield range(start, stop)
        start = stop


def _orders(numbers: range, players: int, steps: int, seed: int) -> Ints:
    """The heads that some draws remove, in their order, int [draw, step]."""
    return np.stack([random_order(seed, number, players)[:steps] for number in numbers])


def _examples(game: Game, numbers: range, seed: int) -> Ints:
    """The examples of some draws, int [draw]."""
    examples = [
        independent_example(seed, number, game.examples, game.weights) for number in numbers
    ]
    return np.array(examples)


def _ask(game: Game, numbers: range, steps: int, seed: int) -> Query:
    """The query for the gains of some draws."""
    orders = _orders(numbers, game.players, steps, seed)
    examples = _examples(game, numbers, seed)
    donors = donor_arguments(game, seed, numbers, examples)
    return Query("gains", {"orders": orders, "examples": examples, **donors})


def _add(tally: Tally, game: Game, numbers: range, gains: Floats, seed: int) -> Tally:
    """The tally with the gains of some draws, float [draw, step]."""
    orders = _orders(numbers, game.players, gains.shape[1], seed)
    levels_of_steps = []
    for number, gains_of_draw in zip(numbers, gains, strict=True):
        levels_of_steps.append(level_indices_of(gains_of_draw, tally.support, seed, number))
    level_indices = np.zeros((len(orders), game.players), np.int64)
    is_drawn = np.zeros((len(orders), game.players), bool)
    np.put_along_axis(level_indices, orders, np.stack(levels_of_steps), axis=1)
    np.put_along_axis(is_drawn, orders, True, axis=1)
    in_second_half = _examples(game, numbers, seed) >= game.examples / 2
    return tally.add(level_indices, is_drawn, len(orders), in_second_half)


def run(work: Work) -> Outcome:
    """Sample until every head is satisfied, or for `samples` orders."""
    game = game_of(work)
    estimand = str(work.options["estimand"])
    tally = restore(work.saved or {}, work.options, game.players, game.steps)
    tallies = estimate(game, tally.plan, seed=work.seed, estimand=estimand, saved=tally)
    return final_outcome(work, tally, tallies)


def restore(saved: Arrays, options: Options, players: int, steps: int | None = None) -> Tally:
    """The snapshot stored in a checkpoint.

    Args:
        saved: Arrays of the checkpoint.
        options: Of the method.
        players: Number of players.
        steps: Number of levels of a gain of 1 in the game; None infers it from the checkpoint.
    """
    if steps is None:
        steps = max(1, len(saved.get("counts", ())) // 2)
    support = even_support(min(steps, FINE_STEPS))
    return Tally.restore(saved, players, support, plan_of(options))
