"""Reading what heads do during a forward pass: which tokens look at which, and only what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from headlab.errors import HeadlabError
from headlab.hooks.attention import PROJECTIONS
from headlab.hooks.model import Model
from headlab.hooks.state import Active
from headlab.parallel import Rows, halving, whole
from headlab.records import Head

# Which tokens of a batch look and which are looked at, and which of them do not count.

Side = tuple[torch.Tensor, torch.Tensor]


def excluded_ids(tokenizer: Any, exclude: str) -> list[int]:
    """Token ids that do not count as targets: the separator / end of sentence, all specials, or none."""
    if exclude == "none":
        return []
    if exclude == "special":
        return sorted(tokenizer.all_special_ids)
    return sorted({i for i in (tokenizer.sep_token_id, tokenizer.eos_token_id) if i is not None})


def sides(model: Model, inputs: Mapping[str, torch.Tensor], stack: str) -> tuple[Side, Side]:
    """Those that look and those looked at in a stack: token ids, and whether they are real, int and bool [row, token].

    inputs: model inputs with masks; of a sequence-to-sequence model those of the decoder too.
    """
    source = (inputs["input_ids"], inputs["attention_mask"].bool())
    if not model.module.config.is_encoder_decoder or stack == "encoder":
        return source, source
    target = (inputs["decoder_input_ids"], inputs["decoder_attention_mask"].bool())
    return target, source if stack == "cross" else target


def started(model: Model, rows: int) -> dict[str, torch.Tensor]:
    """What a sequence-to-sequence model's decoder takes where the encoder alone is asked: its first token, [row, 1]."""
    ids = torch.full((rows, 1), int(model.module.config.decoder_start_token_id), device=model.device)
    return {"decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids)}


# Reading what heads do during a forward pass, keeping only what was asked for.

Inputs = Mapping[str, torch.Tensor]


def sum_weights(
    model: Model, inputs: Inputs, observe: Callable[[int, torch.Tensor], None], layers: Iterable[int] | None = None
) -> None:
    """Call `observe(layer row, weights [row, head, query, key])` layer by layer in one forward pass.

    layers: gate rows wanted (all if None).  One layer's weights exist at a time.
    """
    wanted = None if layers is None else frozenset(layers)
    family = model.module.config.model_type
    with torch.inference_mode():
        if family in PROJECTIONS:
            _eager_weights(model, inputs, observe, wanted)
            return
        with model.active(Active(weights=observe, weight_layers=wanted)):
            model.module(**inputs)


def _eager_weights(
    model: Model, inputs: Inputs, observe: Callable[[int, torch.Tensor], None], wanted: frozenset[int] | None
) -> None:
    """Architectures outside the attention interface hand out their weights on request."""
    out = model.module(**inputs, output_attentions=True)
    if not out.get("attentions"):
        raise HeadlabError(
            f"{type(model.module).__name__} does not give attention weights; choose another model for this view",
            code="model.no_attention_weights",
        )
    for row, weights in enumerate(out["attentions"]):
        if wanted is None or row in wanted:
            observe(row, weights)


def attention(model: Model, inputs: Inputs, heads: Sequence[Head]) -> dict[Head, torch.Tensor]:
    """Attention weights of the chosen heads only: {head: float32 [query, key]} of the first row, on the CPU.

    Raises HeadlabError for a head the model does not have, and for a sentence that does not fit in memory.
    """
    places = {head: tuple(model.grid.flat[model.grid.index(head)]) for head in heads}
    found: dict[Head, torch.Tensor] = {}

    def keep(row: int, weights: torch.Tensor) -> None:
        for head, (layer, column) in places.items():
            if layer == row:
                found[head] = weights[0, column].float().cpu().clone()

    with whole():
        sum_weights(model, inputs, keep, {int(layer) for layer, _ in places.values()})
    return found


def head_means(model: Model, batches: Iterable[Inputs]) -> torch.Tensor:
    """Mean output of every head over the real tokens of some batches: [layer, head, head_dim].

    What a head gives under `ablation="mean"`. Sums in float64. Padding (attention_mask 0) is left out; for
    the decoder and cross heads of a sequence-to-sequence model that of decoder_attention_mask (all
    positions count where it is not given).
    """
    grid = model.grid
    sums: dict[int, torch.Tensor] = {}
    counts: dict[int, float] = {}
    for inputs in batches:

        def run(part: Rows, inputs: Inputs = inputs) -> None:
            for row, (total, count) in _head_sums(model, {k: t[part.rows] for k, t in inputs.items()}).items():
                sums[row] = sums[row] + total if row in sums else total
                counts[row] = counts.get(row, 0.0) + count

        halving([Rows(np.arange(len(inputs["attention_mask"])))], run)
    if not sums:
        raise HeadlabError("no examples to take the heads' means over; give at least one", code="ablation.no_examples")
    widest = max(total.shape[1] for total in sums.values())  # stacks may differ in head_dim
    out = torch.zeros(grid.layers, grid.width, widest, dtype=torch.float64, device=model.device)
    for row, total in sums.items():
        out[row, : len(total), : total.shape[1]] = total / counts[row]
    return out


def _head_sums(model: Model, inputs: Inputs) -> dict[int, tuple[torch.Tensor, float]]:
    """{layer row: (sum of every head's output [head, head_dim], tokens)} over one batch."""
    pairs = model.module.config.is_encoder_decoder
    found: dict[int, tuple[torch.Tensor, float]] = {}
    stacks = [stack.name for stack in model.grid.stacks for _ in range(stack.layers)]

    def add(row: int, context: torch.Tensor) -> None:
        mask = inputs.get("decoder_attention_mask" if pairs and stacks[row] != "encoder" else "attention_mask")
        keep = torch.ones(context.shape[:2], device=context.device) if mask is None else mask
        keep = keep.to(torch.float64)
        total = torch.einsum("bqhd,bq->hd", context.to(torch.float64), keep)
        found[row] = (total, float(keep.sum()))

    with torch.inference_mode(), model.active(Active(contexts=add)):
        model.module(**inputs)
    return found
