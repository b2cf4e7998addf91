"""Building blocks of sampled estimates: draws that are functions of seed and number, and counts of gains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from headlab.core import Bools, Floats, Ints, Progress, integer_in, number_in, value_of
from headlab.methods.method import Options
from headlab.methods.work import Arrays, Outcome
from headlab.stats import Interval, Learned, betting_interval, betting_p, sample_mean

# The randomness of a run: every draw is a function of (seed, number), so that a run can be resumed at any point.


def order(seed: int, number: int, players: int) -> Ints:
    """A random order of the players, int [player]."""
    return np.random.default_rng([seed, 1, number]).permutation(players)


def cycled_example(
    seed: int, number: int, examples: int, weights: Floats | None = None, stream: int = 0
) -> int:
    """The example of a draw under balanced cycling: every cycle of draws is a fresh random order of all examples.

    weights: share of the draws for each example, [example]; if given, draws are independent instead.
    stream: different streams are independent of each other.
    """
    if weights is not None:
        return free_example(seed, number, examples, weights, stream)
    cycle, place = divmod(number, examples)
    return int(_example_rng(seed, 2, cycle, stream).permutation(examples)[place])


def free_example(
    seed: int, number: int, examples: int, weights: Floats | None = None, stream: int = 0
) -> int:
    """One example at random, independent of earlier draws; weights, if given, are the probabilities."""
    return int(_example_rng(seed, 6, number, stream).choice(examples, p=weights))


def _example_rng(seed: int, kind: int, number: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([seed, kind, number] + [stream] * (stream > 0))


def gone(seed: int, number: int, players: int, most: int) -> tuple[Bools, Bools]:
    """Players removed in a draw, and players measured in it, both bool [player].

    The number of removed players is uniform on 0 ... most. Each player's gain is measured by removing it or adding it
    back; but with `most` removed, removing another would make the coalition too small, so present players are not
    measured. A measured player thus has a gain at a random coalition of the others, with a number of removed
    players that is uniform on 0 ... most - 1 (docs/statistics.md).
    """
    count = int(np.random.default_rng([seed, 5, number]).integers(most + 1))
    away = np.zeros(players, bool)
    away[order(seed, number, players)[:count]] = True
    return away, away if count == most else np.ones(players, bool)


def uniforms(seed: int, number: int, players: int) -> Floats:
    """A number in [0, 1) for each player, float [player], which decides whether its gain is computed in this draw."""
    return np.random.default_rng([seed, 8, number]).random(players)


def placed(values: Floats, support: Floats, seed: int, number: int) -> Ints:
    """Indices of values in a support, rounded at random to a neighbour so that the mean is unchanged.

    values: float [..., player], within the support.  support: float [level], ascending.  Returns int [..., player],
    indices into the support. A value that is in the support already is not changed.
    """
    dither = np.random.default_rng([seed, 7, number]).random(values.shape)
    between = np.round(
        np.interp(values, support, np.arange(len(support))), 9
    )  # 0.1 + 0.2 is a multiple of 0.1 too
    return np.floor(between + np.minimum(dither, 1 - 1e-9)).astype(np.int64)


# The state of a sampled estimate: how often each head gained each value.

# Prior for the mean square of gains: the observed typical value, with the weight of a few samples.
USUAL, FEW = 0.02, 8


@dataclass(frozen=True)
class Plan:
    """When to stop sampling, and the level and unit of the answer.

    samples: maximum per head.  target: half-width to reach, in the value's unit; None draws all
    samples.  stop: "sign" also stops sampling a head once its sign is decided, "width" only once it has the
    target width.  span: of the value function.
    """

    samples: int
    target: float | None
    stop: str
    level: float
    span: float


def plan_of(options: Options) -> Plan:
    """The plan given by a method's options."""
    return Plan(
        integer_in(options, "samples"),
        None if options["target"] is None else float(number_in(options, "target")),
        str(options["stop"]),
        float(number_in(options, "level")),
        value_of(str(options["value"])).span,
    )


