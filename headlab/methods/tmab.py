"""Shapley values of heads by truncated multi-armed bandit sampling (Held & Yang 2023, section 3.2), screened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from headlab.core import FINE, Bools, Floats, HeadlabError, Ints
from headlab.methods.game import Ask, Game
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.sampling import (
    Plan,
    Tally,
    cycled_example,
    gone,
    placed,
    plan_of,
    reaching,
    uniforms,
)
from headlab.methods.screen import Scale, Screen, samples
from headlab.methods.work import Arrays, Outcome, Work, drive
from headlab.stats import Learned, learn

TOP50 = "shapley-top50"
FULL = "shapley"
ESTIMANDS = (TOP50, FULL)
# Rounds of draws requested at once while all heads are sampled; and the minimum number of parts of a cycle of
# examples, so that several devices can share it.
BATCH, PARTS = 4, 8
# Draws after which the probabilities are first chosen from the predictions so far; then at each doubling.
FIRST_LOOK = 64
# The smallest probability of computing a gain, in halvings: FAR without a target width, when only the error counts;
# NEAR with one, as the interval's width grows with the largest possible weight.
FAR, NEAR = 6, 2
# Minimum number of draws from which stakes are learned.
ENOUGH = 256


def is_full(estimand: str) -> bool:
    """Whether coalitions of all sizes count. Raises HeadlabError for an unknown estimand."""
    if estimand not in ESTIMANDS:
        raise HeadlabError(
            f"unknown estimand {estimand!r}; use {' or '.join(ESTIMANDS)}",
            code="method.estimand_unknown",
        )
    return estimand == FULL


def sizes(estimand: str, players: int) -> int:
    """How many numbers of removed heads count, starting at 0. Raises HeadlabError for an unknown estimand."""
    return players if is_full(estimand) else (players + 1) // 2


def most_halvings(plan: Plan) -> int:
    """Halvings of the smallest probability of computing a gain, 2 ** -halvings."""
    return FAR if plan.target is None else NEAR


def support_of(plan: Plan, steps: int, screened: bool) -> Floats:
    """The values that samples take. steps: of the game.  screened: gains are predicted; otherwise none is weighted."""
    return reaching(steps, 1 << most_halvings(plan) if screened else 1)


@dataclass(frozen=True)
class Screened(Tally):
    """A tally, the screen that chooses which gains are computed, and the samples from which stakes were learned.

    early: int [level, head], the counts of the first cycles, from which stakes are learned; all 0 before that.
    """

    screen: Screen
    early: Ints

    def arrays(self) -> Arrays:
        """What `restored` needs."""
        return {**super().arrays(), "early": self.early, **self.screen.arrays()}

    def of(self, heads: Bools) -> Screened:
        """The tally restricted to some heads; the screen is unchanged."""
        return replace(super().of(heads), early=self.early[:, heads])

    def learned(self) -> Screened:
        """The snapshot with stakes learned for later samples; done once, at the end of a cycle."""
        due = self.draws >= ENOUGH and not self.early.any()
        return replace(self, early=self.counts) if due else self

    def stakes(self) -> Learned | None:
        """Stakes learned from early samples, for the samples after them.

        They are tuned to the target half-width, or to the one expected after the plan's samples if that is wider.
        """
        if not self.early.any():
            return None
        width = np.maximum((self.plan.target or 0.0) / self.plan.span, self.reachable(self.early))
        return learn(self.support / self.reach, self.early, width / self.reach)


def begin(players: int, support: Floats, plan: Plan, bins: int) -> Screened:
    """An empty snapshot. bins: of the game's scale, 0 without one."""
    new = Tally.start(players, support, plan)
    return Screened(
        **vars(new), screen=Screen.start(bins, players), early=np.zeros_like(new.counts)
    )


def estimate(
    game: Game, plan: Plan, *, seed: int, estimand: str = TOP50, saved: Screened | None = None
) -> Iterator[Screened]:
    """Tallies that grow by a round each, until every head is satisfied or has all its samples.

    A sample of a head is its gain at one random coalition on one example.  A draw picks an example and removes a
    random number of heads, chosen at random; each head's gain is then measured by removing it or adding it back. One
    backward pass predicts these gains; uncertain ones are computed, each in a pass that branches at its head's layer,
    and the others with a probability, weighted by its inverse (see `headlab.methods.screen`).
    Examples come in balanced cycles; heads stop being sampled after whole cycles only, where the intervals are
    exactly anytime-valid, and values needed only for them are no longer computed. The probabilities are updated at
    fixed numbers of draws, so that nothing depends on the size of a round.
    """
    most, scale = sizes(estimand, game.players), game.scale
    bins = 0 if scale is None else scale.bins
    now = saved if saved is not None and saved.draws else None
    if now is None or len(now.screen.halvings) != bins:
        now = begin(game.players, support_of(plan, game.steps, scale is not None), plan, bins)
    while not now.finished:
        if scale is not None and _due(now.draws, game.examples):
            now = replace(now, screen=_chosen(now, scale, game.costs))
        for numbers, drawn, found in _stage(game, now, seed, most):
            now = _more(now, game, numbers, drawn, found, seed)
            if now.draws % game.examples == 0:
                now = now.looked_at().learned()
            yield now


