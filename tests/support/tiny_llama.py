"""Tiny decoders of Llama's layers whose tokenizers llama.cpp knows, and masks of whole groups."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
import transformers as hf
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from headlab.hooks import Model, make_gateable
from headlab.masks import Mask
from headlab.models.checkpoint import Checkpoint, building_alone
from headlab.shrink.gguf_tokens import LLAMA_3_PATTERN

START, END = "<|startoftext|>", "<|endoftext|>"
TEXTS = (
    "The quick brown fox doesn't jump over 12 lazy dogs in 2026.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Pójdźże, kiń tę chmurność w głąb flaszy!",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "1234 1234 1234 1234567 1234567 2026 2026 2026",
    "สวัสดีครับ ผมชื่อสมชาย อยู่กรุงเทพฯ",
    "敏捷的棕色狐狸跳过了懒狗。",
    "כל אדם נולד חופשי ושווה בכבוד ובזכויות.",
)
"""What the tokenizers are trained on."""
UNSEEN_TEXTS = (
    *TEXTS,
    "Hello",
    "  two  spaces\tand a tab\n\nand lines  ",
    "it's we'll THEY'VE I'm 1234567 3.14 ½ ²",
    "emoji 😀👩‍👩‍👧 and flags 🇩🇪🇹🇭",
    "rare ᚠᛇᚻ ꦗꦮ ߒߞߏ 𒀀 𝔘𝔫𝔦",
    "mixed Größe日本語العربيةไทย123abc",
    "e\u0301 combining, \u00a0 no-break, \u200b zero width",
    "x" * 40 + "!!??...",
)
"""Texts to compare tokenizers on; most were not used to train them."""


def byte_level_tokenizer(rule: str, vocabulary_size: int = 400) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that splits texts by a rule of llama.cpp.

    Args:
        rule: llama.cpp's name of it.
        vocabulary_size: Of its vocabulary.
    """
    pieces = models.BPE(ignore_merges=rule == "llama-bpe")
    tokenizer = Tokenizer(pieces)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    steps: dict[str, list[Any]] = {
        "gpt-2": [byte_level],
        "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level],
        "llama-bpe": [pre_tokenizers.Split(Regex(LLAMA_3_PATTERN), "isolated"), plain_bytes],
    }
    tokenizer.pre_tokenizer = (
        steps[rule][0] if len(steps[rule]) == 1 else pre_tokenizers.Sequence(steps[rule])
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=END, pad_token=END
    )


@cache
def sentencepiece_model(vocabulary_size: int = 420) -> Any:
    """A SentencePiece BPE model with a token for every byte."""
    import sentencepiece

    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 3),
        model_writer=file,
        model_type="bpe",
        vocab_size=vocabulary_size,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())


def sentencepiece_tokenizer(*, as_step: bool = False) -> PreTrainedTokenizerFast:
    """The SentencePiece model as transformers' fast tokenizers hold it.

    Args:
        as_step: Whether spaces are written by a Metaspace step (Mistral 0.3) or by a normalizer
            (Llama 2, Mistral 0.1).
    """
    model = sentencepiece_model()
    pieces = [model.id_to_piece(number) for number in range(model.get_piece_size())]
    ids = {piece: number for number, piece in enumerate(pieces)}
    scores = {piece: model.get_score(number) for piece, number in ids.items()}
    ordinary = [piece for piece, number in ids.items() if not _is_special(model, number)]
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(ordinary, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    tokenizer = Tokenizer(
        models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    if as_step:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in ("<unk>", "<s>", "</s>")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def _is_special(model: Any, number: int) -> bool:
    return bool(model.is_control(number) or model.is_byte(number) or model.is_unknown(number))


def tiny_llama(
    tokenizer: PreTrainedTokenizerFast | None = None,
    class_name: str = "LlamaForCausalLM",
    **options: Any,
) -> Model:
    """A decoder of three layers of four heads, two to a key and a value, of random weights.

    Args:
        tokenizer: Byte-level BPE by the rule of SmolLM2 if None.
        class_name: Of the model in transformers.
        options: Of the configuration, beside or in place of the usual ones.
    """
    tokenizer = tokenizer or byte_level_tokenizer("smollm")
    config_class = getattr(hf, class_name.removesuffix("ForCausalLM") + "Config")
    usual_options: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 96,
        "max_position_embeddings": 128,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "sliding_window": None,
    }
    if class_name == "LlamaForCausalLM":
        del usual_options["sliding_window"]
    with building_alone():
        torch.manual_seed(0)
        module = getattr(hf, class_name)(config_class(**usual_options | options)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            spread = 0.12 if parameter.dim() > 1 else 0.1
            parameter.copy_(torch.randn_like(parameter) * spread + (parameter.dim() == 1))
        module.tie_weights()
    return make_gateable(Checkpoint("tiny-llama", "test", "tiny-llama-0", module, tokenizer))


def without_groups(model: Model, groups: Iterable[tuple[int, int]]) -> Mask:
    """A mask that removes groups of two heads.

    Args:
        model: As `tiny_llama` makes it.
        groups: (layer, group) of each.
    """
    removed_groups = set(groups)
    is_kept = [(head.layer, head.head // 2) not in removed_groups for head in model.grid.heads]
    return Mask(model.grid, np.array(is_kept), model.identity())


EVEN = ((0, 1), (1, 0), (2, 1))
"""A group of every layer."""
UNEVEN = ((0, 0), (1, 0), (1, 1))
"""One of the first layer, and all of the second."""
