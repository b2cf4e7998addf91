"""Which word every token is of, where the tokenizer does not say so itself."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase


def word_ids(tokenizer: PreTrainedTokenizerBase, words: Sequence[str], ids: Sequence[int]) -> list[int | None]:
    """The place of each token's word, None for special tokens, of a sentence that was given in words.

    For tokenizers in Python, like Marian's: they take word after word.  ids: the sentence's tokens, special ones
    at its ends, cut at the side that the tokenizer cuts at.
    """
    body = [place for place, word in enumerate(words) for _ in tokenizer.tokenize(word)]
    front, back = _around(tokenizer)
    room = len(ids) - front - back
    kept = body[len(body) - room :] if tokenizer.truncation_side == "left" else body[:room]
    return [None] * front + list(kept) + [None] * back


def _around(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Special tokens before and behind a sentence."""
    some = int(tokenizer.unk_token_id if tokenizer.unk_token_id is not None else 0)
    whole = tokenizer.build_inputs_with_special_tokens([some])
    return whole.index(some), len(whole) - whole.index(some) - 1