def even(steps: int) -> Floats:
    """Support of gains: the multiples of 1 / steps in [-1, 1]."""
    return np.arange(-steps, steps + 1) / steps


def reaching(steps: int, reach: int) -> Floats:
    """Support of gains with weights up to `reach`, a power of two: as `even` up to 1, then ever coarser.

    Each doubling above 1 has a quarter as many levels as there are from 0 to 1, and at least one, its upper end.
    """
    doublings = 2.0 ** np.arange(int(reach).bit_length() - 1)
    parts = 1 + np.arange(1, max(1, steps // 4) + 1) / max(1, steps // 4)
    above = np.concatenate([np.arange(1, steps + 1) / steps, np.outer(doublings, parts).ravel()])
    return np.concatenate([-above[::-1], [0.0], above])


@dataclass(frozen=True)
class Tally:
    """A snapshot of a sampled estimate.

    counts: int [level, head], how often each head gained each value of the support.  draws: samples so far.
    active: bool [head], heads still sampled.  second: int [level, head], the part of counts from the second half of
    the examples.  support: float [level], ascending and symmetric; its last value is the largest possible sample,
    though the mean of a head's samples is in [-1, 1] in any case.
    """

    counts: Ints
    draws: int
    active: Bools
    plan: Plan
    second: Ints
    support: Floats

    @classmethod
    def start(cls, players: int, support: Floats, plan: Plan) -> Self:
        """Nothing drawn yet."""
        none = np.zeros((len(support), players), np.int64)
        return cls(none, 0, np.ones(players, bool), plan, none, support)

    @classmethod
    def restore(cls, saved: Arrays | None, players: int, support: Floats, plan: Plan) -> Self:
        """The snapshot an earlier run saved; an empty one if it saved nothing that fits."""
        new = cls.start(players, support, plan)
        if saved is None or not {"counts", "draws", "active", "second"} <= set(saved):
            return new
        if any(
            saved[name].shape != getattr(new, name).shape for name in ("counts", "active", "second")
        ):
            return new
        counts, second = (saved[name].astype(np.int64) for name in ("counts", "second"))
        return replace(
            new,
            counts=counts,
            draws=int(saved["draws"]),
            active=saved["active"].astype(bool),
            second=second,
        )

    def arrays(self) -> Arrays:
        """What `restore` needs."""
        return {
            "counts": self.counts, "draws": np.array(self.draws), "active": self.active, "second": self.second,
        }  # fmt: skip

    @property
    def finished(self) -> bool:
        """Whether no head needs more samples."""
        return self.draws >= self.plan.samples or not self.active.any()

    def add(self, places: Ints, drawn: Bools, draws: int, second: Bools) -> Self:
        """The tally with one more round of samples.

        places: int [sample, head], indices into the support.  drawn: bool [sample, head], where a sample was drawn;
        [head] if the same in every sample.  second: bool [sample], whether its example is in the second half.
        """
        levels, players = self.counts.shape
        cells = places * players + np.arange(players)
        drawn = np.broadcast_to(drawn, places.shape)

        def counted(rows: Bools) -> Ints:
            found = np.bincount(cells[rows][drawn[rows]], minlength=levels * players)
            return np.asarray(found.reshape(levels, players), dtype=np.int64)

        late = counted(second)
        more = late + counted(~second)
        return replace(
            self, counts=self.counts + more, draws=self.draws + draws, second=self.second + late
        )

    def looked_at(self) -> Self:
        """The tally with satisfied heads no longer active."""
        active = self.active.copy()
        active[active] = ~self.of(active).satisfied()
        return replace(self, active=active)

    def of(self, heads: Bools) -> Self:
        """The tally restricted to some heads."""
        return replace(
            self,
            counts=self.counts[:, heads],
            second=self.second[:, heads],
            active=self.active[heads],
        )

    def satisfied(self) -> Bools:
        """Heads whose interval has the target width or, if the plan allows it, a decided sign; bool [head]."""
        plan = self.plan
        if plan.target is None:
            return np.zeros(self.counts.shape[1], bool)
        low, high = self.interval()
        narrow = (high - low) / 2 * plan.span <= plan.target
        return np.asarray(narrow | ((low > 0) | (high < 0)) if plan.stop == "sign" else narrow)

    @property
    def reach(self) -> float:
        """The largest possible sample."""
        return float(self.support[-1])

    def stakes(self) -> Learned | None:
        """Stakes learned from early samples, for the samples after them; None if none were learned."""
        return None

    def interval(self, counts: Ints | None = None) -> Interval:
        """Anytime-valid interval of each head's mean gain, as a share of the span; from other counts, if given.

        The bets are on gains as shares of the reach; the interval is clipped to [-1, 1], where the mean must lie.
        """
        counts = self.counts if counts is None else counts
        low, high = betting_interval(
            self.support / self.reach, counts, self.plan.level, self.stakes()
        )
        return Interval(np.maximum(low * self.reach, -1.0), np.minimum(high * self.reach, 1.0))

    def outcome(self) -> Outcome:
        """Values, anytime-valid intervals and p-values, in the value's unit."""
        span, level = self.plan.span, self.plan.level
        low, high = self.interval()
        mean = self.mean(self.counts)
        p = betting_p(self.support / self.reach, self.counts, self.stakes())
        return Outcome(
            mean * span, low * span, high * span, self.counts.sum(axis=0), p, level, self._halves()
        )  # fmt: skip

    def mean(self, counts: Ints) -> Floats:
        """Mean gain by these counts, as a share of the span; clipped to [-1, 1], as weighted samples may exceed it."""
        return np.clip(sample_mean(self.support, counts), -1.0, 1.0)

    def _halves(self) -> Floats | None:
        """Values from each half of the examples alone, [half, head]; None while a head has no draw from one half."""
        parts = (self.counts - self.second, self.second)
        if any((part.sum(axis=0) == 0).any() for part in parts):
            return None
        return np.stack([self.mean(part) for part in parts]) * self.plan.span

    def progress(self) -> Progress:
        """Samples drawn, out of the number that will be needed as estimated from the gains so far."""
        done = self.counts.sum(axis=0)
        heads = len(self.active)
        note = "samples"
        if self.plan.target is not None:
            note += f"; {heads - int(self.active.sum())} of {heads} heads done"
        if self.finished:
            return Progress(int(done.sum()), int(done.sum()), note)
        need = np.minimum(self.needed(), self.plan.samples)
        total = np.where(self.active, np.maximum(need, done + 1), done).sum()
        return Progress(int(done.sum()), int(total), note)

    def needed(self) -> Floats:
        """Approximate number of samples after which each head's interval reaches the target width; [head].

        L (2 v / w² + r / w) with v the mean square of the gains, w the half-width as a share of the span, r the
        reach, and L the logarithm of the capital that rejects a mean, plus 1 while no stakes are learned.
        """
        if self.plan.target is None:
            return np.full(self.counts.shape[1], float(self.plan.samples))
        width = self.plan.target / self.plan.span
        capital = self._capital + (self.stakes() is None)
        return np.asarray(capital * (2 * self._square(self.counts) / width**2 + self.reach / width))

    def reachable(self, counts: Ints) -> Floats:
        """Approximate half-width, as a share of the span, after all the plan's samples, by these counts; [head].

        The width at which `needed`, with learned stakes, equals the plan's samples.
        """
        draws, linear = self.plan.samples, self._capital * self.reach
        root = np.sqrt(linear**2 + 8 * draws * self._capital * self._square(counts))
        return np.asarray((linear + root) / (2 * draws))

    @property
    def _capital(self) -> float:
        return float(np.log(2 / (1 - self.plan.level)))

    def _square(self, counts: Ints) -> Floats:
        return np.asarray((self.support**2 @ counts + USUAL * FEW) / (counts.sum(axis=0) + FEW))
