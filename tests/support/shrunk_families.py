"""Tiny models of every family that can be shrunk, and masks that leave their layers uneven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import transformers as hf
from transformers import PreTrainedModel
from transformers.models.gemma2.modeling_gemma2 import Gemma2TextScaledWordEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from headlab.hooks import Model, make_gateable
from headlab.masks import Mask
from headlab.models.allattention.modelling import AllAttentionConfig, AllAttentionForCausalLM
from headlab.models.checkpoint import Checkpoint, building_alone
from support.tiny_models import (
    ENCODER,
    FAMILIES,
    SEQ2SEQ,
    SMALL_OPTIONS,
    THREE_STACKS,
    Family,
    tiny_model,
)

LLAMA = FAMILIES["llama"]
QWEN_OPTIONS = LLAMA.options | {"head_dim": 6, "layer_types": ["full_attention"] * 3}
OTHER_FAMILIES = {
    "roberta": Family(
        "RobertaConfig",
        "RobertaForTokenClassification",
        SMALL_OPTIONS | {"pad_token_id": 0},
        ENCODER,
    ),
    "camembert": Family(
        "CamembertConfig",
        "CamembertForSequenceClassification",
        SMALL_OPTIONS | {"pad_token_id": 0},
        ENCODER,
    ),
    "bart": Family("BartConfig", "BartForConditionalGeneration", SEQ2SEQ, THREE_STACKS),
    "mt5": replace(FAMILIES["t5"], config="MT5Config", model="MT5ForConditionalGeneration"),
    # With two layers in each stack: transformers makes as many caches as T5's encoder has layers.
    "t5-even": replace(
        FAMILIES["t5"],
        options=FAMILIES["t5"].options | {"num_decoder_layers": 2},
        grid={"encoder": [4, 4], "decoder": [4, 4], "cross": [4, 4]},
    ),
    "mistral": Family(
        "MistralConfig", "MistralForCausalLM", LLAMA.options | {"sliding_window": 4}, LLAMA.grid
    ),
    "qwen2": Family("Qwen2Config", "Qwen2ForSequenceClassification", QWEN_OPTIONS, LLAMA.grid),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", QWEN_OPTIONS, LLAMA.grid),
    "gemma2": Family(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        QWEN_OPTIONS | {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
        LLAMA.grid,
    ),
    "gpt2-lm": replace(FAMILIES["gpt2"], model="GPT2LMHeadModel"),
    "llama-lm": replace(LLAMA, model="LlamaForCausalLM"),
    "llama-biased": replace(LLAMA, options=LLAMA.options | {"attention_bias": True}),
    "bert-model": Family("BertConfig", "BertModel", SMALL_OPTIONS, ENCODER),
    "bert-decoder": Family(
        "BertConfig",
        "BertLMHeadModel",
        SMALL_OPTIONS | {"is_decoder": True},
        {"decoder": [4, 4, 4]},
    ),
}
SHRINKABLE = (
    "bert",
    "bert-tokens",
    "xlm-roberta",
    "electra",
    "distilbert",
    "modernbert",
    "marian",
    "mbart",
    "t5",
    "gpt2",
    "llama",
    *OTHER_FAMILIES,
)


def random_model(
    family: str, tokenizer: Any = None, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Model:
    """A gateable tiny model whose parameters are all random, so that biases matter too."""
    if family in FAMILIES:
        model = tiny_model(family, dtype, seed, tokenizer)
    else:
        spec = OTHER_FAMILIES[family]
        with building_alone():
            torch.manual_seed(seed)
            config = getattr(hf, spec.config)(**spec.options)
            module: PreTrainedModel = getattr(hf, spec.model)(config)
        fingerprint = f"{family}-{seed}"
        module = module.to(dtype).eval()
        model = make_gateable(Checkpoint(f"tiny-{family}", "test", fingerprint, module, tokenizer))
        assert model.grid.to_json() == spec.grid
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1) * 0.2)
        for part in model.module.modules():
            if isinstance(part, MarianSinusoidalPositionalEmbedding):  # computed, and not saved
                part.weight.copy_(part.create_weight())
            if isinstance(part, Gemma2TextScaledWordEmbedding):  # the same
                part.embed_scale.fill_(part.scalar_embed_scale)
    return model


def all_attention_model() -> Model:
    """A tiny model of headlab's own All-attention class, without a tokenizer."""
    torch.manual_seed(0)
    config = AllAttentionConfig(
        97, 24, 6, [4, 4, 4], 5, dropout=0.0, max_position_embeddings=16, pad_token_id=0
    )
    module = AllAttentionForCausalLM(config).double().eval()
    return make_gateable(Checkpoint("all", "test", "all", module, None))


def uneven_mask(model: Model, seed: int = 0) -> Mask:
    """A mask that removes about half of the heads, and all heads of the first layer of every stack.

    No two layers are left alike.
    """
    rng = np.random.default_rng(seed)
    is_kept = rng.random(model.grid.size) < 0.6
    for number, head in enumerate(model.grid.heads):
        if head.layer == 0:
            is_kept[number] = False
        elif head.layer == 1:
            is_kept[number] = head.head == 1
    return mask_of(model, is_kept)


def mask_of(model: Model, kept_heads: Any, **provenance: Any) -> Mask:
    """A mask for this model."""
    return Mask(model.grid, np.asarray(kept_heads, bool), model.identity(), provenance)


def logits(module: PreTrainedModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits at real tokens, or the hidden states of a model without a head."""
    with torch.inference_mode():
        output = module(**batch)
    logits_or_states = output.logits if "logits" in output else output.last_hidden_state
    mask = batch["attention_mask"].bool()
    if logits_or_states.shape[:2] == mask.shape and "decoder_input_ids" not in batch:
        return logits_or_states[mask]
    return logits_or_states
