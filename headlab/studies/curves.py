"""Pruning curves: accuracy as heads are removed one after another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Integral
from types import NoneType

import numpy as np

from headlab.core import (
    Bools,
    HeadlabError,
    Ints,
    Json,
    MethodSpec,
    Progress,
    RunSpec,
    is_same_model,
    require_seed,
    require_type,
    shown_progress,
)
from headlab.evaluation import STATE_BYTES, Dataset, Evaluator, width_of
from headlab.hooks import MODEL_WORDS, Model
from headlab.masks import Mask, removal_order
from headlab.methods import (
    METHODS,
    RANDOM_METHOD,
    Arrays,
    make_spec,
    renewal_of,
    renewed_in,
    saves_of,
    spec_of,
)
from headlab.models import origin_now
from headlab.results import (
    Curve,
    HeadScores,
    Store,
    StoredRun,
    group_labels,
    kept_heads_without,
    pack_answers,
    removed_counts,
    unpack_answers,
)
from headlab.stats import group_bootstrap
from headlab.tasks import Split, Task, equal_texts_record, only_language

# What a curve depends on: the order in which heads are removed, and the examples it is measured on.


def check_scores(scores: HeadScores, model: Model) -> None:
    """Raise HeadlabError unless the scores are of this model and can order its heads."""
    if scores.grid != model.grid:
        raise HeadlabError(
            f"the scores are of a model with {scores.grid}; {model.name} has {model.grid}. Score "
            "this model first",
            code="score.other_grid",
        )
    made_for = spec_of(scores, "model", "fingerprint")
    if not is_same_model(made_for, model.fingerprint):
        name = scores.spec.model.name or "a model that they do not name"
        raise HeadlabError(
            f"the scores are of {name} (fingerprint {str(made_for)[:12]}); {model.name} has "
            f"{model.fingerprint[:12]}. The shapes agree, but heads of one model say nothing "
            "about those of another. Score this model first",
            code="score.other_model",
        )
    if not np.isfinite(scores.values).all():
        raise HeadlabError(
            f"the {scores.method} scores hold a value that is not a number; score the model again",
            code="score.not_finite",
        )


def curve_spec(
    dataset: Dataset,
    scores: HeadScores,
    *,
    points: int | None = None,
    ablation: str = "zero",
    seed: int = 0,
) -> RunSpec:
    """Spec of a curve: everything it depends on; its key names the run."""
    base = make_spec(dataset, METHODS[RANDOM_METHOD], {}, seed, ablation)
    order: dict[str, Json] = {
        "method": scores.method,
        "options": spec_of(scores, "method", "options"),
        "estimand": scores.estimand,
        "task": spec_of(scores, "task", "name"),
        "language": scores.language,
        "split": spec_of(scores, "task", "split"),
        "ablation": spec_of(scores, "ablation"),
        "seed": spec_of(scores, "seed"),
        "values_sha256": scores.values_sha256(),
        "run": scores.spec.key,
    }
    version = renewed_in(scores.method, order["options"])
    if version > 1 and not renewal_of(scores.spec):
        order["version"] = version
    counts = tuple(removed_counts(scores.grid.size, points))
    return replace(base, method=MethodSpec(), kind="curve", order=order, removed=counts)


def caution_of(spec: RunSpec) -> str:
    """Caveats about a curve of this spec, or empty."""
    order = spec.order or {}
    task = spec.task
    notes = list[str]()
    if order["method"] != RANDOM_METHOD:
        if order["split"] is None:
            notes.append(
                "the scores do not say which examples they were made on; if on these, the curve "
                "gives an optimistic estimate"
            )
        elif (order["split"], order["task"]) == (task.split, task.name):
            notes.append(
                f"the heads were ordered on the {task.split} split too, so the curve gives an "
                "optimistic estimate; judge on another split"
            )
        if order["ablation"] not in (None, spec.ablation):
            notes.append(
                f"the scores are of {order['ablation']} ablation, the curve is of {spec.ablation}"
            )
    return "; ".join(notes)


# A curve being measured: block by block of examples, point by point, with checkpoints.

# Bytes for the layer inputs of a block: on a GPU, a smaller step would take less time than saving
# it.
BLOCK_BYTES = {"cpu": STATE_BYTES, "cuda": 4 << 30}
Report = Callable[[Progress], None]
Tick = Callable[[], None]


@dataclass
class Walk:
    """Measures all points on one block of examples, then on the next.

    A block is small enough to cache its layer inputs, so that every point starts at the first layer
    that lost a head; those of all examples would not fit in memory.

    Attributes:
        evaluator: Of all examples.
        spec: Of the curve.
        order: Heads in removal order, int [head].
        run: Where checkpoints are saved; None saves none.
        done: Steps finished; a step is one point on one block.
        seconds: That they took.
        correct: Whether each answer is right, bool [point, answer].
    """

    evaluator: Evaluator
    spec: RunSpec
    order: Ints
    run: StoredRun | None
    done: int = 0
    seconds: float = 0.0
    correct: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.removed = self.spec.removed or ()
        self.ends = np.cumsum(self.evaluator.inputs.units)
        self.correct = np.zeros((len(self.removed), int(self.ends[-1])), dtype=bool)
        self.evaluator.state_bytes = BLOCK_BYTES.get(self.evaluator.model.device.type, STATE_BYTES)
        self._restore()

    @cached_property
    def blocks(self) -> list[slice]:
        """Slices of the examples that are measured together."""
        evaluator = self.evaluator
        if not evaluator.model.resumable or self.spec.ablation != "zero":
            return [slice(0, len(evaluator.examples))]
        bytes_a_token = (
            width_of(evaluator.model)
            * (evaluator.model.depth + 1)
            * evaluator.model.module.dtype.itemsize
        )
        max_tokens = evaluator.state_bytes // bytes_a_token
        starts = [0]
        tokens_in_block = 0
        for index, length in enumerate(evaluator.lengths.tolist()):
            if tokens_in_block + length > max_tokens and index > starts[-1]:
                starts.append(index)
                tokens_in_block = 0
            tokens_in_block += length
        return [
            slice(start, stop)
            for start, stop in zip(starts, [*starts[1:], len(evaluator.examples)], strict=True)
        ]

    def go(self, report: Report, tick: Tick, look: Callable[[Walk], None] | None = None) -> Curve:
        """Run the remaining steps and return the curve.

        Args:
            report: Called with the progress, between batches too.
            tick: Called between batches.
            look: Called with the walk before the first step and after each one.
        """
        look = look or (lambda _walk: None)
        seconds_before = self.seconds
        start = time.perf_counter()
        look(self)
        report(self._progress(self._forwards))
        with saves_of(self.save) as saver:
            for number in range(self.done // len(self.removed), len(self.blocks)):
                block_evaluator = self._block_evaluator(self.blocks[number], report, tick)
                for point in range(self.done % len(self.removed), len(self.removed)):
                    self._measure(block_evaluator, self.blocks[number], point)
                    self.done += 1
                    self.seconds = seconds_before + time.perf_counter() - start
                    saver.offer(partial(self._arrays, self.done, self.seconds))
                    report(self._progress(self._forwards))
                    look(self)
        return self._curve()

    @property
    def answered(self) -> Ints:
        """How many answers each point has so far, from the first on, int [point]."""
        block, points_in_block = divmod(self.done, len(self.removed))
        ends = [0, *(int(self.ends[block.stop - 1]) for block in self.blocks)]
        answered = np.full(len(self.removed), ends[block], dtype=np.int64)
        if points_in_block:
            answered[:points_in_block] = ends[block + 1]
        return answered

    @property
    def _forwards(self) -> int:
        """Forward passes that the steps so far took."""
        number, point = divmod(self.done, len(self.removed))
        if number == len(self.blocks):
            return len(self.evaluator.examples) * len(self.removed)
        block = self.blocks[number]
        return int(block.start * len(self.removed) + point * (block.stop - block.start))

    def _block_evaluator(self, block: slice, report: Report, tick: Tick) -> Evaluator:
        """An evaluator of a block's examples.

        Its count of forward passes continues that of the walk.
        """
        evaluator = self.evaluator
        block_evaluator = evaluator
        if len(self.blocks) > 1:
            task = replace(evaluator.task, read=lambda *_: evaluator.examples[block])
            block_evaluator = Evaluator(
                evaluator.model,
                task,
                evaluator.language,
                evaluator.split,
                None,
                evaluator.batch_size,
                evaluator.state_bytes,
            )
        block_evaluator.forwards = self._forwards

        def between_batches() -> None:
            report(self._progress(block_evaluator.forwards))
            tick()

        block_evaluator.tick = between_batches
        return block_evaluator

    def _measure(self, block_evaluator: Evaluator, block: slice, point: int) -> None:
        model = block_evaluator.model
        kept_heads = kept_heads_without(self.order[: self.removed[point]], model.grid.size)
        evaluation = block_evaluator.evaluate(
            Mask(model.grid, kept_heads, model.identity()), ablation=self.spec.ablation
        )
        end = int(self.ends[block.stop - 1])
        self.correct[point, end - evaluation.n : end] = evaluation.correct

    def _progress(self, forwards: int) -> Progress:
        """How far the walk is, after so many forward passes."""
        points = len(self.removed)
        blocks = len(self.blocks)
        block, point = divmod(self.done, points)
        if block == blocks:  # all is done: the last block has all its points
            block -= 1
            point = points
        note = f"{point} of {points} points"
        if blocks > 1:
            note += f" on block {block + 1} of {blocks}"
        total = points * len(self.evaluator.examples)
        return Progress(min(forwards, total), total, note)

    def save(self, arrays: Arrays) -> None:
        """Save a checkpoint, if the walk has a run to save it in."""
        if self.run is not None:
            self.run.save(arrays)

    def _arrays(self, steps_done: int, seconds: float) -> Arrays:
        return {
            "correct": pack_answers(self.correct),
            "blocks": np.array([block.stop for block in self.blocks]),
            "done": np.array(steps_done),
            "seconds": np.array(seconds),
        }

    def _restore(self) -> None:
        arrays = None if self.run is None else self.run.checkpoint()
        if self.run is None or arrays is None:
            return
        try:
            self._go_on_from(arrays)
        except (HeadlabError, KeyError, TypeError, ValueError) as error:
            self.run.log(
                f"checkpoint skipped: it does not fit this curve, which starts over ({error})"
            )

    def _go_on_from(self, arrays: Arrays) -> None:
        steps_done = int(arrays["done"])
        seconds = float(arrays["seconds"])
        if arrays["blocks"].tolist() != [block.stop for block in self.blocks]:
            raise HeadlabError("other blocks of examples", code="checkpoint.other_blocks")
        if not 0 <= steps_done <= len(self.blocks) * len(self.removed) or not np.isfinite(seconds):
            raise HeadlabError(
                f"{steps_done} steps in {seconds} s", code="checkpoint.steps_invalid"
            )
        self.correct = unpack_answers(arrays["correct"], *self.correct.shape)
        self.done = steps_done
        self.seconds = seconds

    def _curve(self) -> Curve:
        evaluator = self.evaluator
        spec = self.spec
        units = zip(evaluator.examples, evaluator.inputs.units.tolist(), strict=True)
        names = np.array([example.cluster for example, n in units for _ in range(n)])
        groups = np.unique(names, return_inverse=True)[1].astype(np.int64)
        gain = self.correct.astype(np.float64) - self.correct[0]
        low, high, p = group_bootstrap(gain, group_labels(groups), np.random.default_rng(spec.seed))
        # by definition, where no head is removed
        low[0] = 0.0
        high[0] = 0.0
        p[0] = 1.0
        return Curve(
            evaluator.model.grid,
            spec.task.language,
            spec.task.split,
            str((spec.order or {})["method"]),
            self.order,
            np.array(self.removed, np.int64),
            self.correct,
            groups,
            low,
            high,
            p,
            self._forwards,
            self.seconds,
            caution_of(spec),
            spec,
            evaluator.omissions,
        )


# `headlab.prune_curve`: looked up in the store, or measured and stored.


def prune_curve(
    model: Model,
    task: Task,
    *,
    language: str | None = None,
    scores: HeadScores,
    split: Split = "test",
    size: int | None = None,
    points: int | None = None,
    ablation: str = "zero",
    store: Store | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    progress: bool | None = None,
    tick: Callable[[], None] | None = None,
    seed: int = 0,
) -> Curve:
    """Accuracy as heads are removed, lowest score first, from the whole model down to none.

    Args:
        model: The model.
        task: The task.
        language: Of the examples; None for the task's only one.
        scores: Used to order the heads; of equal ones the last in the grid is removed first, as in
            `masks.removal_order`.
        split: Of the examples.
        size: Examples of the split; None for all.
        points: How many counts of removed heads to measure, evenly spaced and including none and
            all; None for every count.
        ablation: What stands in a removed head's place.
        store: Where a finished curve is looked up and stored, and where an interrupted one resumes
            after its last complete point; None stores nothing.
        on_progress: Called between batches, counted in forward passes; may raise to stop.
        progress: Whether a bar shows the progress; None for one in a notebook and on a terminal,
            unless `on_progress` is given.
        tick: Called between batches; may raise to stop.
        seed: Of the bootstrap.

    Raises:
        HeadlabError: The scores are of another model, or another argument is invalid.
    """
    require_type("model", model, Model, MODEL_WORDS)
    require_type("scores", scores, HeadScores, "what headlab.score returns")
    check_scores(scores, model)
    require_type("points", points, (Integral, NoneType), "a whole number, or None for every count")
    require_type("store", store, (Store, NoneType), "headlab.results.store.Store of a folder")
    seed = require_seed(seed)
    evaluator = Evaluator(model, task, only_language(task, language), split, size)
    spec = curve_spec(evaluator.dataset, scores, points=points, ablation=ablation, seed=seed)
    order = removal_order(scores.values)
    with shown_progress(f"curve, {evaluator.language}", progress, on_progress) as report:
        return measured_curve(evaluator, spec, order, store, report, tick or (lambda: None))


def measured_curve(
    evaluator: Evaluator,
    spec: RunSpec,
    order: Ints,
    store: Store | None,
    report: Report,
    tick: Tick,
    look: Callable[[Walk], None] | None = None,
) -> Curve:
    """The curve of a spec along an order of removal.

    It is read from the store, or measured and stored; `report`, `tick` and `look` are those of
    `Walk.go`.
    """
    curve_run = None if store is None else store.run(spec)
    if store is not None:
        store.note_places(spec, evaluator.model, evaluator.task)
    stored_curve = None if curve_run is None else curve_run.result(Curve)
    if stored_curve is not None:
        # older results do not hold their omissions
        return replace(stored_curve.record, omissions=evaluator.omissions)
    curve = Walk(evaluator, spec, order, curve_run).go(report, tick, look)
    if curve_run is not None:
        curve_run.finish(
            curve,
            origin_now(evaluator.model.device.type) | equal_texts_record(evaluator.equal_texts),
        )
    return curve
