"""What is compared: the model, its examples, and how long each part may take."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import headlab
from comparison import previous
from comparison.estimates import SmallRounds
from headlab.core import content_key
from headlab.evaluation import Evaluator
from headlab.methods import tmab
from headlab.methods.model_game import ModelGame
from headlab.methods.sampling import SamplingPlan, Tally, even_support
from headlab.methods.work import Arrays

SAVE_EVERY = 10.0
# Shares of the time; what is left is loading, warming up, and what the parts run over.
SHARES = {
    "costs": 0.03,
    "reference": 0.12,
    "race": 0.27,
    "guarantee": 0.27,
    "whole": 0.01,
    "others": 0.25,
}
# Of the time of another model or language, which is not held to a guarantee.
OTHER_SHARES = {"reference": 0.3, "race": 0.65}


@dataclass
class Setting:
    """One comparison.

    Attributes:
        size: Dev examples.
        target: Half-width to guarantee.
        rows: Coalitions or walks that a gain's cost is taken from.
        walks: Orders, and examples of each, from which the variance of orders is estimated.
        work: Folder of what later runs can take up.
        newer: An interpreter with shapiq's newest approximators.
    """

    language: str
    size: int
    minutes: float
    seeds: int
    target: float
    rows: int
    walks: tuple[int, int]
    work: Path
    model_name: str = "e5-small-intents"
    task_name: str = "intents"
    shares: Mapping[str, float] = field(default_factory=SHARES.copy)
    newer: Path | None = None

    def __post_init__(self) -> None:
        self.model = headlab.load(self.model_name)
        self.task = headlab.task(self.task_name)
        self.evaluator = Evaluator(self.model, self.task, self.language, "dev", self.size)
        self.game = ModelGame(self.evaluator)

    def seconds(self, part: str) -> float:
        """Time that a part may take."""
        return 60 * self.minutes * self.shares[part]

    @property
    def title(self) -> str:
        """Task and language."""
        return f"{self.task_name}, {self.language}"

    def small_rounds(self) -> SmallRounds:
        """The game, looked at often."""
        return SmallRounds(self.evaluator)

    def key(self, **more: object) -> str:
        """Name of what is kept: everything that its numbers and times depend on."""
        examples = self.evaluator.examples
        spec = {
            "model": self.model.fingerprint,
            "data": self.task.data_hash(examples),
            "headlab": headlab.__version__,
        }
        return content_key(
            {**spec, "threads": torch.get_num_threads(), "machine": platform.node(), **more}
        )


@dataclass(frozen=True)
class Long:
    """A long run of headlab's default method or of its first version, as far as it came, in one session or several."""

    tally: Tally
    seconds: float
    forwards: int

    @property
    def gains(self) -> int:
        """Samples of all heads together."""
        return int(self.tally.counts.sum())


def long_run(
    setting: Setting,
    plan: SamplingPlan,
    seed: int,
    estimand: str,
    seconds: float,
    *,
    former: bool = False,
) -> Long:
    """Sample until the plan is fulfilled or the time is up; a later call goes on from there.

    Args:
        former: By version 1.
    """
    options = {"target": plan.target, "stop": plan.stop, "samples": plan.samples}
    key = setting.key(estimand=estimand, seed=seed, version=1 if former else 3, **options)
    path = setting.work / f"{key}.npz"
    saved = dict(np.load(path)) if path.exists() else {}
    now, tallies = (_former if former else _ours)(setting, saved, plan, seed, estimand)
    start = Long(now, float(saved.get("seconds", 0)), int(saved.get("forwards", 0)))
    long = start
    until = time.perf_counter() + seconds
    kept = time.perf_counter()
    for long in _steps(setting, start, tallies):
        over = time.perf_counter() >= until or long.tally.finished
        if over or time.perf_counter() > kept + SAVE_EVERY:
            kept = time.perf_counter()
            _save(path, long)
            done = int((~long.tally.active).sum())
            print(
                f"  {long.tally.draws} samples, {done} of {len(long.tally.active)} heads done",
                flush=True,
            )
        if over:
            break
    return long


def _ours(
    setting: Setting, saved: Arrays, plan: SamplingPlan, seed: int, estimand: str
) -> tuple[Tally, Iterator[Tally]]:
    """Where a run stands, and how it goes on."""
    start = tmab.tally_from(saved, plan, setting.game.players, [setting.game.steps])
    return start, tmab.estimate(setting.game, plan, seed=seed, estimand=estimand, saved=start)


def _former(
    setting: Setting, saved: Arrays, plan: SamplingPlan, seed: int, estimand: str
) -> tuple[Tally, Iterator[Tally]]:
    """The same of the first version."""
    support = even_support(setting.game.steps * (1 + (estimand == tmab.ALL_SIZES)))
    start = Tally.restore(saved, setting.game.players, support, plan)
    return start, previous.estimate(setting.game, plan, seed=seed, estimand=estimand, saved=start)


def _steps(setting: Setting, now: Long, tallies: Iterator[Tally]) -> Iterator[Long]:
    evaluator = setting.evaluator
    before = evaluator.forwards
    started = time.perf_counter()
    for tally in tallies:
        yield Long(
            tally,
            now.seconds + time.perf_counter() - started,
            now.forwards + evaluator.forwards - before,
        )


def _save(path: Path, long: Long) -> None:
    new = path.with_suffix(".tmp.npz")
    arrays = {
        **long.tally.arrays(),
        "seconds": np.array(long.seconds),
        "forwards": np.array(long.forwards),
    }
    np.savez(new, **arrays)  # type: ignore[arg-type] # its other argument is one of them
    new.replace(path)
