"""Tokens as people read them: letters, where a tokenizer keeps the bytes of letters.

A byte-level tokenizer may cut a letter of several bytes in two. Each of its tokens is then shown
as the letter and which part of it the token holds: `戏[1/2]`, `戏[2/2]`.

The letters come from the tokens alone. A tokenizer's offsets into the text would leave out spaces,
point at the text before it was normalised, and are not known where only ids are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

SPACE = "▁"  # as SentencePiece writes it
# Tokens of single bytes in vocabularies of letters: SentencePiece's <0xE6>, GPT-NeoX Japanese's
# <|byte230|>.
HEXADECIMAL_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
DECIMAL_BYTE = re.compile(r"<\|byte(\d{1,3})\|>")
# Tokenizers in Python whose tokens are bytes, each written as the character of that number.
OF_BYTES = frozenset({"ByT5Tokenizer", "DiaTokenizer", "PerceiverTokenizer"})

BytesOfToken = Callable[[str], bytes | None]


def readable_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The text of every token of a sentence.

    Bytes become the characters that they encode, whatever the tokenizer writes for them. Of a
    character that several tokens share, each gets the character and its part of it, like `戏[1/2]`.
    Bytes that encode no character are written as numbers, like `[0xE6]`, and spaces as `▁`. Other
    tokens, and marks like `##`, stay as they are.

    Args:
        tokenizer: Fast or in Python.
        ids: Tokens in the order of the sentence: whole, as its neighbours may hold the rest of a
            token's character.

    Returns:
        A text for each of the ids.
    """
    literal_ids = {*tokenizer.added_tokens_decoder, *tokenizer.all_special_ids}
    names = names_of_unseen(tokenizer)
    bytes_of_token = bytes_reader(tokenizer)
    texts: list[str] = []
    byte_tokens: list[bytes] = []  # those since the last token that is a text
    for token_id, token in zip(ids, tokenizer.convert_ids_to_tokens(list(ids)), strict=True):
        token_bytes = None if token is None or token_id in literal_ids else bytes_of_token(token)
        if token_bytes is not None:
            byte_tokens.append(token_bytes)
            continue
        texts += texts_of_bytes(byte_tokens)
        byte_tokens = []
        texts.append(f"[{token_id}]" if token is None else names.get(token, str(token)))
    texts += texts_of_bytes(byte_tokens)
    return [text.replace(" ", SPACE) for text in texts]


def names_of_unseen(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """{special token that no font shows: its name}.

    They are CANINE's, which are code points of private use.
    """
    return {
        token: f"[{role.removesuffix('_token').upper()}]"
        for role, token in tokenizer.special_tokens_map.items()
        if isinstance(token, str) and not token.isprintable()
    }


def bytes_reader(tokenizer: PreTrainedTokenizerBase) -> BytesOfToken:
    """A function that gives the bytes of a tokenizer's token, and None for one that is a text."""
    if OF_BYTES & {kind.__name__ for kind in type(tokenizer).__mro__}:
        return _byte_of_character
    if is_byte_level(tokenizer):
        return _bytes_of_symbols
    return _byte_of_name


def is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer writes every byte as a symbol, as GPT-2's, RoBERTa's and Llama 3's do."""
    if not tokenizer.is_fast:
        return hasattr(tokenizer, "byte_decoder")
    backend = tokenizer.backend_tokenizer
    return any(
        "ByteLevel" in str(part)
        for part in (backend.decoder, backend.pre_tokenizer, backend.normalizer)
    )


@cache
def byte_of_symbol() -> dict[str, int]:
    """{symbol of a byte-level tokenizer: the byte it stands for}."""
    return {symbol: byte for byte, symbol in bytes_to_unicode().items()}


def _bytes_of_symbols(token: str) -> bytes | None:
    table = byte_of_symbol()
    if token and {*token} <= table.keys():
        return bytes(table[symbol] for symbol in token)
    return None


def _byte_of_character(token: str) -> bytes | None:
    if len(token) != 1 or ord(token) > 255:
        return None
    return token.encode("latin-1")


def _byte_of_name(token: str) -> bytes | None:
    hexadecimal = HEXADECIMAL_BYTE.fullmatch(token)
    if hexadecimal is not None:
        return bytes.fromhex(hexadecimal[1])
    decimal = DECIMAL_BYTE.fullmatch(token)
    if decimal is None or int(decimal[1]) > 255:
        return None
    return bytes([int(decimal[1])])


def texts_of_bytes(tokens: Sequence[bytes]) -> list[str]:
    """The text of every token of a run of tokens that hold bytes of UTF-8; see `readable`.

    Args:
        tokens: Bytes of each token.
    """
    texts = [""] * len(tokens)
    token_of_byte: list[int] = []
    for number, token in enumerate(tokens):
        token_of_byte += [number] * len(token)
    start = 0
    for character in b"".join(tokens).decode("utf-8", "surrogateescape"):
        character_bytes = character.encode("utf-8", "surrogateescape")
        owners = sorted({*token_of_byte[start : start + len(character_bytes)]})
        character_text = character
        if not character.isascii() and len(character_bytes) == 1:  # a byte that encodes nothing
            character_text = f"[0x{character_bytes.hex().upper()}]"
        for part, owner in enumerate(owners, start=1):
            texts[owner] += character_text
            if len(owners) > 1:
                texts[owner] += f"[{part}/{len(owners)}]"
        start += len(character_bytes)
    return texts
