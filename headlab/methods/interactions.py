"""Shapley interaction indices of pairs of heads, of order 2, by sampling.

The interaction of two heads at a coalition of the others is v(with both) - v(with the first) -
v(with the second) + v(with none). The index is its mean over coalitions of all sizes from 0 to n -
2, each size equally likely but for the weight of the second order: a coalition of t of the other n
- 2 heads has the weight t! (n - 2 - t)! / (n - 1)! (Grabisch & Roubens 1999). A draw of `shapley`
for coalitions of all sizes has just this law once the pair's own heads are left out of it
(docs/statistics.md), so one draw measures every pair.

Below 0 the two stand in for each other, since each is worth less where the other is present; above
0 they need each other.

The state is a `ScreenedTally` whose columns are pairs in the place of heads and whose gains are
halves of interactions, so that all that is said of its intervals holds here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headlab.core import Bools, Floats, Ints
from headlab.methods.game import Query, donor_arguments
from headlab.methods.pair_game import PairGame
from headlab.methods.planned_looks import PlannedLooks
from headlab.methods.sampling import (
    SamplingPlan,
    Tally,
    cycled_example,
    level_indices_of,
    removed_and_measured,
    uniforms,
    weighted_support,
)
from headlab.methods.screen import FORESEEN_PASS_COST, PASS_COST, Screen, weighted_samples
from headlab.methods.tmab import (
    MIN_PARTS,
    ScreenedTally,
    empty_tally,
    next_update,
    update_is_due,
)

CYCLES_BEFORE_PAIRS = 1 << 33
"""Cycles of examples before the draws of pairs: those of `shapley` and of its slopes come before.

