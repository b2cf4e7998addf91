"""Shapley values of heads by plain permutation sampling (Castro et al. 2009)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headlab.core import Floats, Ints
from headlab.methods.game import Ask, Game
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.sampling import Plan, Tally, even, free_example, order, placed, plan_of
from headlab.methods.tmab import FULL, sizes
from headlab.methods.work import Arrays, Outcome, Work, drive

# Draws between two looks at the intervals: the same on every device, whatever its round size.
LOOK = 64


def estimate(
    game: Game, plan: Plan, *, seed: int, estimand: str = FULL, saved: Tally | None = None
) -> Iterator[Tally]:
    """Tallies that grow by a round of orders each (Castro et al. 2009; Held & Yang 2023, equation 3).

    A draw is one random example and one random order; heads are removed one by one, all of them or, for
    `shapley-top50`, half of them, and each removed head yields one gain. Draws are independent,
    so the intervals are valid at every round; the run stops when every head is satisfied.
    """
    steps = sizes(estimand, game.players)  # heads removed in one walk
    tally = saved or Tally.start(game.players, even(game.steps), plan)
    if tally.finished:
        return
    parts, ahead = (_parts(tally.draws, plan.samples, game.round) for _ in range(2))
    found = game.answers(_ask(game, numbers, steps, seed) for numbers in ahead)
    for numbers, gains in zip(parts, found, strict=True):
        tally = _add(tally, game, numbers, gains, seed)
        if tally.draws % LOOK == 0 and tally.satisfied().all():
            tally = tally.looked_at()
        yield tally
        if tally.finished:
            return


def _parts(start: int, end: int, size: int) -> Iterator[range]:
    """Numbers of the draws from start to end, in parts that end where the intervals are checked."""
    while start < end:
        part = range(start, min(start + size, start - start % LOOK + LOOK, end))
        yield part
        start = part.stop


def _orders(numbers: range, players: int, steps: int, seed: int) -> Ints:
    return np.stack([order(seed, number, players)[:steps] for number in numbers])


def _ask(game: Game, numbers: range, steps: int, seed: int) -> Ask:
    examples = np.array(
        [free_example(seed, number, game.examples, game.weights) for number in numbers]
    )
    return Ask(
        "gains", {"orders": _orders(numbers, game.players, steps, seed), "examples": examples}
    )


def _add(tally: Tally, game: Game, numbers: range, gains: Floats, seed: int) -> Tally:
    orders = _orders(numbers, game.players, gains.shape[1], seed)
    places = np.zeros((len(orders), game.players), np.int64)
    drawn = np.zeros((len(orders), game.players), bool)
    found = np.stack(
        [placed(g, tally.support, seed, number) for g, number in zip(gains, numbers, strict=True)]
    )
    np.put_along_axis(places, orders, found, axis=1)
    np.put_along_axis(drawn, orders, True, axis=1)
    examples = [free_example(seed, number, game.examples, game.weights) for number in numbers]
    return tally.add(places, drawn, len(orders), np.array(examples) >= game.examples / 2)


def run(work: Work) -> Outcome:
    """Sample until every head is satisfied, or for `samples` orders."""
    game, estimand = game_of(work), str(work.options["estimand"])
    saved = restore(work.saved or {}, work.options, game.players, game.steps)
    return drive(
        work, saved, estimate(game, saved.plan, seed=work.seed, estimand=estimand, saved=saved)
    )


def restore(saved: Arrays, options: Options, players: int, steps: int | None = None) -> Tally:
    """The snapshot stored in a checkpoint.

    steps: of the game; None infers them from the checkpoint.
    """
    steps = max(1, len(saved.get("counts", ())) // 2) if steps is None else steps
    return Tally.restore(saved, players, even(steps), plan_of(options))
