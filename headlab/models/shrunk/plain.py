"""Shrunk models that a family's own configuration can say: transformers reads them without headlab."""

from __future__ import annotations

from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import PretrainedConfig, PreTrainedModel

from headlab.models.shrunk.classes import is_shrunk
from headlab.models.shrunk.cut import Layers
from headlab.models.shrunk.families import FAMILIES, LLAMA, base_type, units

NOT_COPIED = ("transformers_version", "architectures")


def plain_config(module: PreTrainedModel, stay: Layers) -> PretrainedConfig | None:
    """The family's own configuration of a model that keeps these heads; None where it needs one of headlab's.

    Any model that keeps all its heads has one, and a Llama or its kin whose layers all keep as many (its head_dim is
    written down, so the width need not be that of the hidden states).
    """
    found = [unit for unit in units(module) if unit.stack in stay]
    if is_shrunk(module.config):
        return None
    if all(len(stay[unit.stack][unit.layer]) == unit.heads for unit in found):
        return _config(module, {})
    sizes = {(len(stay[unit.stack][unit.layer]), unit.group, unit.size) for unit in found}
    if FAMILIES[base_type(module.config)] is not LLAMA or len(sizes) != 1:
        return None
    ((heads, group, size),) = sizes
    if not heads:
        return None
    try:
        names = {"num_attention_heads": heads, "num_key_value_heads": heads // group, "head_dim": size}
        return _config(module, names)
    except (ValueError, StrictDataclassError):  # Llama's wants hidden states that its heads divide
        return None


def _config(module: PreTrainedModel, sizes: dict[str, Any]) -> PretrainedConfig:
    facts = {name: value for name, value in module.config.to_dict().items() if name not in NOT_COPIED}
    config: PretrainedConfig = type(module.config).from_dict(facts | sizes)
    return config
