"""Making transformers know headlab's own model classes."""

from __future__ import annotations

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from headlab.models.allattention.config import MODEL_TYPE, AllAttentionConfig
from headlab.models.allattention.modelling import AllAttentionForCausalLM

OWN: dict[str, type[PreTrainedModel]] = {"AllAttentionForCausalLM": AllAttentionForCausalLM}


def make_known() -> None:
    """Let AutoConfig and AutoModelForCausalLM read folders of headlab's own models; safe to call again."""
    AutoConfig.register(MODEL_TYPE, AllAttentionConfig, exist_ok=True)
    AutoModelForCausalLM.register(AllAttentionConfig, AllAttentionForCausalLM, exist_ok=True)
