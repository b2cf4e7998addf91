"""Samples of heads' Shapley values by truncated multi-armed bandit sampling, screened.

The sampling is that of Held & Yang 2023, section 3.2. `headlab.methods.joined` makes values of the
samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headlab.core import FINE_STEPS, FINEST_STEPS, Bools, Floats, HeadlabError, Ints
from headlab.methods.game import Game, Query, donor_arguments
from headlab.methods.method import Options
from headlab.methods.planned_looks import PlannedLooks
from headlab.methods.sampling import (
    Draws,
    SamplingPlan,
    Tally,
    draws_of,
    level_indices_of,
    plan_of,
    uniforms,
    weighted_support,
)
from headlab.methods.screen import Scale, Screen, weighted_samples
from headlab.methods.table import AVERAGE_COST
from headlab.methods.work import Arrays
from headlab.results import ANYTIME, AVERAGE, PLANNED
from headlab.stats import (
    Interval,
    LearnedStakes,
    benjamini_hochberg,
    critical_values,
    guarded_variances,
    learn_stakes,
    made_up_gains,
    planned_interval,
    planned_p,
    samples_for_width,
)

TOP50 = "shapley-top50"
ALL_SIZES = "shapley"
ESTIMANDS = (TOP50, ALL_SIZES)
# Rounds of draws that are asked for at once while all heads are sampled.
ROUNDS_AT_ONCE = 4
# Minimum number of parts of a cycle of examples, so that several devices can share it.
MIN_PARTS = 8
# Draws after which the probabilities are first chosen from the predictions so far; then at each
# doubling.
FIRST_UPDATE = 64
# The smallest probability of computing a gain, in halvings, of a run without a target width, where
# only the error counts. With one it is larger: the interval's width grows with the largest weight.
MAX_HALVINGS = 6
MAX_HALVINGS_WITH_TARGET = {ANYTIME: 2, PLANNED: 3, AVERAGE: 3}
"""By the kind of interval: one that holds at every look pays more for large weights.

