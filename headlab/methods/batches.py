"""How much goes into one batch, and what happens when it was too much."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from headlab.errors import HeadlabError
from headlab.gates import Model
from headlab.records import Bools, Ints

# Tokens of a batch on a processor: enough to fill the matrix units, few enough to stay in its caches.
CPU_TOKENS = 1024
GPU_SHARE = 0.3
GPU_TOKENS = 1 << 18


def token_budget(model: Model) -> int:
    """Tokens that one batch may have, padding included: a share of the free memory on a GPU.

    A token costs its input in every layer (kept for walks) and about 16 widths of working space.
    """
    if model.device.type != "cuda":
        return CPU_TOKENS
    config = model.module.config.get_text_config()
    width = int(getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or 1024)
    item = torch.finfo(model.module.dtype).bits // 8
    free, _ = torch.cuda.mem_get_info(model.device)
    return max(CPU_TOKENS, min(GPU_TOKENS, int(GPU_SHARE * free / (item * width * (model.grid.layers + 17)))))


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device's memory is full."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


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


def halving(batches: Iterable[Batch], run: Callable[[Batch], None]) -> bool:
    """Run every batch; one that does not fit in memory is cut in two and tried again.

    Returns whether any had to be cut.  Raises HeadlabError when one that cannot be cut does not fit.
    """
    waiting, short = list(batches)[::-1], False
    while waiting:
        batch = waiting.pop()
        try:
            run(batch)
            continue
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            parts = batch.cut()
            if not parts:
                raise HeadlabError(
                    "a single example does not fit in the device's memory; "
                    "use a smaller model, shorter texts, or dtype bfloat16"
                ) from error
        # Outside the handler, so that the failed pass's tensors are free.
        short = True
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        waiting += parts[::-1]
    return short
