"""Tokenizers of the kinds whose vocabulary can be cut, trained on a few sentences."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from support.tiny_llama import TEXTS, byte_level_tokenizer, sentencepiece_tokenizer

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