A planned one has these without a target too, as it takes means of samples to be normal.
"""
PLANNED_SURPLUS = 1.03
"""Samples planned, over those foreseen: the variance at the last look may be larger by then."""
# Minimum number of draws from which stakes are learned.
MIN_LEARNING_DRAWS = 256


def is_full(estimand: str) -> bool:
    """Whether coalitions of all sizes count.

    Raises:
        HeadlabError: The estimand is unknown.
    """
    if estimand not in ESTIMANDS:
        raise HeadlabError(
            f"unknown estimand {estimand!r}; use {' or '.join(ESTIMANDS)}",
            code="method.estimand_unknown",
        )
    return estimand == ALL_SIZES


def removal_sizes(estimand: str, players: int) -> int:
    """How many numbers of removed heads count, starting at 0.

    Raises:
        HeadlabError: The estimand is unknown.
    """
    if is_full(estimand):
        return players
    return (players + 1) // 2


def max_halvings(plan: SamplingPlan) -> int:
    """Halvings of the smallest probability of computing a gain, 2 ** -halvings."""
    has_end = plan.target is not None or plan.names is not None
    if not has_end and plan.interval != PLANNED:
        return MAX_HALVINGS
    return MAX_HALVINGS_WITH_TARGET[plan.interval]


def support_of(plan: SamplingPlan, steps: int, screened: bool) -> Floats:
    """The values that samples take, float [level].

    Args:
        plan: Of the run.
        steps: Number of levels of a gain of 1 in the game.
        screened: Whether gains are predicted; otherwise none is weighted.
    """
    largest_weight = 1 << max_halvings(plan) if screened else 1
    return weighted_support(steps, largest_weight)


@dataclass(frozen=True)
class ScreenedTally(Tally):
    """A tally with a screen, and with the samples from which stakes were learned.

    Attributes:
        screen: Chooses which gains are computed.
        early: Counts of the first cycles, from which stakes are learned, int [level, head]; all 0
            before that.
        looks: The planned looks so far, if the run's intervals are planned.
    """

    screen: Screen
    early: Ints
    looks: PlannedLooks

    def arrays(self) -> Arrays:
        """What `restore` needs."""
        arrays = {**super().arrays(), "early": self.early, **self.screen.arrays()}
        if self.is_planned:
            arrays |= self.looks.arrays()
        return arrays

    def of_heads(self, heads: Bools) -> ScreenedTally:
        """The tally restricted to some heads; the screen is unchanged."""
        return replace(
            super().of_heads(heads), early=self.early[:, heads], looks=self.looks.of_heads(heads)
        )

    @property
    def is_planned(self) -> bool:
        """Whether intervals hold at planned looks only."""
        return self.plan.interval == PLANNED

    def with_candidates(self, heads: Bools) -> ScreenedTally:
        """The tally before its first sample, of which only these heads are sampled.

        Args:
            heads: Chosen without a look at any sample, bool [head].
        """
        return replace(self, active=heads)

    def without_satisfied_heads(self) -> ScreenedTally:
        """The tally with satisfied heads no longer active.

        Where heads are to be named, one is satisfied once it is, and all are once enough are: a
        harmful head's interval may be narrow long before it is named beside others.
        """
        if self.plan.names is None:
            return super().without_satisfied_heads()
        named = self.named()
        if named.sum() >= self.plan.names:
            return replace(self, active=np.zeros_like(self.active))
        return replace(self, active=self.active & ~named)

    def done_words(self) -> str:
        """As of any tally; where heads are to be named, how many are, and of how many candidates."""
        if self.plan.names is None:
            return super().done_words()
        is_candidate = self.active | (self.counts.sum(axis=0) > 0)
        # Judged after whole cycles, which let go those that are named.
        is_named = self.named() if self.is_finished else is_candidate & ~self.active
        candidates = int(is_candidate.sum())
        return f"{int(is_named.sum())} of {self.plan.names} named, {candidates} candidates"

    def named(self) -> Bools:
        """The heads that are harmful among all that were sampled together, bool [head].

        By Benjamini and Hochberg's procedure, which is that of Wang and Ramdas for these p-values:
        of the heads that it ever names, a share of 1 - level is expected to be named falsely,
        whenever the run ends and however heads depend on each other.
        """
        is_candidate = self.active | (self.counts.sum(axis=0) > 0)
        p_values = np.where(self.mean(self.counts) < 0, self.p_values(), 1.0)
        named = np.zeros_like(self.active)
        named[is_candidate] = benjamini_hochberg(p_values[is_candidate]) <= 1 - self.plan.level
        return named

    def interval(self, counts: Ints | None = None) -> Interval:
        """Interval of each head's mean gain, as a share of the span.

        A planned one is that of the head's latest look once it is no longer sampled; before, it is
        provisional: what a look would give now.

        Args:
            counts: Counts that stand for the tally's own, int [level, head].
        """
        if not self.is_planned:
            return super().interval(counts)
        if counts is None:
            counts = self.counts
        return planned_interval(
            self.support, counts, self._shares_of_looks(), self.plan.level, self._made_up_gains()
        )

    def p_values(self) -> Floats:
        """Two-sided p-value of each head's "the mean is 0", [head]; as provisional as intervals."""
        if not self.is_planned:
            return super().p_values()
        return planned_p(self.support, self.counts, self._shares_of_looks(), self._made_up_gains())

    def samples_needed(self) -> Floats:
        """Approximate number of samples after which a head's interval reaches the target, [head].

        For planned intervals, the number of samples that is planned.
        """
        if self.plan.interval == AVERAGE:
            return self._samples_for_average()
        if not self.is_planned:
            return super().samples_needed()
        most = float(self.plan.samples)
        if self.plan.target is None:
            return np.full(self.counts.shape[1], most)
        variances = guarded_variances(self.support, self.counts, self._made_up_gains())
        share_of_last_look = np.where(self.looks.is_last, self.looks.share, 1 - self.looks.spent)
        width = self.plan.target / self.plan.span
        samples = samples_for_width(variances, width, share_of_last_look, self.plan.level)
        return np.asarray(np.minimum(PLANNED_SURPLUS * samples, most))

    def with_looks_due(self) -> ScreenedTally:
        """The tally once heads whose look is due have been looked at.

        Those that have had their last look, and those whose sign it has decided if the plan allows
        it, are no longer sampled. The end of the run is the last look at all others.
        """
        is_over = self.draws >= self.plan.samples
        if self.plan.target is None and not is_over:  # an earlier look would decide nothing
            return self
        samples = self.counts.sum(axis=0)
        samples_planned = self.samples_needed()
        if is_over:
            samples_planned = np.minimum(samples_planned, samples)
        is_due = self.active & self.looks.due(samples, samples_planned)
        gains = made_up_gains(self.support, self.counts)
        looked = replace(self, looks=self.looks.with_looks(samples, samples_planned, is_due, gains))
        is_done = looked.looks.is_last
        if self.plan.stop == "sign" and self.plan.target is not None:
            low, high = planned_interval(
                self.support, self.counts, looked.looks.share, self.plan.level, looked.looks.gain
            )
            is_done = is_done | (is_due & ((low > 0) | (high < 0)))
        return replace(looked, active=self.active & ~is_done)

    def _shares_of_looks(self) -> Floats:
        """Share of the chance of error that each head's interval may spend, float [head]."""
        share_now = self.looks.share_now(self.counts.sum(axis=0), self.samples_needed())
        return np.where(self.active & ~self.looks.is_last, share_now, self.looks.share)

    def _made_up_gains(self) -> Floats:
        """Size of each head's made-up gains: those of its last look if it is no longer sampled."""
        return np.where(
            self.active & ~self.looks.is_last,
            made_up_gains(self.support, self.counts),
            self.looks.gain,
        )

    def _samples_for_average(self) -> Floats:
        """Approximate number of samples after which average intervals reach the target, [head]."""
        if self.plan.target is None:
            return np.full(self.counts.shape[1], float(self.plan.samples))
        width = self.plan.target / self.plan.span
        reach = critical_values(np.ones(1), self.plan.level)[0] / width
        mean_square = float(self.mean_squares(self.counts).mean())
        return np.full(self.counts.shape[1], AVERAGE_COST * mean_square * reach**2)

    def learned(self) -> ScreenedTally:
        """The snapshot with stakes learned for later samples; done once, at the end of a cycle."""
        is_due = self.draws >= MIN_LEARNING_DRAWS and not self.early.any()
        if is_due:
            return replace(self, early=self.counts)
        return self

    def stakes(self) -> LearnedStakes | None:
        """Stakes learned from early samples, for the samples after them.

        They are tuned to the target half-width, or to the one expected after the plan's samples if
        that is wider.
        """
        if not self.early.any():
            return None
        target = (self.plan.target or 0.0) / self.plan.span
        width = np.maximum(target, self.reachable_width(self.early))
        return learn_stakes(self.support / self.reach, self.early, width / self.reach)


