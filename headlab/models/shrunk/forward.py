"""What an attention layer does that has lost all its heads, or shares position biases with layers of other heads."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import EncoderDecoderCache


class PickedBias:
    """A T5 self-attention with heads of its own: the bias it passes on is that of all heads, and it takes its part."""

    picked: list[int]  # its heads' columns in the bias

    def forward(
        self,
        hidden_states: torch.Tensor,
        mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        past_key_values: Any = None,
        **more: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """As T5Attention.forward."""
        whole = position_bias if position_bias is not None else shared_bias(self, hidden_states, past_key_values)
        mine = whole[:, self.picked]
        given = {"mask": mask, "key_value_states": key_value_states, "past_key_values": past_key_values, **more}
        out, _, weights = super().forward(hidden_states, position_bias=mine, **given)  # type: ignore[misc]
        return out, whole, weights


class OwnBias:
    """A T5 cross-attention, whose bias is zero: it does not take that of the layer before, which has other heads."""

    def forward(self, hidden_states: torch.Tensor, position_bias: torch.Tensor | None = None, **more: Any) -> Any:
        """As T5Attention.forward."""
        return super().forward(hidden_states, position_bias=None, **more)  # type: ignore[misc]


class Headless:
    """An attention without heads: what is left is the bias of its output projection."""

    out_name: str  # of the output projection; "" where that stands outside
    gives_bias: bool  # whether it hands a position bias to the next layer
    layer_idx: int
    config: Any

    def forward(
        self, hidden_states: torch.Tensor, past_key_values: Any = None, position_bias: Any = None, **more: Any
    ) -> tuple[Any, ...]:
        """As the attention's it stands for."""
        other = more.get("key_value_states")
        other = more.get("encoder_hidden_states") if other is None else other
        if self.gives_bias and other is None and position_bias is None:
            position_bias = shared_bias(self, hidden_states, past_key_values)
        weights = None
        if self.config._attn_implementation == "eager":  # the only one that gives weights
            weights = no_weights(self, hidden_states, other, past_key_values)
        if past_key_values is not None and other is None:
            keep_count(past_key_values, hidden_states, self.layer_idx)
        out = getattr(self, self.out_name)(hidden_states) if self.out_name else hidden_states
        return (out, position_bias, weights) if self.gives_bias else (out, weights)


class BiasOnly:
    """An output projection without inputs: its bias, or zero, for every token."""

    bias: torch.Tensor | None
    width: int

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """[..., anything] -> [..., width]."""
        shape = (*given.shape[:-1], self.width)
        return given.new_zeros(shape) if self.bias is None else self.bias.expand(shape)


@cache
def mixed(first: Any, second: Any) -> type:
    """The class of `second` with the forward pass of `first`."""
    return type(f"{first.__name__}{second.__name__}", (first, second), {})


def become(module: nn.Module, first: type, **attributes: Any) -> None:
    """Give a module another forward pass; its weights, names and children stay."""
    now: Any = type(module)
    module.__class__ = mixed(first, now)
    for name, value in attributes.items():
        setattr(module, name, value)


def shared_bias(attention: Any, hidden: torch.Tensor, past: Any) -> torch.Tensor:
    """T5's position bias of all heads, [1, head, query, key], in the layer that has its weights."""
    own = own_cache(past)
    seen = 0 if own is None else own.get_seq_length(attention.layer_idx)
    keys = keys_seen(attention, hidden, own)
    bias: torch.Tensor = attention.compute_bias(hidden.shape[1], keys, device=hidden.device, past_seen_tokens=seen)
    return bias


def no_weights(attention: Any, hidden: torch.Tensor, other: torch.Tensor | None, past: Any) -> torch.Tensor:
    """Attention weights of no heads, [row, 0, query, key]: a layer that gave none would move up those behind it."""
    keys = keys_seen(attention, hidden, own_cache(past)) if other is None else other.shape[1]
    return hidden.new_zeros(len(hidden), 0, hidden.shape[1], keys)


def own_cache(past: Any) -> Any:
    """The cache of self-attention."""
    return past.self_attention_cache if isinstance(past, EncoderDecoderCache) else past


def keys_seen(attention: Any, hidden: torch.Tensor, own: Any) -> int:
    """Keys that a layer looks at whose cache has not got these states yet."""
    found: int = hidden.shape[1] if own is None else own.get_mask_sizes(hidden.shape[1], attention.layer_idx)[0]
    return found


def keep_count(past: Any, hidden: torch.Tensor, layer: int) -> None:
    """Let the cache count tokens at a layer without heads: transformers asks the first layer how many there are."""
    own = own_cache(past)
    nothing = hidden.new_zeros(len(hidden), 1, hidden.shape[1], 1)
    own.update(nothing, nothing, layer)
