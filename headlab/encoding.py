"""Texts as rows of tokens, and rows of tokens as padded tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from headlab.errors import HeadlabError
from headlab.hooks.model import Model
from headlab.records import Ints
from headlab.tasks.base import Task

MAX_TOKENS = 512
IGNORED = -100
Rows = list[list[int]]


class Sized(Protocol):
    """Rows from which batches are cut: the length of every row, int [row], and padded inputs of some rows."""

    @property
    def lengths(self) -> Ints:
        """Number of tokens of every row."""
        ...

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some rows, padded to the longest of them."""
        ...


def encode(
    model: Model, texts: Sequence[Any], second: Sequence[str] | None = None, *, split: bool = False
) -> dict[str, Any]:
    """The tokenizer's output, one list per example, without padding; with `word_ids` if split.

    split: texts are lists of words.  Raises HeadlabError for a tokenizer without a padding token.
    """
    if model.tokenizer.pad_token is None:
        raise HeadlabError(
            f"the tokenizer of {model.name} has no padding token; set pad_token and save it into the folder",
            code="tokenizer.no_padding",
        )
    encoded = model.tokenizer(
        list(texts), second, truncation=True, max_length=longest(model), is_split_into_words=split
    )
    found = {name: encoded[name] for name in encoded}
    check_tokens(model, found["input_ids"])
    if not split:
        return found
    if model.tokenizer.is_fast:
        return found | {"word_ids": [encoded.word_ids(row) for row in range(len(texts))]}
    each = zip(texts, found["input_ids"], strict=True)
    return found | {"word_ids": [word_ids(model.tokenizer, words, ids, longest(model)) for words, ids in each]}


def check_tokens(model: Model, rows: Sequence[Sequence[int]]) -> None:
    """Raise HeadlabError for a token, of these rows or for padding, that the model has no embedding of."""
    try:
        size = getattr(model.module.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # models of characters or hashes have no such table
        return
    padding = model.tokenizer.pad_token_id
    largest = max((max(row, default=0) for row in rows), default=0)
    largest = largest if padding is None else max(largest, padding)
    if size is not None and largest >= size:
        token = model.tokenizer.convert_ids_to_tokens(largest)
        raise HeadlabError(
            f"the tokenizer of {model.name} has token {largest} ({token!r:.40}), but the model has embeddings of "
            f"{size} tokens; save the tokenizer that belongs to it, or resize the embeddings",
            code="tokenizer.larger_than_model",
        )


def longest(model: Model, most: int = MAX_TOKENS) -> int:
    """Maximum number of tokens of an input: the model's positions, at most 512 or what is given."""
    return min(most, positions(model.module.config))


def positions(config: Any) -> int:
    """Number of usable positions of a model with this configuration; 512 where it does not say."""
    found = int(getattr(config, "max_position_embeddings", None) or MAX_TOKENS)
    if "roberta" in config.model_type or "camembert" in config.model_type:  # shrunk ones included
        found -= int(config.pad_token_id or 0) + 1  # their positions start after the padding's
    return found


# Whatever a tokenizer's files say: positions count from the first token, and a classifier reads its answer there or at
# the last token before the padding. Padded on the left, a row's answer would depend on its batch.
PADDED = "right"


def pad(model: Model, tokens: Mapping[str, Rows], rows: Ints) -> dict[str, torch.Tensor]:
    """Model inputs of some examples, padded to the longest of them, on the model's device."""
    picked = {name: [values[i] for i in rows] for name, values in tokens.items()}
    found = model.tokenizer.pad(picked, return_tensors="pt", padding_side=PADDED)
    return {name: t.to(model.device) for name, t in found.items()}


def padded(rows: Rows, filler: int, width: int = 0) -> torch.Tensor:
    """Rows of different lengths as one tensor, int [row, token], at least this wide."""
    width = max(width, *(len(row) for row in rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])


def lengths(rows: Rows) -> Ints:
    """Number of tokens of every row."""
    return np.array([len(row) for row in rows], dtype=np.int64)


def require(model: Model, task: Task, ending: str, kind: str) -> None:
    """Raise HeadlabError unless the model is of the kind required by the task."""
    if not type(model.module).__name__.endswith(ending):
        raise HeadlabError(
            f"{model.name} is a {type(model.module).__name__}, no {kind}; task {task.name} needs one fine-tuned on it",
            code="model.wrong_kind",
        )


def word_ids(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str], ids: Sequence[int], limit: int
) -> list[int | None]:
    """Index of each token's word, None for special tokens, in a sentence given as words.

    For tokenizers in Python, like Marian's, which tokenise word by word.  ids: the sentence's tokens with special
    tokens at the ends, truncated to `limit` on the tokenizer's truncation side.  Raises HeadlabError where the words
    tokenised one by one differ from the sentence.
    """
    pieces = [(place, piece) for place, word in enumerate(words) for piece in tokenizer.tokenize(word)]
    front, back = _around(tokenizer)
    room = len(ids) - front - back
    if len(ids) >= limit:
        pieces = pieces[len(pieces) - room :] if tokenizer.truncation_side == "left" else pieces[:room]
    if tokenizer.convert_tokens_to_ids([piece for _, piece in pieces]) != list(ids[front : len(ids) - back]):
        raise HeadlabError(
            f"{type(tokenizer).__name__} splits a sentence differently from its separate words, so its tokens cannot "
            "be "
            f"assigned to words ({' '.join(words)!r:.60}); use a model with a fast tokenizer",
            code="tokenizer.words_unknown",
        )
    return [None] * front + [place for place, _ in pieces] + [None] * back


def _around(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Number of special tokens before and after a sentence."""
    some = int(tokenizer.unk_token_id if tokenizer.unk_token_id is not None else 0)
    whole = tokenizer.build_inputs_with_special_tokens([some])
    return whole.index(some), len(whole) - whole.index(some) - 1
