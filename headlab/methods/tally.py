"""All that a sampled estimate is made of: how often each head gained each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headlab.methods.work import Arrays, Outcome
from headlab.progress import Progress
from headlab.records import Bools, Floats, Ints
from headlab.stats import betting_interval, betting_p, sample_mean
from headlab.values import value_of

# Before anything is known, a mean square of gains as it was seen, with the weight of a few samples.
USUAL, FEW = 0.02, 8


@dataclass(frozen=True)
class Plan:
    """When to stop, and in what terms to answer.

    samples: of a head, at most.  target: half-width that is enough, in the value's unit; None samples to
    the end.  stop: "sign" lets a head go also when its sign is decided, "width" only when it is as
    narrow as asked.  span: of the value function.
    """

    samples: int
    target: float | None
    stop: str
    level: float
    span: float


def plan_of(options: Mapping[str, Any]) -> Plan:
    """The plan that a method's options ask for."""
    target = options["target"]
    return Plan(
        int(options["samples"]),
        None if target is None else float(target),
        str(options["stop"]),
        float(options["level"]),
        value_of(str(options["value"])).span,
    )


@dataclass(frozen=True)
class Tally:
    """A snapshot of a sampled estimate.

    counts: int [level, head], how often each head gained each of the evenly spaced values in [-1, 1].
    draws: samples so far.  active: bool [head], heads still sampled.  second: int [level, head], of counts
    those on the second half of the examples.
    """

    counts: Ints
    draws: int
    active: Bools
    plan: Plan
    second: Ints

    @classmethod
    def start(cls, players: int, levels: int, plan: Plan) -> Tally:
        """Nothing drawn yet."""
        none = np.zeros((levels, players), np.int64)
        return cls(none, 0, np.ones(players, bool), plan, none)

    @classmethod
    def restore(cls, saved: Arrays | None, players: int, levels: int, plan: Plan) -> Tally:
        """What an earlier run saved; nothing drawn yet if it saved nothing that fits."""
        new = cls.start(players, levels, plan)
        if saved is None or not {"counts", "draws", "active", "second"} <= set(saved):
            return new
        if any(saved[name].shape != getattr(new, name).shape for name in ("counts", "active", "second")):
            return new
        counts, second = (saved[name].astype(np.int64) for name in ("counts", "second"))
        return cls(counts, int(saved["draws"]), saved["active"].astype(bool), plan, second)

    def arrays(self) -> Arrays:
        """What `restore` needs."""
        return {
            "counts": self.counts, "draws": np.array(self.draws), "active": self.active, "second": self.second,
        }  # fmt: skip

    @property
    def support(self) -> Floats:
        """The values counted, [level]."""
        return np.linspace(-1.0, 1.0, len(self.counts))

    @property
    def finished(self) -> bool:
        """Whether no head needs more."""
        return self.draws >= self.plan.samples or not self.active.any()

    def add(self, sums: Ints, drawn: Bools, draws: int, second: Bools) -> Tally:
        """With a round more: sums int [sample, head] in levels from the middle one, where drawn.

        drawn: bool [sample, head], or [head] where it is the same in every sample.  second: bool [sample],
        whether it is of an example of the second half.
        """
        levels, players = self.counts.shape
        places = (sums + levels // 2) * players + np.arange(players)
        drawn = np.broadcast_to(drawn, sums.shape)

        def counted(rows: Bools) -> Ints:
            found = np.bincount(places[rows][drawn[rows]], minlength=levels * players)
            return np.asarray(found.reshape(levels, players), dtype=np.int64)

        late = counted(second)
        more = late + counted(~second)
        return replace(self, counts=self.counts + more, draws=self.draws + draws, second=self.second + late)

    def looked_at(self) -> Tally:
        """With the heads let go that need no more."""
        return replace(self, active=self.active & ~self.satisfied())

    def satisfied(self) -> Bools:
        """Heads with an interval as narrow as asked or, if the plan says so, a decided sign; bool [head]."""
        plan = self.plan
        if plan.target is None:
            return np.zeros(self.counts.shape[1], bool)
        low, high = betting_interval(self.support, self.counts, plan.level)
        narrow = (high - low) / 2 * plan.span <= plan.target
        return np.asarray(narrow | ((low > 0) | (high < 0)) if plan.stop == "sign" else narrow)

    def outcome(self) -> Outcome:
        """Values, anytime-valid intervals and p-values, in the value's unit."""
        span, level = self.plan.span, self.plan.level
        low, high = betting_interval(self.support, self.counts, level)
        mean = sample_mean(self.support, self.counts)
        p = betting_p(self.support, self.counts)
        return Outcome(
            mean * span, low * span, high * span, self.counts.sum(axis=0), p, level, self._halves()
        )  # fmt: skip

    def _halves(self) -> Floats | None:
        """Values from each half of the examples alone, [half, head]; None while a head has no draw of one."""
        parts = (self.counts - self.second, self.second)
        if any((part.sum(axis=0) == 0).any() for part in parts):
            return None
        return np.stack([sample_mean(self.support, part) for part in parts]) * self.plan.span

    def progress(self) -> Progress:
        """Samples drawn of those that will be needed, as far as can be seen from the gains so far."""
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
        """Samples after which each head's interval will be as narrow as asked, roughly; [head].

        L (2 v / w² + 1 / w) with v the mean square of the gains, w the half-width as a share of the span, and L
        the logarithm of the capital that refutes a mean, the price of the mixture included.
        """
        if self.plan.target is None:
            return np.full(self.counts.shape[1], float(self.plan.samples))
        done = self.counts.sum(axis=0)
        square = (self.support**2 @ self.counts + USUAL * FEW) / (done + FEW)
        width = self.plan.target / self.plan.span
        return np.asarray((np.log(2 / (1 - self.plan.level)) + 1) * (2 * square / width**2 + 1 / width))
