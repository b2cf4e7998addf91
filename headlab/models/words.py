"""Which word every token is of, where the tokenizer does not say so itself."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from headlab.errors import HeadlabError


def word_ids(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str], ids: Sequence[int], limit: int
) -> list[int | None]:
    """The place of each token's word, None for special tokens, of a sentence that was given in words.

    For tokenizers in Python, like Marian's: they take word after word.  ids: the sentence's tokens, special ones
    at its ends, cut to `limit` at the side that the tokenizer cuts at.  Raises HeadlabError where the words' tokens
    one by one are not the sentence's.
    """
    pieces = [(place, piece) for place, word in enumerate(words) for piece in tokenizer.tokenize(word)]
    front, back = _around(tokenizer)
    room = len(ids) - front - back
    if len(ids) >= limit:
        pieces = pieces[len(pieces) - room :] if tokenizer.truncation_side == "left" else pieces[:room]
    if tokenizer.convert_tokens_to_ids([piece for _, piece in pieces]) != list(ids[front : len(ids) - back]):
        raise HeadlabError(
            f"{type(tokenizer).__name__} cuts a sentence otherwise than its words one by one, so its tokens cannot be "
            f"told by word ({' '.join(words)!r:.60}); use a model whose tokenizer is a fast one",
            code="tokenizer.words_unknown",
        )
    return [None] * front + [place for place, _ in pieces] + [None] * back


def _around(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Special tokens before and behind a sentence."""
    some = int(tokenizer.unk_token_id if tokenizer.unk_token_id is not None else 0)
    whole = tokenizer.build_inputs_with_special_tokens([some])
    return whole.index(some), len(whole) - whole.index(some) - 1
