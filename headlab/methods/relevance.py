"""Relevance: each head's share of the model's answer, by LRP (Voita et al. 2019, section 4)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from headlab.core import Bools, Floats, HeadlabError, Tick
from headlab.evaluation import NO_TARGET, Batch, Evaluator
from headlab.hooks.relevance import relevance
from headlab.methods.work import Outcome, Work, mean_outcome

# Of a batch, as all layers' activations stay in memory until the last answer's backward pass.
MAX_ROWS = 32


def answer_relevance(
    evaluator: Evaluator, batch: Batch, tick: Tick, *, attention_constant: bool = True
) -> Iterator[tuple[Bools, torch.Tensor]]:
    """Relevance of every head for the highest score of each answer, in the score's unit.

    Args:
        evaluator: Of the batch.
        batch: The examples.
        tick: Called before every answer.
        attention_constant: Whether attention weights are treated as constants.

    Yields:
        For the first answers of all rows, then for the second, and so on: the rows that have one,
        bool [row], and the heads' relevance in these rows, float64 [row with answer, layer, head].

    Raises:
        HeadlabError: The task has choices.
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
        targets = targets[:, None]
        logits = logits[:, None]
    is_answer = targets != NO_TARGET
    answer_counts = is_answer.sum(dim=1)
    answer_positions = torch.argsort(~is_answer, dim=1, stable=True)
    with torch.enable_grad():
        highest = logits.max(dim=-1).values.gather(1, answer_positions)
    max_answers = int(answer_counts.max())
    for answer_number in range(max_answers):
        tick()
        has_answer = answer_counts > answer_number
        is_last = answer_number + 1 == max_answers
        relevance_of_rows = heads.relevance_for(
            highest[has_answer, answer_number], keep_graph=not is_last
        )
        yield has_answer.cpu().numpy(), relevance_of_rows[has_answer]


def layer_shares(head_relevance: torch.Tensor) -> torch.Tensor:
    """Absolute relevance of each head as a share of its layer's, float [..., head].

    The shares of a layer sum to 1, or are all 0.

    Args:
        head_relevance: In any unit, float [..., head].
    """
    magnitude = head_relevance.abs()
    total = magnitude.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, magnitude / total, 0)


def run(work: Work) -> Outcome:
    """Mean over the answers of each head's relevance.

    Relevance is a share of its layer's, or a size in logits.

    Intervals cover the sampling of the examples.
    """
    evaluator = work.evaluator
    grid = evaluator.model.grid
    attention_constant = bool(work.options["attention_constant"])
    normalise = bool(work.options["normalise"])

    def batch_sums(lane: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, Floats]:
        """Sums over the answers, [row, layer, head], and numbers of answers, [row]."""
        totals = np.zeros((len(batch.rows), grid.layers, grid.width))
        answers = np.zeros(len(batch.rows))
        for rows, head_relevance in answer_relevance(
            lane, batch, tick, attention_constant=attention_constant
        ):
            sizes = layer_shares(head_relevance) if normalise else head_relevance.abs()
            totals[rows] += sizes.cpu().numpy()
            answers[rows] += 1
        return totals, answers

    batches = evaluator.batches(np.arange(len(evaluator.examples)), MAX_ROWS)
    return mean_outcome(work, batches, batch_sums, max_size=1.0 if normalise else np.inf)
