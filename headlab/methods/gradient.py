"""Gradient importance of heads: the loss's sensitivity to each head's gate (Michel et al. 2019)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch.nn.functional import cross_entropy, pad

from headlab.core import Floats, HeadGrid, by_layer, integer_in
from headlab.core.parallel import Tick, halving
from headlab.evaluation import IGNORED, Batch, Evaluator, Texts
from headlab.hooks import Active
from headlab.methods.work import Outcome, Work, sizes

TOKENS = ("input_ids", "decoder_input_ids")  # inputs that have a column a token
ENCODER = "encoder"  # name of the stack that reads a source


def gate_gradients(evaluator: Evaluator, batch: Batch, *, per_token: bool = False) -> torch.Tensor:
    """Gradient of each example's loss by its gates, [row, layer, head] or [row, layer, head, token], at gates of 1.

    Each row has its own gates, so one backward pass gives every example's own gradient. The loss of an
    example with several answers is their sum.  token: of the stack's own tokens, so those of an encoder-decoder's
    decoder are the target's; as many as the longer of the two has.
    """
    model = evaluator.model
    rows = len(batch.inputs["input_ids"])
    shape = [rows, model.grid.layers, model.grid.width]
    if per_token:
        shape.append(max(batch.inputs[name].shape[1] for name in TOKENS if name in batch.inputs))
    gates = torch.ones(shape, dtype=model.module.dtype, device=model.device, requires_grad=True)
    with torch.enable_grad(), model.active(Active(gates=gates)):
        logits = evaluator.logits(batch.inputs)
        labels = evaluator.targets(batch.rows, logits)
        evaluator.require_finite(batch.rows, logits, labels)
        loss = cross_entropy(
            logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        (gradient,) = torch.autograd.grad(loss, gates)
    return gradient.detach().to(torch.float64)


def run(work: Work) -> Outcome:
    """Mean absolute gate gradient of every head, unit: loss (nats), in one of three forms.

    "example": the paper's equation 2, absolute value per example.  "token": absolute value per token, as in the code
    published with the paper's BERT experiments: divided by the number of sentences in a classifier's last layer, and
    by that of real tokens in all others.  "batch": per batch of `batch_size` examples in dataset order, as in the old
    Hugging Face script.  Intervals cover the sampling of the examples, or of the batches.
    """
    form, size = str(work.options["form"]), integer_in(work.options, "batch_size")
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
    if form != "token":
        return gradient.cpu().numpy(), np.ones(len(gradient))
    real = real_tokens(evaluator, batch, gradient.shape[-1]).to(gradient)
    sums = torch.einsum("rlht,rlt->rlh", gradient, real)
    weights = real.sum(dim=-1)
    weights[:, read_layers(evaluator)] = 1.0
    return sums.cpu().numpy(), weights.cpu().numpy()


def read_layers(evaluator: Evaluator) -> list[int]:
    """Indices of the layers whose output a classifier of whole sentences reads; none in other tasks.

    The last layer of the encoder, or where there is a decoder that of the decoder: its own attention's and that to
    the source. They are divided by sentences whatever the classifier reads of them (its first token, its last, or the
    mean of all), as the published code does without looking.
    """
    if not isinstance(evaluator.inputs, Texts):
        return []
    stacks = evaluator.model.grid.stacks
    ends = np.cumsum([stack.layers for stack in stacks]).tolist()
    last_of_stack = {stack.name: end - 1 for stack, end in zip(stacks, ends, strict=True)}
    if len(stacks) > 1:
        last_of_stack.pop(ENCODER, None)
    return list(last_of_stack.values())


def real_tokens(evaluator: Evaluator, batch: Batch, width: int) -> torch.Tensor:
    """Whether a place holds one of the stack's tokens and no padding, bool [row, layer, token].

    Args:
        evaluator: Of the batch.
        batch: The examples.
        width: Number of places, at least as many as any stack has tokens.
    """
    inputs = batch.inputs
    source = inputs["attention_mask"].bool()
    target = source  # a classifier's decoder reads the text itself
    if (
        "wanted" in inputs and "decoder_input_ids" in inputs
    ):  # several continuations, one after the other
        target = (inputs["wanted"] != IGNORED).any(dim=1)
    elif "decoder_attention_mask" in inputs:
        target = inputs["decoder_attention_mask"].bool()
    names = evaluator.model.grid.rows
    has_encoder = ENCODER in names
    masks = [source if name == ENCODER or not has_encoder else target for name in names]
    return torch.stack([pad(mask, (0, width - mask.shape[1])) for mask in masks], dim=1)


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
