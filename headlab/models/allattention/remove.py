"""Removing heads for good, their persistent vectors with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from headlab.errors import HeadlabError
from headlab.masks import Mask
from headlab.models.allattention.config import AllAttentionConfig
from headlab.models.allattention.modelling import AllAttention, AllAttentionForCausalLM
from headlab.models.alone import alone
from headlab.records import Bools

ROWS, COLUMNS = ("query", "key", "value"), ("out",)
PERSISTENT = ("persistent_keys", "persistent_values")


def remove_heads(model: AllAttentionForCausalLM, mask: Mask, *, rescale: bool = False) -> AllAttentionForCausalLM:
    """A smaller model without the heads the mask removes and their persistent vectors; the given one stays.

    It answers as the given one with those heads' gates at 0.  rescale: multiply what is left in each layer by its heads
    before / heads after, as gates trained with output scaling have it (Shim et al., 2021).  A layer may lose all its
    heads.  Raises HeadlabError if the mask is of another grid.
    """
    kept = by_layer(model.config, mask)
    sizes = model.config.to_dict() | {"heads_per_layer": [int(layer.sum()) for layer in kept]}
    config = AllAttentionConfig.from_dict(sizes)
    with alone():
        smaller = AllAttentionForCausalLM(config)
    torch.nn.Module.to(smaller, device=model.device, dtype=model.dtype)
    smaller.load_state_dict(_weights_without(model, kept, rescale))
    smaller.train(model.training)
    return smaller


def by_layer(config: AllAttentionConfig, mask: Mask) -> list[Bools]:
    """Heads kept, bool [head], of every layer: those without heads are no row of the mask's grid."""
    found = tuple(n for n in config.heads_per_layer if n)
    if len(mask.grid.stacks) != 1 or mask.grid.stacks[0].heads != found:
        raise HeadlabError(
            f"the mask is for a model with {mask.grid}; this model has layers of {list(found)} heads",
            code="mask.other_grid",
        )
    ends = np.cumsum(config.heads_per_layer)
    return np.split(mask.kept, ends[:-1])


@torch.no_grad()
def _weights_without(model: AllAttentionForCausalLM, kept: Sequence[Bools], rescale: bool) -> dict[str, torch.Tensor]:
    found = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for number, (layer, stay) in enumerate(zip(model.model.layers, kept, strict=True)):
        attention = layer.attention
        if not isinstance(attention, AllAttention):
            continue
        path = f"model.layers.{number}.attention"
        if not stay.any():
            gone = [
                n for n in found if n.startswith(f"{path}.") or (model.config.pre_norm and n.startswith(f"{path}_"))
            ]
            for name in gone:
                del found[name]
            continue
        heads = torch.as_tensor(np.flatnonzero(stay), device=model.device)
        found |= _layer_without(attention, path, heads, len(stay) / len(heads) if rescale else 1.0)
    return found


def _layer_without(attention: AllAttention, path: str, heads: torch.Tensor, scale: float) -> dict[str, torch.Tensor]:
    """The changed tensors of one attention, for the heads that stay."""
    size = attention.config.head_size
    places = (heads[:, None] * size + torch.arange(size, device=heads.device)).flatten()
    out = {f"{path}.{name}.weight": getattr(attention, name).weight[places].clone() for name in ROWS}
    out |= {f"{path}.{name}.weight": getattr(attention, name).weight[:, places] * scale for name in COLUMNS}
    if attention.config.persistent:
        out |= {f"{path}.{name}": getattr(attention, name)[heads].clone() for name in PERSISTENT}
    return out