def empty_tally(players: int, support: Floats, plan: SamplingPlan, bins: int) -> ScreenedTally:
    """An empty snapshot.

    Args:
        players: Number of players.
        support: Values of samples, float [level].
        plan: Of the run.
        bins: Number of bins of the game's scale, 0 without one.
    """
    empty = Tally.start(players, support, plan)
    screen = Screen.start(bins, players)
    return ScreenedTally(
        **vars(empty),
        screen=screen,
        early=np.zeros_like(empty.counts),
        looks=PlannedLooks.start(players),
    )


def estimate(
    game: Game,
    plan: SamplingPlan,
    *,
    seed: int,
    estimand: str = TOP50,
    saved: ScreenedTally | None = None,
) -> Iterator[ScreenedTally]:
    """Tallies that grow by a round each, until every head is satisfied or has all its samples.

    A sample of a head is its gain at one random coalition on one example. A draw picks an example
    and removes a random number of heads, chosen at random; each head's gain is then measured by
    removing it or adding it back. One backward pass predicts these gains; uncertain ones are
    computed, each in a pass that branches at its head's layer, and the others with a probability,
    weighted by its inverse (see `headlab.methods.screen`).

    Examples come in balanced cycles; heads stop being sampled after whole cycles only, where the
    intervals are exactly anytime-valid, and values needed only for them are no longer computed. The
    probabilities are updated at fixed numbers of draws, so that nothing depends on the size of a
    round.

    Args:
        game: The game.
        plan: When to stop.
        seed: Seed of the draws.
        estimand: Which coalitions count.
        saved: The tally to go on from, if it fits.
    """
    tally = started_tally(game, plan, saved)
    while not tally.is_finished:
        for longer_tally in estimate_until_update(game, tally, seed=seed, estimand=estimand):
            tally = longer_tally
            yield tally


