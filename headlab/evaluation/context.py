"""How many tokens a model takes, and what of examples that are longer is omitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import Bools, Ints, Omissions


class Loaded(Protocol):
    """What is asked of a `headlab.hooks.model.Model` here."""

    @property
    def name(self) -> str:
        """Name under which it was loaded."""

    @property
    def module(self) -> PreTrainedModel:
        """The transformers model."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its tokenizer."""


MAX_TOKENS = 512  # of a text that is labelled or translated

# How many tokens a model takes. A configuration says it under one of these names, in the order in which they count.
LENGTH_NAMES = (
    "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "max_seq_length",
    "seq_length", "seq_len", "model_max_length", "context_length",
)  # fmt: skip
SOURCE_LENGTH_NAMES = ("max_encoder_position_embeddings", *LENGTH_NAMES)
TARGET_LENGTH_NAMES = ("max_decoder_position_embeddings", *LENGTH_NAMES)
DEFAULT_CONTEXT = 2048  # tokens of a decoder's text, where neither the configuration nor the tokenizer says how many
LARGEST_STATED = 10**9  # tokenizers without a limit of their own state 10**30


def context_length(model: Loaded, *, targets: bool = False) -> int:
    """Maximum number of tokens that a model takes at once, special tokens included.

    Its configuration says it, or that of its text part in a model of several kinds of input. Where that says nothing,
    as with relative positions or ALiBi, its tokenizer does. Where neither does, it is DEFAULT_CONTEXT for a decoder and
    MAX_TOKENS for other models, and `default_context` has the sentence to say so. Rotary positions are taken at their
    stated length, whatever scaling they have.

    Args:
        model: the loaded model.
        targets: of an encoder-decoder model, for the decoder's tokens instead of the encoder's.
    """
    stated = positions(model.module, targets=targets) or _stated_by_tokenizer(model.tokenizer)
    return stated or _default_length(model)


def _default_length(model: Loaded) -> int:
    module = model.module
    decoder = bool(module.can_generate()) and not module.config.is_encoder_decoder
    return DEFAULT_CONTEXT if decoder else MAX_TOKENS


def default_context(model: Loaded) -> str:
    """A sentence that says which limit is assumed; empty if the model or its tokenizer states one."""
    if positions(model.module) or _stated_by_tokenizer(model.tokenizer):
        return ""
    return (
        f"neither the configuration of {model.name} nor its tokenizer says how many tokens it takes; headlab takes up "
        f"to {_default_length(model):,} of a text"
    )


def _stated_by_tokenizer(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Number of tokens that a tokenizer gives as its model's limit; None if it gives none."""
    stated = getattr(tokenizer, "model_max_length", None)
    return int(stated) if stated and 0 < stated < LARGEST_STATED else None


def longest(model: Loaded, *, targets: bool = False) -> int:
    """Maximum number of tokens of a text that is labelled or translated: 512, or fewer where the model takes fewer.

    targets: see `context_length`.
    """
    return min(MAX_TOKENS, positions(model.module, targets=targets) or MAX_TOKENS)


def positions(module: PreTrainedModel, *, targets: bool = False) -> int | None:
    """Number of usable positions of a model; None if its configuration states none.

    targets: see `context_length`.
    """
    config = _text_config(module.config, "decoder" if targets else "encoder")
    names = TARGET_LENGTH_NAMES if targets else SOURCE_LENGTH_NAMES
    values = (getattr(config, name, None) for name in names)
    stated = next(
        (value for value in values if isinstance(value, int) and value > 0), None
    )  # XLNet states -1
    table = _padded_positions(module)
    return stated if table is None else min(table, stated or table)


def _text_config(config: PreTrainedConfig, side: str) -> PreTrainedConfig:
    """The part of a configuration that is about text, of one side where the sides have configurations of their own."""
    part = getattr(config, side, None)
    return (part if isinstance(part, PreTrainedConfig) else config).get_text_config()


def _padded_positions(module: PreTrainedModel) -> int | None:
    """Usable rows of a table of positions that start after the padding's, as RoBERTa's; None for other models."""
    embeddings = getattr(module.base_model, "embeddings", None)
    table: nn.Embedding | None = getattr(embeddings, "position_embeddings", None)
    padding: int | None = getattr(table, "padding_idx", None)
    if table is None or padding is None:
        return None
    return int(table.weight.shape[0]) - int(padding) - 1


# What of the examples never reaches the model, or has no answer.


@dataclass(frozen=True)
class OmissionsByExample:
    """Examples that lost tokens to the limit, and words that have a label but no answer.

    token_limit: maximum number of tokens of an example.  cut: bool [example].  words_left_out: by reason, int
    [example]; None for tasks that do not label words.
    """

    token_limit: int
    cut: Bools
    words_left_out: Mapping[str, Ints] | None = None

    def notes(self) -> tuple[str, ...]:
        """What is omitted of all examples, as a sentence; none if nothing is."""
        sentence = self.first(len(self.cut)).sentence
        return (f"{sentence}.",) if sentence else ()

    def first(self, examples: int) -> Omissions:
        """What is omitted of the first examples."""
        words = None
        if self.words_left_out is not None:
            words = {
                reason: int(counts[:examples].sum())
                for reason, counts in self.words_left_out.items()
            }
        return Omissions(examples, int(self.cut[:examples].sum()), self.token_limit, words)


def nothing_omitted(model: Loaded, examples: int) -> OmissionsByExample:
    """Of examples that are refused where they are too long, rather than cut."""
    return OmissionsByExample(context_length(model), np.zeros(examples, dtype=bool))
