"""Attention of chosen heads for one sentence, as it crosses the worker's door. Imports torch."""

from __future__ import annotations

import torch

from headlab.errors import HeadlabError
from headlab.hooks.model import Model
from headlab.hooks.observe import attention, excluded_ids, started
from headlab.records import Head
from headlab.worker.schemas import MAX_TOKENS, AttentionRequest, Weights


def weights_of(model: Model, request: AttentionRequest) -> Weights:
    """Attention of the chosen heads for one sentence or pair, cut to 64 tokens. Raises HeadlabError for other heads."""
    heads = [Head(*head) for head in request.heads]
    for head in heads:
        model.grid.index(head)
    texts = (request.text,) if request.pair is None else (request.text, request.pair)
    cut = model.tokenizer(*texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
    full = model.tokenizer(*texts)["input_ids"]
    inputs = model.tokenizer(*texts, truncation=True, max_length=MAX_TOKENS, return_tensors="pt").to(model.device)
    found = attention(model, {**inputs, **_target(model, heads)}, heads)
    ends = set(excluded_ids(model.tokenizer, "separator"))
    return Weights(
        tokens=[str(token) for token in model.tokenizer.convert_ids_to_tokens(cut)],
        weights={f"{h.stack}.{h.layer}.{h.head}": _rounded(found[h]) for h in heads},
        separators=[place for place, token in enumerate(cut) if token in ends],
        truncated=len(full) > len(cut),
    )


def _target(model: Model, heads: list[Head]) -> dict[str, torch.Tensor]:
    """What an encoder-decoder model takes besides. Raises HeadlabError for heads that look from a target."""
    if not model.module.config.is_encoder_decoder:
        return {}
    for head in heads:
        if head.stack != "encoder":
            raise HeadlabError(
                f"head {head} attends from a translation, and a sentence has none; choose encoder heads",
                code="head.of_translation",
            )
    return started(model, 1)


def _rounded(weights: torch.Tensor) -> list[list[float]]:
    rounded: list[list[float]] = weights.double().numpy().round(3).tolist()
    return rounded
