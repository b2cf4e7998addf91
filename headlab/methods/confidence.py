"""Confidence: a head's largest attention weight, averaged over tokens (Voita et al. 2019, section 4)."""

from __future__ import annotations

import numpy as np
import torch

from headlab.core import Floats
from headlab.core.parallel import Tick
from headlab.evaluation import Batch, Evaluator
from headlab.hooks import excluded_ids, sides, sum_weights
from headlab.methods.work import Outcome, Work, sizes


def run(work: Work) -> Outcome:
    """Mean over real tokens of the largest weight on a token that is not excluded, in [0, 1].

    Decoder and cross heads attend from the tokens of the target. Intervals cover the sampling of the examples.
    """
    evaluator, model = work.evaluator, work.evaluator.model
    banned = torch.tensor(
        excluded_ids(model.tokenizer, str(work.options["exclude"])), device=model.device
    )

    def part(lane: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, Floats]:
        tick()
        # On the device until the pass is over, so that no layer waits for the processor.
        shape = (len(batch.rows), model.grid.layers, model.grid.width)
        totals = torch.zeros(shape, dtype=torch.float64, device=model.device)
        tokens = torch.zeros(shape[:2], dtype=torch.float64, device=model.device)

        def add(row: int, weights: torch.Tensor) -> None:
            (_, real), (ids, there) = sides(batch.inputs, model.grid.rows[row])
            counted = there & ~torch.isin(ids, banned)
            largest = weights.masked_fill(~counted[:, None, None, :], 0).amax(dim=-1)
            sums = (largest * real[:, None, :]).sum(dim=2, dtype=torch.float64)
            totals[:, row, : sums.shape[1]] += sums
            tokens[:, row] = real.sum(dim=1)

        sum_weights(model, batch.inputs, add)
        lane.forwards += len(batch.rows)
        return totals.cpu().numpy(), tokens.cpu().numpy()

    return sizes(work, evaluator.batches(np.arange(len(evaluator.examples))), part, most=1.0)
