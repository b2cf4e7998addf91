"""Confidence: a head's largest attention weight, averaged over tokens.

From Voita et al. 2019, section 4.
"""

from __future__ import annotations

import numpy as np
import torch

from headlab.core import Floats, Tick
from headlab.evaluation import Batch, Evaluator
from headlab.hooks import excluded_ids, query_and_key_tokens, sum_weights
from headlab.methods.work import Outcome, Work, mean_outcome


def run(work: Work) -> Outcome:
    """Mean over real tokens of the largest weight on a token that is not excluded, in [0, 1].

    Decoder and cross heads attend from the tokens of the target. Intervals cover the sampling of
    the examples.
    """
    evaluator = work.evaluator
    model = evaluator.model
    excluded = excluded_ids(model.tokenizer, str(work.options["exclude"]))
    excluded_tokens = torch.tensor(excluded, device=model.device)

    def batch_sums(lane: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, Floats]:
        """Sums of the largest weights, [row, layer, head], and numbers of tokens, [row, layer]."""
        tick()
        # On the device until the pass is over, so that no layer waits for the processor.
        shape = (len(batch.rows), model.grid.layers, model.grid.width)
        totals = torch.zeros(shape, dtype=torch.float64, device=model.device)
        tokens = torch.zeros(shape[:2], dtype=torch.float64, device=model.device)

        def add(layer: int, weights: torch.Tensor) -> None:
            (_, is_query), (key_ids, is_key) = query_and_key_tokens(
                batch.inputs, model.grid.rows[layer]
            )
            counts_as_target = is_key & ~torch.isin(key_ids, excluded_tokens)
            largest = weights.masked_fill(~counts_as_target[:, None, None, :], 0).amax(dim=-1)
            sums = (largest * is_query[:, None, :]).sum(dim=2, dtype=torch.float64)
            totals[:, layer, : sums.shape[1]] += sums
            tokens[:, layer] = is_query.sum(dim=1)

        sum_weights(model, batch.inputs, add)
        lane.forwards += len(batch.rows)
        return totals.cpu().numpy(), tokens.cpu().numpy()

    batches = evaluator.batches(np.arange(len(evaluator.examples)))
    return mean_outcome(work, batches, batch_sums, max_size=1.0)
