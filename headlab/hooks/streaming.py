"""Heads that see the first and the last tokens of a text alone, as a cut cache leaves them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from headlab.core import HeadlabError, StreamingSizes

# Attention on some rows and heads, given query, key, value, mask and further arguments.
Attend = Callable[..., torch.Tensor]


def streamed(
    context: torch.Tensor,
    gate: torch.Tensor,
    sizes: StreamingSizes,
    attend: Attend,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None],
    options: dict[str, object],
) -> torch.Tensor:
    """Heads' outputs, mixed with what they give where they see the first and last tokens alone.

    That is computed for the rows and the groups of keys in which some gate is not 1, and for all
    where slopes by the gates are asked for. A text that is seen whole anyway is left as it is.

    Args:
        context: The heads' own outputs, [row, query, head, head_dim].
        gate: Broadcastable to these: 1 for their own, 0 for the others.
        sizes: How many tokens are seen.
        attend: The model's attention, which gives what `context` is.
        tensors: Its query [row, head, query, head_dim], key, value and mask.
        options: What else it takes.

    Raises:
        HeadlabError: There are keys of a cache, whose places in the text are not known.
    """
    query, key, value, mask = tensors
    if key.shape[2] != query.shape[2]:
        raise HeadlabError(
            f"under streaming ablation a pass must have the whole text, and here {query.shape[2]:,} tokens look at "
            f"{key.shape[2]:,}, some of them in a cache; give use_cache=False to generate",
            code="ablation.streaming_cache",
        )
    positions, lengths = _positions(mask, key)
    is_whole = lengths <= sum(sizes)
    if bool(is_whole.all()):
        return context
    gate = torch.where(is_whole[:, None, None, None], 1, gate)
    gate = gate.expand(len(context), -1, context.shape[2], -1)
    seen = _seen(mask, positions, sizes)
    if gate.requires_grad:
        other_context = attend(query, key, value, seen, **options)
        return torch.lerp(other_context, context, gate)
    is_closed = gate != 1
    rows = is_closed.any(3).any(2).any(1).nonzero()[:, 0]
    if not len(rows):
        return context
    shared = query.shape[1] // key.shape[1]
    closed_heads = is_closed.any(3).any(1).any(0)
    groups = closed_heads.view(-1, shared).any(1).nonzero()[:, 0]
    heads = (groups[:, None] * shared + torch.arange(shared, device=groups.device)).flatten()
    other_context = attend(
        query[rows][:, heads],
        key[rows][:, groups],
        value[rows][:, groups],
        _some(seen, rows, heads),
        **_options_of(options, rows, heads),
    )
    place = (rows[:, None], slice(None), heads)  # [row, head, query, head_dim]
    mixed = context.clone()
    mixed[place] = torch.lerp(other_context.transpose(1, 2), context[place], gate[place])
    return mixed


def _positions(mask: torch.Tensor | None, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where in its text each token is, int [row or 1, token], and tokens of each text, [row or 1].

    Choices that are packed behind their context are each at the positions right behind it, so they
    are not where they stand in the row, but behind as many tokens as they see.  A layer with a
    window of its own hides the first token: then it is the place that counts, and no choices are
    packed.  A token of padding is one that no token may look at.
    """
    tokens = key.shape[2]
    places = torch.arange(tokens, device=key.device)
    if mask is None:
        return places[None], places.new_full((1,), tokens)
    is_seen = _is_seen(mask).any(1)  # [row, query, key]
    is_token = is_seen.any(1)
    starts = is_token.long().argmax(-1)[:, None]
    sees_start = is_seen.gather(2, starts[..., None].expand(-1, tokens, 1))[..., 0]
    positions = torch.where(sees_start, is_seen.sum(-1) - 1, places - starts)
    return positions, torch.where(is_token, positions + 1, 0).amax(-1)


def _is_seen(mask: torch.Tensor) -> torch.Tensor:
    """Whether a query may look at a key by a mask, which may add to scores instead."""
    if mask.dtype == torch.bool:
        return mask
    return mask > torch.finfo(mask.dtype).min / 2


def _seen(
    mask: torch.Tensor | None, positions: torch.Tensor, sizes: StreamingSizes
) -> torch.Tensor:
    """A causal model's mask without what a streaming head does not see."""
    distance = (positions[:, :, None] - positions[:, None, :])[:, None]
    is_seen = (distance < sizes.last) | (positions < sizes.first)[:, None, None]
    is_seen = is_seen & (distance >= 0)
    if mask is None:
        return is_seen
    if mask.dtype == torch.bool:
        return mask & is_seen
    return mask.masked_fill(~is_seen, torch.finfo(mask.dtype).min)


def _some(tensor: torch.Tensor, rows: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    """Some rows and heads of [row or 1, head or 1, ...]."""
    if tensor.shape[0] > 1:
        tensor = tensor[rows]
    if tensor.shape[1] > 1:
        tensor = tensor[:, heads]
    return tensor


def _options_of(
    options: dict[str, object], rows: torch.Tensor, heads: torch.Tensor
) -> dict[str, object]:
    """What attention on some rows and heads takes besides its tensors."""
    chosen = dict(options)
    bias = options.get("position_bias")
    if isinstance(bias, torch.Tensor):
        chosen["position_bias"] = _some(bias, rows, heads)
    sinks = options.get("s_aux")
    if isinstance(sinks, torch.Tensor):
        chosen["s_aux"] = sinks[heads]
    return chosen
