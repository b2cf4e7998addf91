"""Building blocks of sampled estimates: draws and counts of gains.

Draws are functions of seed and number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from headlab.core import (
    FINE_STEPS,
    Bools,
    Floats,
    Ints,
    Progress,
    integer_in,
    number_in,
    optional_integer_in,
    value_function_of,
)
from headlab.methods.game import Game
from headlab.methods.method import Options
from headlab.methods.work import Arrays, Outcome
from headlab.results import ANYTIME
from headlab.stats import Interval, LearnedStakes, betting_interval, betting_p, sample_mean

# The randomness of a run: every draw is a function of (seed, number), so that a run can be resumed
# at any point.


def random_order(seed: int, number: int, players: int) -> Ints:
    """A random order of the players, int [player]."""
    return np.random.default_rng([seed, 1, number]).permutation(players)


def cycled_example(
    seed: int, draw_number: int, example_count: int, weights: Floats | None = None, stream: int = 0
) -> int:
    """The example of a draw under balanced cycling.

    Every cycle of draws is a fresh random order of all examples.

    Args:
        seed: Of the run.
        draw_number: Of the draw.
        example_count: Number of examples.
        weights: Share of the draws for each example, [example]; if given, draws are independent
            instead.
        stream: Different streams are independent of each other.
    """
    if weights is not None:
        return independent_example(seed, draw_number, example_count, weights, stream)
    cycle, index_in_cycle = divmod(draw_number, example_count)
    return int(_example_rng(seed, 2, cycle, stream).permutation(example_count)[index_in_cycle])


def independent_example(
    seed: int, draw_number: int, example_count: int, weights: Floats | None = None, stream: int = 0
) -> int:
    """The index of a draw's example, drawn independently of other draws.

    Args:
        seed: Of the run.
        draw_number: Of the draw.
        example_count: Number of examples.
        weights: Probability of each example, [example]; None for equal ones.
        stream: Different streams are independent of each other.
    """
    return int(_example_rng(seed, 6, draw_number, stream).choice(example_count, p=weights))


def _example_rng(seed: int, kind: int, number: int, stream: int) -> np.random.Generator:
    key = [seed, kind, number]
    if stream > 0:  # stream 0 adds nothing, so that draws of earlier versions stay the same
        key.append(stream)
    return np.random.default_rng(key)


def removed_and_measured(
    seed: int, number: int, players: int, max_removed: int
) -> tuple[Bools, Bools]:
    """Players removed in a draw, and players measured in it, both bool [player].

    The number of removed players is uniform on 0 ... max_removed. Each player's gain is measured by
    removing it or adding it back; but with `max_removed` removed, removing another would make the
    coalition too small, so present players are not measured. A measured player thus has a gain at a
    random coalition of the others, with a number of removed players that is uniform on
    0 ... max_removed - 1 (docs/statistics.md).
    """
    removed_count = int(np.random.default_rng([seed, 5, number]).integers(max_removed + 1))
    is_removed = np.zeros(players, bool)
    is_removed[random_order(seed, number, players)[:removed_count]] = True
    is_measured = np.ones(players, bool)
    if removed_count == max_removed:
        is_measured = is_removed
    return is_removed, is_measured


class Draws(NamedTuple):
    """Some draws. The fields are arguments of the game's queries.

    Attributes:
        kept: The players that are present, bool [draw, player].
        wanted: The players that are measured, bool [draw, player].
        examples: The example of each draw, int [draw].
    """

    kept: Bools
    wanted: Bools
    examples: Ints


def draws_of(game: Game, numbers: range, seed: int, max_removed: int) -> Draws:
    """The draws of these numbers; see `removed_and_measured` and `cycled_example`."""
    removed = []
    measured = []
    examples = []
    for number in numbers:
        is_removed, is_measured = removed_and_measured(seed, number, game.players, max_removed)
        removed.append(is_removed)
        measured.append(is_measured)
        examples.append(cycled_example(seed, number, game.examples, game.weights))
    return Draws(~np.stack(removed), np.stack(measured), np.array(examples))


def uniforms(seed: int, number: int, players: int) -> Floats:
    """A number in [0, 1) for each player, float [player].

    It decides whether the player's gain is computed in this draw.
    """
    return np.random.default_rng([seed, 8, number]).random(players)


def level_indices_of(values: Floats, support: Floats, seed: int, number: int) -> Ints:
    """Indices of values in a support, rounded at random to a neighbour.

    The mean is unchanged.

    A value that is in the support already is not changed.

    Args:
        values: Within the support, float [..., player].
        support: Ascending levels, float [level].
        seed: Of the run.
        number: Of the draw.

    Returns:
        int [..., player].
    """
    dither = np.random.default_rng([seed, 7, number]).random(values.shape)
    fractional_index = np.interp(values, support, np.arange(len(support)))
    fractional_index = np.round(fractional_index, 9)  # 0.1 + 0.2 is a multiple of 0.1 too
    return np.floor(fractional_index + np.minimum(dither, 1 - 1e-9)).astype(np.int64)


# The state of a sampled estimate: how often each head gained each value.

# Prior for the mean square of gains: the observed typical value, with the weight of a few samples.
USUAL_SQUARE = 0.02
PRIOR_SAMPLES = 8


@dataclass(frozen=True)
class SamplingPlan:
    """When to stop sampling, and the level and unit of the intervals.

    Attributes:
        samples: Maximum number of samples per head.
        target: Half-width to reach, in the value's unit; None draws all samples.
        stop: "sign" also stops sampling a head once its sign is decided, "width" only once it has
            the target width.
        level: Confidence level of the intervals.
        span: Of the value function.
        interval: Which intervals decide when a head is done, one of `headlab.results.INTERVALS`.
        names: Number of harmful heads after which the run ends; None names none.
    """

    samples: int
    target: float | None
    stop: str
    level: float
    span: float
    interval: str = ANYTIME
    names: int | None = None


def plan_of(options: Options) -> SamplingPlan:
    """The plan given by a method's options."""
    target = None if options["target"] is None else float(number_in(options, "target"))
    return SamplingPlan(
        samples=integer_in(options, "samples"),
        target=target,
        stop=str(options["stop"]),
        level=float(number_in(options, "level")),
        span=value_function_of(str(options["value"])).span,
        interval=str(options.get("interval", ANYTIME)),
        names=optional_integer_in({"names": None, **options}, "names"),
    )


