"""Confidence: a head's largest attention weight, averaged over tokens (Voita et al. 2019, section 4)."""

from __future__ import annotations

import numpy as np
import torch

from headlab.evaluator import Batch, Evaluator
from headlab.hooks.model import excluded_ids, sum_weights
from headlab.methods.run import Outcome, Work, sizes
from headlab.parallel import Tick
from headlab.records import Floats


def run(work: Work) -> Outcome:
    """Mean over real tokens of the largest weight on a token that is not excluded, in [0, 1].

    Intervals cover the sampling of the examples.
    """
    evaluator, model = work.evaluator, work.evaluator.model
    banned = torch.tensor(excluded_ids(model.tokenizer, work.options["exclude"]), device=model.device)

    def part(lane: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, Floats]:
        tick()
        total = np.zeros((len(batch.rows), model.grid.layers, model.grid.width))
        real = batch.inputs["attention_mask"].bool()
        target = real & ~torch.isin(batch.inputs["input_ids"], banned)

        def add(row: int, weights: torch.Tensor) -> None:
            largest = weights.masked_fill(~target[:, None, None, :], 0).amax(dim=-1)
            sums = (largest * real[:, None, :]).sum(dim=2, dtype=torch.float64)
            total[:, row, : sums.shape[1]] += sums.cpu().numpy()

        sum_weights(model, batch.inputs, add)
        lane.forwards += len(batch.rows)
        return total, real.sum(dim=1).cpu().numpy().astype(np.float64)

    return sizes(work, evaluator.batches(np.arange(len(evaluator.examples))), part, most=1.0)