Pairs are often those of the heads that a run of `shapley` found to matter; with the same seed, its
draws would choose the pairs that they then measure.
"""
MOST_HALVINGS = 4
USUAL_SQUARE = 0.005
"""Mean square of half an interaction, about: one in fifty is not 0 where heads matter."""
USUAL_SHARE_FORESEEN = 0.05
"""Share of the interactions that a gradient is not sure of."""


def pair_plan(
    span: float, samples: int, target: float | None = None, level: float = 0.95
) -> SamplingPlan:
    """A plan of samples of interactions.

    Args:
        span: Of the value function.
        samples: Draws at most.
        target: Half-width to reach, in the value's unit; None draws all samples.
        level: Of the intervals.
    """
    return SamplingPlan(samples, target, "width", level, 2 * span)


def chosen_halvings(game: PairGame, plan: SamplingPlan) -> int:
    """Halvings of the smallest probability of computing an interaction.

    It is what makes the time to the plan's width least, as far as it can be foreseen. Intervals
    widen with the largest weight, so that few pairs, or wide intervals, are cheapest with every
    interaction computed: 0.

    Args:
        game: The game.
        plan: Of the run. Without a target, the width is that which its samples reach if every
            interaction is computed.
    """
    if game.pair_scale is None:
        return 0
    work = []
    for halvings in range(MOST_HALVINGS + 1):
        largest_weight = 1 << halvings
        draws = _draws_to_width(_aimed_width(plan), largest_weight, plan.level)
        work.append(draws * passes_of_draw(game, largest_weight))
    return int(np.argmin(work))


def _aimed_width(plan: SamplingPlan) -> float:
    """Half-width of half an interaction that a plan aims at, as a share of the span."""
    if plan.target is not None:
        return plan.target / plan.span
    log_capital = float(np.log(2 / (1 - plan.level)))
    root = np.sqrt(log_capital**2 + 8 * plan.samples * log_capital * USUAL_SQUARE)
    return float((log_capital + root) / (2 * plan.samples))


def _draws_to_width(width: float, largest_weight: int, level: float) -> float:
    """Draws until an interval has this half-width, about."""
    log_capital = float(np.log(2 / (1 - level)))
    return log_capital * (2 * USUAL_SQUARE / width**2 + largest_weight / width)


def expected_draws(plan: SamplingPlan, largest_weight: int, examples: int) -> int:
    """Draws that a run takes, about: whole cycles, and no more than planned.

    Args:
        plan: Of the run.
        largest_weight: Of a sample.
        examples: In a cycle.
    """
    if plan.target is None:
        return plan.samples
    draws = _draws_to_width(_aimed_width(plan), largest_weight, plan.level)
    return min(plan.samples, int(np.ceil(draws / examples)) * examples)


def passes_of_draw(game: PairGame, largest_weight: int) -> float:
    """Passes that a draw of all pairs takes, about.

    Args:
        game: The game.
        largest_weight: Of a sample; 1 if every interaction is computed.
    """
    row_passes = float(game.pair_costs.sum())
    if largest_weight == 1:
        return PASS_COST + row_passes
    share_computed = USUAL_SHARE_FORESEEN + (1 - USUAL_SHARE_FORESEEN) / largest_weight
    return FORESEEN_PASS_COST + row_passes * share_computed


def started_tally(game: PairGame, plan: SamplingPlan, halvings: int) -> ScreenedTally:
    """A tally of all pairs without a sample.

    Args:
        game: The game.
        plan: Of the run.
        halvings: Of the smallest probability of computing an interaction; with 0 none is predicted.
    """
    scale = game.pair_scale
    bins = scale.bins if scale is not None and halvings else 0
    support = weighted_support(2 * game.steps, 1 << halvings)
    return empty_tally(len(game.pairs), support, plan, bins)


def restored_tally(
    saved: Mapping[str, npt.NDArray[np.generic]], empty: ScreenedTally
) -> ScreenedTally:
    """The tally that its arrays hold; the empty one if they do not fit it.

    Args:
        saved: As `ScreenedTally.arrays` gave them.
        empty: As `started_tally` makes it for the same run.
    """
    pairs = len(empty.active)
    tally = Tally.restore(dict(saved), pairs, empty.support, empty.plan)
    screen = Screen.restore(saved, len(empty.screen.halvings), pairs)
    early = saved.get("early")
    if screen is None or early is None or early.shape != tally.counts.shape or not tally.draws:
        return empty
    looks = PlannedLooks.start(pairs)
    return ScreenedTally(**vars(tally), screen=screen, early=early.astype(np.int64), looks=looks)


def estimate(game: PairGame, tally: ScreenedTally, *, seed: int) -> Iterator[ScreenedTally]:
    """Tallies that grow by some draws each, until every pair is narrow or has all its samples.

    A draw picks an example and removes a random number of heads, chosen at random; each pair's
    interaction is then measured at the coalition without the pair, whatever of it was removed.
    Examples come in balanced cycles, and pairs stop being sampled at the end of whole cycles only.
    The probabilities are updated after fixed numbers of draws, so that nothing depends on the size
    of a round.

    Args:
        game: The game.
        tally: To go on from, as of `started_tally`.
        seed: Seed of the draws.
    """
    while not tally.is_finished:
        if update_is_due(tally.draws, game.examples):
            tally = replace(tally, screen=_updated_screen(tally, game))
        for numbers, draws, answers in _draws_until_update(game, tally, seed):
            tally = _with_answers(tally, game, numbers, draws, answers, seed)
            if tally.draws % game.examples == 0:
                tally = tally.without_satisfied_heads().learned()
            yield tally


class PairDraws(NamedTuple):
    """Some draws.

    Attributes:
        kept: The players that are present, bool [draw, player].
        examples: The example of each draw, int [draw].
    """

    kept: Bools
    examples: Ints


def pair_draws(game: PairGame, numbers: range, seed: int) -> PairDraws:
    """The draws of these numbers, counted from 0."""
    kept = []
    examples = []
    for number in _numbers_of_all(game, numbers):
        is_removed, _ = removed_and_measured(seed, number, game.players, game.players)
        kept.append(~is_removed)
        examples.append(cycled_example(seed, number, game.examples, game.weights))
    return PairDraws(np.stack(kept), np.array(examples))


def _numbers_of_all(game: PairGame, numbers: range) -> range:
    """The numbers of draws among the draws of all kinds of the same seed."""
    first = CYCLES_BEFORE_PAIRS * game.examples
    return range(first + numbers.start, first + numbers.stop)


def _updated_screen(tally: ScreenedTally, game: PairGame) -> Screen:
    """The tally's screen with the best probabilities by its samples so far."""
    scale = game.pair_scale
    if scale is None or not len(tally.screen.halvings):
        return tally.screen
    plan = tally.plan
    if plan.target is not None:
        width = plan.target / plan.span
    else:
        width = float(tally.reachable_width(tally.counts).mean())
    halvings = int(tally.reach).bit_length() - 1
    slack = tally.reach * width / 2
    return tally.screen.with_best_probabilities(
        scale, game.pair_costs, tally.active, halvings, slack
    )


