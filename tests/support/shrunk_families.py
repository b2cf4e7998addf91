"""Tiny models of every family that can be shrunk, and masks that leave their layers uneven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import transformers as hf
from transformers import PreTrainedModel
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from headlab.hooks import Model, make_gateable
from headlab.masks import Mask
from headlab.models.checkpoint import Checkpoint, building_alone
from support.tiny_models import ENCODER, FAMILIES, SEQ2SEQ, SMALL, THREE, Family, tiny_model

LLAMA = FAMILIES["llama"]
QWEN = LLAMA.options | {"head_dim": 6, "layer_types": ["full_attention"] * 3}
MORE = {
    "roberta": Family(
        "RobertaConfig", "RobertaForTokenClassification", SMALL | {"pad_token_id": 0}, ENCODER
    ),
    "camembert": Family(
        "CamembertConfig",
        "CamembertForSequenceClassification",
        SMALL | {"pad_token_id": 0},
        ENCODER,
    ),
    "bart": Family("BartConfig", "BartForConditionalGeneration", SEQ2SEQ, THREE),
    "mt5": replace(FAMILIES["t5"], config="MT5Config", model="MT5ForConditionalGeneration"),
    # transformers makes as many caches as T5's encoder has layers
    "t5-even": replace(
        FAMILIES["t5"],
        options=FAMILIES["t5"].options | {"num_decoder_layers": 2},
        grid={"encoder": [4, 4], "decoder": [4, 4], "cross": [4, 4]},
    ),
    "mistral": Family(
        "MistralConfig", "MistralForCausalLM", LLAMA.options | {"sliding_window": 4}, LLAMA.grid
    ),
    "qwen2": Family("Qwen2Config", "Qwen2ForSequenceClassification", QWEN, LLAMA.grid),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", QWEN, LLAMA.grid),
    "gpt2-lm": replace(FAMILIES["gpt2"], model="GPT2LMHeadModel"),
    "llama-lm": replace(LLAMA, model="LlamaForCausalLM"),
    "llama-biased": replace(LLAMA, options=LLAMA.options | {"attention_bias": True}),
    "bert-model": Family("BertConfig", "BertModel", SMALL, ENCODER),
    "bert-decoder": Family(
        "BertConfig", "BertLMHeadModel", SMALL | {"is_decoder": True}, {"decoder": [4, 4, 4]}
    ),
}
SHRINKABLE = (
    "bert",
    "bert-tokens",
    "xlm-roberta",
    "electra",
    "distilbert",
    "marian",
    "mbart",
    "t5",
    "gpt2",
    "llama",
    *MORE,
)


def model_of(
    family: str, tokenizer: Any = None, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Model:
    """A tiny random model with its heads known; every parameter random, so that biases count."""
    if family in FAMILIES:
        found = tiny_model(family, dtype, seed, tokenizer)
    else:
        spec = MORE[family]
        with building_alone():
            torch.manual_seed(seed)
            module: PreTrainedModel = getattr(hf, spec.model)(
                getattr(hf, spec.config)(**spec.options)
            )
        name = f"tiny-{family}"
        found = make_gateable(
            Checkpoint(name, "test", f"{family}-{seed}", module.to(dtype).eval(), tokenizer)
        )
        assert found.grid.to_json() == spec.grid
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in found.module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1) * 0.2)
        for part in found.module.modules():
            if isinstance(part, MarianSinusoidalPositionalEmbedding):  # computed, and not saved
                part.weight.copy_(part.create_weight())
    return found


def uneven(model: Model, seed: int = 0) -> Mask:
    """About half of the heads gone, no two layers alike, and the first layer of every stack without any."""
    rng = np.random.default_rng(seed)
    kept = rng.random(model.grid.size) < 0.6
    for number, head in enumerate(model.grid.heads):
        if head.layer == 0:
            kept[number] = False
        elif head.layer == 1:
            kept[number] = head.head == 1
    return mask_of(model, kept)


def mask_of(model: Model, kept: Any, **chosen: Any) -> Mask:
    """A mask of this very model."""
    return Mask(model.grid, np.asarray(kept, bool), model.identity(), chosen)


def logits(module: PreTrainedModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits at real tokens, or the hidden states of a model without a head."""
    with torch.inference_mode():
        out = module(**batch)
    found = out.logits if "logits" in out else out.last_hidden_state
    mask = batch["attention_mask"].bool()
    if found.shape[:2] == mask.shape and "decoder_input_ids" not in batch:
        return found[mask]
    return found
