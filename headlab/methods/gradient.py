"""Gradient importance of heads: the loss's sensitivity to each head's gate (Michel et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from headlab.encoding import IGNORED
from headlab.evaluator import Batch, Evaluator
from headlab.hooks.state import Active
from headlab.methods.run import Outcome, Work, summed
from headlab.parallel import Tick, halving
from headlab.records import Floats, HeadGrid, Progress, by_layer


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


def importance(
    evaluator: Evaluator, form: str, batch_size: int, report: Callable[[Progress], None] = lambda _: None
) -> Floats:
    """Mean absolute gate gradient of every head, flat [head], unit: loss (nats).

    form "example": the paper's equation 2, absolute value per example.  "token": per real token, as in the
    code published with the paper's BERT experiments.  "batch": per batch of `batch_size` examples in
    dataset order, as in the old Hugging Face script.
    """
    order = np.arange(len(evaluator.examples))
    if form == "batch":
        parts = np.split(order, range(batch_size, len(order), batch_size))
        batches = [Batch(part, evaluator.tensors(part)) for part in parts]
    else:
        batches = evaluator.batches(order, batch_size)
    total, weight = summed(evaluator, batches, partial(_part, form), report)
    return np.asarray(total / weight, dtype=np.float64)


def _part(form: str, evaluator: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, float]:
    """A batch's share of the sum, [layer, head], and its weight."""
    tick()
    if form == "batch":
        return _mean(evaluator, batch).abs().cpu().numpy(), 1.0
    gradient = gate_gradients(evaluator, batch, per_token=form == "token")
    if form == "token":
        real = batch.inputs["attention_mask"].to(gradient.dtype)
        return (gradient.abs() * real[:, None, None, :]).sum(dim=(0, 3)).cpu().numpy(), float(real.sum())
    return gradient.abs().sum(dim=0).cpu().numpy(), float(len(gradient))


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


def run(work: Work) -> Outcome:
    """Gradient importance in the chosen form."""
    form, size = work.options["form"], int(work.options["batch_size"])
    values = importance(work.evaluator, form, size, work.report)
    if work.options["normalise"]:
        values = normalised(work.evaluator.model.grid, values)
    return Outcome(values, samples=np.full(len(values), len(work.evaluator.examples), dtype=np.int64))
