"""Confidence: a head's largest attention weight, averaged over tokens (Voita et al. 2019, section 4)."""

from __future__ import annotations

import numpy as np
import torch

from headlab.evaluator import Batch
from headlab.hooks.model import excluded_ids, sum_weights
from headlab.methods.run import Outcome, Work
from headlab.parallel import Tick, spread
from headlab.records import Floats, Progress


def run(work: Work) -> Outcome:
    """Mean over real tokens of the largest weight on a token that is not excluded, in [0, 1]."""
    evaluator, exclude = work.evaluator, work.options["exclude"]
    model = evaluator.model
    banned = torch.tensor(excluded_ids(model.tokenizer, exclude), device=model.device)

    def look(batch: Batch, tick: Tick) -> tuple[Floats, float]:
        tick()
        total = np.zeros((model.grid.layers, model.grid.width))
        real = batch.inputs["attention_mask"].bool()
        target = real & ~torch.isin(batch.inputs["input_ids"], banned)

        def add(row: int, weights: torch.Tensor) -> None:
            largest = weights.masked_fill(~target[:, None, None, :], 0).amax(dim=-1)
            sums = (largest * real[:, None, :]).sum(dim=(0, 2), dtype=torch.float64)
            total[row, : len(sums)] += sums.cpu().numpy()

        sum_weights(model, batch.inputs, add)
        return total, float(real.sum())

    total, tokens, rows = np.zeros((model.grid.layers, model.grid.width)), 0.0, 0
    batches = evaluator.batches(np.arange(len(evaluator.examples)))
    for batch, (part, count) in spread(batches, look, device=model.device, tick=evaluator.tick):
        total, tokens, rows = total + part, tokens + count, rows + len(batch.rows)
        evaluator.forwards += len(batch.rows)
        work.report(Progress(rows, len(evaluator.examples), "examples"))
    layer, head = model.grid.flat.T
    samples = np.full(model.grid.size, len(evaluator.examples), dtype=np.int64)
    return Outcome(total[layer, head] / tokens, samples=samples)
