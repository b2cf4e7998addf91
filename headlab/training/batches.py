"""Batches of texts of like length, the same for a given seed at every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
POOL = 16  # batches sorted by length together: little padding, and still a new mix in every epoch


def epoch(lengths: Sequence[int], batch: int, rng: np.random.Generator) -> list[Indices]:
    """Every example once, in batches of neighbours by length, in random order."""
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)
    pools = [order[at : at + batch * POOL] for at in range(0, len(order), batch * POOL)]
    line = [pool[np.argsort(sizes[pool], kind="stable")] for pool in pools]
    out = [pool[at : at + batch] for pool in line for at in range(0, len(pool), batch)]
    return [out[i] for i in rng.permutation(len(out))]


def step_batch(lengths: Sequence[int], batch: int, seed: int, step: int) -> Indices:
    """The examples of a step: a function of seed and step alone, so that a resumed run needs no history."""
    number, at = divmod(step, batches_per_epoch(len(lengths), batch))
    return epoch(lengths, batch, np.random.default_rng((seed, number)))[at]


def batches_per_epoch(examples: int, batch: int) -> int:
    """How many batches `epoch` makes."""
    pools, rest = divmod(examples, batch * POOL)
    return pools * POOL + -(-rest // batch)
