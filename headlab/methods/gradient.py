"""Gradient importance of heads: how fast the loss moves with a head's gate (Michel et al. 2019)."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from headlab.evaluator import Batch, Evaluator
from headlab.gates import Active
from headlab.inputs import IGNORED
from headlab.methods.work import Outcome, Progress, Work
from headlab.records import Floats, HeadGrid, by_layer


def gate_gradients(evaluator: Evaluator, batch: Batch, *, per_token: bool = False) -> torch.Tensor:
    """D loss of each example / d gate, [row, layer, head] (or [row, layer, head, token]), at gates of 1.

    Each row carries its own gates, so one backward pass gives every example's own gradient. The loss of an
    example with several answers is their sum.
    """
    model = evaluator.model
    rows, tokens = batch.inputs["input_ids"].shape
    shape = (rows, model.grid.layers, model.grid.width) + ((tokens,) if per_token else ())
    gates = torch.ones(shape, dtype=model.module.dtype, device=model.device, requires_grad=True)
    with torch.enable_grad(), model.active(Active(gates=gates)):
        labels = evaluator.inputs.targets(batch.rows)
        logits = evaluator.logits(batch.inputs).flatten(0, -2)
        loss = cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, gates)
    return gradient.detach().to(torch.float64)


def importance(evaluator: Evaluator, form: str, batch_size: int, report: Work | None = None) -> Floats:
    """Mean absolute gate gradient of every head, flat [head], unit: loss (nats).

    form "example": the paper's equation 2, absolute value per example.  "token": per real token, as in the
    code published with the paper's BERT experiments.  "batch": per batch of `batch_size` examples in
    the data's order, as in the old Hugging Face script.
    """
    order = np.arange(len(evaluator.examples))
    if form == "batch":
        batches = [
            Batch(part, evaluator.tensors(part)) for part in np.split(order, range(batch_size, len(order), batch_size))
        ]
    else:
        batches = evaluator.batches(order, batch_size)
    total = np.zeros((evaluator.model.grid.layers, evaluator.model.grid.width))
    weight = 0.0
    for number, batch in enumerate(batches):
        gradient = gate_gradients(evaluator, batch, per_token=form == "token")
        if form == "token":
            real = batch.inputs["attention_mask"].to(gradient.dtype)
            part, count = (gradient.abs() * real[:, None, None, :]).sum(dim=(0, 3)), float(real.sum())
        elif form == "batch":
            part, count = gradient.mean(dim=0).abs(), 1.0
        else:
            part, count = gradient.abs().sum(dim=0), float(len(gradient))
        total, weight = total + part.cpu().numpy(), weight + count
        evaluator.tick()
        if report is not None:
            report.report(Progress(number + 1, len(batches), f"batch {number + 1} of {len(batches)}"))
    layer, head = evaluator.model.grid.flat.T
    return np.asarray(total[layer, head] / weight, dtype=np.float64)


def normalised(grid: HeadGrid, values: Floats) -> Floats:
    """Each layer's scores divided by their Euclidean length (Molchanov et al. 2017, section 2.2)."""
    parts = [part / (np.linalg.norm(part) or 1.0) for _, _, part in by_layer(grid, values)]
    return np.concatenate(parts)


def run(work: Work) -> Outcome:
    """Gradient importance in the chosen form."""
    form, size = work.options["form"], int(work.options["batch_size"])
    values = importance(work.evaluator, form, size, work)
    if work.options["normalise"]:
        values = normalised(work.evaluator.model.grid, values)
    return Outcome(values, samples=np.full(len(values), len(work.evaluator.examples), dtype=np.int64))
