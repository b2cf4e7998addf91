"""Tiny models on disk: a folder with configuration, safetensors and a tokenizer."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from headlab.models.checkpoint import building_alone
from headlab.tasks.intents.classes import LABELS
from support.tiny_models import SMALL_OPTIONS, VOCAB, tiny_module
from support.tiny_task import tiny_tokenizer

LAYERS = 2
HEADS = 3


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that makes one token of each character, so that real sentences differ."""
    characters = string.ascii_lowercase + string.ascii_uppercase + string.digits + "äöüß "
    characters = characters[: VOCAB - 4]
    vocabulary = {
        "[PAD]": 0,
        "<s>": 1,
        "</s>": 2,
        "[UNK]": 3,
        **{character: number for number, character in enumerate(characters, 4)},
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **special
    )


def save_classifier(folder: Path, seed: int = 0, layers: int = LAYERS, heads: int = HEADS) -> Path:
    """A tiny BERT that answers with the labels of task intents, and of which every head matters."""
    options = SMALL_OPTIONS | {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": 256,
        "num_labels": len(LABELS),
        "id2label": dict(enumerate(LABELS)),
        "label2id": {label: number for number, label in enumerate(LABELS)},
    }
    config = hf.BertConfig(**options)
    torch.manual_seed(seed)
    module = hf.BertForSequenceClassification(config)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5)
    return save_model(folder, module, letter_tokenizer())


def save_family(folder: Path, family: str, seed: int = 0) -> Path:
    """A tiny model of a family of tests/support/tiny_models.py, float32."""
    return save_model(folder, tiny_module(family, torch.float32, seed), tiny_tokenizer())


def save_model(
    folder: Path, module: hf.PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> Path:
    with building_alone():
        module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def keep_two_classes(folder: Path, names: Sequence[str] = ("LABEL_0", "LABEL_1")) -> Path:
    """Make a saved classifier one of two classes, which have no telling names unless given."""
    path = folder / "config.json"
    changes = {"id2label": dict(zip("01", names, strict=True)), "num_labels": 2}
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    weights = load_file(folder / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name][:2].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
