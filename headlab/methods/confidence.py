"""Confidence: a head's largest attention weight, averaged over tokens (Voita et al. 2019, section 4)."""

from __future__ import annotations

import numpy as np
import torch

from headlab.evaluator import Batch, Evaluator
from headlab.hooks.model import excluded_ids, sum_weights
from headlab.methods.run import Outcome, Work, summed
from headlab.parallel import Tick
from headlab.records import Floats


def run(work: Work) -> Outcome:
    """Mean over real tokens of the largest weight on a token that is not excluded, in [0, 1]."""
    evaluator, model = work.evaluator, work.evaluator.model
    banned = torch.tensor(excluded_ids(model.tokenizer, work.options["exclude"]), device=model.device)

    def part(lane: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, float]:
        tick()
        total = np.zeros((model.grid.layers, model.grid.width))
        real = batch.inputs["attention_mask"].bool()
        target = real & ~torch.isin(batch.inputs["input_ids"], banned)

        def add(row: int, weights: torch.Tensor) -> None:
            largest = weights.masked_fill(~target[:, None, None, :], 0).amax(dim=-1)
            sums = (largest * real[:, None, :]).sum(dim=(0, 2), dtype=torch.float64)
            total[row, : len(sums)] += sums.cpu().numpy()

        sum_weights(model, batch.inputs, add)
        lane.forwards += len(batch.rows)
        return total, float(real.sum())

    size = len(evaluator.examples)
    total, tokens = summed(evaluator, evaluator.batches(np.arange(size)), part, work.report)
    return Outcome(total / tokens, samples=np.full(model.grid.size, size, dtype=np.int64))
