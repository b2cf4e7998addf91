"""Streaming heads the slow way: softmax over a list of keys, for each text, head and token."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "streaming_by_hand"
_closed: dict[int, set[int]] = {}
_sizes = [0, 0]


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """A causal attention of texts without padding; see `closed_by_hand`."""
    assert attention_mask is None
    rows, heads, tokens, width = query.shape
    shared = heads // key.shape[1]
    output = torch.zeros(rows, tokens, heads, value.shape[-1], dtype=query.dtype)
    first, last = _sizes
    for head in range(heads):
        is_closed = head in _closed.get(module.layer_idx, ())
        for token in range(tokens):
            seen = [
                other
                for other in range(token + 1)
                if not is_closed or other < first or other > token - last
            ]
            for row in range(rows):
                keys = key[row, head // shared, seen]
                scores = keys @ query[row, head, token] * (scaling or width**-0.5)
                if softcap is not None:
                    scores = softcap * torch.tanh(scores / softcap)
                weights = torch.softmax(scores, dim=0)
                output[row, token, head] = weights @ value[row, head // shared, seen]
    return output, None


def by_hand(module: nn.Module) -> Any:
    """A copy of a model whose attention is computed here."""
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, lambda *_args, **_kwargs: None)
    copy = deepcopy(module)
    copy.set_attn_implementation(NAME)
    return copy


@contextmanager
def closed_by_hand(heads: Collection[tuple[int, int]], first: int, last: int) -> Iterator[None]:
    """Let some heads, (layer, head) each, see the first and the last tokens alone."""
    _closed.clear()
    for layer, head in heads:
        _closed.setdefault(layer, set()).add(head)
    _sizes[:] = [first, last]
    try:
        yield
    finally:
        _closed.clear()
