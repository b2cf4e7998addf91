"""Tokenizers of the kinds whose vocabulary can be cut, trained on a few sentences, and a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import headlab
from headlab.masks import Mask
from headlab.tasks.intents.classes import LABELS
from support.saved_models import save_model
from support.tiny_llama import TEXTS, byte_level_tokenizer, sentencepiece_tokenizer
from support.tiny_models import SMALL_OPTIONS

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def unigram_tokenizer() -> PreTrainedTokenizerFast:
    """As XLM-R's: a Unigram model, with a special token behind all others too."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.add_special_tokens(["<mask>"])
    return _with_ends(tokenizer)


def word_piece_tokenizer() -> PreTrainedTokenizerFast:
    """As BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return _with_ends(tokenizer, bert=True)


def _with_ends(tokenizer: Tokenizer, *, bert: bool = False) -> PreTrainedTokenizerFast:
    """The tokenizer with [CLS] and [SEP] around a text."""
    start, end = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    if bert:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", end), ("[CLS]", start))
    else:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B [SEP]",
            special_tokens=[("[CLS]", start), ("[SEP]", end)],
        )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        **names,
    )


TOKENIZERS: dict[str, Any] = {
    "unigram": unigram_tokenizer,
    "wordpiece": word_piece_tokenizer,
    "bytes": lambda: byte_level_tokenizer("gpt-2"),
    "sentencepiece": sentencepiece_tokenizer,
}

KEPT = np.array([1, 0, 1, 0, 0, 0], bool)
"""Heads that the mask of `save_intents_classifier` keeps."""


def save_intents_classifier(folder: Path) -> Path:
    """Write a tiny classifier of intents whose vocabulary can be cut, and a mask.

    Args:
        folder: Gets the model in `model` and the mask in `mask.json`.

    Returns:
        The folder.
    """
    tokenizer = unigram_tokenizer()
    options = SMALL_OPTIONS | {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "max_position_embeddings": 256,
        "num_labels": len(LABELS),
        "id2label": dict(enumerate(LABELS)),
        "label2id": {label: number for number, label in enumerate(LABELS)},
    }
    torch.manual_seed(0)
    module = BertForSequenceClassification(BertConfig(**options))
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5)
    model = headlab.load(str(save_model(folder / "model", module, tokenizer)))
    Mask(model.grid, KEPT, model.identity()).save(folder / "mask.json")
    return folder
