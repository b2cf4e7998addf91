"""How many tokens a model takes, and what of examples that are longer is omitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import Bools, Ints, Omissions


class ModelWithTokenizer(Protocol):
    """What this module uses of a `headlab.hooks.model.Model`."""

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

# The names under which a configuration says how many tokens its model takes; the first counts.
LENGTH_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "max_seq_length",
    "seq_length",
    "seq_len",
    "model_max_length",
    "context_length",
)
SOURCE_LENGTH_NAMES = ("max_encoder_position_embeddings", *LENGTH_NAMES)
TARGET_LENGTH_NAMES = ("max_decoder_position_embeddings", *LENGTH_NAMES)
# Tokens of a decoder's text, where neither the configuration nor the tokenizer says how many.
DEFAULT_CONTEXT = 2048
LARGEST_STATED = 10**9  # tokenizers without a limit of their own state 10**30


def context_length(model: ModelWithTokenizer, *, targets: bool = False) -> int:
    """Maximum number of tokens that a model takes at once, special tokens included.

    The model's configuration says it, or that of its text part in a model of several kinds of
    input. Where that says nothing, as with relative positions or ALiBi, its tokenizer does. Where
    neither does, it is DEFAULT_CONTEXT for a decoder and MAX_TOKENS for other models, and
    `default_context` has the sentence to say so. Rotary positions are taken at their stated length,
    whatever scaling they have.

    Args:
        model: The loaded model.
        targets: Whether the decoder's tokens are meant instead of the encoder's, in an
            encoder-decoder model.
    """
    stated_length = position_count(model.module, targets=targets) or _stated_by_tokenizer(
        model.tokenizer
    )
    return stated_length or _default_length(model)


def _default_length(model: ModelWithTokenizer) -> int:
    module = model.module
    decoder = bool(module.can_generate()) and not module.config.is_encoder_decoder
    if decoder:
        return DEFAULT_CONTEXT
    return MAX_TOKENS


def default_context(model: ModelWithTokenizer) -> str:
    """A sentence that says which limit is assumed.

    Empty if the model or its tokenizer states one.
    """
    if position_count(model.module) or _stated_by_tokenizer(model.tokenizer):
        return ""
    return (
        f"neither the configuration of {model.name} nor its tokenizer says how many tokens it takes; headlab takes up "
        f"to {_default_length(model):,} of a text"
    )


def _stated_by_tokenizer(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Number of tokens that a tokenizer gives as its model's limit; None if it gives none."""
    stated_length = getattr(tokenizer, "model_max_length", None)
    if stated_length and 0 < stated_length < LARGEST_STATED:
        return int(stated_length)
    return None


def max_text_tokens(model: ModelWithTokenizer, *, targets: bool = False) -> int:
    """Maximum number of tokens of a text that is labelled or translated.

    It is MAX_TOKENS, or less where the model takes fewer.

    Args:
        model: The loaded model.
        targets: As in `context_length`.
    """
    return min(MAX_TOKENS, position_count(model.module, targets=targets) or MAX_TOKENS)


def position_count(module: PreTrainedModel, *, targets: bool = False) -> int | None:
    """Number of usable positions of a model; None if its configuration states none.

    Args:
        module: The transformers model.
        targets: As in `context_length`.
    """
    config = _text_config(module.config, "decoder" if targets else "encoder")
    names = TARGET_LENGTH_NAMES if targets else SOURCE_LENGTH_NAMES
    stated_positions = None
    for name in names:
        stated = getattr(config, name, None)
        if isinstance(stated, int) and stated > 0:  # XLNet states -1
            stated_positions = stated
            break
    table_positions = _padded_positions(module)
    if table_positions is None:
        return stated_positions
    if stated_positions is None:
        return table_positions
    return min(table_positions, stated_positions)


def _text_config(config: PreTrainedConfig, side_name: str) -> PreTrainedConfig:
    """The part of a configuration that is about text.

    Args:
        config: Of the model.
        side_name: "encoder" or "decoder"; used where the two have configurations of their own.
    """
    side_config = getattr(config, side_name, None)
    if isinstance(side_config, PreTrainedConfig):
        return side_config.get_text_config()
    return config.get_text_config()


def _padded_positions(module: PreTrainedModel) -> int | None:
    """Usable rows of a table of positions whose first rows serve the padding, as in RoBERTa.

    None for models without such a table.
    """
    embeddings = getattr(module.base_model, "embeddings", None)
    table: nn.Embedding | None = getattr(embeddings, "position_embeddings", None)
    padding_index: int | None = getattr(table, "padding_idx", None)
    if table is None or padding_index is None:
        return None
    return int(table.weight.shape[0]) - int(padding_index) - 1


# What of the examples never reaches the model, or has no answer.


@dataclass(frozen=True)
class OmissionsByExample:
    """Examples that lost tokens to the limit, and words that have a label but no answer.

    Attributes:
        token_limit: Maximum number of tokens of an example.
        is_cut: Whether each example lost tokens, bool [example].
        words_left_out: Number of words without an answer, by reason, int [example]; None for tasks
            that do not label words.
    """

    token_limit: int
    is_cut: Bools
    words_left_out: Mapping[str, Ints] | None = None

    def notes(self) -> tuple[str, ...]:
        """A sentence on what is omitted of all examples; no sentence if nothing is."""
        sentence = self.of_first(len(self.is_cut)).sentence
        return (f"{sentence}.",) if sentence else ()

    def of_first(self, examples: int) -> Omissions:
        """What is omitted of the first examples, so many."""
        words_left_out = None
        if self.words_left_out is not None:
            words_left_out = {}
            for reason, counts in self.words_left_out.items():
                words_left_out[reason] = int(counts[:examples].sum())
        cut_examples = int(self.is_cut[:examples].sum())
        return Omissions(examples, cut_examples, self.token_limit, words_left_out)


def nothing_omitted(model: ModelWithTokenizer, examples: int) -> OmissionsByExample:
    """The omissions of examples that are refused where they are too long, rather than cut: none."""
    return OmissionsByExample(context_length(model), np.zeros(examples, dtype=bool))
