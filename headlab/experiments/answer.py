"""All answers of a split under one mask after the other, batches side by side on a thread each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from functools import cached_property

import numpy as np
import torch

from headlab.evaluator import Batch, Evaluator
from headlab.gates import Active, as_gates
from headlab.inputs import IGNORED
from headlab.lanes import Tick, one_thread, spread
from headlab.masks import Mask
from headlab.methods.batches import token_budget
from headlab.records import Evaluation, Ints
from headlab.store import named


class Answers:
    """The examples of an evaluator, cut into batches once, to be answered under many masks.

    Masks of a few heads each seldom leave the first layers alone, so nothing is kept from one to the next; a batch
    has as many tokens as suit the device, and a thread of its own, so that no answer depends on how many cores there
    are.  `evaluator.tick` is called meanwhile, and `evaluator.forwards` counts.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        units = evaluator.inputs.units
        self._ends, self._units = np.cumsum(units), units
        self.ids, self.groups = named(evaluator.examples, units)

    @cached_property
    def batches(self) -> list[Batch]:
        """All examples, cut once."""
        return list(cut(self.evaluator, np.arange(len(self.evaluator.examples))))

    def under(self, mask: Mask, ablation: str) -> Evaluation:
        """Answers to all examples. Raises HeadlabError for another model's mask."""
        evaluator = self.evaluator
        mask.check(evaluator.model.grid, evaluator.model.fingerprint)
        predicted = np.full(len(self.ids), -1, dtype=np.int64)
        for rows, found in answered(evaluator, self.batches, mask, ablation):
            places = [np.arange(end - n, end) for end, n in zip(self._ends[rows], self._units[rows], strict=True)]
            predicted[np.concatenate(places)] = found
        return Evaluation(
            evaluator.language, predicted == evaluator.inputs.answers, predicted, self.ids, self.groups, len(self.ids)
        )


def cut(evaluator: Evaluator, rows: Ints) -> Iterator[Batch]:
    """Batches of the given examples, sorted by length, with no more tokens than suit the device, padding included."""
    budget, part = token_budget(evaluator.model), list[int]()
    for row in rows[np.argsort(evaluator.lengths[rows], kind="stable")].tolist():
        if part and (len(part) + 1) * int(evaluator.lengths[row]) > budget:
            yield Batch(np.array(part), evaluator.tensors(np.array(part)))
            part = []
        part.append(row)
    if part:
        yield Batch(np.array(part), evaluator.tensors(np.array(part)))


def answered(evaluator: Evaluator, batches: Iterable[Batch], mask: Mask, ablation: str) -> Iterator[tuple[Ints, Ints]]:
    """Rows of each batch with the model's answers to them: int [row] and [answer], row by row."""
    model = evaluator.model
    gates = as_gates(model, model.grid.gates(mask.kept))
    with one_thread(model.device):
        fill = evaluator.fill(ablation)

    def one(batch: Batch, tick: Tick) -> tuple[Ints, int]:
        tick()
        lane = copy(evaluator)
        lane.forwards = 0
        with torch.inference_mode(), model.active(Active(gates=gates, fill=fill)):
            found = lane.logits(batch.inputs).argmax(dim=-1)
        wanted = found[evaluator.inputs.targets(batch.rows) != IGNORED]
        return np.asarray(wanted.cpu().numpy(), dtype=np.int64), lane.forwards

    for batch, (found, forwards) in spread(batches, one, device=model.device, tick=evaluator.tick):
        evaluator.forwards += forwards
        yield batch.rows, found
