"""The attention function headlab registers with transformers: SDPA, then gates."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from headlab.gates.state import Site, active_for, apply_gates

NAME = "headlab"
SITE = "_headlab_site"


def register() -> None:
    """Make `model.set_attn_implementation("headlab")` possible; safe to call again."""
    AttentionInterface.register(NAME, gated_sdpa)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def gated_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention whose heads are scaled by this thread's gates.

    query: [row, head, query, head_dim].  Returns ([row, query, head, head_dim], None), as transformers
    expects of an attention function.
    """
    context, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    site: Site | None = getattr(module, SITE, None)
    active = active_for(site.owner) if site is not None else None
    if site is None or active is None:
        return context, None
    row = site.row(active)
    if active.weights is not None and (active.weight_layers is None or row in active.weight_layers):
        weights = attention_weights(module, query, key, attention_mask, **kwargs)
        # All-attention layers look at vectors of their own as well, which are no tokens
        active.weights(row, weights[..., : weights.shape[-1] - getattr(module, "persistent", 0)])
    return apply_gates(context, active, row, site.heads), None


def attention_weights(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """What SDPA does not return: softmax weights [row, head, query, key]; rows sum to 1."""
    groups = getattr(module, "num_key_value_groups", 1)
    key = repeat_kv(key, groups)
    scores = query @ key.transpose(-1, -2) * (scaling if scaling is not None else query.shape[-1] ** -0.5)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    elif attention_mask is not None:
        scores = scores + attention_mask
    elif query.shape[2] > 1 and (getattr(module, "is_causal", False) if is_causal is None else is_causal):
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    # A row that may attend to nothing (left padding) gives 0, as SDPA does, and not NaN.
    return torch.softmax(scores.float(), dim=-1).nan_to_num(0.0)
