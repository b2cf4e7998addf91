"""The first version of `shapley`, which computes every gain: the baseline of screened branching."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headlab.core import Bools
from headlab.methods.game import Game, Query
from headlab.methods.sampling import (
    SamplingPlan,
    Tally,
    cycled_example,
    even_support,
    level_indices_of,
    random_order,
)
from headlab.methods.tmab import ALL_SIZES, TOP50


def estimate(
    game: Game, plan: SamplingPlan, *, seed: int, estimand: str = TOP50, saved: Tally | None = None
) -> Iterator[Tally]:
    """Tallies that grow by a round each, as `headlab.methods.tmab.estimate`.

    A draw divides a random order into halves and removes a random number of heads of one half; then
    the gain of every head of the other half is measured. After that the halves change places.
    `shapley` does the same from the other end (few heads are kept, and each is added) on another
    example, and a sample is the mean of the two.
    """
    ends = 2 if estimand == ALL_SIZES else 1
    tally = saved or Tally.start(game.players, even_support(ends * game.steps), plan)
    while not tally.is_finished:
        draws_of_cycle_left = game.examples - tally.draws % game.examples
        end = tally.draws + min(plan.samples - tally.draws, draws_of_cycle_left)
        rounds = [
            range(first_draw, min(first_draw + game.round, end))
            for first_draw in range(tally.draws, end, game.round)
        ]
        gains_by_round = game.answers(
            _query(game, numbers, tally.active, seed, estimand) for numbers in rounds
        )
        for numbers, gains in zip(rounds, gains_by_round, strict=True):
            gains = gains.reshape(len(numbers), -1, game.players)
            levels_by_draw = []
            for number, draw_gains in zip(numbers, gains, strict=True):
                indices = level_indices_of(draw_gains, even_support(game.steps), seed, number)
                levels_by_draw.append((indices - game.steps).sum(axis=0))
            level_indices = np.stack(levels_by_draw) + ends * game.steps
            second_ends = np.zeros(len(numbers), bool)
            tally = tally.add(level_indices, tally.active, len(numbers), second_ends)
            if tally.draws % game.examples == 0:
                tally = tally.without_satisfied_heads()
            yield tally


def _query(game: Game, numbers: range, active: Bools, seed: int, estimand: str) -> Query:
    draws = [drawn_coalitions(seed, number, game.players, estimand) for number in numbers]
    coalitions, measured_heads = (np.concatenate(arrays) for arrays in zip(*draws, strict=True))
    ends = len(coalitions) // len(numbers) // 2
    examples = []
    for number in numbers:
        for end in range(ends):  # each end of the order has an example of its own
            examples.append(cycled_example(seed, number, game.examples, game.weights, end))
    arrays = {
        "kept": coalitions,
        "wanted": measured_heads & active,
        "examples": np.repeat(examples, 2),
    }
    return Query("marginals", arrays)


def drawn_coalitions(seed: int, number: int, players: int, estimand: str) -> tuple[Bools, Bools]:
    """Coalitions of a draw, and the heads that each measures, both bool [coalition, player]."""
    order = random_order(seed, number, players)
    half_length = players // 2
    # Heads are removed from the front of an order, and those of its back half are measured.
    orders = (order, order[::-1])
    measured_heads = np.zeros((2, players), bool)
    measured_heads[0, order[half_length:]] = True
    measured_heads[1, order[:half_length]] = True
    rng = np.random.default_rng([seed, 5, number])
    if estimand == ALL_SIZES:
        # How many heads are removed, or kept, whichever are fewer.
        removed_counts = rng.integers(players, size=4)
        removed_counts = np.minimum(removed_counts, players - 1 - removed_counts)
    else:
        removed_counts = rng.integers((players + 1) // 2, size=2)
    coalitions = np.ones((len(removed_counts), players), bool)
    for row, removed_count in enumerate(removed_counts):
        coalitions[row, orders[row % 2][:removed_count]] = False
    coalitions[2:] = ~coalitions[2:]
    return coalitions, np.tile(measured_heads, (len(removed_counts) // 2, 1))
