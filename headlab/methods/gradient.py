"""Gradient importance of heads: the loss's sensitivity to each head's gate (Michel et al. 2019)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch.nn.functional import cross_entropy, pad

from headlab.core import Floats, HeadGrid, Tick, by_layer, integer_in, run_halving
from headlab.evaluation import NO_TARGET, Batch, Evaluator, Texts
from headlab.hooks import ActiveGates, gradient_by_gates
from headlab.methods.work import Outcome, Work, mean_outcome

TOKEN_INPUTS = ("input_ids", "decoder_input_ids")  # inputs that have a column a token
ENCODER = "encoder"  # name of the stack that reads a source


def gate_gradients(evaluator: Evaluator, batch: Batch, *, per_token: bool = False) -> torch.Tensor:
    """Gradient of each example's loss by its gates, at gates of 1.

    Each row has its own gates, so one backward pass gives every example's own gradient. The loss of
    an example with several answers is their sum.

    Args:
        evaluator: Of the batch.
        batch: The examples.
        per_token: Whether each token has a gate of its own. The tokens are those of the gate's
            stack, so the target's in an encoder-decoder's decoder, and as many as the longer of the
            two has.

    Returns:
        float64 [row, layer, head], or [row, layer, head, token].
    """
    model = evaluator.model
    rows = len(batch.inputs["input_ids"])
    shape = [rows, model.grid.layers, model.grid.width]
    if per_token:
        token_inputs = [batch.inputs[name] for name in TOKEN_INPUTS if name in batch.inputs]
        shape.append(max(tokens.shape[1] for tokens in token_inputs))
    gates = torch.ones(shape, dtype=model.module.dtype, device=model.device, requires_grad=True)
    with torch.enable_grad(), model.active(ActiveGates(gates=gates)):
        logits = evaluator.logits(batch.inputs)
        labels = evaluator.targets(batch.rows, logits)
        evaluator.require_finite(batch.rows, logits, labels)
        loss = cross_entropy(
            logits.flatten(0, -2), labels.flatten(), ignore_index=NO_TARGET, reduction="sum"
        )
        gradient = gradient_by_gates(model, loss, gates)
    return gradient.detach().to(torch.float64)


def run(work: Work) -> Outcome:
    """Mean absolute gate gradient of every head, unit: loss (nats), in one of three forms.

    "example": the paper's equation 2, absolute value per example.

    "token": absolute value per token, as in the code published with the paper's BERT experiments:
    divided by the number of sentences in a classifier's last layer, and by that of real tokens in
    all others.

    "batch": per batch of `batch_size` examples in dataset order, as in the old Hugging Face script.

    Intervals cover the sampling of the examples, or of the batches.
    """
    form = str(work.options["form"])
    size = integer_in(work.options, "batch_size")
    evaluator = work.evaluator
    all_rows = np.arange(len(evaluator.examples))
    if form == "batch":
        parts = np.split(all_rows, range(size, len(all_rows), size))
        batches = [Batch(part, evaluator.tensors(part)) for part in parts]
    else:
        batches = evaluator.batches(all_rows, size)
    sums_of_batch = partial(_batch_sums, form)
    if work.options["normalise"]:
        to_size = partial(normalised, evaluator.model.grid)
        return mean_outcome(work, batches, sums_of_batch, to_size, max_size=1.0)
    return mean_outcome(work, batches, sums_of_batch)


def _batch_sums(form: str, evaluator: Evaluator, batch: Batch, tick: Tick) -> tuple[Floats, Floats]:
    """A batch's sums, [row, layer, head], and weights; of form "batch" one row."""
    tick()
    if form == "batch":
        return _batch_mean(evaluator, batch).abs().cpu().numpy()[None], np.ones(1)
    gradient = gate_gradients(evaluator, batch, per_token=form == "token").abs()
    if form != "token":
        return gradient.cpu().numpy(), np.ones(len(gradient))
    is_real = real_tokens(evaluator, batch, gradient.shape[-1]).to(gradient)
    sums = torch.einsum("rlht,rlt->rlh", gradient, is_real)
    weights = is_real.sum(dim=-1)
    weights[:, read_layers(evaluator)] = 1.0
    return sums.cpu().numpy(), weights.cpu().numpy()


def read_layers(evaluator: Evaluator) -> list[int]:
    """Indices of the layers whose output a classifier of whole sentences reads.

    None in other tasks.

    It is the last layer of the encoder. Where there is a decoder, it is that of the decoder: of its
    own attention, and of that to the source. They are divided by sentences whatever the classifier
    reads of them (its first token, its last, or the mean of all), as the published code does
    without looking.
    """
    if not isinstance(evaluator.inputs, Texts):
        return []
    stacks = evaluator.model.grid.stacks
    stack_ends = np.cumsum([stack.layers for stack in stacks]).tolist()
    last_of_stack = {stack.name: end - 1 for stack, end in zip(stacks, stack_ends, strict=True)}
    if len(stacks) > 1:
        last_of_stack.pop(ENCODER, None)
    return list(last_of_stack.values())


def real_tokens(evaluator: Evaluator, batch: Batch, width: int) -> torch.Tensor:
    """Whether a position holds one of the stack's tokens and no padding, bool [row, layer, token].

    Args:
        evaluator: Of the batch.
        batch: The examples.
        width: Number of positions, at least as many as any stack has tokens.
    """
    inputs = batch.inputs
    source = inputs["attention_mask"].bool()
    target = source  # a classifier's decoder reads the text itself
    has_several_continuations = "wanted" in inputs and "decoder_input_ids" in inputs
    if has_several_continuations:
        target = (inputs["wanted"] != NO_TARGET).any(dim=1)
    elif "decoder_attention_mask" in inputs:
        target = inputs["decoder_attention_mask"].bool()
    names = evaluator.model.grid.rows
    has_encoder = ENCODER in names
    masks = [source if name == ENCODER or not has_encoder else target for name in names]
    return torch.stack([pad(mask, (0, width - mask.shape[1])) for mask in masks], dim=1)


def _batch_mean(evaluator: Evaluator, batch: Batch) -> torch.Tensor:
    """Mean gradient of a batch, [layer, head].

    It is computed in halves where the batch does not fit in memory.
    """
    sums: list[torch.Tensor] = []

    def add(part: Batch) -> None:
        sums.append(gate_gradients(evaluator, part).sum(dim=0))

    run_halving([batch], add)
    return torch.stack(sums).sum(dim=0) / len(batch.rows)


def normalised(grid: HeadGrid, values: Floats) -> Floats:
    """Each layer's scores divided by their Euclidean norm (Molchanov et al. 2017, section 2.2)."""
    normalised_layers = []
    for _, _, layer_values in by_layer(grid, values):
        norm = np.linalg.norm(layer_values) or 1.0
        normalised_layers.append(layer_values / norm)
    return np.concatenate(normalised_layers)
