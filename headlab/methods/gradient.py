"""Gradient importance of heads: the loss's sensitivity to each head's gate (Michel et al. 2019)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from headlab.encoding import IGNORED
from headlab.evaluator import Batch, Evaluator
from headlab.hooks.state import Active
from headlab.methods.run import Outcome, Work, sizes
from headlab.parallel import Tick, halving
from headlab.records import Floats, HeadGrid, by_layer


def gate_gradients(evaluator: Evaluator, batch: Batch, *, per_token: bool = False) -> torch.Tensor:
    """Gradient of each example's loss by its gates, [row, layer, head] or [row, layer, head, token], at gates of 1.

    Each row has its own gates, so one backward pass gives every example's own gradient. The loss of an
    example with several answers is their sum.
    """
    model = evaluator.model
    rows, tokens = batch.inputs["input_ids"].shape
    shape = (rows, model.grid.layers, model.grid.width) + ((tokens,) if per_token else ())
    gates = torch.ones(shape, dtype=model.module.dtype, device=model.device, requires_grad=True)
    with torch.enable_grad(), model.active(Active(gates=gates)):
        logits = evaluator.logits(batch.inputs)
        labels = evaluator.targets(batch.rows, logits)
        evaluator.require_finite(batch.rows, logits, labels)
        loss = cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, gates)
    return gradient.detach().to(torch.float64)


def run(work: Work) -> Outcome:
    """Mean absolute gate gradient of every head, unit: loss (nats), in one of three forms.

    "example": the paper's equation 2, absolute value per example.  "token": per real token, as in the code published
    with the paper's BERT experiments.  "batch": per batch of `batch_size` examples in dataset order, as in the old
    Hugging Face script.  Intervals cover the sampling of the examples, or of the batches.
    """
    form, size = work.options["form"], int(work.options["batch_size"])
    evaluator, grid = work.evaluator, work.evaluator.model.grid
    order = np.arange(len(evaluator.examples))
    if form == "batch":
        parts = np.split(order, range(size, len(order), size))
        batches = [Batch(part, evaluator.tensors(part)) for part in parts]
    else:
        batches = evaluator.batches(order, size)
    if work.options["normalise"]:
        return sizes(work, batches, partial(_part, form), partial(normalised, grid), most=1.0)
    return sizes(work, batches, partial(_part, form))


def _part(form: str, evaluator: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, Floats]:
    """A batch's sums, [row, layer, head], and weights; of form "batch" one row."""
    tick()
    if form == "batch":
        return _mean(evaluator, batch).abs().cpu().numpy()[None], np.ones(1)
    gradient = gate_gradients(evaluator, batch, per_token=form == "token").abs()
    if form == "token":
        real = batch.inputs["attention_mask"].to(gradient.dtype)
        return torch.einsum("rlht,rt->rlh", gradient, real).cpu().numpy(), real.sum(dim=1).cpu().numpy()
    return gradient.cpu().numpy(), np.ones(len(gradient))


def _mean(evaluator: Evaluator, batch: Batch) -> torch.Tensor:
    """Mean gradient of a batch, [layer, head]; computed in halves where the batch does not fit in memory."""
    sums: list[torch.Tensor] = []

    def add(part: Batch) -> None:
        sums.append(gate_gradients(evaluator, part).sum(dim=0))

    halving([batch], add)
    return torch.stack(sums).sum(dim=0) / len(batch.rows)


def normalised(grid: HeadGrid, values: Floats) -> Floats:
    """Each layer's scores divided by their Euclidean norm (Molchanov et al. 2017, section 2.2)."""
    parts = [part / (np.linalg.norm(part) or 1.0) for _, _, part in by_layer(grid, values)]
    return np.concatenate(parts)
