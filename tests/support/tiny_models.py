"""Tiny random models of many architectures: real classes, made-up weights, sizes asserted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers as hf
from transformers import PreTrainedModel

from headlab.hooks import Model, make_gateable
from headlab.models.checkpoint import Checkpoint, building_alone

VOCAB = 97


@dataclass(frozen=True)
class Family:
    """How to build a tiny model, and what its head grid must be.

    Attributes:
        config: Name of the configuration's class in transformers.
        model: Name of the model's class.
        options: Arguments of the configuration.
        grid: The heads of each layer, by stack.
    """

    config: str
    model: str
    options: dict[str, Any]
    grid: dict[str, list[int]]
    extra: dict[str, Any] = field(default_factory=dict)


SMALL_OPTIONS = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "num_labels": 5,
}
# The labels of the classifiers.
LABELS = ("a", "b", "c", "d", "e")
LABEL_OPTIONS = {
    "id2label": dict(enumerate(LABELS)),
    "label2id": {label: number for number, label in enumerate(LABELS)},
}
ENCODER = {"encoder": [4, 4, 4]}
SEQ2SEQ = {
    "vocab_size": VOCAB,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
}
THREE_STACKS = {"encoder": [4, 4], "decoder": [3, 3, 3], "cross": [3, 3, 3]}
FAMILIES = {
    "bert": Family("BertConfig", "BertForSequenceClassification", SMALL_OPTIONS, ENCODER),
    "xlm-roberta": Family(
        "XLMRobertaConfig", "XLMRobertaForSequenceClassification", SMALL_OPTIONS, ENCODER
    ),
    "electra": Family(
        "ElectraConfig",
        "ElectraForSequenceClassification",
        SMALL_OPTIONS | {"embedding_size": 24},
        ENCODER,
    ),
    "distilbert": Family(
        "DistilBertConfig",
        "DistilBertForSequenceClassification",
        {
            "vocab_size": VOCAB,
            "dim": 24,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 32,
            "max_position_embeddings": 64,
            "num_labels": 5,
        },
        ENCODER,
    ),
    "albert": Family(
        "AlbertConfig",
        "AlbertForSequenceClassification",
        SMALL_OPTIONS | {"embedding_size": 12, "classifier_dropout_prob": 0.0},
        ENCODER,
    ),
    "deberta-v2": Family(
        "DebertaV2Config",
        "DebertaV2ForSequenceClassification",
        SMALL_OPTIONS
        | {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
        ENCODER,
    ),
    "modernbert": Family(
        "ModernBertConfig",
        "ModernBertForSequenceClassification",
        {
            "vocab_size": VOCAB,
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 32,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "num_labels": 5,
        },
        ENCODER,
    ),
    "marian": Family("MarianConfig", "MarianMTModel", SEQ2SEQ, THREE_STACKS),
    "mbart": Family("MBartConfig", "MBartForConditionalGeneration", SEQ2SEQ, THREE_STACKS),
    "t5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "vocab_size": VOCAB,
            "d_model": 24,
            "d_kv": 6,
            "num_layers": 2,
            "num_decoder_layers": 3,
            "num_heads": 4,
            "d_ff": 32,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
            "eos_token_id": 1,
        },
        {"encoder": [4, 4], "decoder": [4, 4, 4], "cross": [4, 4, 4]},
    ),
    "bert-tokens": Family("BertConfig", "BertForTokenClassification", SMALL_OPTIONS, ENCODER),
    "gpt2": Family(
        "GPT2Config",
        "GPT2ForSequenceClassification",
        {
            "vocab_size": VOCAB,
            "n_embd": 24,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 64,
            "pad_token_id": 0,
            "num_labels": 5,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        {"decoder": [4, 4, 4]},
    ),
    "llama": Family(
        "LlamaConfig",
        "LlamaForSequenceClassification",
        {
            "vocab_size": VOCAB,
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "num_labels": 5,
        },
        {"decoder": [4, 4, 4]},
    ),
    "bloom": Family(
        "BloomConfig",
        "BloomForSequenceClassification",
        {
            "vocab_size": VOCAB,
            "hidden_size": 24,
            "n_layer": 3,
            "n_head": 4,
            "pad_token_id": 0,
            "num_labels": 5,
        },
        {"decoder": [4, 4, 4]},
    ),
    "xlm": Family(
        "XLMConfig",
        "XLMForSequenceClassification",
        {
            "vocab_size": VOCAB,
            "emb_dim": 24,
            "n_layers": 3,
            "n_heads": 4,
            "max_position_embeddings": 64,
            "num_labels": 5,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        ENCODER,
    ),
}

DECODER = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
THREE_LAYERS = {"decoder": [4, 4, 4]}
LANGUAGE_MODELS = {
    "llama-lm": Family(
        "LlamaConfig", "LlamaForCausalLM", DECODER | {"num_key_value_heads": 2}, THREE_LAYERS
    ),
    "gpt2-lm": Family("GPT2Config", "GPT2LMHeadModel", FAMILIES["gpt2"].options, THREE_LAYERS),
    "bloom-lm": Family("BloomConfig", "BloomForCausalLM", FAMILIES["bloom"].options, THREE_LAYERS),
    "window-lm": Family(
        "MistralConfig",
        "MistralForCausalLM",
        DECODER | {"num_key_value_heads": 2, "sliding_window": 6},
        THREE_LAYERS,
    ),
    "bert-lm": Family("BertConfig", "BertForMaskedLM", SMALL_OPTIONS, ENCODER),
    "bert-both-ways": Family("BertConfig", "BertLMHeadModel", SMALL_OPTIONS, ENCODER),
    "xlm-lm": Family("XLMConfig", "XLMWithLMHeadModel", FAMILIES["xlm"].options, ENCODER),
    "mobilebert-lm": Family(
        "MobileBertConfig",
        "MobileBertForMaskedLM",
        SMALL_OPTIONS
        | {"embedding_size": 12, "intra_bottleneck_size": 24, "num_feedforward_networks": 1},
        ENCODER,
    ),
}


def tiny_module(family: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> PreTrainedModel:
    """A tiny random model whose weights are spread enough that every head matters."""
    spec = (FAMILIES | LANGUAGE_MODELS)[family]
    config = getattr(hf, spec.config)(**spec.options)
    with building_alone(), torch.no_grad():
        torch.manual_seed(seed)
        module: PreTrainedModel = getattr(hf, spec.model)(config)
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
    if module.config.num_labels == len(LABELS):
        module.config.update(LABEL_OPTIONS)
    return module.to(dtype).eval()


def tiny_model(
    family: str, dtype: torch.dtype = torch.float64, seed: int = 0, tokenizer: Any = None
) -> Model:
    """The same model made gateable: its heads are found and self-tested."""
    module = tiny_module(family, dtype, seed)
    checkpoint = Checkpoint(f"tiny-{family}", "test", f"{family}-{seed}", module, tokenizer)
    model = make_gateable(checkpoint)
    assert model.grid.to_json() == (FAMILIES | LANGUAGE_MODELS)[family].grid, model.grid
    return model


def tiny_batch(
    module: PreTrainedModel, lengths: tuple[int, ...] = (7, 5, 7), seed: int = 1
) -> dict[str, torch.Tensor]:
    """A padded batch of random tokens (padding on the right)."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCAB, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    ids = ids.masked_fill(~mask, int(module.config.get_text_config().pad_token_id or 0))
    batch = {"input_ids": ids, "attention_mask": mask.long()}
    if module.config.is_encoder_decoder:
        batch["decoder_input_ids"] = torch.randint(5, VOCAB, (len(lengths), 6), generator=generator)
    return batch
