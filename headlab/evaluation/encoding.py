"""Texts as rows of tokens, and texts that a language model continues.

It does so token by token, or by one of several choices.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from headlab.core import (
    BEYOND_LIMIT,
    WITHOUT_TOKEN,
    Floats,
    HeadlabError,
    Ints,
    is_out_of_memory,
    log_probability,
)
from headlab.core.devices import on_device
from headlab.evaluation.context import MAX_TOKENS as MAX_TOKENS
from headlab.evaluation.context import (
    OmissionsByExample,
    default_context,
    max_text_tokens,
    nothing_omitted,
)
from headlab.evaluation.context import context_length as context_length
from headlab.evaluation.packing import Packing
from headlab.hooks import MODEL_ERRORS, ActiveGates, Model, teach_positions
from headlab.models import (
    PADDING_MASK,
    Tokenised,
    WordSpaces,
    readable_tokens,
    spaced,
    tokenise,
    tokenizer_output,
    without_unknown_segments,
)
from headlab.models.special_ids import config_padding_id, padding_id
from headlab.tasks import Example, Task

# Texts as rows of tokens, and rows of tokens as padded tensors.

NO_TARGET = -100
Rows = list[list[int]]


class Sized(Protocol):
    """Rows from which batches are cut: lengths, int [row], and padded inputs of some rows."""

    @property
    def lengths(self) -> Ints:
        """Number of tokens of every row."""

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some rows, padded to the longest of them."""


def encode(
    model: Model,
    texts: Sequence[str],
    second: Sequence[str] | None = None,
    *,
    truncate: bool = True,
) -> dict[str, Rows]:
    """Model inputs of texts by name, [text][token], cut and not padded.

    Args:
        model: The model that is given the texts.
        texts: Texts.
        second: The second text of every pair.
        truncate: Whether texts are cut to the model's limit.

    Raises:
        HeadlabError: For a tokenizer without a padding token, or that belongs to another model.
    """
    require_padding(model)
    segment_ids = model.missing_segment_ids
    tokens = tokenise(
        model.tokenizer,
        texts,
        second,
        segments=segment_ids.of_texts if second is None else segment_ids.of_pairs,
        max_tokens=max_text_tokens(model) if truncate else None,
    )
    return _checked_columns(model, tokens)


@dataclass(frozen=True)
class EncodedWords:
    """Sentences given as words, as model inputs that are not padded.

    Attributes:
        columns: Model inputs by name, [sentence][token].
        word_ids: The word of every token, [sentence][token]; None for special tokens.
    """

    columns: dict[str, Rows]
    word_ids: list[list[int | None]]


def encode_words(
    model: Model,
    sentences: Sequence[Sequence[str]],
    *,
    spaces: WordSpaces | None = None,
    truncate: bool = True,
) -> EncodedWords:
    """Model inputs of sentences given as words.

    Args:
        model: The model that is given the sentences.
        sentences: The words of each.
        spaces: Which words get a space before them; as the model was trained if left out.
        truncate: Whether sentences are cut to the model's limit.

    Raises:
        HeadlabError: As `encode`; also for a tokenizer that splits a sentence differently from its
            words.
    """
    require_padding(model)
    limit = max_text_tokens(model) if truncate else sys.maxsize
    spaced_sentences = [spaced(words, spaces or model.word_spaces) for words in sentences]
    tokens = tokenise(
        model.tokenizer,
        spaced_sentences,
        split=True,
        segments=model.missing_segment_ids.of_texts,
        max_tokens=limit if truncate else None,
    )
    columns = _checked_columns(model, tokens)
    if model.tokenizer.is_fast:
        return EncodedWords(columns, [tokens.word_ids(row) for row in range(len(sentences))])
    rows = zip(spaced_sentences, columns["input_ids"], strict=True)
    ids_of_words = [word_ids(model.tokenizer, words, ids, limit) for words, ids in rows]
    return EncodedWords(columns, ids_of_words)


def _checked_columns(model: Model, tokens: Tokenised) -> dict[str, Rows]:
    columns = without_unknown_segments(tokens.columns, model.module.config)
    check_tokens(model, columns["input_ids"])
    return columns


def require_padding(model: Model) -> None:
    """Raise HeadlabError for a model without a padding token.

    Neither its tokenizer nor its configuration names one.
    """
    if padding_id(model.module, model.tokenizer) is None:
        raise HeadlabError(
            f"the tokenizer of {model.name} has no padding token, and its configuration names none either; set "
            "pad_token and save it into the folder",
            code="tokenizer.no_padding",
        )


