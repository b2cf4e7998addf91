"""Attention that SDPA cannot compute.

Scores with a soft limit (Gemma 2), and a sink that is no token (GPT-OSS).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from numpy.testing import assert_allclose
from support.tiny_models import VOCAB, tiny_batch

from headlab.hooks import make_gateable, sum_weights
from headlab.models.checkpoint import Checkpoint, building_alone

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "num_labels": 5,
    "sliding_window": 4,
}
# The class of a kind's model, and the options that belong to this kind alone.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Gemma2": (
        "Gemma2ForSequenceClassification",
        {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 6},
    ),
    "VaultGemma": ("VaultGemmaForCausalLM", {"attn_logit_softcapping": 2.0}),
    "GptOss": (
        "GptOssForSequenceClassification",
        {"num_local_experts": 2, "num_experts_per_tok": 1},
    ),
}


def random_module(kind: str) -> transformers.PreTrainedModel:
    class_name, options = KINDS[kind]
    config_class = getattr(transformers, f"{kind}Config")
    model_class = getattr(transformers, class_name)
    with building_alone(), torch.no_grad():
        torch.manual_seed(0)
        module: transformers.PreTrainedModel = model_class(config_class(**SIZES, **options))
        for parameter in module.parameters():
            parameter.normal_(0, 0.5)
    return module.eval()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_outputs_are_those_of_transformers(kind: str) -> None:
    """That closed gates equal zeroed columns is tested by `make_gateable` itself."""
    eager_module = random_module(kind)
    batch = tiny_batch(random_module(kind), lengths=(7, 7))
    eager_module.set_attn_implementation("eager")
    with torch.inference_mode():
        want = eager_module(**batch, output_attentions=True)
    model = make_gateable(
        Checkpoint(
            name=kind,
            revision="test",
            fingerprint=kind,
            module=random_module(kind),
            tokenizer=None,
        )
    )
    assert model.grid.to_json() == {"decoder": [4, 4, 4]}
    weights_by_layer: dict[int, torch.Tensor] = {}
    sum_weights(model, batch, weights_by_layer.__setitem__)
    with torch.inference_mode():
        assert_allclose(model.module(**batch).logits, want.logits, atol=1e-5)
    for layer, weights in enumerate(want.attentions):
        assert_allclose(weights_by_layer[layer], weights, atol=1e-6)
    sums = weights_by_layer[0].sum(dim=-1)
    has_sink = bool((sums < 0.999).any())
    assert has_sink == (kind == "GptOss")
