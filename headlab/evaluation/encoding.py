"""Texts as rows of tokens, and texts that a language model continues: token by token, or by one of several choices."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from headlab.core import (
    BEYOND_LIMIT,
    WITHOUT_TOKEN,
    Floats,
    HeadlabError,
    Ints,
    log_probability,
    out_of_memory,
)
from headlab.core.devices import on_device
from headlab.evaluation.context import MAX_TOKENS as MAX_TOKENS
from headlab.evaluation.context import OmissionsByExample, default_context, longest, nothing_omitted
from headlab.evaluation.context import context_length as context_length
from headlab.hooks import FAILURES, Active, Model, teach_positions
from headlab.models import (
    PADDING_MASK,
    Tokenised,
    WordSpaces,
    readable,
    spaced,
    tokenise,
    tokenizer_output,
    without_unknown_segments,
)
from headlab.models.special_ids import named_padding, padding_id
from headlab.tasks import Example, Task

# Texts as rows of tokens, and rows of tokens as padded tensors.

IGNORED = -100
Rows = list[list[int]]


class Sized(Protocol):
    """Rows from which batches are cut: the length of every row, int [row], and padded inputs of some rows."""

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
    cut: bool = True,
) -> dict[str, Rows]:
    """Model inputs of texts by name, [text][token], cut and not padded.

    Args:
        model: The model that is given the texts.
        texts: Texts.
        second: The second text of every pair.
        cut: Whether texts are cut to the model's limit.

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
        max_tokens=longest(model) if cut else None,
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
    cut: bool = True,
) -> EncodedWords:
    """Model inputs of sentences given as words.

    Args:
        model: The model that is given the sentences.
        sentences: The words of each.
        spaces: Which words get a space before them; as the model was trained if left out.
        cut: Whether sentences are cut to the model's limit.

    Raises:
        HeadlabError: As `encode`; also for a tokenizer that splits a sentence differently from its words.
    """
    require_padding(model)
    limit = longest(model) if cut else sys.maxsize
    spaced_sentences = [spaced(words, spaces or model.word_spaces) for words in sentences]
    tokens = tokenise(
        model.tokenizer,
        spaced_sentences,
        split=True,
        segments=model.missing_segment_ids.of_texts,
        max_tokens=limit if cut else None,
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
    """Raise HeadlabError for a model of which neither tokenizer nor configuration names a padding token."""
    if padding_id(model.module, model.tokenizer) is None:
        raise HeadlabError(
            f"the tokenizer of {model.name} has no padding token, and its configuration names none either; set "
            "pad_token and save it into the folder",
            code="tokenizer.no_padding",
        )


def check_tokens(model: Model, rows: Sequence[Sequence[int]]) -> None:
    """Raise HeadlabError for a token, of these rows or for padding, that the model has no embedding of."""
    try:
        size = getattr(model.module.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # models of characters or hashes have no such table
        return
    padding = padding_id(model.module, model.tokenizer)
    largest = max((max(row, default=0) for row in rows), default=0)
    largest = largest if padding is None else max(largest, padding)
    if size is not None and largest >= size:
        (token,) = readable(model.tokenizer, [largest])
        raise HeadlabError(
            f"the tokenizer of {model.name} has token {largest} ({token!r:.40}), but the model has embeddings of "
            f"{size} tokens; save the tokenizer that belongs to it, or resize the embeddings",
            code="tokenizer.larger_than_model",
        )


def window(config: PretrainedConfig) -> float:
    """Number of tokens that the narrowest layers of a model with this configuration attend to; inf for all."""
    slides = "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
    return float((slides and getattr(config, "sliding_window", None)) or math.inf)


# Whatever a tokenizer's files say: positions count from the first token, and a classifier reads its answer there or at
# the last token before the padding. Padded on the left, a row's answer would depend on its batch.
PADDED = "right"


def pad(model: Model, tokens: Mapping[str, Rows], rows: Ints) -> dict[str, torch.Tensor]:
    """Model inputs of some examples, padded to the longest of them, on the model's device.

    Raises HeadlabError for a tokenizer without a padding token that gives inputs which only it can pad.
    """
    columns = {name: [values[i] for i in rows] for name, values in tokens.items()}
    if model.tokenizer.pad_token_id == padding_id(model.module, model.tokenizer):
        padded_columns = model.tokenizer.pad(
            columns,
            return_tensors="pt",
            padding_side=PADDED,
            return_attention_mask=PADDING_MASK in columns,
        )
        return {name: on_device(column, model.device) for name, column in padded_columns.items()}
    unknown_names = sorted(columns.keys() - fillers(model).keys())
    if unknown_names:
        raise HeadlabError(
            f"the tokenizer of {model.name} gives {', '.join(unknown_names)}, which it alone can pad, and not with the "
            "padding token of the configuration; set pad_token and save it into the folder",
            code="tokenizer.no_padding",
        )
    return TokenRows(model, columns).batch(np.arange(len(rows)))


def fillers(model: Model) -> dict[str, int]:
    """{model input: what stands behind the end of a shorter row}, for the inputs that any tokenizer gives."""
    return {
        "input_ids": padding_id(model.module, model.tokenizer) or 0,
        "token_type_ids": model.tokenizer.pad_token_type_id,
        PADDING_MASK: 0,
    }


def decoder_filler(model: Model) -> int:
    """What stands behind the end of a shorter row of a decoder's inputs, where it is masked."""
    named = named_padding(model.module.config)
    return fillers(model)["input_ids"] if named is None else named


class DeviceRows:
    """Rows of numbers that are brought to a device once, and from which padded batches are cut there.

    Args:
        rows: The rows, of any lengths.
        device: Where the batches are needed.
    """

    def __init__(self, rows: Rows, device: torch.device) -> None:
        self._lengths_here = lengths(rows)
        ends = np.cumsum(self._lengths_here)
        numbers = [number for row in rows for number in row]
        self._numbers = on_device(np.array([*numbers, 0], dtype=np.int64), device)
        self._starts = on_device(ends - self._lengths_here, device)
        self._lengths = on_device(self._lengths_here, device)

    def padded(self, rows: Ints, filler: int, width: int = 0) -> torch.Tensor:
        """Some rows, padded on the right to the longest of them and at least to a width.

        Args:
            rows: Numbers of the rows, int [row].
            filler: What stands behind the end of a shorter row.
            width: Columns at least.

        Returns:
            int64 [row, column].
        """
        width = max(width, int(self._lengths_here[rows].max(initial=0)))
        chosen = on_device(rows, self._starts.device)
        columns = torch.arange(width, device=chosen.device)
        places = (self._starts[chosen][:, None] + columns).clamp(max=len(self._numbers) - 1)
        inside = columns < self._lengths[chosen][:, None]
        return torch.where(inside, self._numbers[places], filler)


class TokenRows:
    """What a tokenizer gave for some examples, on the model's device; batches as `pad` makes them.

    Args:
        model: The model they are for.
        tokens: By name, [example][token].
    """

    def __init__(self, model: Model, tokens: Mapping[str, Rows]) -> None:
        self._model, self._tokens = model, tokens
        self._fillers = fillers(model)
        self._rows_by_name: dict[str, DeviceRows] | None = None
        if set(tokens) <= set(
            self._fillers
        ):  # others are padded in ways that only the tokenizer knows
            self._rows_by_name = {
                name: DeviceRows(rows, model.device) for name, rows in tokens.items()
            }

    def batch(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some examples, padded to the longest of them."""
        if self._rows_by_name is None:
            return pad(self._model, self._tokens, rows)
        return {
            name: numbers.padded(rows, self._fillers[name])
            for name, numbers in self._rows_by_name.items()
        }


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
            f"{model.name} is a {type(model.module).__name__}, not a {kind}; task {task.name} needs one fine-tuned on "
            "it",
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
    pieces = [
        (place, piece) for place, word in enumerate(words) for piece in tokenizer.tokenize(word)
    ]
    front, back = _around(tokenizer)
    room = len(ids) - front - back
    if len(ids) >= limit:
        pieces = (
            pieces[len(pieces) - room :] if tokenizer.truncation_side == "left" else pieces[:room]
        )
    if tokenizer.convert_tokens_to_ids([piece for _, piece in pieces]) != list(
        ids[front : len(ids) - back]
    ):
        raise HeadlabError(
            f"{type(tokenizer).__name__} splits a sentence differently from its separate words, so its tokens cannot "
            "be "
            f"assigned to words ({' '.join(words)!r:.60}); use a model with a fast tokenizer",
            code="tokenizer.words_unknown",
        )
    return [None] * front + [place for place, _ in pieces] + [None] * back


def _around(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Number of special tokens that a tokenizer puts before and behind a text."""
    whole, bare = (
        list(tokenizer_output(tokenizer, "a", add_special_tokens=added)["input_ids"])
        for added in (True, False)
    )
    front = next(
        (n for n in range(len(whole) - len(bare) + 1) if whole[n : n + len(bare)] == bare), 0
    )
    return front, len(whole) - len(bare) - front


def first_tokens(words: Sequence[int | None], labels: Sequence[int]) -> list[int]:
    """A label at each word's first token, -100 elsewhere; words cut off by the length limit have none."""
    out, last = [], None
    for word in words:
        out.append(IGNORED if word is None or word == last else int(labels[word]))
        last = word
    return out


def asked_words(words: Sequence[int | None], labels: Sequence[int]) -> list[int]:
    """The words that have a label and a token, in order: those that `first_tokens` gives a label."""
    seen = dict.fromkeys(word for word in words if word is not None)
    return [word for word in seen if labels[word] != IGNORED]


def omitted_from_texts(
    model: Model, tokens: Rows, texts: Sequence[str], second: Sequence[str] | None = None
) -> OmissionsByExample:
    """Which texts, encoded as `tokens`, were longer than the limit."""
    full = _full_rows(model, tokens)
    cut = np.zeros(len(tokens), dtype=bool)
    if full:
        pairs = None if second is None else [second[row] for row in full]
        uncut = encode(model, [texts[row] for row in full], pairs, cut=False)["input_ids"]
        cut[full] = [len(ids) > len(tokens[row]) for row, ids in zip(full, uncut, strict=True)]
    return OmissionsByExample(longest(model), cut)


def omitted_from_words(
    model: Model, tokens: Rows, sentences: Sequence[Sequence[str]], labels: Sequence[Sequence[int]],
    answered: Sequence[Sequence[int]],
) -> OmissionsByExample:  # fmt: skip
    """Which sentences were longer than the limit, and which of their labelled words have no answer, and why.

    Args:
        model: the loaded model.
        tokens: [sentence][token], the sentences as `encode_words` gave them.
        sentences: [sentence][word].
        labels: [sentence][word], IGNORED for words without a label.
        answered: [sentence][answer], the word of each answer.
    """
    full = _full_rows(model, tokens)
    cut = np.zeros(len(tokens), dtype=bool)
    words_of_uncut: dict[int, set[int]] = {}
    if full:
        uncut = encode_words(model, [sentences[row] for row in full], cut=False)
        for row, word_ids_of_row in zip(full, uncut.word_ids, strict=True):
            cut[row] = len(word_ids_of_row) > len(tokens[row])
            if cut[row]:
                words_of_uncut[row] = {word for word in word_ids_of_row if word is not None}
    left_out = {
        reason: np.zeros(len(tokens), dtype=np.int64) for reason in (WITHOUT_TOKEN, BEYOND_LIMIT)
    }
    for row, row_labels in enumerate(labels):
        labelled = {word for word, label in enumerate(row_labels) if label != IGNORED}
        unanswered = labelled - set(answered[row])
        beyond = unanswered & words_of_uncut.get(row, set())
        left_out[BEYOND_LIMIT][row] = len(beyond)
        left_out[WITHOUT_TOKEN][row] = len(unanswered) - len(beyond)
    return OmissionsByExample(longest(model), cut, left_out)


def _full_rows(model: Model, tokens: Rows) -> list[int]:
    """Rows with the maximum number of tokens: those that were cut, or fit exactly."""
    limit = longest(model)
    return [row for row, ids in enumerate(tokens) if len(ids) >= limit]


def shifted(targets: torch.Tensor, start: int, padding: int) -> torch.Tensor:
    """Decoder inputs for targets, int [row, token]: each token one position later, `start` first."""
    before = torch.cat([torch.full_like(targets[:, :1], start), targets[:, :-1]], dim=1)
    return before.masked_fill(before == IGNORED, padding)


# Continuations.

TOLERANCE = {"float64": 1e-9, "float32": 2e-4}  # of log-probabilities, relative to the largest
PACKED = 2048  # tokens of a context with all its continuations in one row, or what the model takes if that is more
MASKED = 0.15  # share of a text's tokens that a masked language model is asked for


class Asked:
    """Rows of tokens, the positions at which a language model is asked, and the tokens that are right there.

    task, ids: for errors.  asked, wanted: [example][answer].  reaches: [example], positions that a row takes, where
    that is not its length.
    """

    note = ""

    def __init__(
        self, model: Model, task: str, ids: Sequence[str], rows: Rows, asked: Rows, wanted: Rows,
        reaches: Sequence[int] = (),
    ) -> None:  # fmt: skip
        check_lengths(model, task, ids, rows, reaches)
        check_tokens(model, [*rows, *wanted])
        self.model, self._rows, self._asked, self._wanted = model, rows, asked, wanted
        self.lengths: Ints = lengths(rows)
        self._on_device = {
            "input_ids": (DeviceRows(rows, model.device), fillers(model)["input_ids"]),
            "attention_mask": (DeviceRows([[1] * len(row) for row in rows], model.device), 0),
            "asked": (DeviceRows(asked, model.device), 0),
        }
        self._targets = DeviceRows(wanted, model.device)
        self.omitted = nothing_omitted(model, len(rows))
        self.note = default_context(model)
        teach_positions(model.module)

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Tokens and positions asked, padded to the longest of some examples."""
        return {
            name: numbers.padded(rows, filler)
            for name, (numbers, filler) in self._on_device.items()
        }

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Tokens of the texts, int [row, answer]."""
        return self._targets.padded(rows, IGNORED, width)

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of the tokens asked for, [row, answer, vocabulary]."""
        module = self.model.module
        options = {"use_cache": False} if module.can_generate() else {}
        scores: torch.Tensor = module(**inputs, **options).logits
        assert scores.shape[1] == inputs["asked"].shape[1]
        return scores


class NextTokens(Asked):
    """Texts of which every token is an answer, given those before it; a text's context is given, not asked for.

    A masked language model is asked for a share of the tokens instead, which are masked, the same ones in every run.
    masked: whether it is one.
    """

    def __init__(self, model: Model, task: Task, examples: Sequence[Example]) -> None:
        self.masked = masked = masks_tokens(model, task)
        if masked and model.tokenizer.mask_token_id is None:
            raise HeadlabError(
                f"the tokenizer of {model.name} has no mask token; set mask_token and save it into the folder",
                code="tokenizer.no_mask",
            )
        contexts = encoded(model, [e.text for e in examples])
        wholes = encoded(model, [e.text + (e.target or "") for e in examples], ends=masked)
        parts = [
            _masked(model, row, _common(row, context), number)
            if masked
            else _split(model, row, context)
            for number, (row, context) in enumerate(zip(wholes, contexts, strict=True))
        ]
        super().__init__(
            model, task.name, [e.reference for e in examples], *map(list, zip(*parts, strict=True))
        )
        self.units = lengths(self._wanted)
        if not self.units.all():
            empty = examples[int((self.units == 0).argmax())]
            raise HeadlabError(
                f"{task.name}, example {empty.reference}: {empty.target!r:.60} has no token to predict; give a longer "
                "text",
                code="data.text_too_short",
            )
        self.answers: Ints = np.concatenate([np.array(row, dtype=np.int64) for row in self._wanted])
        behind = (
            len(row) - _common(row, context) for row, context in zip(wholes, contexts, strict=True)
        )
        if not masked and any(asked < most for asked, most in zip(self.units, behind, strict=True)):
            start = (
                "the first token of each text is not predicted, as the tokenizer has no start token, but its bytes and "
                "word are counted, so bits per byte and word perplexity are too low"
            )
            self.note = "; ".join(filter(None, (self.note, start)))


class Chosen:
    """The answers to contexts with several continuations each: the one of highest log-probability.

    bytes: [example, choice], length of each continuation without the space before it; 0 where an example has fewer.
    """

    model: Model

    def __init__(self, examples: Sequence[Example]) -> None:
        self.answers: Ints = np.array([example.label for example in examples], dtype=np.int64)
        self.units: Ints = np.ones_like(self.answers)
        most = max(len(example.choices) for example in examples)
        self.bytes: Floats = np.zeros((len(examples), most))
        for row, example in enumerate(examples):
            self.bytes[row, : len(example.choices)] = [
                len(choice.strip().encode()) for choice in example.choices
            ]

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Numbers of the right continuations, int [row]."""
        return on_device(self.answers[rows], self.model.device)


def log_probabilities(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Log-probability of each wanted token, of the shape of `wanted`; 0 where none is wanted."""
    return log_probability(logits, wanted.clamp(min=0)).masked_fill(wanted == IGNORED, 0.0)


class Choices(Chosen, Asked):
    """Contexts with several continuations each, for a decoder.

    The continuations share their context: they follow it in one row, each at the positions right behind it, and see
    the context and themselves alone.
    """

    def __init__(self, model: Model, task: Task, examples: Sequence[Example]) -> None:
        if masks_tokens(model, task):
            raise HeadlabError(
                f"{model.name} predicts masked tokens; task {task.name} needs a model that predicts the next token",
                code="model.not_causal",
            )
        contexts = encoded(model, [example.text for example in examples])
        texts = [example.text + choice for example in examples for choice in example.choices]
        wholes, ends = (
            encoded(model, texts),
            np.cumsum([len(example.choices) for example in examples]),
        )
        parts = [
            _packed(model, context, wholes[end - len(example.choices) : end], example, task)
            for context, example, end in zip(contexts, examples, ends.tolist(), strict=True)
        ]
        rows, asked, wanted, self._choice, self._segments = (
            list(column) for column in zip(*parts, strict=True)
        )
        names, reaches = (
            [example.reference for example in examples],
            list(map(_reach, self._segments)),
        )
        Asked.__init__(self, model, task.name, names, rows, asked, wanted, reaches)
        Chosen.__init__(self, examples)
        self._on_device["wanted"] = (self._targets, IGNORED)
        self._on_device["choice"] = (DeviceRows(self._choice, model.device), 0)
        self.note = "; ".join(filter(None, (self.note, _begins(rows, wanted, self._choice))))
        self._packs = any(any(row) for row in self._segments)
        if self._packs:
            self._on_device["segments"] = (DeviceRows(self._segments, model.device), -1)
            self._check_packing(task, examples)

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Log-probability of each continuation, [row, choice]; minus infinity where an example has fewer."""
        wanted = inputs["wanted"]
        each = log_probabilities(super().logits(inputs), wanted)
        number = torch.arange(self.bytes.shape[1], device=wanted.device)
        mine = (inputs["choice"][..., None] == number) & (wanted != IGNORED)[
            ..., None
        ]  # [row, answer, choice]
        return (each[..., None] * mine).sum(dim=1).masked_fill(~mine.any(dim=1), float("-inf"))

    def _check_packing(self, task: Task, examples: Sequence[Example]) -> None:
        """Raise HeadlabError unless continuations packed into one row get the scores that they get in their own rows.

        Not so where positions cannot be given, or attention reaches back over a limited number of tokens.
        """
        long = [row for row, segments in enumerate(self._segments) if any(segments)]
        row = max(long, key=lambda row: _reach(self._segments[row]))
        same = _reach(self._segments[row]) <= window(self.model.module.config.get_text_config())
        try:
            with torch.inference_mode(), self.model.active(Active()):
                packed = self.logits(self.tensors(np.array([row])))[0, : len(examples[row].choices)]
                apart = torch.stack([self._alone(row, n) for n in range(len(packed))])
            tolerance = TOLERANCE.get(self.model.dtype, 5e-2) * float(1 + apart.abs().max())
            same = same and torch.allclose(packed, apart, rtol=0, atol=tolerance)
        except FAILURES as error:
            if out_of_memory(error):
                raise
            same = False
        if not same:
            raise HeadlabError(
                f"{self.model.name} ({type(self.model.module).__name__}) gives continuations of several tokens other "
                f"scores when they share a context; give task {task.name} choices of one token, or use another model",
                code="model.choices_unshared",
            )

    def _alone(self, row: int, choice: int) -> torch.Tensor:
        """Log-probability of one continuation in a row of its own."""
        segments, tokens = np.array(self._segments[row]), np.array(self._rows[row])
        own = np.array(self._wanted[row])[np.array(self._choice[row]) == choice]
        ids = torch.as_tensor(
            tokens[(segments == 0) | (segments == choice + 1)], device=self.model.device
        )
        scores = self.model.module(input_ids=ids[None], use_cache=False).logits[0, -len(own) :]
        return log_probability(scores, torch.as_tensor(own, device=self.model.device)).sum()


def check_lengths(
    model: Model,
    task: str,
    ids: Sequence[str],
    rows: Rows,
    reaches: Sequence[int] = (),
    *,
    targets: bool = False,
) -> None:
    """Raise HeadlabError, naming the example, for a row that is too long for the model.

    reaches: as in `Asked`.  targets: as in `context_length`.
    """
    limit = context_length(model, targets=targets)
    most_packed = max(limit, PACKED)
    for name, row, reach in zip(ids, rows, reaches or map(len, rows), strict=True):
        tokens, most = (reach, limit) if reach > limit else (len(row), most_packed)
        if tokens > most:
            raise HeadlabError(
                f"{task}, example {name}: {tokens:,} tokens, and headlab takes {most:,} with {model.name}; give a "
                "shorter text, or use a model whose tokenizer needs fewer tokens for this language",
                code="data.text_too_long",
            )


def predicts_next(model: Model) -> bool:
    """Whether a model predicts the next token. One that sees later tokens does not: it would see its answers."""
    return [stack.name for stack in model.grid.stacks] == ["decoder"] and bool(
        model.module.can_generate()
    )


def masks_tokens(model: Model, task: Task) -> bool:
    """Whether a language model predicts masked tokens. Raises HeadlabError if the model is none."""
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


def encoded(model: Model, texts: Sequence[str], *, ends: bool = False) -> Rows:
    """Tokens of texts as the tokenizer gives them.  ends: with the special tokens that it adds behind a text."""
    rows: Rows = [list(row) for row in tokenizer_output(model.tokenizer, list(texts))["input_ids"]]
    behind = 0 if ends else _around(model.tokenizer)[1]
    return [row[:-behind] if behind else row for row in rows]


def adds_no_token(context: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a context with something behind it has no token that the context alone has not.

    Args:
        context: tokens of the context.
        whole: tokens of the context together with what follows it.
    """
    return list(whole) == list(context[: len(whole)])


def shared_length(context: list[int], wholes: Rows) -> int:
    """Number of a context's tokens that its continuations follow; each of them keeps a token.

    A tokenizer may merge the end of a context with a continuation: the context that is shared
    then ends earlier.

    Args:
        context: tokens of the context.
        wholes: tokens of the context together with each continuation.
    """
    return min(_common(context, *wholes), *(len(whole) - 1 for whole in wholes))


def _common(*rows: list[int]) -> int:
    """Number of tokens with which all the rows begin."""
    same = [len({*column}) == 1 for column in zip(*rows, strict=False)]
    return same.index(False) if False in same else len(same)


def _started(model: Model, rows: Sequence[list[int]], shared: int) -> tuple[list[list[int]], int]:
    """Rows of which at least one token is shared: where none is, a start token goes before them, if there is one."""
    tokenizer = model.tokenizer
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    return ([*rows], shared) if shared or first is None else ([[first, *row] for row in rows], 1)


def _split(
    model: Model, row: list[int], context: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """Input tokens of a text, the positions asked and the tokens wanted: all after its context."""
    if adds_no_token(context, row):
        return row, [], []
    (row,), shared = _started(model, [row], min(_common(row, context), max(len(row) - 1, 0)))
    first = max(shared, 1)
    return row[:-1], list(range(first - 1, len(row) - 1)), row[first:]


def _masked(
    model: Model, row: list[int], context: int, number: int
) -> tuple[list[int], list[int], list[int]]:
    """A text with a share of its tokens masked, at least one; which ones depends on its number alone."""
    special = {*model.tokenizer.all_special_ids}
    able = [place for place, token in enumerate(row) if token not in special and place >= context]
    many = min(len(able), max(1, round(MASKED * len(able))))
    chosen = (
        sorted(np.random.default_rng([number, 15]).choice(able, many, replace=False).tolist())
        if able
        else []
    )
    hidden = [
        int(model.tokenizer.mask_token_id) if place in chosen else token
        for place, token in enumerate(row)
    ]
    return hidden, chosen, [row[place] for place in chosen]


def _packed(
    model: Model, context: list[int], wholes: Rows, example: Example, task: Task
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Input tokens of a context and its continuations, positions asked, tokens wanted, the choice of each, segments.

    Raises HeadlabError, naming the example, for a choice without a token, and where no token stands
    before the choices.
    """
    for text, whole in zip(example.choices, wholes, strict=True):
        if adds_no_token(context, whole):
            raise HeadlabError(
                f"{task.name}, example {example.reference}: the tokenizer of {model.name} gives the "
                f"choice {text!r:.60} no token; give a longer choice",
                code="data.choice_empty",
            )
    wholes, shared = _started(model, wholes, shared_length(context, wholes))
    if not shared:
        raise HeadlabError(
            f"{task.name}, example {example.reference}: no token stands before its choices, and {model.name} has no "
            "start token; give it a context",
            code="data.context_empty",
        )
    rest = [whole[shared:] for whole in wholes]
    row, segments = wholes[0][:shared], [0] * shared
    asked, wanted, choice = list[int](), list[int](), list[int]()
    for number, tokens in enumerate(rest):
        asked += [shared - 1, *range(len(row), len(row) + len(tokens) - 1)]
        row, segments = row + tokens[:-1], segments + [number + 1] * (len(tokens) - 1)
        wanted, choice = wanted + tokens, choice + [number] * len(tokens)
    return row, asked, wanted, choice, segments


def _reach(segments: Sequence[int]) -> int:
    """Positions that a context takes with its longest continuation."""
    counts = np.bincount(segments)
    return int(counts[0] + max(counts[1:], default=0))


def _begins(rows: Rows, wanted: Rows, choice: Rows) -> str:
    """Sentences if the tokens of some choices are those of another, or its first ones."""
    alike = begin = 0
    for tokens, numbers in zip(wanted, choice, strict=True):
        parts = [
            tuple(t for t, n in zip(tokens, numbers, strict=True) if n == own)
            for own in sorted({*numbers})
        ]
        alike += len({*parts}) < len(parts)
        begin += any(a != b and b[: len(a)] == a for a in parts for b in parts)
    told = []
    if begin:
        told.append(
            f"in {begin} of {len(rows)} examples a choice begins with the tokens of another, and so can never be "
            "likelier than that one; compare models with the same tokenizer only"
        )
    if alike:
        told.append(
            f"in {alike} of {len(rows)} examples the tokenizer gives two choices the same tokens, so the model cannot "
            "tell them apart, and the first counts as its answer"
        )
    return "; ".join(told)
