"""How much goes into one batch of examples, and what is kept of its last pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from headlab.gates import LayerStates, Model
from headlab.inputs import Sized
from headlab.records import Ints

# Tokens of a batch on a processor: enough to fill the matrix units, few enough to stay in its caches.
CPU_TOKENS = 1024
GPU_SHARE = 0.3
GPU_TOKENS = 1 << 18


@dataclass
class Batch:
    """Examples of similar length: which rows of the evaluator, their tensors, and what is kept of the last pass.

    held: by the pass that writes to what is kept; another that comes meanwhile leaves it alone.
    """

    rows: Ints
    inputs: Mapping[str, torch.Tensor]
    states: LayerStates | None = None
    gates: np.ndarray[Any, Any] | None = None
    held: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def cut(self) -> tuple[Batch, ...]:
        """Two halves of it, padded as it was and with nothing kept; nothing where it has one row only."""
        middle = len(self.rows) // 2
        parts = (slice(0, middle), slice(middle, None)) if middle else ()
        return tuple(Batch(self.rows[part], {k: t[part] for k, t in self.inputs.items()}) for part in parts)


def token_budget(model: Model) -> int:
    """Tokens that one batch may have, padding included: a share of the free memory on a GPU.

    A token costs its input in every layer (kept for walks) and about 16 widths of working space. A power of two, so
    that devices of one kind cut the same batches though their free memory differs a little.
    """
    if model.device.type != "cuda":
        return CPU_TOKENS
    width = width_of(model)
    item = torch.finfo(model.module.dtype).bits // 8
    free, _ = torch.cuda.mem_get_info(model.device)
    fit = int(GPU_SHARE * free / (item * width * (model.grid.layers + 17)))
    return max(CPU_TOKENS, min(GPU_TOKENS, 1 << max(fit, 1).bit_length() - 1))


def width_of(model: Model) -> int:
    """Width of a model's hidden states; a usual one where its config names none."""
    config = model.module.config.get_text_config()
    return int(getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or 1024)


def cut(inputs: Sized, rows: Ints, tokens: int, most: int | None = None) -> Iterator[Batch]:
    """Batches of the given rows, sorted by length, each padded to its own longest.

    tokens: that one may have, padding included; a row that has more is a batch of its own.  most: rows of one.
    """
    lengths, part = inputs.lengths, list[int]()
    for row in rows[np.argsort(lengths[rows], kind="stable")].tolist():
        if part and (len(part) == most or (len(part) + 1) * int(lengths[row]) > tokens):
            yield Batch(np.array(part), inputs.tensors(np.array(part)))
            part = []
        part.append(row)
    if part:
        yield Batch(np.array(part), inputs.tensors(np.array(part)))