def _draws_until_update(
    game: PairGame, tally: ScreenedTally, seed: int
) -> Iterator[tuple[range, PairDraws, Floats]]:
    """The draws until the next update of the probabilities, in parts.

    Yields:
        Numbers of the draws, the draws, and the game's answers to them.
    """
    end = next_update(tally, game.examples)
    # As much work in each part, however many pairs there are; and enough parts for every device.
    rows_a_draw = int(tally.active.sum()) + len(np.unique(game.pairs))
    size = game.round * game.players // rows_a_draw
    size = max(1, min(size, max(game.round, game.examples // MIN_PARTS)))
    parts = [range(start, min(start + size, end)) for start in range(tally.draws, end, size)]
    draws_by_part = [pair_draws(game, numbers, seed) for numbers in parts]
    asks = (
        _ask(game, tally, numbers, draws, seed)
        for numbers, draws in zip(parts, draws_by_part, strict=True)
    )
    yield from zip(parts, draws_by_part, game.answers(asks), strict=True)


def _ask(
    game: PairGame, tally: ScreenedTally, numbers: range, draws: PairDraws, seed: int
) -> Query:
    """The query for the interactions of some draws."""
    pairs = len(game.pairs)
    wanted = np.broadcast_to(tally.active, (len(numbers), pairs)).copy()
    arrays = {"kept": draws.kept, "wanted": wanted, "examples": draws.examples}
    numbers_of_all = _numbers_of_all(game, numbers)
    arrays |= donor_arguments(game, seed, numbers_of_all, draws.examples)
    if tally.screen.whole:
        return Query("interactions", arrays)
    chances = {
        "halvings": tally.screen.halvings,
        "uniforms": np.stack(
            [uniforms(seed, number, pairs) for number in _numbers_of_all(game, numbers)]
        ),
    }
    return Query("screened_interactions", {**arrays, **chances})


def _with_answers(
    tally: ScreenedTally,
    game: PairGame,
    numbers: range,
    draws: PairDraws,
    answers: Floats,
    seed: int,
) -> ScreenedTally:
    """The tally with the answers to some draws added."""
    pairs = len(game.pairs)
    is_measured = np.broadcast_to(tally.active, (len(numbers), pairs))
    screen = tally.screen
    halves = answers
    if not screen.whole:
        bins = np.where(is_measured, answers[0], 0).astype(np.int64)
        _, foreseen, computed = np.where(is_measured, answers, 0)
        halvings = screen.halvings[bins, np.arange(pairs)]
        halves = weighted_samples(foreseen, computed, halvings)
        screen = screen.add(bins, is_measured, foreseen, computed)
    level_indices = [
        level_indices_of(halves_of_draw, tally.support, seed, number)
        for number, halves_of_draw in zip(_numbers_of_all(game, numbers), halves, strict=True)
    ]
    in_second_half = draws.examples >= game.examples / 2
    tally = tally.add(np.stack(level_indices), is_measured, len(numbers), in_second_half)
    return replace(tally, screen=screen)