def check_tokens(model: Model, rows: Sequence[Sequence[int]]) -> None:
    """Raise HeadlabError for a token that the model has no embedding of.

    Tokens of these rows and of padding are checked.
    """
    try:
        embedding_count = getattr(model.module.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # models of characters or hashes have no such table
        return
    padding = padding_id(model.module, model.tokenizer)
    largest_token = max((max(row, default=0) for row in rows), default=0)
    if padding is not None:
        largest_token = max(largest_token, padding)
    if embedding_count is not None and largest_token >= embedding_count:
        (token,) = readable_tokens(model.tokenizer, [largest_token])
        raise HeadlabError(
            f"the tokenizer of {model.name} has token {largest_token} ({token!r:.40}), but the model has embeddings of "
            f"{embedding_count} tokens; save the tokenizer that belongs to it, or resize the embeddings",
            code="tokenizer.larger_than_model",
        )


def window(config: PretrainedConfig) -> float:
    """Number of tokens that the narrowest layers of a model attend to.

    Inf where all attend to all.
    """
    layer_types = getattr(config, "layer_types", None) or ["sliding_attention"]
    sliding_window = getattr(config, "sliding_window", None)
    if sliding_window and "sliding_attention" in layer_types:
        return float(sliding_window)
    return math.inf


# The side on which rows are padded, whatever a tokenizer's files say: positions count from the
# first token, and a classifier reads its answer there or at the last token before the padding.
# Padded on the left, a row's answer would depend on its batch.
PADDING_SIDE = "right"


def pad(model: Model, tokens: Mapping[str, Rows], rows: Ints) -> dict[str, torch.Tensor]:
    """Model inputs of some examples, padded to the longest of them, on the model's device.

    Args:
        model: The model that is given the inputs.
        tokens: Inputs of all examples by name, [example][token].
        rows: Indices of the examples, int [row].

    Raises:
        HeadlabError: The tokenizer has no padding token, and gives inputs that only it can pad.
    """
    columns_of_rows = {name: [values[i] for i in rows] for name, values in tokens.items()}
    if model.tokenizer.pad_token_id == padding_id(model.module, model.tokenizer):
        padded_columns = model.tokenizer.pad(
            columns_of_rows,
            return_tensors="pt",
            padding_side=PADDING_SIDE,
            return_attention_mask=PADDING_MASK in columns_of_rows,
        )
        return {name: on_device(column, model.device) for name, column in padded_columns.items()}
    unknown_names = sorted(columns_of_rows.keys() - fillers(model).keys())
    if unknown_names:
        raise HeadlabError(
            f"the tokenizer of {model.name} gives {', '.join(unknown_names)}, which it alone can pad, and not with the "
            "padding token of the configuration; set pad_token and save it into the folder",
            code="tokenizer.no_padding",
        )
    return TokenRows(model, columns_of_rows).batch(np.arange(len(rows)))


def fillers(model: Model) -> dict[str, int]:
    """Values for the padding of shorter rows, by model input.

    It covers inputs that any tokenizer gives.
    """
    return {
        "input_ids": padding_id(model.module, model.tokenizer) or 0,
        "token_type_ids": model.tokenizer.pad_token_type_id,
        PADDING_MASK: 0,
    }


def decoder_filler(model: Model) -> int:
    """What stands behind the end of a shorter row of a decoder's inputs, where it is masked."""
    configured_padding = config_padding_id(model.module.config)
    if configured_padding is None:
        return fillers(model)["input_ids"]
    return configured_padding


class DeviceRows:
    """Rows of numbers that are brought to a device once.

    Padded batches are cut from them there.

    Args:
        rows: The rows, of any lengths.
        device: Where the batches are needed.
    """

    def __init__(self, rows: Rows, device: torch.device) -> None:
        self._lengths_on_host = lengths(rows)
        ends = np.cumsum(self._lengths_on_host)
        numbers = [number for row in rows for number in row]
        self._numbers = on_device(np.array([*numbers, 0], dtype=np.int64), device)
        self._starts = on_device(ends - self._lengths_on_host, device)
        self._lengths = on_device(self._lengths_on_host, device)

    def padded_batch(self, rows: Ints, filler: int, width: int = 0) -> torch.Tensor:
        """Some rows, padded on the right to the longest of them and at least to a width.

        Args:
            rows: Numbers of the rows, int [row].
            filler: What stands behind the end of a shorter row.
            width: Columns at least.

        Returns:
            int64 [row, column].
        """
        width = max(width, int(self._lengths_on_host[rows].max(initial=0)))
        row_indices = on_device(rows, self._starts.device)
        columns = torch.arange(width, device=row_indices.device)
        number_indices = self._starts[row_indices][:, None] + columns
        number_indices = number_indices.clamp(max=len(self._numbers) - 1)
        is_number = columns < self._lengths[row_indices][:, None]
        return torch.where(is_number, self._numbers[number_indices], filler)


class TokenRows:
    """What a tokenizer gave for some examples, on the model's device; batches as `pad` makes them.

    Args:
        model: The model they are for.
        tokens: By name, [example][token].
    """

    def __init__(self, model: Model, tokens: Mapping[str, Rows]) -> None:
        self._model = model
        self._tokens = tokens
        self._fillers = fillers(model)
        # None where the tokenizer gives other inputs: it alone knows how these are padded.
        self._rows_by_name: dict[str, DeviceRows] | None = None
        if set(tokens) <= set(self._fillers):
            self._rows_by_name = {
                name: DeviceRows(rows, model.device) for name, rows in tokens.items()
            }

    def batch(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some examples, padded to the longest of them."""
        if self._rows_by_name is None:
            return pad(self._model, self._tokens, rows)
        return {
            name: numbers.padded_batch(rows, self._fillers[name])
            for name, numbers in self._rows_by_name.items()
        }


def pad_rows(rows: Rows, filler: int, width: int = 0) -> torch.Tensor:
    """Rows of different lengths as one tensor, int [row, token], at least this wide."""
    width = max(width, *(len(row) for row in rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])


def lengths(rows: Rows) -> Ints:
    """Number of tokens of every row."""
    return np.array([len(row) for row in rows], dtype=np.int64)


def require_kind(model: Model, task: Task, ending: str, kind: str) -> None:
    """Raise HeadlabError unless the model is of the kind required by the task."""
    if not type(model.module).__name__.endswith(ending):
        raise HeadlabError(
            f"{model.name} is a {type(model.module).__name__}, not a {kind}; task {task.name} needs one fine-tuned on "
            "it",
            code="model.wrong_kind",
        )


def word_ids(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str], ids: Sequence[int], limit: int
) -> list[int | None]:
    """Index of each token's word, None for special tokens, in a sentence given as words.

    For tokenizers in Python, like Marian's, which tokenise word by word.

    Args:
        tokenizer: Of the sentence.
        words: The words of the sentence.
        ids: The sentence's tokens, with special tokens at the ends, truncated to `limit` on the
            tokenizer's truncation side.
        limit: Maximum number of tokens.

    Raises:
        HeadlabError: The words, tokenised one by one, have other tokens than the sentence.
    """
    pieces: list[str] = []
    words_of_pieces: list[int] = []
    for word_index, word in enumerate(words):
        for piece in tokenizer.tokenize(word):
            pieces.append(piece)
            words_of_pieces.append(word_index)
    special_before, special_after = _special_token_counts(tokenizer)
    room = len(ids) - special_before - special_after
    if len(ids) >= limit:
        remaining = slice(room)
        if tokenizer.truncation_side == "left":
            remaining = slice(len(pieces) - room, None)
        pieces = pieces[remaining]
        words_of_pieces = words_of_pieces[remaining]
    ids_without_special = list(ids[special_before : len(ids) - special_after])
    if tokenizer.convert_tokens_to_ids(pieces) != ids_without_special:
        raise HeadlabError(
            f"{type(tokenizer).__name__} splits a sentence differently from its separate words, so its tokens cannot "
            f"be assigned to words ({' '.join(words)!r:.60}); use a model with a fast tokenizer",
            code="tokenizer.words_unknown",
        )
    return [None] * special_before + words_of_pieces + [None] * special_after


def _special_token_counts(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Number of special tokens that a tokenizer puts before and behind a text."""
    text = "a"
    with_special = list(tokenizer_output(tokenizer, text, add_special_tokens=True)["input_ids"])
    bare = list(tokenizer_output(tokenizer, text, add_special_tokens=False)["input_ids"])
    special_count = len(with_special) - len(bare)
    special_before = 0
    for start in range(special_count + 1):
        if with_special[start : start + len(bare)] == bare:
            special_before = start
            break
    return special_before, special_count - special_before


def labels_of_tokens(
    words_of_tokens: Sequence[int | None], labels_of_words: Sequence[int]
) -> list[int]:
    """A label for each token: its word's at the word's first token, NO_TARGET elsewhere.

    Args:
        words_of_tokens: The word of each token, None for special tokens.
        labels_of_words: The label of each word.
    """
    token_labels = []
    previous_word = None
    for word in words_of_tokens:
        if word is None or word == previous_word:
            token_labels.append(NO_TARGET)
        else:
            token_labels.append(int(labels_of_words[word]))
        previous_word = word
    return token_labels


def answered_words(
    words_of_tokens: Sequence[int | None], labels_of_words: Sequence[int]
) -> list[int]:
    """The words that have a label and a token, in order.

    They are those that `labels_of_tokens` gives a label.

    Args:
        words_of_tokens: The word of each token, None for special tokens.
        labels_of_words: The label of each word.
    """
    words_with_tokens = dict.fromkeys(word for word in words_of_tokens if word is not None)
    return [word for word in words_with_tokens if labels_of_words[word] != NO_TARGET]


def omitted_from_texts(
    model: Model, tokens: Rows, texts: Sequence[str], second: Sequence[str] | None = None
) -> OmissionsByExample:
    """Which texts, encoded as `tokens`, were longer than the limit."""
    full_rows = _full_rows(model, tokens)
    is_cut = np.zeros(len(tokens), dtype=bool)
    if full_rows:
        full_texts = [texts[row] for row in full_rows]
        second_of_full = None if second is None else [second[row] for row in full_rows]
        uncut = encode(model, full_texts, second_of_full, truncate=False)["input_ids"]
        for row, ids in zip(full_rows, uncut, strict=True):
            is_cut[row] = len(ids) > len(tokens[row])
    return OmissionsByExample(max_text_tokens(model), is_cut)


def omitted_from_words(
    model: Model,
    tokens: Rows,
    sentences: Sequence[Sequence[str]],
    labels: Sequence[Sequence[int]],
    words_with_answer: Sequence[Sequence[int]],
) -> OmissionsByExample:
    """Which sentences were too long, and which of their labelled words have no answer, and why.

    Args:
        model: The loaded model.
        tokens: The sentences as `encode_words` gave them, [sentence][token].
        sentences: The words of each, [sentence][word].
        labels: Their labels, [sentence][word], NO_TARGET for words without one.
        words_with_answer: The word of each answer, [sentence][answer].
    """
    full_rows = _full_rows(model, tokens)
    is_cut = np.zeros(len(tokens), dtype=bool)
    words_of_uncut: dict[int, set[int]] = {}
    if full_rows:
        uncut = encode_words(model, [sentences[row] for row in full_rows], truncate=False)
        for row, word_ids_of_row in zip(full_rows, uncut.word_ids, strict=True):
            is_cut[row] = len(word_ids_of_row) > len(tokens[row])
            if is_cut[row]:
                words_of_uncut[row] = {word for word in word_ids_of_row if word is not None}
    omitted_words = {
        reason: np.zeros(len(tokens), dtype=np.int64) for reason in (WITHOUT_TOKEN, BEYOND_LIMIT)
    }
    for row, row_labels in enumerate(labels):
        labelled_words = {word for word, label in enumerate(row_labels) if label != NO_TARGET}
        unanswered_words = labelled_words - set(words_with_answer[row])
        words_beyond_limit = unanswered_words & words_of_uncut.get(row, set())
        omitted_words[BEYOND_LIMIT][row] = len(words_beyond_limit)
        omitted_words[WITHOUT_TOKEN][row] = len(unanswered_words) - len(words_beyond_limit)
    return OmissionsByExample(max_text_tokens(model), is_cut, omitted_words)


def _full_rows(model: Model, tokens: Rows) -> list[int]:
    """Rows with the maximum number of tokens: those that were cut, or fit exactly."""
    limit = max_text_tokens(model)
    return [row for row, ids in enumerate(tokens) if len(ids) >= limit]


def decoder_inputs_of(targets: torch.Tensor, start: int, padding: int) -> torch.Tensor:
    """Decoder inputs for targets, int [row, token].

    They are the tokens one position later, with `start` first.
    """
    decoder_tokens = torch.cat([torch.full_like(targets[:, :1], start), targets[:, :-1]], dim=1)
    return decoder_tokens.masked_fill(decoder_tokens == NO_TARGET, padding)


# Continuations.

TOLERANCE = {"float64": 1e-9, "float32": 2e-4}  # of log-probabilities, relative to the largest
# Tokens of a context with all its continuations in one row; more where the model takes more.
PACKED_TOKENS = 2048
MASKED_SHARE = 0.15  # share of a text's tokens that a masked language model is asked for


class TokenQueries:
    """Rows of tokens, with the positions at which a language model is asked for a token.

    Args:
        model: A language model.
        task_name: For errors.
        example_names: For errors.
        rows: Input tokens, [example][token].
        query_positions: Positions at which the model is asked, [example][answer].
        target_tokens: The tokens whose scores are asked for there, [example][answer].
        reaches: Number of positions that each row takes, [example]; empty where that is its length.
    """

    note = ""

    def __init__(
        self,
        model: Model,
        task_name: str,
        example_names: Sequence[str],
        rows: Rows,
        query_positions: Rows,
        target_tokens: Rows,
        reaches: Sequence[int] = (),
    ) -> None:
        check_lengths(model, task_name, example_names, rows, reaches)
        check_tokens(model, [*rows, *target_tokens])
        self.model = model
        self._rows = rows
        self._target_tokens = target_tokens
        self.lengths: Ints = lengths(rows)
        self._on_device = {
            "input_ids": (DeviceRows(rows, model.device), fillers(model)["input_ids"]),
            "attention_mask": (DeviceRows([[1] * len(row) for row in rows], model.device), 0),
            "asked": (DeviceRows(query_positions, model.device), 0),
        }
        self._targets = DeviceRows(target_tokens, model.device)
        self.omitted = nothing_omitted(model, len(rows))
        self.note = default_context(model)
        teach_positions(model.module)

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Tokens and positions asked, padded to the longest of some examples."""
        return {
            name: numbers.padded_batch(rows, filler)
            for name, (numbers, filler) in self._on_device.items()
        }

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Tokens of the texts, int [row, answer]."""
        return self._targets.padded_batch(rows, NO_TARGET, width)

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of the tokens asked for, [row, answer, vocabulary]."""
        module = self.model.module
        options = {"use_cache": False} if module.can_generate() else {}
        scores: torch.Tensor = module(**inputs, **options).logits
        assert scores.shape[1] == inputs["asked"].shape[1]
        return scores


class NextTokens(TokenQueries):
    """Texts of which every token is an answer, given those before it.

    A text's context is given, and not asked for. A masked language model is asked for a share of
    the tokens instead, which are masked, the same ones in every run.

    Attributes:
        masked: Whether the model is a masked language model.
    """

    def __init__(self, model: Model, task: Task, examples: Sequence[Example]) -> None:
        self.masked = masked = masks_tokens(model, task)
        if masked and model.tokenizer.mask_token_id is None:
            raise HeadlabError(
                f"the tokenizer of {model.name} has no mask token; set mask_token and save it into the folder",
                code="tokenizer.no_mask",
            )
        contexts = tokens_of_texts(model, [example.text for example in examples])
        texts = [example.text + (example.target or "") for example in examples]
        token_rows = tokens_of_texts(model, texts, keep_end_tokens=masked)
        shared_lengths = []
        queries = []
        for number, (row, context) in enumerate(zip(token_rows, contexts, strict=True)):
            shared_tokens = _common_prefix_length(row, context)
            shared_lengths.append(shared_tokens)
            if masked:
                queries.append(_masked_queries(model, row, shared_tokens, number))
            else:
                queries.append(_next_token_queries(model, row, context))
        super().__init__(
            model,
            task.name,
            [example.reference for example in examples],
            [query.tokens for query in queries],
            [query.positions for query in queries],
            [query.target_tokens for query in queries],
        )
        self.units = lengths(self._target_tokens)
        if not self.units.all():
            empty = examples[int((self.units == 0).argmax())]
            raise HeadlabError(
                f"{task.name}, example {empty.reference}: {empty.target!r:.60} has no token to predict; give a longer "
                "text",
                code="data.text_too_short",
            )
        answers = [np.array(row, dtype=np.int64) for row in self._target_tokens]
        self.answers: Ints = np.concatenate(answers)
        tokens_after_context = lengths(token_rows) - np.array(shared_lengths)
        if not masked and (self.units < tokens_after_context).any():
            without_first = (
                "the first token of each text is not predicted, as the tokenizer has no start token, but its bytes and "
                "word are counted, so bits per byte and word perplexity are too low"
            )
            self.note = "; ".join(filter(None, (self.note, without_first)))


class ChoiceAnswers:
    """The answers to contexts with several continuations each: the one of highest log-probability.

    Attributes:
        answers: Number of the right continuation, int [example].
        units: Number of answers, 1 for each example.
        bytes: Length of each continuation without the space before it, [example, choice]; 0 where
            an example has fewer continuations.
    """

    model: Model

    def __init__(self, examples: Sequence[Example]) -> None:
        self.answers: Ints = np.array([example.label for example in examples], dtype=np.int64)
        self.units: Ints = np.ones_like(self.answers)
        max_choices = max(len(example.choices) for example in examples)
        self.bytes: Floats = np.zeros((len(examples), max_choices))
        for row, example in enumerate(examples):
            choice_bytes = [len(choice.strip().encode()) for choice in example.choices]
            self.bytes[row, : len(choice_bytes)] = choice_bytes

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Numbers of the right continuations, int [row]."""
        return on_device(self.answers[rows], self.model.device)


def log_probabilities(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log-probability of each target token, in the shape of `targets`.

    0 where a target is NO_TARGET.
    """
    return log_probability(logits, targets.clamp(min=0)).masked_fill(targets == NO_TARGET, 0.0)


class Choices(ChoiceAnswers, TokenQueries):
    """Contexts with several continuations each, for a decoder.

    The continuations share their context: they follow it in one row, each at the positions right
    behind it, and each sees the context and itself alone.
    """

    def __init__(self, model: Model, task: Task, examples: Sequence[Example]) -> None:
        if masks_tokens(model, task):
            raise HeadlabError(
                f"{model.name} predicts masked tokens; task {task.name} needs a model that predicts the next token",
                code="model.not_causal",
            )
        contexts = tokens_of_texts(model, [example.text for example in examples])
        texts = [example.text + choice for example in examples for choice in example.choices]
        continued_rows = tokens_of_texts(model, texts)
        packed = []
        end = 0
        for context, example in zip(contexts, examples, strict=True):
            start = end
            end += len(example.choices)
            continued = continued_rows[start:end]
            packed.append(_pack_choices(model, context, continued, example, task))
        rows = [choices.tokens for choices in packed]
        target_tokens = [choices.target_tokens for choices in packed]
        self._choice_of_token = [choices.choice_of_token for choices in packed]
        self._segments = [choices.segments for choices in packed]
        TokenQueries.__init__(
            self,
            model,
            task.name,
            [example.reference for example in examples],
            rows,
            [choices.positions for choices in packed],
            target_tokens,
            [_reach(segments) for segments in self._segments],
        )
        ChoiceAnswers.__init__(self, examples)
        self._on_device["wanted"] = (self._targets, NO_TARGET)
        self._on_device["choice"] = (DeviceRows(self._choice_of_token, model.device), 0)
        ambiguous_note = _ambiguous_choices_note(target_tokens, self._choice_of_token)
        self.note = "; ".join(filter(None, (self.note, ambiguous_note)))
        if any(any(row) for row in self._segments):
            self._on_device["segments"] = (DeviceRows(self._segments, model.device), -1)
            self._check_packing(task, examples)

    @cached_property
    def packing(self) -> Packing:
        """How the continuations stand behind their contexts."""
        return Packing.of(self._segments)

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Log-probability of each continuation, [row, choice].

        It is minus infinity where an example has fewer continuations.
        """
        targets = inputs["wanted"]
        token_scores = log_probabilities(super().logits(inputs), targets)  # [row, answer]
        choice_numbers = torch.arange(self.bytes.shape[1], device=targets.device)
        is_answer = (targets != NO_TARGET)[..., None]
        belongs_to_choice = (inputs["choice"][..., None] == choice_numbers) & is_answer
        choice_scores = (token_scores[..., None] * belongs_to_choice).sum(dim=1)
        return choice_scores.masked_fill(~belongs_to_choice.any(dim=1), float("-inf"))

    def _check_packing(self, task: Task, examples: Sequence[Example]) -> None:
        """Raise HeadlabError unless packed continuations get the scores of their own rows.

        They do not where positions cannot be given, or where attention reaches back over a limited
        number of tokens. The row with the longest reach is tried.
        """
        packed_rows = [row for row, segments in enumerate(self._segments) if any(segments)]
        row = max(packed_rows, key=lambda packed_row: _reach(self._segments[packed_row]))
        config = self.model.module.config.get_text_config()
        is_within_window = _reach(self._segments[row]) <= window(config)
        choice_count = len(examples[row].choices)
        try:
            with torch.inference_mode(), self.model.active(ActiveGates()):
                packed = self.logits(self.tensors(np.array([row])))[0, :choice_count]
                separate = [self._score_alone(row, choice) for choice in range(choice_count)]
                separate_scores = torch.stack(separate)
            largest = float(1 + separate_scores.abs().max())
            tolerance = TOLERANCE.get(self.model.dtype, 5e-2) * largest
            is_equal = torch.allclose(packed, separate_scores, rtol=0, atol=tolerance)
        except MODEL_ERRORS as error:
            if is_out_of_memory(error):
                raise
            is_equal = False
        if not is_within_window or not is_equal:
            raise HeadlabError(
                f"{self.model.name} ({type(self.model.module).__name__}) gives continuations of several tokens other "
                f"scores when they share a context; give task {task.name} choices of one token, or use another model",
                code="model.choices_unshared",
            )

    def _score_alone(self, row: int, choice: int) -> torch.Tensor:
        """Log-probability of one continuation, behind its context and without the others; a scalar.

        Args:
            row: Index of the example.
            choice: Number of the continuation, from 0; its segment is choice + 1.
        """
        device = self.model.device
        tokens = np.array(self._rows[row])
        segments = np.array(self._segments[row])
        target_tokens = np.array(self._target_tokens[row])
        choice_tokens = target_tokens[np.array(self._choice_of_token[row]) == choice]
        is_context_or_choice = (segments == 0) | (segments == choice + 1)
        row_tokens = torch.as_tensor(tokens[is_context_or_choice], device=device)
        logits = self.model.module(input_ids=row_tokens[None], use_cache=False).logits
        choice_logits = logits[0, -len(choice_tokens) :]
        return log_probability(choice_logits, torch.as_tensor(choice_tokens, device=device)).sum()


def check_lengths(
    model: Model,
    task_name: str,
    example_names: Sequence[str],
    rows: Rows,
    reaches: Sequence[int] = (),
    *,
    targets: bool = False,
) -> None:
    """Raise HeadlabError, naming the example, for a row that is too long for the model.

    Args:
        model: The model that is given the rows.
        task_name: For the error.
        example_names: For the error.
        rows: Tokens, [row][token].
        reaches: As in `TokenQueries`.
        targets: As in `context_length`.
    """
    limit = context_length(model, targets=targets)
    packed_limit = max(limit, PACKED_TOKENS)
    reaches = reaches or [len(row) for row in rows]
    for example_name, row, reach in zip(example_names, rows, reaches, strict=True):
        tokens = len(row)
        max_tokens = packed_limit
        if reach > limit:
            tokens = reach
            max_tokens = limit
        if tokens > max_tokens:
            raise HeadlabError(
                f"{task_name}, example {example_name}: {tokens:,} tokens, and headlab takes "
                f"{max_tokens:,} with {model.name}; give a shorter text, or use a model whose "
                "tokenizer needs fewer tokens for this language",
                code="data.text_too_long",
            )


def predicts_next(model: Model) -> bool:
    """Whether a model predicts the next token.

    A model that sees later tokens does not: it would see its answers.
    """
    is_decoder = [stack.name for stack in model.head_grid.stacks] == ["decoder"]
    return is_decoder and bool(model.module.can_generate())


def masks_tokens(model: Model, task: Task) -> bool:
    """Whether a language model predicts masked tokens.

    Raises:
        HeadlabError: The model is no language model.
    """
    name = type(model.module).__name__
    if name.endswith("ForMaskedLM"):
        return True
    if not predicts_next(model):
        raise HeadlabError(
            f"{model.name} is a {name}; task {task.name} is answered by likelihood and needs a language model, like "
            "smollm2-135m",
            code="model.not_language_model",
        )
    return False


def tokens_of_texts(model: Model, texts: Sequence[str], *, keep_end_tokens: bool = False) -> Rows:
    """Tokens of texts as the tokenizer gives them, with the special tokens before a text.

    Args:
        model: The model whose tokenizer is used.
        texts: The texts.
        keep_end_tokens: Whether the special tokens behind a text stay, too.
    """
    rows: Rows = [list(row) for row in tokenizer_output(model.tokenizer, list(texts))["input_ids"]]
    special_after = 0 if keep_end_tokens else _special_token_counts(model.tokenizer)[1]
    return [row[:-special_after] if special_after else row for row in rows]


def adds_no_token(context: Sequence[int], continued: Sequence[int]) -> bool:
    """Whether a context with something behind it has no token that the context alone has not.

    Args:
        context: Tokens of the context.
        continued: Tokens of the context together with what follows it.
    """
    return list(continued) == list(context[: len(continued)])


def shared_length(context: list[int], continued_rows: Rows) -> int:
    """Number of a context's tokens that its continuations follow; each of them keeps a token.

    A tokenizer may merge the end of a context with a continuation: the context that is shared
    then ends earlier.

    Args:
        context: Tokens of the context.
        continued_rows: Tokens of the context together with each continuation.
    """
    all_but_last = [len(continued) - 1 for continued in continued_rows]
    return min(_common_prefix_length(context, *continued_rows), *all_but_last)


def _common_prefix_length(*rows: list[int]) -> int:
    """Number of tokens with which all the rows begin."""
    common_length = 0
    for tokens in zip(*rows, strict=False):
        if len({*tokens}) > 1:
            break
        common_length += 1
    return common_length


def _with_shared_token(
    model: Model, rows: Sequence[list[int]], shared_tokens: int
) -> tuple[list[list[int]], int]:
    """Rows that share at least one token, and how many they share.

    Where they share none, a start token goes before them, if the tokenizer has one.
    """
    start_token = model.tokenizer.bos_token_id
    if start_token is None:
        start_token = model.tokenizer.eos_token_id
    if shared_tokens or start_token is None:
        return [*rows], shared_tokens
    return [[start_token, *row] for row in rows], 1


class TokenQuery(NamedTuple):
    """One text that a language model is asked about.

    Attributes:
        tokens: Input tokens.
        positions: The positions at which the model is asked for a token.
        target_tokens: The token whose score is asked for at each of them.
    """

    tokens: list[int]
    positions: list[int]
    target_tokens: list[int]


def _next_token_queries(model: Model, row: list[int], context: list[int]) -> TokenQuery:
    """A text whose every token after its context is asked for."""
    if adds_no_token(context, row):
        return TokenQuery(row, [], [])
    all_but_last = max(len(row) - 1, 0)
    shared_tokens = min(_common_prefix_length(row, context), all_but_last)
    (row,), shared_tokens = _with_shared_token(model, [row], shared_tokens)
    first_target = max(shared_tokens, 1)
    positions = list(range(first_target - 1, len(row) - 1))
    return TokenQuery(row[:-1], positions, row[first_target:])


def _masked_queries(
    model: Model, row: list[int], context_tokens: int, example_number: int
) -> TokenQuery:
    """A text with a share of its tokens masked, at least one, all after its context.

    Args:
        model: A masked language model.
        row: Tokens of the text.
        context_tokens: Number of tokens that belong to the context.
        example_number: Which tokens are masked depends on this number alone.
    """
    special_ids = {*model.tokenizer.all_special_ids}
    maskable_positions = []
    for position in range(context_tokens, len(row)):
        if row[position] not in special_ids:
            maskable_positions.append(position)
    if not maskable_positions:
        return TokenQuery(list(row), [], [])
    rng = np.random.default_rng([example_number, 15])
    mask_count = max(1, round(MASKED_SHARE * len(maskable_positions)))
    masked_positions = sorted(rng.choice(maskable_positions, mask_count, replace=False).tolist())
    masked_row = list(row)
    for position in masked_positions:
        masked_row[position] = int(model.tokenizer.mask_token_id)
    return TokenQuery(masked_row, masked_positions, [row[p] for p in masked_positions])


class PackedChoices(NamedTuple):
    """A context with its continuations in one row.

    Attributes:
        tokens: Input tokens.
        positions: The positions at which the model is asked for a token.
        target_tokens: The token whose score is asked for at each of them: those of all
            continuations in turn.
        choice_of_token: Number of the continuation that each target token belongs to.
        segments: Of each input token, 0 for the context, or the number of its continuation, from 1.
    """

    tokens: list[int]
    positions: list[int]
    target_tokens: list[int]
    choice_of_token: list[int]
    segments: list[int]


def _pack_choices(
    model: Model, context: list[int], continued_rows: Rows, example: Example, task: Task
) -> PackedChoices:
    """A context with its continuations in one row, at the end of the tokens that they all share.

    Args:
        model: The model that is given the row.
        context: Tokens of the context.
        continued_rows: Tokens of the context together with each continuation.
        example: For errors.
        task: For errors.

    Raises:
        HeadlabError: A continuation has no token, or no token stands before them.
    """
    for text, continued in zip(example.choices, continued_rows, strict=True):
        if adds_no_token(context, continued):
            raise HeadlabError(
                f"{task.name}, example {example.reference}: the tokenizer of {model.name} gives the "
                f"choice {text!r:.60} no token; give a longer choice",
                code="data.choice_empty",
            )
    continued_rows, shared_tokens = _with_shared_token(
        model, continued_rows, shared_length(context, continued_rows)
    )
    if not shared_tokens:
        raise HeadlabError(
            f"{task.name}, example {example.reference}: no token stands before its choices, and {model.name} has no "
            "start token; give it a context",
            code="data.context_empty",
        )
    row = continued_rows[0][:shared_tokens]
    segments = [0] * shared_tokens
    positions: list[int] = []
    target_tokens: list[int] = []
    choice_of_token: list[int] = []
    for number, continued in enumerate(continued_rows):
        tokens = continued[shared_tokens:]
        positions += [shared_tokens - 1, *range(len(row), len(row) + len(tokens) - 1)]
        row += tokens[:-1]
        segments += [number + 1] * (len(tokens) - 1)
        target_tokens += tokens
        choice_of_token += [number] * len(tokens)
    return PackedChoices(row, positions, target_tokens, choice_of_token, segments)


def _reach(segments: Sequence[int]) -> int:
    """Positions that a context takes with its longest continuation."""
    counts = np.bincount(segments)
    return int(counts[0] + max(counts[1:], default=0))


def _ambiguous_choices_note(target_tokens: Rows, choice_of_token: Rows) -> str:
    """Say in how many examples one choice has the same tokens as another, or begins with them.

    The sentences have no full stop; the text is empty if there is no such example.

    Args:
        target_tokens: The tokens of all choices, one choice after the other, [example][token].
        choice_of_token: Number of the choice that each of them belongs to, [example][token].
    """
    example_count = len(target_tokens)
    equal_count = 0
    prefix_count = 0
    for tokens, choice_numbers in zip(target_tokens, choice_of_token, strict=True):
        tokens_by_choice: dict[int, list[int]] = defaultdict(list)
        for token, choice_number in zip(tokens, choice_numbers, strict=True):
            tokens_by_choice[choice_number].append(token)
        choices = [tuple(choice_tokens) for choice_tokens in tokens_by_choice.values()]
        equal_count += len({*choices}) < len(choices)
        prefix_count += any(
            shorter != longer and longer[: len(shorter)] == shorter
            for shorter, longer in product(choices, repeat=2)
        )
    sentences = []
    if prefix_count:
        sentences.append(
            f"in {prefix_count} of {example_count} examples a choice begins with the tokens of "
            "another, and so can never be likelier than that one; compare models with the same "
            "tokenizer only"
        )
    if equal_count:
        sentences.append(
            f"in {equal_count} of {example_count} examples the tokenizer gives two choices the same "
            "tokens, so the model cannot tell them apart, and the first counts as its answer"
        )
    return "; ".join(sentences)