def started_tally(game: Game, plan: SamplingPlan, saved: ScreenedTally | None) -> ScreenedTally:
    """The tally to start from: the saved one if it fits the game, else an empty one."""
    scale = game.scale
    bins = 0 if scale is None else scale.bins
    if saved is None or not saved.draws or len(saved.screen.halvings) != bins:
        support = support_of(plan, game.steps, scale is not None)
        return empty_tally(game.players, support, plan, bins)
    return saved


def estimate_until_update(
    game: Game, tally: ScreenedTally, *, seed: int, estimand: str
) -> Iterator[ScreenedTally]:
    """Tallies that grow by a round each, until the probabilities are to be updated next.

    See `estimate`.

    Args:
        game: The game.
        tally: The tally to go on from, which is not finished.
        seed: Seed of the draws.
        estimand: Which coalitions count.
    """
    max_removed = removal_sizes(estimand, game.players)
    scale = game.scale
    if scale is not None and update_is_due(tally.draws, game.examples):
        tally = replace(tally, screen=_updated_screen(tally, scale, game.costs))
    for numbers, draws, answers in _draws_until_update(game, tally, seed, max_removed):
        tally = _with_answers(tally, game, numbers, draws, answers, seed)
        is_whole_cycle = tally.draws % game.examples == 0
        if tally.is_planned and (is_whole_cycle or tally.draws >= tally.plan.samples):
            tally = tally.with_looks_due()
        elif is_whole_cycle and tally.plan.interval == ANYTIME:
            tally = tally.without_satisfied_heads().learned()
        elif is_whole_cycle:
            tally = tally.learned()
        yield tally


def next_update(tally: ScreenedTally, examples: int) -> int:
    """After how many draws the probabilities are updated next, or the run ends.

    Args:
        tally: The tally so far.
        examples: Number of examples of the game.
    """
    draws = tally.draws + 1
    while draws < tally.plan.samples and not update_is_due(draws, examples):
        draws += 1
    return draws


def last_update(draws: int, examples: int) -> int:
    """After how many draws the probabilities were updated last, of so many draws.

    Args:
        draws: Number of draws so far.
        examples: Number of examples of the game.
    """
    while draws and not update_is_due(draws, examples):
        draws -= 1
    return draws


def update_is_due(draws: int, examples: int) -> bool:
    """Whether the probabilities are updated after so many draws.

    They are at whole cycles of the examples, and in the first cycle at each doubling.
    """
    if draws % examples == 0:
        return True
    if draws > examples:
        return False
    multiple, rest = divmod(draws, FIRST_UPDATE)
    return rest == 0 and multiple.bit_count() == 1


def _updated_screen(tally: ScreenedTally, scale: Scale, costs: Floats) -> Screen:
    """The tally's screen with the best probabilities by its gains so far."""
    plan = tally.plan
    slack = 0.0
    if plan.target is not None and plan.interval == ANYTIME:
        slack = tally.reach * plan.target / plan.span / 2
    return tally.screen.with_best_probabilities(
        scale, costs, tally.active, max_halvings(plan), slack
    )


