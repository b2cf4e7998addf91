"""Tokens as people read them, of every kind of tokenizer that keeps bytes or characters."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import transformers as hf
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from headlab.models.token_texts import readable_tokens

SENTENCES = (
    "游戏 开始了",
    "สวัสดีครับ",
    "नमस्ते दुनिया",
    "أطفئ الضوء",
    "👨‍👩‍👧 and ❤️\n\tbye",
    "Grüße  an e\u0301, \u202ex\x07",
)
LATER_PART = re.compile(r".\[([2-9])/\d\]", re.DOTALL)
FIRST_PART = re.compile(r"\[1/\d\]")


def byte_level(
    part: str = "pre_tokenizer", merges: tuple[tuple[str, str], ...] = ()
) -> PreTrainedTokenizerBase:
    """A tokenizer for which every byte is a symbol; merges make tokens of several.

    Args:
        part: The part that makes symbols of bytes, `pre_tokenizer` or `normalizer`.
        merges: Pairs of symbols that become one token.
    """
    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(merge) for merge in merges)]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    if part == "normalizer":
        tokenizer.normalizer = normalizers.ByteLevel()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")


def byte_fallback() -> PreTrainedTokenizerBase:
    """A tokenizer of letters, and of bytes for unknown letters, as Llama 2 and Gemma have them."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "n", "d", "了"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.ByteFallback()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<unk>")


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "GPT-2": byte_level,
    "GPT-2, merged": lambda: byte_level(merges=(("æ", "Ī"), ("Ġ", "å"), ("à", "¸"), ("å", "¼"))),
    "normalised to bytes": lambda: byte_level("normalizer"),
    "byte fallback": byte_fallback,
    "ByT5": hf.ByT5Tokenizer,
    "Perceiver": hf.PerceiverTokenizer,
    "CANINE": hf.CanineTokenizer,
}


def text_of(texts: list[str]) -> str:
    """The sentence that texts of tokens are of: first parts stand for their letters."""
    without_later_parts = LATER_PART.sub("", "".join(texts))
    return FIRST_PART.sub("", without_later_parts).replace("▁", " ")


@pytest.mark.parametrize("tokenizer_kind", TOKENIZERS)
@pytest.mark.parametrize("sentence", SENTENCES)
def test_reported_24_tokens_are_the_letters_of_the_sentence(
    tokenizer_kind: str, sentence: str
) -> None:
    tokenizer = TOKENIZERS[tokenizer_kind]()
    ids = tokenizer(sentence, add_special_tokens=False)["input_ids"]
    texts = readable_tokens(tokenizer, ids)
    assert len(texts) == len(ids)
    assert text_of(texts) == sentence


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁[]"), max_size=12))
def test_reported_24_any_text_is_read_back_from_its_tokens(text: str) -> None:
    tokenizer = byte_level()
    assert text_of(readable_tokens(tokenizer, tokenizer(text)["input_ids"])) == text


def test_reported_24_parts_of_a_letter_are_numbered_over_the_tokens_that_hold_it() -> None:
    tokenizer = byte_level(merges=(("æ", "Ī"), ("ı", "å"), ("Ġ", "e")))
    ids = tokenizer.convert_tokens_to_ids(["æ", "Ī", "ıå", "¼", "Ģ", "Ġe"])
    assert readable_tokens(tokenizer, ids) == [
        "戏[1/3]",
        "戏[2/3]",
        "戏[3/3]开[1/3]",
        "开[2/3]",
        "开[3/3]",
        "▁e",
    ]


def test_reported_24_bytes_that_are_no_letter_are_numbers() -> None:
    tokenizer = byte_level()
    ids = tokenizer.convert_tokens_to_ids(["a", "æ", "Ī", "b", "ı"])
    assert readable_tokens(tokenizer, ids) == ["a", "[0xE6]", "[0x88]", "b", "[0x8F]"]
    assert readable_tokens(tokenizer, []) == []


def test_reported_24_added_tokens_are_texts_and_part_letters() -> None:
    """A special token may be spelled with the symbols of bytes: it stands for no byte."""
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken("æĪ", special=True), AddedToken("Ġnew  token")])
    special_id, added_id, first_byte_id, second_byte_id = tokenizer.convert_tokens_to_ids(
        ["æĪ", "Ġnew  token", "Ã", "©"]
    )
    assert readable_tokens(tokenizer, [special_id, first_byte_id, second_byte_id, added_id]) == [
        "æĪ",
        "é[1/2]",
        "é[2/2]",
        "Ġnew▁▁token",
    ]
    assert readable_tokens(tokenizer, [first_byte_id, special_id, second_byte_id]) == [
        "[0xC3]",
        "æĪ",
        "[0xA9]",
    ]


def test_reported_24_single_bytes_of_other_vocabularies_are_letters() -> None:
    vocabulary = {
        "<unk>": 0,
        "<|byte230|>": 1,
        "<|byte136|>": 2,
        "<|byte143|>": 3,
        "<|byte999|>": 4,
        "あ": 5,
    }
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    texts = readable_tokens(tokenizer, [5, 1, 2, 3, 4])
    assert texts == ["あ", "戏[1/3]", "戏[2/3]", "戏[3/3]", "<|byte999|>"]


def test_reported_24_other_tokens_stay_as_the_tokenizer_writes_them() -> None:
    pieces = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "spiel", "##en", "æ", "##Ī"]
    tokenizer = hf.BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    assert readable_tokens(tokenizer, list(range(len(pieces)))) == pieces


def test_reported_24_special_tokens_of_private_code_points_are_named() -> None:
    tokenizer = hf.CanineTokenizer()
    assert readable_tokens(tokenizer, tokenizer("é")["input_ids"]) == ["[CLS]", "é", "[SEP]"]


def test_reported_24_an_id_without_a_token_is_shown_as_its_number() -> None:
    tokenizer = byte_level()
    assert readable_tokens(tokenizer, [len(tokenizer) + 5]) == [f"[{len(tokenizer) + 5}]"]
