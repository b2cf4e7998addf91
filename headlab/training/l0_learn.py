"""Gates learned at one λ or at several, loaded from the cache where they are (Voita et al. 2019); and their control."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator, accuracy_interval, compare
from headlab.hooks.model import Model
from headlab.inputs import Inputs, classes_of, read
from headlab.l0_gates import LearnedGates
from headlab.masks import Mask
from headlab.models.checkpoint import versions
from headlab.records import Bools, content_key
from headlab.store import FORMAT, GATES, Run, Store
from headlab.tasks.base import Example, Split, Task
from headlab.training.atomic_folder import checkpoint_beside
from headlab.training.l0_learner import (
    FOLDER,
    Learner,
    Say,
    Tick,
    check_place,
    found_again,
    trainable_copy,
    write_model,
)
from headlab.training.l0_options import VERSION, GateOptions, GateStep, learned_on
from headlab.training.output import took
from headlab.training.steps import CHECKPOINT_SHARE, Keep
from headlab.training.translation import checked, finish

# Examples that gates are learned and evaluated on, read and evaluated once for a whole sweep.

JUDGED: tuple[Split, ...] = ("dev", "test")
# Notes of stored results contain this text.
ALONG = "the mask is of the model that was trained along; it is compared with the untouched one"


@dataclass
class Given:
    """Examples of one language: those to learn on, from `split`, and those to evaluate masks on.

    Depends on every option but λ, so one instance serves a sweep.  notes: caveats about the choice of splits.
    """

    model: Model
    task: Task
    language: str
    options: GateOptions
    split: Split = field(init=False)
    examples: tuple[Example, ...] = field(init=False)
    judged: dict[Split, tuple[Example, ...]] = field(init=False, default_factory=dict)
    notes: tuple[str, ...] = field(init=False)
    _evaluators: dict[Split, Evaluator] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        notes = []
        self.split, self.examples = learned_on(self.task, self.language, self.options.split, self.options.size)
        if self.split == "dev":
            notes.append("the gates were learned on dev, so what is measured there flatters them; judge on test")
        for split, size in zip(JUDGED, (self.options.dev_size, self.options.test_size), strict=True):
            try:
                self.judged[split] = self.task.examples(self.language, split, size)
            except HeadlabError as error:  # a user's task may lack the split
                notes.append(f"not measured on {split}: {error}")
        if self.options.along:
            notes.append(ALONG)
        self.notes = tuple(notes)

    @cached_property
    def _inputs(self) -> Inputs:
        return read(self.model, self.task, self.examples, self.language)

    def inputs(self, other: Model | None = None) -> Inputs:
        """The examples to learn on, tokenised for this model, or for `other` if one is trained jointly."""
        return self._inputs if other is None else read(other, self.task, self.examples, self.language)

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return {"learned": self.task.data_hash(self.examples)} | {
            split: self.task.data_hash(examples) for split, examples in self.judged.items()
        }

    def spec(self, options: GateOptions) -> dict[str, Any]:
        """Everything that gates learned with these options depend on; its sha256 names the run."""
        task = self.task
        return {
            "format": FORMAT,
            "kind": GATES,
            "version": VERSION,
            "model": self.model.recorded(),
            "task": {
                "name": task.name, "language": self.language, "split": self.split, "size": len(self.examples),
                "seed": task.seed, "data_hash": self._hashes["learned"], **classes_of(self.model, task),
            },
            "judged": {s: {"size": len(e), "data_hash": self._hashes[s]} for s, e in self.judged.items()},
            "ablation": "zero",
            "options": options.record(),
            "seed": options.seed,
        }  # fmt: skip

    def measured(
        self, gates: LearnedGates, tick: Tick, other: Model | None = None
    ) -> tuple[dict[str, Mapping[str, Any]], int]:
        """Accuracy of the gates' mask by split, paired with the untouched model; and the example forwards that took.

        other: the jointly trained model that the mask belongs to, if any.  tick: called between batches.
        """
        out: dict[str, Mapping[str, Any]] = {}
        mask, undecided, forwards = gates.mask(), gates.undecided(), 0
        for split in self.judged:
            plain = self._evaluators.setdefault(split, self._evaluator(split, self.model))
            asked = plain if other is None else self._evaluator(split, other)
            plain.tick = asked.tick = tick
            before = plain.forwards
            whole, masked = plain.evaluate(), asked.evaluate(mask)
            forwards += plain.forwards - before + (asked.forwards if other is not None else 0)
            found, (low, high) = compare(whole, masked, self.options.seed), accuracy_interval(masked, self.options.seed)
            out[split] = {
                "n": found.n, "examples": len(asked.examples), "accuracy": found.accuracy, "accuracy_low": low,
                "accuracy_high": high, "baseline": found.baseline, "difference": found.difference,
                "low": found.low, "high": found.high, "p": found.p, "flipped_right": found.flipped_right,
                "flipped_wrong": found.flipped_wrong, "kept": int(mask.kept.sum()), "undecided": undecided,
            }  # fmt: skip
        return out, forwards

    def _evaluator(self, split: Split, model: Model) -> Evaluator:
        # one pass per mask, and no two masks are similar: no layer inputs worth caching
        return Evaluator(model, self.task, self.language, split, len(self.judged[split]), state_bytes=0)


CHECKPOINT_STEPS = 20
CHECKPOINT = "checkpoint.safetensors"


def silent(step: GateStep) -> None:
    """Report nothing."""


def no_tick() -> None:
    """Do nothing between passes."""


@dataclass(frozen=True)
class Watch:
    """Callbacks while gates are learned; each may raise to stop.

    say: after each step.  tick: between forward passes.  measuring: once at the end, before the mask is evaluated.
    checkpoint_every: steps between two checkpoints, more if writing them takes too long.
    """

    say: Say = silent
    tick: Tick = no_tick
    measuring: Tick = no_tick
    checkpoint_every: int = CHECKPOINT_STEPS
    checkpoint_share: float = CHECKPOINT_SHARE


def learn_gates(
    model: Model,
    task: Task,
    language: str,
    *,
    options: GateOptions | None = None,
    store: Store | None = None,
    out: Path | None = None,
    on_progress: Say = silent,
    tick: Tick = no_tick,
) -> LearnedGates:
    """Learn which heads of a model stay open, on a task in one language, and evaluate the resulting mask.

    The loss is the mean task loss (nats per answer) + λ·Σ P(gate ≠ 0): Voita et al. (2019), section 6.1.  store: where
    finished gates are looked up and stored, and interrupted runs resume; None stores nothing.  out: folder for the
    jointly trained model, copied there if the run is already finished; None: below the run's folder in the store.
    on_progress: called after each step.  tick: called between passes; either may raise to stop.  Deterministic for a
    given seed, thread count and processor.  Raises HeadlabError for arguments that do not fit.
    """
    chosen = options or GateOptions()
    chosen.check()
    watch = Watch(on_progress, tick)
    return learn(Given(model, task, language, chosen), chosen, store=store, out=out, watch=watch)


def sweep(
    model: Model,
    task: Task,
    language: str,
    weights: Sequence[float],
    *,
    options: GateOptions | None = None,
    store: Store | None = None,
    watch: Callable[[float], Watch] = lambda weight: Watch(),
) -> list[LearnedGates]:
    """Learn gates for several λ in turn, each as in `learn_gates`; the untouched model is evaluated once.

    watch: callbacks for the run of a given λ.  Raises HeadlabError if no λ is given, and as `learn_gates` does.
    """
    if not weights:
        raise HeadlabError("a sweep needs values of λ; give at least one weight", code="gate.weights_missing")
    runs = [replace(options or GateOptions(), weight=float(weight)) for weight in weights]
    for run in runs:
        run.check()
    given = Given(model, task, language, runs[0])
    return [learn(given, run, store=store, watch=watch(run.weight)) for run in runs]


def learn(
    given: Given, options: GateOptions, *, store: Store | None, out: Path | None = None, watch: Watch | None = None
) -> LearnedGates:
    """`learn_gates` on examples already read; `options` may differ from those of `given` in λ only."""
    has_gate = options.gated(given.model.grid)  # raises before anything is learned
    spec = given.spec(options)
    run = None if store is None else store.run(spec)
    done = None if run is None else run.result(LearnedGates)
    if done is not None:
        return found_again(done, out)
    place = out if run is None or out is not None else run.folder / FOLDER
    place = check_place(place) if options.along else None
    watch, device = watch or Watch(), given.model.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        trained = trainable_copy(given.model, options.embeddings == "frozen") if options.along else None
        learner = Learner(trained or given.model, given.inputs(trained), options, has_gate)
        if run is not None:
            run.open()
        learner.run(_keep(run, watch), watch.say, watch.tick)
    gates = _record(given, learner, spec, has_gate)
    if trained is not None and place is not None:
        identity = write_model(trained, given.model, place, {"gates": options.record(), "seed": options.seed})
        gates = replace(gates, trained=identity)
        trained.checkpoint = replace(trained.checkpoint, fingerprint=identity["fingerprint"])
    watch.measuring()
    began = time.perf_counter()
    measured, forwards = given.measured(gates, watch.tick, trained)
    seconds = gates.seconds + time.perf_counter() - began
    gates = replace(gates, measured=measured, example_forwards=gates.example_forwards + forwards, seconds=seconds)
    if run is not None:
        run.finish(gates, _made(learner))
    return gates


def _keep(run: Run | None, watch: Watch) -> Keep | None:
    if run is None:
        return None
    return Keep(run.folder / CHECKPOINT, run.key, watch.checkpoint_every, watch.checkpoint_share)


def _record(given: Given, learner: Learner, spec: dict[str, Any], has_gate: Bools) -> LearnedGates:
    """The learned gates, not yet measured."""
    times, log_alpha, loss, penalty = learner.history()
    wide = np.full((len(times), given.model.grid.size), np.nan, np.float32)
    wide[:, has_gate] = log_alpha
    options = learner.options
    return LearnedGates(
        given.model.grid, given.language, times, wide, loss, penalty, float(options.weight), learner.forwards,
        learner.state.seconds, options.concrete, {}, spec, {}, given.notes,
    )  # fmt: skip


def _made(learner: Learner) -> dict[str, Any]:
    """How the gates were computed; forecasts use step_seconds."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "device": learner.model.device.type,
        "step_seconds": learner.state.seconds / learner.options.steps,
        **({"rows_that_fitted": learner.state.rows} if learner.state.rows else {}),
    }


