"""A device whose memory is full from some number of rows on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from headlab.evaluation import Evaluator
from headlab.hooks import Model
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

# resumed and branched, gated by a hook, gated and passed in full
FAMILIES = [
    "bert",
    "deberta-v2",
    "xlm",
]
EXAMPLE_TOO_LARGE = "memory.example_too_large"


@contextmanager
def room_for(model: Model, rows: int) -> Iterator[list[int]]:
    """Let memory be full in the middle of every forward pass of more rows.

    Args:
        model: The model, whose memory is no longer limited afterwards.
        rows: The largest number of rows that fit.

    Yields:
        The sizes of the batches that were tried.
    """
    sizes: list[int] = []

    def note_size(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        sizes.append(len(kwargs["input_ids"]))

    def raise_if_full(_module: Any, _args: Any) -> None:
        if sizes[-1] > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    hooks = [
        model.module.register_forward_pre_hook(note_size, with_kwargs=True),
        # when the last layer is reached, the layers below have been computed
        model.projections[-1].register_forward_pre_hook(raise_if_full),
    ]
    try:
        yield sizes
    finally:
        for hook in hooks:
            hook.remove()


def evaluator(family: str = "bert", **options: Any) -> Evaluator:
    return Evaluator(
        tiny_model(family, tokenizer=tiny_tokenizer()), tiny_task(), "xx", "dev", 24, **options
    )
