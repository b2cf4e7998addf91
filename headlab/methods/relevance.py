"""Relevance: each head's share of the model's answer, by LRP (Voita et al. 2019, section 4)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from headlab.core import Bools, Floats, HeadlabError
from headlab.core.parallel import Tick
from headlab.evaluation import IGNORED, Batch, Evaluator
from headlab.hooks.relevance import relevance
from headlab.methods.work import Outcome, Work, sizes

ROWS = 32  # per batch: all layers' activations stay in memory until the last answer's backward pass


def answer_relevance(
    evaluator: Evaluator, batch: Batch, tick: Tick, *, attention_constant: bool = True
) -> Iterator[tuple[Bools, torch.Tensor]]:
    """Relevance of every head for the highest score of each answer, float64 [row, layer, head], in the score's unit.

    Yields the first answers of all rows, then the second, and so on, each with the rows that have one, bool [row].
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
        yield has.cpu().numpy(), heads.of(highest[has, number], again=number + 1 < most)[has]


def shares(found: torch.Tensor) -> torch.Tensor:
    """Absolute relevance of each head as a share of its layer's: [..., head] in any unit -> sums to 1, or all 0."""
    size = found.abs()
    total = size.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, size / total, 0)


def run(work: Work) -> Outcome:
    """Mean over the answers of each head's share of its layer's relevance, or of its absolute relevance in logits.

    Intervals cover the sampling of the examples.
    """
    evaluator, grid = work.evaluator, work.evaluator.model.grid
    constant = bool(work.options["attention_constant"])

    def part(lane: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, Floats]:
        total, answers = (
            np.zeros((len(batch.rows), grid.layers, grid.width)),
            np.zeros(len(batch.rows)),
        )
        for rows, found in answer_relevance(lane, batch, tick, attention_constant=constant):
            total[rows] += (
                (shares(found) if work.options["normalise"] else found.abs()).cpu().numpy()
            )
            answers[rows] += 1
        return total, answers

    most = 1.0 if work.options["normalise"] else np.inf
    return sizes(work, evaluator.batches(np.arange(len(evaluator.examples)), ROWS), part, most=most)