# The control for pruning: a model trained exactly as with gates, but without them.

# Options that concern only gates, of which there are none here.
UNUSED = ("weight", "gate_rate", "stacks", "start", "sample", "warmup", "history", "temperature", "low", "high",
          "dev_size", "test_size")  # fmt: skip


class Ungated(Learner):
    """Joint training's steps, batches, learning rates and loss, with each head on or off throughout."""

    def __init__(self, model: Model, inputs: Inputs, options: GateOptions, mask: Mask | None) -> None:
        super().__init__(model, inputs, options, np.zeros(model.grid.size, bool))
        kept = np.ones(model.grid.size, bool) if mask is None else mask.kept
        self._open = torch.as_tensor(model.grid.gates(kept), device=model.device, dtype=model.module.dtype)

    def gates(self, uniform: torch.Tensor) -> torch.Tensor:
        """1 or 0 for each head, [layer, head]; nothing is sampled."""
        return self._open


def train_on(
    model: Model,
    task: Task,
    language: str,
    *,
    out: Path,
    options: GateOptions,
    mask: Mask | None = None,
    progress: Say = lambda _: None,
) -> Path:
    """Train a copy of a model as `learn_gates` trains it jointly, but without gates, and write the folder `out`.

    mask: for the same layers and heads; its removed heads are off, and their output is 0 in the folder's weights.  An
    interrupted run resumes.  Raises HeadlabError for options, a mask or a path that do not fit.
    """
    options.check()
    if not options.along:
        raise HeadlabError(
            f"trained is {options.trained!r}, which leaves the model as it is; give trained='all'",
            code="training.trained_in_part",
        )
    check_place(out)
    checked(model, mask)
    split, examples = learned_on(task, language, options.split, options.size)
    told = {
        "kind": "trained on",
        "base": model.recorded(),
        "language": language,
        "options": {name: value for name, value in options.record().items() if name not in UNUSED},
        "seed": options.seed,
        "data": {"split": split, "examples": len(examples), "sha256": task.data_hash(examples)},
        "removed": [] if mask is None else [list(head) for head in mask.removed],
    }
    key = content_key(told)
    keep = Keep(checkpoint_beside(out, key), key, CHECKPOINT_STEPS)
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        trained = trainable_copy(model, options.embeddings == "frozen")
        learner = Ungated(trained, read(trained, task, examples, language), options, mask)
        learner.run(keep, progress)
    finish(trained, mask)
    write_model(
        trained, model, out, told | {"example_forwards": learner.forwards} | took(learner.state, model.device.type)
    )
    keep.path.unlink(missing_ok=True)
    return out