def _due(draws: int, examples: int) -> bool:
    """Whether the probabilities are updated after this many draws: at whole cycles, and earlier in the first one."""
    early, rest = divmod(draws, FIRST_LOOK)
    return draws % examples == 0 or (draws < examples and rest == 0 and early.bit_count() == 1)


def _chosen(now: Screened, scale: Scale, costs: Floats) -> Screen:
    plan, most = now.plan, most_halvings(now.plan)
    slack = 0.0 if plan.target is None else now.reach * plan.target / plan.span / 2
    return now.screen.chosen(scale, costs, now.active, most, slack)


def _stage(
    game: Game, now: Screened, seed: int, most: int
) -> Iterator[tuple[range, Drawn, Floats]]:
    """The draws until the next update of the probabilities, in parts: (numbers, draws, the game's answers)."""
    end = now.draws + 1
    while end < now.plan.samples and not _due(end, game.examples):
        end += 1
    # As much work in each part as in the first, however few heads are still active; but enough parts for every device.
    size = BATCH * game.round * game.players // int(now.active.sum())
    size = max(game.round, min(size, game.examples // PARTS))
    parts = [range(at, min(at + size, end)) for at in range(now.draws, end, size)]
    drawn = [_drawn(game, now, numbers, seed, most) for numbers in parts]
    asks = (
        _ask(game, now, numbers, each, seed) for numbers, each in zip(parts, drawn, strict=True)
    )
    yield from zip(parts, drawn, game.answers(asks), strict=True)


class Drawn(NamedTuple):
    """Some draws: players present and players measured, bool [draw, player], and the examples, int [draw]."""

    kept: Bools
    wanted: Bools
    examples: Ints


def _drawn(game: Game, now: Screened, numbers: range, seed: int, most: int) -> Drawn:
    sides = zip(*(gone(seed, n, game.players, most) for n in numbers), strict=True)
    away, measured = (np.stack(side) for side in sides)
    examples = np.array([cycled_example(seed, n, game.examples, game.weights) for n in numbers])
    return Drawn(~away, measured & now.active, examples)


def _ask(game: Game, now: Screened, numbers: range, drawn: Drawn, seed: int) -> Ask:
    if now.screen.whole:
        return Ask("marginals", drawn._asdict())
    chance = np.stack([uniforms(seed, n, game.players) for n in numbers])
    return Ask("screened", {**drawn._asdict(), "halvings": now.screen.halvings, "uniforms": chance})


def _more(
    now: Screened, game: Game, numbers: range, drawn: Drawn, found: Floats, seed: int
) -> Screened:
    """The snapshot with the answers to some draws added."""
    wanted, screen, gains = drawn.wanted, now.screen, found
    if not screen.whole:
        bins = np.where(wanted, found[0], 0).astype(np.int64)
        _, foreseen, computed = np.where(wanted, found, 0)
        gains = samples(foreseen, computed, screen.halvings[bins, np.arange(game.players)])
        screen = screen.add(bins, wanted, foreseen, computed)
    places = np.stack(
        [placed(row, now.support, seed, n) for row, n in zip(gains, numbers, strict=True)]
    )
    return replace(
        now.add(places, wanted, len(numbers), drawn.examples >= game.examples / 2), screen=screen
    )


def run(work: Work) -> Outcome:
    """Sample until every head has a decided sign, the target half-width, or `samples` samples."""
    game = game_of(work)
    estimand = str(work.options["estimand"])
    saved = restore(work.saved or {}, work.options, game.players, game.steps)
    return drive(
        work, saved, estimate(game, saved.plan, seed=work.seed, estimand=estimand, saved=saved)
    )


def restore(saved: Arrays, options: Options, players: int, steps: int | None = None) -> Screened:
    """The snapshot stored in a checkpoint.

    steps: of the game; None infers them from the checkpoint.
    """
    return restored(saved, plan_of(options), players, (1, FINE) if steps is None else (steps,))


def restored(saved: Arrays, plan: Plan, players: int, steps: Sequence[int]) -> Screened:
    """The snapshot stored in arrays, for a game with one of these steps; an empty one if they do not fit."""
    supports = [
        support_of(plan, number, screened) for number in steps for screened in (True, False)
    ]
    new = begin(players, supports[0], plan, 0)
    if not {"counts", "early", "screen_halvings"} <= set(saved):
        return new
    counts, early, bins = saved["counts"], saved["early"], len(saved["screen_halvings"])
    support = next((support for support in supports if len(support) == len(counts)), supports[0])
    tally, screen = (
        Tally.restore(saved, players, support, plan),
        Screen.restore(saved, bins, players),
    )
    if screen is None or not tally.draws or early.shape != tally.counts.shape:
        return new
    return Screened(**vars(tally), screen=screen, early=early.astype(np.int64))
