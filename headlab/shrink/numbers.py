"""The numbers that weights are written in: the checkpoint's own, unless others are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from headlab.errors import HeadlabError
from headlab.gates import Model
from headlab.models.load import DTYPES


def check_numbers(name: str | None) -> None:
    """Raise HeadlabError unless weights can be written in these numbers; None are the checkpoint's own."""
    if name is not None and name not in DTYPES:
        raise HeadlabError(
            f"unknown dtype {name!r}; use one of {', '.join(DTYPES)}, or leave it out for the model's own",
            code="dtype.unknown",
        )


def stored(model: Model) -> str:
    """The numbers that a model's checkpoint has, whatever it was loaded in."""
    found: Any = model.module.config.dtype
    name = str(found).removeprefix("torch.")
    return name if name in DTYPES else model.dtype


def written_in(model: Model) -> str:
    """The numbers to write a model in: those of its checkpoint, if they hold its weights and are no wider."""
    own = stored(model)
    narrow = DTYPES[own].itemsize <= DTYPES[model.dtype].itemsize
    return own if narrow and not any(_changed(t, own) for t in _weights(model.module)) else model.dtype


@contextmanager
def rounded(module: PreTrainedModel, numbers: str) -> Iterator[bool]:
    """Within the block, every weight has the value it has in these numbers. Gives whether that changes any."""
    with torch.no_grad():
        kept = [(weight, weight.clone()) for weight in _weights(module) if _changed(weight, numbers)]
        for weight, _ in kept:
            weight.copy_(weight.to(DTYPES[numbers]))
    try:
        yield bool(kept)
    finally:
        with torch.no_grad():
            for weight, before in kept:
                weight.copy_(before)


def bytes_in(parameters: int, numbers: str) -> int:
    """Size of so many parameters."""
    return parameters * DTYPES[numbers].itemsize


def _weights(module: nn.Module) -> list[torch.Tensor]:
    return [tensor for tensor in module.state_dict().values() if tensor.is_floating_point()]


def _changed(weight: torch.Tensor, numbers: str) -> bool:
    there = weight.to(DTYPES[numbers]).to(weight.dtype)
    return not torch.equal(there.nan_to_num(), weight.nan_to_num())
