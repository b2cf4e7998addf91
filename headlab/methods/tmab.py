"""Shapley values of heads by truncated multi-armed bandit sampling (Held & Yang 2023, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.methods.draws import cuts, cycled_example, order, rounded
from headlab.methods.drive import drive, game_of
from headlab.methods.game import Ask, Game
from headlab.methods.tally import Plan, Tally, plan_of
from headlab.methods.work import Arrays, Outcome, Work
from headlab.records import Bools, Floats

TOP50 = "shapley-top50"
FULL = "shapley"
ESTIMANDS = (TOP50, FULL)
# A cycle of examples is computed in so many parts at least, so that several devices share it.
PARTS = 8


def is_full(estimand: str) -> bool:
    """Whether coalitions of all sizes count. Raises HeadlabError for an unknown estimand."""
    if estimand not in ESTIMANDS:
        raise HeadlabError(
            f"unknown estimand {estimand!r}; use {' or '.join(ESTIMANDS)}", code="method.estimand_unknown"
        )
    return estimand == FULL


def levels(estimand: str, steps: int) -> int:
    """Values that a sample can take: a gain's, or those of two gains' mean. Raises HeadlabError."""
    return 4 * steps + 1 if is_full(estimand) else 2 * steps + 1


def estimate(
    game: Game, plan: Plan, *, seed: int, estimand: str = TOP50, saved: Tally | None = None
) -> Iterator[Tally]:
    """Tallies that grow by a round each, until every head is satisfied or has its samples.

    A sample of a head is its gain at one random coalition on one example.  A draw takes an example and a
    random order, cuts the order in half, and takes away a random number of heads of one half: at this
    coalition every head of the other half shows its gain, all in one forward pass that branches at each
    head's layer. Then the halves change places (the order read backwards), so that a draw gives every
    head one gain, at a number of heads gone that is uniform below half: the paper's estimand.
    `shapley` adds the same from the other end (few heads there, each added) on another example, and
    averages the two.
    Examples come in balanced cycles; heads are let go after whole cycles only, where the intervals are
    exactly anytime-valid, and what only they would need is not computed.
    """
    tally = saved or Tally.start(game.players, levels(estimand, game.steps), plan)
    while not tally.finished:
        for numbers, gains in _cycle(game, tally, seed, estimand):
            sums = np.stack([rounded(g, game.steps, seed, n).sum(axis=0) for g, n in zip(gains, numbers, strict=True)])
            tally = tally.add(sums, tally.active, len(numbers), _second_half(game, numbers, seed, estimand))
            if tally.draws % game.examples == 0:
                tally = tally.looked_at()
            yield tally


def _second_half(game: Game, numbers: range, seed: int, estimand: str) -> Bools:
    """Which draws are of an example of the second half; none where a draw is of two, so that halves are not told."""
    if is_full(estimand):
        return np.zeros(len(numbers), bool)
    examples = [cycled_example(seed, n, game.examples, game.weights) for n in numbers]
    return np.array(examples) >= game.examples / 2


def _cycle(game: Game, tally: Tally, seed: int, estimand: str) -> Iterator[tuple[range, Floats]]:
    """The rest of a cycle of examples, in parts: numbers of the draws, and gains [draw, coalition, player]."""
    end = tally.draws + min(tally.plan.samples - tally.draws, game.examples - tally.draws % game.examples)
    # As much work in a part as in the first, however few heads are left; but some parts for every device.
    size = game.round * game.players // int(tally.active.sum())
    size = max(game.round, min(size, game.examples // PARTS))
    parts = [range(at, min(at + size, end)) for at in range(tally.draws, end, size)]
    found = game.answers(_ask(game, numbers, tally, seed, estimand) for numbers in parts)
    for numbers, gains in zip(parts, found, strict=True):
        yield numbers, gains.reshape(len(numbers), -1, game.players)


def _ask(game: Game, numbers: range, tally: Tally, seed: int, estimand: str) -> Ask:
    drawn = [coalitions(seed, number, game.players, estimand) for number in numbers]
    kept, wanted = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
    ends = range(len(kept) // len(numbers) // 2)  # each end of the order has an example of its own
    examples = np.array([cycled_example(seed, n, game.examples, game.weights, end) for n in numbers for end in ends])
    return Ask("marginals", {"kept": kept, "wanted": wanted & tally.active, "examples": np.repeat(examples, 2)})


def coalitions(seed: int, number: int, players: int, estimand: str) -> tuple[Bools, Bools]:
    """Coalitions of a draw and the heads that each measures, both bool [coalition, player]."""
    line = order(seed, number, players)
    half = players // 2
    fronts = (line, line[::-1])  # heads leave from the front; those of the back half are measured
    measured = np.zeros((2, players), bool)
    measured[0, line[half:]] = measured[1, line[:half]] = True
    full = estimand == FULL
    drawn = cuts(seed, number, players if full else (players + 1) // 2, 4 if full else 2)
    if full:  # how many are gone, or there, counted from the nearer end
        drawn = np.minimum(drawn, players - 1 - drawn)
    kept = np.ones((len(drawn), players), bool)
    for row, cut in enumerate(drawn):
        kept[row, fronts[row % 2][:cut]] = False
    kept[2:] = ~kept[2:]
    return kept, np.tile(measured, (len(drawn) // 2, 1))


def run(work: Work) -> Outcome:
    """Sample until every head has a decided sign or the target half-width, or `samples` samples."""
    game = game_of(work)
    estimand = str(work.options["estimand"])
    saved = restore(work.saved or {}, work.options, game.players, game.steps)
    return drive(work, saved, estimate(game, saved.plan, seed=work.seed, estimand=estimand, saved=saved))


def restore(saved: Arrays, options: Mapping[str, Any], players: int, steps: int | None = None) -> Tally:
    """The snapshot that a checkpoint holds.

    steps: of the game; None takes what the checkpoint has.
    """
    size = len(saved.get("counts", ())) if steps is None else levels(str(options["estimand"]), steps)
    return Tally.restore(saved, players, size, plan_of(options))
