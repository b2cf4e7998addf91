"""How fast models are, side by side in one run, as ratios: no time stands alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

from headlab.models.allattention.modelling import AllAttentionForCausalLM
from headlab.records import Floats

LOW, HIGH = 0.25, 0.75


class Speed(NamedTuple):
    """How many times as fast as the first model, over rounds: median and quartiles; then the model's layers alone."""

    whole: float
    whole_low: float
    whole_high: float
    layers: float
    layers_low: float
    layers_high: float


def speeds(
    models: Mapping[str, AllAttentionForCausalLM], *, tokens: int, rows: int = 8, rounds: int = 15,
    clock: Callable[[], float] = time.perf_counter, tick: Callable[[], None] = lambda: None,
) -> dict[str, Speed]:  # fmt: skip
    """Time a forward pass of each model on the same rows of tokens, all models in every round, and compare.

    A round's ratio is against the first model in that same round, so what slows the machine slows both.  Each pass
    that is timed follows one of the same model that is not, so that none pays for what the one before left behind.
    """
    first = next(iter(models.values()))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, first.config.vocab_size, (rows, tokens), generator=generator).to(first.device)
    seconds = np.zeros((rounds, len(models), 2))
    with torch.inference_mode():
        for turn in range(rounds):
            for number, model in enumerate(models.values()):
                tick()
                seconds[turn, number] = [_timed(part, ids, clock) for part in (model, model.model)]
    ratios = seconds[:, :1] / seconds
    return {name: _speed(ratios[:, number]) for number, name in enumerate(models)}


def _timed(part: torch.nn.Module, ids: torch.Tensor, clock: Callable[[], float]) -> float:
    part(ids)
    _wait(ids)
    begun = clock()
    part(ids)
    _wait(ids)
    return clock() - begun


def _wait(ids: torch.Tensor) -> None:
    if ids.is_cuda:
        torch.cuda.synchronize(ids.device)


def _speed(ratios: Floats) -> Speed:
    """Ratios [round, whole or layers]."""
    middle, low, high = (np.quantile(ratios, q, axis=0) for q in (0.5, LOW, HIGH))
    return Speed(*(float(x) for x in (middle[0], low[0], high[0], middle[1], low[1], high[1])))