LEVELS_A_DOUBLING = 16
"""Of a support whose levels are as far apart as gains are large."""


def even_support(steps: int) -> Floats:
    """Support of gains: the multiples of 1 / steps in [-1, 1]."""
    return np.arange(-steps, steps + 1) / steps


def weighted_support(steps: int, reach: int) -> Floats:
    """Support of weighted gains, ascending from -reach to reach, float [level].

    Up to 1 it is `even_support`. Each doubling above 1 has a quarter as many levels as there are
    from 0 to 1, and at least its upper end. With more than `FINE_STEPS` levels, only the first few
    are even; from there on each doubling has as many as the first few, so that rounding adds next
    to nothing to the variance of gains that are all small.

    Args:
        steps: Number of levels of a gain of 1; a power of two above `FINE_STEPS`.
        reach: The largest weight, a power of two.
    """
    if steps > FINE_STEPS:
        even_levels = np.arange(1, LEVELS_A_DOUBLING + 1) / steps
        doubling_count = int(np.log2(reach * steps / LEVELS_A_DOUBLING))
        factors = 2.0 ** np.arange(doubling_count)
        doubled = np.outer(factors, even_levels + even_levels[-1]).ravel()
        positive_levels = np.concatenate([even_levels, doubled])
        return np.concatenate([-positive_levels[::-1], [0.0], positive_levels])
    levels_up_to_1 = np.arange(1, steps + 1) / steps
    levels_a_doubling = max(1, steps // 4)
    levels_from_1_to_2 = 1 + np.arange(1, levels_a_doubling + 1) / levels_a_doubling
    doublings = 2.0 ** np.arange(int(reach).bit_length() - 1)
    levels_above_1 = np.outer(doublings, levels_from_1_to_2).ravel()
    positive_levels = np.concatenate([levels_up_to_1, levels_above_1])
    return np.concatenate([-positive_levels[::-1], [0.0], positive_levels])


@dataclass(frozen=True)
class Tally:
    """A snapshot of a sampled estimate.

    Attributes:
        counts: How often each head gained each value of the support, int [level, head].
        draws: Number of draws so far.
        active: The heads that are still sampled, bool [head].
        plan: When to stop.
        second: The part of `counts` from the second half of the examples, int [level, head].
        support: Values of samples, ascending and symmetric, float [level]. The last one is the
            largest possible sample, though the mean of a head's samples is in [-1, 1] in any case.
    """

    counts: Ints
    draws: int
    active: Bools
    plan: SamplingPlan
    second: Ints
    support: Floats

    @classmethod
    def start(cls, players: int, support: Floats, plan: SamplingPlan) -> Self:
        """Nothing drawn yet."""
        no_counts = np.zeros((len(support), players), np.int64)
        return cls(no_counts, 0, np.ones(players, bool), plan, no_counts, support)

    @classmethod
    def restore(
        cls, saved: Arrays | None, players: int, support: Floats, plan: SamplingPlan
    ) -> Self:
        """The snapshot that an earlier run saved; an empty one if it saved nothing that fits."""
        empty = cls.start(players, support, plan)
        if saved is None or not {"counts", "draws", "active", "second"} <= set(saved):
            return empty
        for name in ("counts", "active", "second"):
            if saved[name].shape != getattr(empty, name).shape:
                return empty
        return replace(
            empty,
            counts=saved["counts"].astype(np.int64),
            draws=int(saved["draws"]),
            active=saved["active"].astype(bool),
            second=saved["second"].astype(np.int64),
        )

    def arrays(self) -> Arrays:
        """What `restore` needs."""
        return {
            "counts": self.counts,
            "draws": np.array(self.draws),
            "active": self.active,
            "second": self.second,
        }

    @property
    def is_finished(self) -> bool:
        """Whether no head needs more samples."""
        return self.draws >= self.plan.samples or not self.active.any()

    def add(self, level_indices: Ints, is_drawn: Bools, draws: int, in_second_half: Bools) -> Self:
        """The tally with one more round of samples.

        Args:
            level_indices: Indices into the support, int [sample, head].
            is_drawn: Where a sample was drawn, bool [sample, head]; [head] if the same in every
                sample.
            draws: Number of draws.
            in_second_half: Whether the example of a sample is in the second half, bool [sample].
        """
        levels, players = self.counts.shape
        cells = level_indices * players + np.arange(players)
        is_drawn = np.broadcast_to(is_drawn, level_indices.shape)

        def counts_of_rows(rows: Bools) -> Ints:
            counts = np.bincount(cells[rows][is_drawn[rows]], minlength=levels * players)
            return np.asarray(counts.reshape(levels, players), dtype=np.int64)

        second_counts = counts_of_rows(in_second_half)
        new_counts = second_counts + counts_of_rows(~in_second_half)
        return replace(
            self,
            counts=self.counts + new_counts,
            draws=self.draws + draws,
            second=self.second + second_counts,
        )

    def without_satisfied_heads(self) -> Self:
        """The tally with satisfied heads no longer active."""
        active = self.active.copy()
        active[active] = ~self.of_heads(active).satisfied()
        return replace(self, active=active)

    def of_heads(self, heads: Bools) -> Self:
        """The tally restricted to some heads."""
        return replace(
            self,
            counts=self.counts[:, heads],
            second=self.second[:, heads],
            active=self.active[heads],
        )

    def satisfied(self) -> Bools:
        """Heads whose interval has the target width or, if the plan allows it, a decided sign.

        Returns:
            bool [head].
        """
        plan = self.plan
        if plan.target is None:
            return np.zeros(self.counts.shape[1], bool)
        low, high = self.interval()
        is_narrow = (high - low) / 2 * plan.span <= plan.target
        if plan.stop != "sign":
            return np.asarray(is_narrow)
        is_decided = (low > 0) | (high < 0)
        return np.asarray(is_narrow | is_decided)

    @property
    def reach(self) -> float:
        """The largest possible sample."""
        return float(self.support[-1])

    def stakes(self) -> LearnedStakes | None:
        """Stakes learned from early samples, for the samples after them.

        None if none were learned.
        """
        return None

    def interval(self, counts: Ints | None = None) -> Interval:
        """Anytime-valid interval of each head's mean gain, as a share of the span.

        The bets are on gains as shares of the reach; the interval is clipped to [-1, 1], where the
        mean must lie.

        Args:
            counts: Counts that stand for the tally's own, int [level, head].
        """
        if counts is None:
            counts = self.counts
        shares_of_reach = self.support / self.reach
        low, high = betting_interval(shares_of_reach, counts, self.plan.level, self.stakes())
        return Interval(np.maximum(low * self.reach, -1.0), np.minimum(high * self.reach, 1.0))

    def p_values(self) -> Floats:
        """Anytime-valid two-sided p-value of each head's "the mean is 0", [head]."""
        return betting_p(self.support / self.reach, self.counts, self.stakes())

    def outcome(self) -> Outcome:
        """Values, intervals and p-values, in the value's unit."""
        span = self.plan.span
        low, high = self.interval()
        return Outcome(
            values=self.mean(self.counts) * span,
            low=low * span,
            high=high * span,
            samples=self.counts.sum(axis=0),
            p_values=self.p_values(),
            level=self.plan.level,
            halves=self._halves(),
        )

    def mean(self, counts: Ints) -> Floats:
        """Mean gain by these counts, as a share of the span.

        It is clipped to [-1, 1], as weighted samples may exceed it.
        """
        return np.clip(sample_mean(self.support, counts), -1.0, 1.0)

    def _halves(self) -> Floats | None:
        """Values from each half of the examples alone, [half, head].

        They are None while a head has no draw from one half.
        """
        first = self.counts - self.second
        for counts in (first, self.second):
            if (counts.sum(axis=0) == 0).any():
                return None
        return np.stack([self.mean(first), self.mean(self.second)]) * self.plan.span

    def progress(self) -> Progress:
        """Samples drawn, out of the number that will be needed.

        The number is estimated from the gains so far.
        """
        samples_done = self.counts.sum(axis=0)
        note = "; ".join(filter(None, ("samples", self.done_words())))
        done = int(samples_done.sum())
        if self.is_finished:
            return Progress(done, done, note)
        samples_needed = np.minimum(self.samples_needed(), self.plan.samples)
        samples_of_active = np.maximum(samples_needed, samples_done + 1)
        total = np.where(self.active, samples_of_active, samples_done).sum()
        return Progress(done, int(total), note)

    def done_words(self) -> str:
        """How many heads are done, in a clause; empty where nothing ends the sampling of one."""
        if self.plan.target is None:
            return ""
        heads = len(self.active)
        return f"{heads - int(self.active.sum())} of {heads} heads done"

    def samples_needed(self) -> Floats:
        """Approximate number of samples after which a head's interval reaches the target, [head].

        All that are planned where no width ends a run: without a target, or with names. It is L (2 v / w² + r / w) with v the mean square of the gains, w the half-width as a share
        of the span, r the reach, and L the logarithm of the capital that rejects a mean, plus 1
        while no stakes are learned.
        """
        if self.plan.target is None or self.plan.names is not None:
            return np.full(self.counts.shape[1], float(self.plan.samples))
        width = self.plan.target / self.plan.span
        log_capital = self._log_capital + (self.stakes() is None)
        mean_square = self.mean_squares(self.counts)
        return np.asarray(log_capital * (2 * mean_square / width**2 + self.reach / width))

    def reachable_width(self, counts: Ints) -> Floats:
        """Approximate half-width after all the plan's samples, as a share of the span, [head].

        It is the width at which `needed`, with learned stakes, equals the plan's samples.

        Args:
            counts: Counts by which it is foreseen, int [level, head].
        """
        samples = self.plan.samples
        linear = self._log_capital * self.reach
        root = np.sqrt(linear**2 + 8 * samples * self._log_capital * self.mean_squares(counts))
        return np.asarray((linear + root) / (2 * samples))

    @property
    def _log_capital(self) -> float:
        """Logarithm of the capital that rejects a mean."""
        return float(np.log(2 / (1 - self.plan.level)))

    def mean_squares(self, counts: Ints) -> Floats:
        """Mean square of the gains by these counts, shrunk to its prior, [head]."""
        squares = self.support**2 @ counts + USUAL_SQUARE * PRIOR_SAMPLES
        return np.asarray(squares / (counts.sum(axis=0) + PRIOR_SAMPLES))
