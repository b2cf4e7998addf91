"""A curve under way: block by block of examples, point by point, kept as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from headlab.curves.compare import labels
from headlab.curves.settings import caution_of
from headlab.errors import HeadlabError
from headlab.evaluator import STATE_BYTES, Evaluator
from headlab.masks import Mask
from headlab.methods.drive import saving
from headlab.methods.work import Arrays
from headlab.progress import Progress
from headlab.records import Bools, Ints
from headlab.scores import Curve, kept_without
from headlab.stats import Bootstrap, group_bootstrap
from headlab.store import Run, pack_answers, unpack_answers

# Memory for the layer inputs of a block: on a GPU a step of less would be over before it is saved.
ROOM = {"cpu": STATE_BYTES, "cuda": 4 << 30}
Report = Callable[[Progress], None]


@dataclass
class Walk:
    """All points of one block of examples, then of the next.

    A block is small enough for the inputs of its layers to be kept, so that every point starts at the first
    layer that lost a head; kept for all examples at once they would not fit.  done: steps made, of one
    point on one block each.
    """

    evaluator: Evaluator
    spec: dict[str, Any]
    order: Ints
    run: Run | None
    done: int = 0
    seconds: float = 0.0
    correct: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.removed: list[int] = self.spec["removed"]
        self.ends = np.cumsum(self.evaluator.inputs.units)
        self.correct = np.zeros((len(self.removed), int(self.ends[-1])), dtype=bool)
        self.evaluator.state_bytes = ROOM.get(self.evaluator.model.device.type, STATE_BYTES)
        self._restore()

    @cached_property
    def blocks(self) -> list[slice]:
        """Examples that are walked together."""
        evaluator = self.evaluator
        if not evaluator.model.resumable or self.spec["ablation"] != "zero":
            return [slice(0, len(evaluator.examples))]
        a_token = _width(evaluator) * (evaluator.model.grid.layers + 1) * evaluator.model.module.dtype.itemsize
        room = evaluator.state_bytes // a_token
        edges, filled = [0], 0
        for at, length in enumerate(evaluator.lengths.tolist()):
            if filled + length > room and at > edges[-1]:
                edges.append(at)
                filled = 0
            filled += length
        return [slice(a, b) for a, b in zip(edges, [*edges[1:], len(evaluator.examples)], strict=True)]

    def go(self, report: Report, tick: Callable[[], None]) -> Curve:
        """Make the steps that are lacking."""
        before, started = self.seconds, time.perf_counter()
        report(self._progress(self._forwards))
        with saving(self.save) as saver:
            for number in range(self.done // len(self.removed), len(self.blocks)):
                part = self._part(self.blocks[number], report, tick)
                for point in range(self.done % len(self.removed), len(self.removed)):
                    self._measure(part, self.blocks[number], point)
                    self.done += 1
                    self.seconds = before + time.perf_counter() - started
                    saver.offer(partial(self._arrays, self.done, self.seconds))
                    report(self._progress(self._forwards))
        return self._curve()

    @property
    def _forwards(self) -> int:
        """Forwards that the steps made so far took."""
        number, point = divmod(self.done, len(self.removed))
        if number == len(self.blocks):
            return len(self.evaluator.examples) * len(self.removed)
        block = self.blocks[number]
        return int(block.start * len(self.removed) + point * (block.stop - block.start))

    def _part(self, block: slice, report: Report, tick: Callable[[], None]) -> Evaluator:
        """An evaluator of a block's examples, which counts forwards on from where the walk is."""
        whole = self.evaluator
        part = whole
        if len(self.blocks) > 1:
            task = replace(whole.task, read=lambda *_: whole.examples[block])
            part = Evaluator(
                whole.model, task, whole.language, whole.split, None, whole.batch_size, whole.state_bytes
            )  # fmt: skip
        part.forwards = self._forwards

        def between() -> None:
            report(self._progress(part.forwards))
            tick()

        part.tick = between
        return part

    def _measure(self, part: Evaluator, block: slice, point: int) -> None:
        model = part.model
        kept = kept_without(self.order[: self.removed[point]], model.grid.size)
        found = part.evaluate(Mask(model.grid, kept, model.identity()), ablation=self.spec["ablation"])
        end = int(self.ends[block.stop - 1])
        self.correct[point, end - found.n : end] = found.correct

    def _progress(self, forwards: int) -> Progress:
        points, blocks = len(self.removed), len(self.blocks)
        number, point = divmod(self.done, points)
        if number == blocks:
            number, point = blocks - 1, points
        note = f"{point} of {points} points" + (f" on block {number + 1} of {blocks}" if blocks > 1 else "")
        total = points * len(self.evaluator.examples)
        return Progress(min(forwards, total), total, note)

    def save(self, arrays: Arrays) -> None:
        """Keep what there is so far, where the walk is kept at all."""
        if self.run is not None:
            self.run.save(arrays)

    def _arrays(self, done: int, seconds: float) -> Arrays:
        return {
            "correct": pack_answers(self.correct),
            "blocks": np.array([block.stop for block in self.blocks]),
            "done": np.array(done),
            "seconds": np.array(seconds),
        }

    def _restore(self) -> None:
        saved = None if self.run is None else self.run.checkpoint()
        if self.run is None or saved is None:
            return
        try:
            self._go_on_from(saved)
        except (HeadlabError, KeyError, TypeError, ValueError) as error:
            self.run.log(f"checkpoint skipped: it does not fit this curve, which starts over ({error})")

    def _go_on_from(self, saved: Arrays) -> None:
        done, seconds = int(saved["done"]), float(saved["seconds"])
        if saved["blocks"].tolist() != [block.stop for block in self.blocks]:
            raise HeadlabError("other blocks of examples", code="checkpoint.other_blocks")
        if not 0 <= done <= len(self.blocks) * len(self.removed) or not np.isfinite(seconds):
            raise HeadlabError(f"{done} steps in {seconds} s", code="checkpoint.steps_invalid")
        self.correct = unpack_answers(saved["correct"], *self.correct.shape)
        self.done, self.seconds = done, seconds

    def _curve(self) -> Curve:
        evaluator, spec = self.evaluator, self.spec
        units = zip(evaluator.examples, evaluator.inputs.units.tolist(), strict=True)
        names = np.array([example.group or example.id for example, n in units for _ in range(n)])
        groups = np.unique(names, return_inverse=True)[1].astype(np.int64)
        low, high, p = _intervals(self.correct, groups, spec["seed"])
        return Curve(
            evaluator.model.grid, spec["task"]["language"], spec["task"]["split"], spec["order"]["method"],
            self.order, np.array(self.removed, np.int64), self.correct, groups, low, high, p,
            self._forwards, self.seconds, caution_of(spec), spec,
        )  # fmt: skip


def _width(evaluator: Evaluator) -> int:
    """Numbers that a token is between two layers."""
    config = evaluator.model.module.config.get_text_config()
    return int(getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or 1024)


def _intervals(correct: Bools, groups: Ints, seed: int) -> Bootstrap:
    """Of each point's difference to the untouched model, which is 0 by definition where no head is gone."""
    gain = correct.astype(np.float64) - correct[0]
    low, high, p = group_bootstrap(gain, labels(groups), np.random.default_rng(seed))
    low[0], high[0], p[0] = 0.0, 0.0, 1.0
    return Bootstrap(low, high, p)
