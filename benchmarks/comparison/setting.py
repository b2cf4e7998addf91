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
METHOD_VERSION = 3
"""Of the samples of headlab's default method, which later versions join with slopes."""
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
        language: Of the examples.
        size: Number of dev examples.
        minutes: For all parts together.
        seeds: Runs of each estimator.
        target: Half-width to guarantee.
        rows: Coalitions or walks that a gain's cost is taken from.
        walks: Orders, and examples of each, from which the variance of orders is estimated.
        work: Folder of runs that a later session can continue.
        model_name: Of the model.
        task_name: Of the task.
        shares: Of the time, by part.
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
        """The game in small rounds, so that the clock is looked at often."""
        return SmallRounds(self.evaluator)

    def reference_key(self, seed: int) -> str:
        """Name of a long run's values, of everything that they depend on: not of the machine."""
        method = {"estimand": tmab.ALL_SIZES, "version": METHOD_VERSION}
        return content_key({**self._contents(), **method, "seed": seed})

    def key(self, **run_settings: object) -> str:
        """Name of a run that is kept, of everything that its numbers and times depend on."""
        machine = {"threads": torch.get_num_threads(), "machine": platform.node()}
        return content_key({**self._contents(), **machine, **run_settings})

    def _contents(self) -> dict[str, str]:
        """What is compared: the model, the examples and headlab's version."""
        return {
            "model": self.model.fingerprint,
            "data": self.task.data_hash(self.evaluator.examples),
            "headlab": headlab.__version__,
        }


@dataclass(frozen=True)
class LongRun:
    """A long run of headlab's default method or of its first version, as far as it came.

    Attributes:
        tally: What was sampled.
        seconds: Of all sessions together.
        forwards: Example-forwards of all sessions together.
    """

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
) -> LongRun:
    """Sample until the plan is fulfilled or the time is up; a later call continues from there.

    Args:
        setting: The model and its examples.
        plan: When sampling ends.
        seed: Of the run.
        estimand: `ALL_SIZES` or `TOP50`.
        seconds: That this call may take.
        former: Whether version 1 samples.
    """
    options = {"target": plan.target, "stop": plan.stop, "samples": plan.samples}
    key = setting.key(
        estimand=estimand, seed=seed, version=1 if former else METHOD_VERSION, **options
    )
    path = setting.work / f"{key}.npz"
    stored_arrays = dict(np.load(path)) if path.exists() else {}
    start_run = _former if former else _ours
    tally, tallies = start_run(setting, stored_arrays, plan, seed, estimand)
    start = LongRun(
        tally, float(stored_arrays.get("seconds", 0)), int(stored_arrays.get("forwards", 0))
    )
    progress = start
    deadline = time.perf_counter() + seconds
    saved_at = time.perf_counter()
    for progress in _steps(setting, start, tallies):
        is_last = time.perf_counter() >= deadline or progress.tally.is_finished
        if is_last or time.perf_counter() > saved_at + SAVE_EVERY:
            saved_at = time.perf_counter()
            _save(path, progress)
            heads_done = int((~progress.tally.active).sum())
            heads = f"{heads_done} of {len(progress.tally.active)} heads done"
            print(f"  {progress.tally.draws} samples, {heads}", flush=True)
        if is_last:
            break
    return progress


def _ours(
    setting: Setting, stored_arrays: Arrays, plan: SamplingPlan, seed: int, estimand: str
) -> tuple[Tally, Iterator[Tally]]:
    """Where a run stands, and how it goes on."""
    start = tmab.tally_from(stored_arrays, plan, setting.game.players, [setting.game.steps])
    return start, tmab.estimate(setting.game, plan, seed=seed, estimand=estimand, saved=start)


def _former(
    setting: Setting, stored_arrays: Arrays, plan: SamplingPlan, seed: int, estimand: str
) -> tuple[Tally, Iterator[Tally]]:
    """The same for the first version."""
    support = even_support(setting.game.steps * (1 + (estimand == tmab.ALL_SIZES)))
    start = Tally.restore(stored_arrays, setting.game.players, support, plan)
    return start, previous.estimate(setting.game, plan, seed=seed, estimand=estimand, saved=start)


def _steps(setting: Setting, earlier: LongRun, tallies: Iterator[Tally]) -> Iterator[LongRun]:
    evaluator = setting.evaluator
    forwards_before = evaluator.forwards
    start = time.perf_counter()
    for tally in tallies:
        yield LongRun(
            tally,
            earlier.seconds + time.perf_counter() - start,
            earlier.forwards + evaluator.forwards - forwards_before,
        )


def _save(path: Path, progress: LongRun) -> None:
    temporary = path.with_suffix(".tmp.npz")
    arrays = {
        **progress.tally.arrays(),
        "seconds": np.array(progress.seconds),
        "forwards": np.array(progress.forwards),
    }
    np.savez(temporary, **arrays)  # type: ignore[arg-type] # its other argument is one of them
    temporary.replace(path)
