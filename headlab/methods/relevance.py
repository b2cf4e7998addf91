"""Relevance: each head's share of the model's answer, by LRP (Voita et al. 2019, section 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np
import torch

from headlab.encoding import IGNORED
from headlab.errors import HeadlabError
from headlab.evaluator import Batch, Evaluator
from headlab.hooks.relevance import relevance
from headlab.methods.run import Outcome, Work
from headlab.parallel import Tick, spread
from headlab.records import Floats, Progress

ROWS = 32  # per batch: all layers' activations stay in memory until the last answer's backward pass


def answer_relevance(
    evaluator: Evaluator, batch: Batch, tick: Tick, *, attention_constant: bool = True
) -> Iterator[torch.Tensor]:
    """Relevance of every head for the highest score of each answer, float64 [row, layer, head], in the score's unit.

    Yields the first answers of all rows, then the second, and so on; rows without further answers are left out.
    """
    if evaluator.examples[0].choices:
        raise HeadlabError(
            f"relevance explains one score of a model, and a choice of task {evaluator.task.name} has several; choose "
            "another method, like gradient",
            code="method.not_for_choices",
        )
    with relevance(evaluator.model, attention_constant=attention_constant) as heads:
        logits = evaluator.logits(batch.inputs)
    targets = evaluator.targets(batch.rows, logits)
    evaluator.require_finite(batch.rows, logits, targets)
    if targets.dim() == 1:
        targets, logits = targets[:, None], logits[:, None]
    asked = targets != IGNORED
    counts = asked.sum(dim=1)
    places = torch.argsort(~asked, dim=1, stable=True)
    with torch.enable_grad():
        highest = logits.max(dim=-1).values.gather(1, places)
    most = int(counts.max())
    for number in range(most):
        tick()
        has = counts > number
        yield heads.of(highest[has, number], again=number + 1 < most)[has]


def shares(found: torch.Tensor) -> torch.Tensor:
    """Absolute relevance of each head as a share of its layer's: [..., head] in any unit -> sums to 1, or all 0."""
    size = found.abs()
    total = size.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, size / total, 0)


def _part(evaluator: Evaluator, batch: Batch, tick: Tick, options: Mapping[str, Any]) -> tuple[Floats, int]:
    """A batch's sum over its answers, [layer, head], and the number of answers."""
    constant = bool(options["attention_constant"])
    total = torch.zeros(evaluator.model.grid.layers, evaluator.model.grid.width, dtype=torch.float64)
    answers = 0
    for found in answer_relevance(evaluator, batch, tick, attention_constant=constant):
        sizes = shares(found) if options["normalise"] else found.abs()
        total += sizes.sum(dim=0).cpu()
        answers += len(found)
    return total.numpy(), answers


def run(work: Work) -> Outcome:
    """Mean over the answers of each head's share of its layer's relevance, or of its absolute relevance in logits."""
    evaluator = work.evaluator
    grid, rows = evaluator.model.grid, np.arange(len(evaluator.examples))

    def look(batch: Batch, tick: Tick) -> tuple[Floats, int, int]:
        lane = copy(evaluator)
        lane.forwards = 0
        return *_part(lane, batch, tick, work.options), lane.forwards

    total, answers, seen = np.zeros((grid.layers, grid.width)), 0, 0
    batches = evaluator.batches(rows, ROWS)
    for batch, (part, count, forwards) in spread(batches, look, device=evaluator.model.device, tick=evaluator.tick):
        total, answers, seen = total + part, answers + count, seen + len(batch.rows)
        evaluator.forwards += forwards
        work.report(Progress(seen, len(rows), "examples"))
    layer, head = grid.flat.T
    return Outcome(total[layer, head] / answers, samples=np.full(grid.size, answers, dtype=np.int64))
