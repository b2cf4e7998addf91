"""How much goes into one batch, and the halves of one that was too much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from headlab.gates import Model
from headlab.records import Bools, Ints

# Tokens of a batch on a processor: enough to fill the matrix units, few enough to stay in its caches.
CPU_TOKENS = 1024
GPU_SHARE = 0.3
GPU_TOKENS = 1 << 18


def token_budget(model: Model) -> int:
    """Tokens that one batch may have, padding included: a share of the free memory on a GPU.

    A token costs its input in every layer (kept for walks) and about 16 widths of working space. A power of two, so
    that devices of one kind cut the same batches though their free memory differs a little.
    """
    if model.device.type != "cuda":
        return CPU_TOKENS
    config = model.module.config.get_text_config()
    width = int(getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or 1024)
    item = torch.finfo(model.module.dtype).bits // 8
    free, _ = torch.cuda.mem_get_info(model.device)
    fit = int(GPU_SHARE * free / (item * width * (model.grid.layers + 17)))
    return max(CPU_TOKENS, min(GPU_TOKENS, 1 << max(fit, 1).bit_length() - 1))


@dataclass(frozen=True)
class Batch:
    """Rows to be computed together: places in the caller's arrays, and which players each row asks for."""

    places: Ints
    wanted: Bools

    def cut(self) -> tuple[Batch, ...]:
        """Two halves of it, by rows or, of one row, by players; nothing where it cannot be cut."""
        if len(self.places) > 1:
            middle = len(self.places) // 2
            return (
                Batch(self.places[:middle], self.wanted[:middle]),
                Batch(self.places[middle:], self.wanted[middle:]),
            )
        asked = np.flatnonzero(self.wanted[0])
        if len(asked) < 2:
            return ()
        first = np.isin(np.arange(self.wanted.shape[1]), asked[: len(asked) // 2])
        return Batch(self.places, self.wanted & first), Batch(self.places, self.wanted & ~first)