def _draws_until_update(
    game: Game, tally: ScreenedTally, seed: int, max_removed: int
) -> Iterator[tuple[range, Draws, Floats]]:
    """The draws until the next update of the probabilities, in parts.

    Yields:
        Numbers of the draws, the draws, and the game's answers to them.
    """
    end = next_update(tally, game.examples)
    # As much work in each part as in the first, however few heads are still active; but enough
    # parts for every device.
    size = ROUNDS_AT_ONCE * game.round * game.players // int(tally.active.sum())
    size = max(game.round, min(size, game.examples // MIN_PARTS))
    parts = [range(start, min(start + size, end)) for start in range(tally.draws, end, size)]
    draws_by_part = []
    for numbers in parts:
        draws = draws_of(game, numbers, seed, max_removed)
        draws_by_part.append(draws._replace(wanted=draws.wanted & tally.active))
    asks = (
        _ask(game, tally, numbers, draws, seed)
        for numbers, draws in zip(parts, draws_by_part, strict=True)
    )
    yield from zip(parts, draws_by_part, game.answers(asks), strict=True)


def _ask(game: Game, tally: ScreenedTally, numbers: range, draws: Draws, seed: int) -> Query:
    """The query for the gains of some draws."""
    donors = donor_arguments(game, seed, numbers, draws.examples)
    if tally.screen.whole:
        return Query("marginals", {**draws._asdict(), **donors})
    chances = {
        "halvings": tally.screen.halvings,
        "uniforms": np.stack([uniforms(seed, number, game.players) for number in numbers]),
    }
    if game.scale is not None and game.scale.of_sizes:
        chances["largest"] = np.array(tally.screen.limit)
    return Query("screened", {**draws._asdict(), **donors, **chances})


def _with_answers(
    tally: ScreenedTally, game: Game, numbers: range, draws: Draws, answers: Floats, seed: int
) -> ScreenedTally:
    """The snapshot with the answers to some draws added."""
    is_measured = draws.wanted
    screen = tally.screen
    gains = answers
    if not screen.whole:
        bins = np.where(is_measured, answers[0], 0).astype(np.int64)
        _, foreseen, computed = np.where(is_measured, answers, 0)
        halvings = screen.halvings[bins, np.arange(game.players)]
        gains = weighted_samples(foreseen, computed, halvings)
        screen = screen.add(bins, is_measured, foreseen, computed)
    level_indices = []
    for number, gains_of_draw in zip(numbers, gains, strict=True):
        level_indices.append(level_indices_of(gains_of_draw, tally.support, seed, number))
    in_second_half = draws.examples >= game.examples / 2
    tally = tally.add(np.stack(level_indices), is_measured, len(numbers), in_second_half)
    return replace(tally, screen=screen)


def restore(
    saved: Arrays, options: Options, players: int, steps: int | None = None
) -> ScreenedTally:
    """The snapshot stored in a checkpoint.

    Args:
        saved: Arrays of the checkpoint.
        options: Of the method.
        players: Number of players.
        steps: Number of levels of a gain of 1 in the game; None infers it from the checkpoint.
    """
    possible_steps = (1, FINE_STEPS, FINEST_STEPS) if steps is None else (steps,)
    return tally_from(saved, plan_of(options), players, possible_steps)


def tally_from(
    saved: Arrays, plan: SamplingPlan, players: int, steps: Sequence[int]
) -> ScreenedTally:
    """The snapshot stored in arrays; an empty one if they do not fit.

    Args:
        saved: The arrays.
        plan: Of the run.
        players: Number of players.
        steps: Numbers of levels of a gain of 1 that the game may have; the arrays say which it is.
    """
    supports = []
    for levels in steps:
        supports.append(support_of(plan, levels, screened=True))
        supports.append(support_of(plan, levels, screened=False))
    empty = empty_tally(players, supports[0], plan, 0)
    if not {"counts", "early", "screen_halvings"} <= set(saved):
        return empty
    fitting_supports = [support for support in supports if len(support) == len(saved["counts"])]
    support = fitting_supports[0] if fitting_supports else supports[0]
    tally = Tally.restore(saved, players, support, plan)
    screen = Screen.restore(saved, len(saved["screen_halvings"]), players)
    looks: PlannedLooks | None = empty.looks
    if plan.interval == PLANNED:
        looks = PlannedLooks.restore(saved, players)
    early_counts = saved["early"]
    if screen is None or looks is None:
        return empty
    if not tally.draws or early_counts.shape != tally.counts.shape:
        return empty
    return ScreenedTally(
        **vars(tally), screen=screen, early=early_counts.astype(np.int64), looks=looks
    )
