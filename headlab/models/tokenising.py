"""How a model's texts become tokens: segment ids, spaces before words, cuts at a limit.

Segment ids are of pairs, spaces of single words.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypedDict, TypeVar, Unpack
from weakref import WeakKeyDictionary

from transformers import (
    BatchEncoding,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headlab.core import HeadlabError, errors_as_headlab_errors, first_line
from headlab.models.shrunk_cut import PREFIX as SHRUNK

Rows = list[list[int]]
Value = TypeVar("Value")  # one of each token
# Texts, or sentences given as words.
Texts = Sequence[str] | Sequence[Sequence[str]]


class TokenizerOptions(TypedDict, total=False):
    """The options of a tokenizer that headlab uses, as transformers names them.

    Attributes:
        text_target: Texts in the language that is translated into.
        is_split_into_words: Whether texts are given as words.
        add_special_tokens: Whether special tokens are added; by default they are.
        return_token_type_ids: Whether segment ids are returned.
        truncation: Whether texts are cut.
        max_length: Number of tokens they are cut to.
        verbose: Whether to warn of texts that are longer than the model takes.
    """

    text_target: str | Texts
    is_split_into_words: bool
    add_special_tokens: bool
    return_token_type_ids: bool
    truncation: bool
    max_length: int
    verbose: bool


# A tokenizer may be told to truncate, to pad or to use another language only by changing it, for
# all its users at once. headlab cuts rows itself, and changes nothing but languages, under this
# lock.


class TokenizerLocks:
    """One lock for each tokenizer that is in use."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakKeyDictionary[PreTrainedTokenizerBase, threading.RLock] = (
            WeakKeyDictionary()
        )

    def lock_of(self, tokenizer: PreTrainedTokenizerBase) -> threading.RLock:
        """The lock of a tokenizer, which the thread that holds it may take again."""
        with self._guard:
            return self._locks.setdefault(tokenizer, threading.RLock())


LOCKS = TokenizerLocks()


def tokenizer_lock(tokenizer: PreTrainedTokenizerBase) -> AbstractContextManager[bool]:
    """A block during which no other thread uses the tokenizer through headlab."""
    return LOCKS.lock_of(tokenizer)


def tokenizer_output(
    tokenizer: PreTrainedTokenizerBase,
    *texts: str | Texts | None,
    **options: Unpack[TokenizerOptions],
) -> BatchEncoding:
    """What a tokenizer makes of texts; arguments as it takes them.

    Raises:
        HeadlabError: its files cannot be used, which some packages notice only at the first text.
    """
    with errors_as_headlab_errors(partial(_cannot_tokenise, tokenizer)):
        output: BatchEncoding = tokenizer(*texts, **options)
    return output


def _cannot_tokenise(tokenizer: PreTrainedTokenizerBase, error: BaseException) -> HeadlabError:
    folder = Path(str(tokenizer.name_or_path)).name or "the model"
    return HeadlabError(
        f"the tokenizer of {folder} was read, but makes no tokens of a text "
        f"({first_line(error)}); save the model's own tokenizer into its folder",
        code="tokenizer.unusable",
    )


# Segment ids: which of two texts a token belongs to.

SEGMENT_IDS = "token_type_ids"
INPUT_NAMES = "model_input_names"
PADDING_MASK = "attention_mask"
# Model types that were pretrained with segment ids, and whose tokenizers gave them for every pair
# up to transformers 4. Some tokenizers of transformers 5 do not: that of ALBERT, and the generic
# class.
SEGMENT_FAMILIES = frozenset(
    {
        "albert",
        "bert",
        "canine",
        "convbert",
        "deberta",
        "deberta-v2",
        "electra",
        "ernie",
        "fnet",
        "funnel",
        "layoutlm",
        "megatron-bert",
        "mobilebert",
        "nomic_bert",
        "nystromformer",
        "qdqbert",
        "rembert",
        "roc_bert",
        "roformer",
        "splinter",
        "squeezebert",
        "xlnet",
        "yoso",
    }
)
# The attention of these compares segments, and their class token has a segment of its own, so that
# segment ids change their answers to single texts, too.
CLASS_SEGMENT_FAMILIES = frozenset({"funnel", "xlnet"})


@dataclass(frozen=True)
class SegmentIds:
    """Segment ids that a model was trained with and its tokenizer leaves out.

    Attributes:
        of_pairs: Whether pairs get them.
        of_texts: Whether single texts and sentences given as words get them.
    """

    of_pairs: bool = False
    of_texts: bool = False


def missing_segment_ids(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> SegmentIds:
    """The segment ids to add for a model.

    None are added where `model_input_names` in the tokenizer's files says what the model takes, and
    where those of a pair are all 0, which is what a model assumes without them.

    Args:
        tokenizer: Of the model.
        config: The model's configuration.
    """
    family = family_of(config)
    stated_names = tokenizer.init_kwargs.get(INPUT_NAMES)
    if family not in SEGMENT_FAMILIES or getattr(config, "type_vocab_size", 2) < 2:
        return SegmentIds()
    if stated_names is not None and SEGMENT_IDS not in stated_names:
        return SegmentIds()
    with tokenizer_lock(tokenizer):
        segment_ids = tokenizer_output(tokenizer, ["a"], ["a"], verbose=False).get(SEGMENT_IDS)
        if segment_ids is not None and any(segment_ids[0]):
            return SegmentIds()
        of_pairs = any(with_segment_ids(tokenizer, ["a"], ["a"])[SEGMENT_IDS][0])
    return SegmentIds(of_pairs, of_pairs and family in CLASS_SEGMENT_FAMILIES)


def without_unknown_segments(columns: dict[str, Rows], config: PretrainedConfig) -> dict[str, Rows]:
    """Model inputs without segment ids, where the model has no embedding of some.

    So it is with RoBERTa's one segment and a BERT's tokenizer: it was trained with segment 0 alone,
    which is what a model assumes without segment ids.
    """
    segments = getattr(config, "type_vocab_size", None)
    largest = max((max(row, default=0) for row in columns.get(SEGMENT_IDS, ())), default=0)
    if not segments or largest < segments:
        return columns
    return {name: rows for name, rows in columns.items() if name != SEGMENT_IDS}


def family_of(config: PretrainedConfig) -> str:
    """Model type of a configuration, for a shrunk model that of the model it was shrunk from."""
    return str(config.model_type).removeprefix(SHRUNK)


def with_segment_ids(
    tokenizer: PreTrainedTokenizerBase,
    texts: Texts,
    second: Sequence[str] | None,
    **options: Unpack[TokenizerOptions],
) -> BatchEncoding:
    """A tokenizer's output with segment ids.

    Tokenizers in Python give 0 throughout since transformers 5; there the second text begins behind
    the first separator.
    """
    options |= {"return_token_type_ids": True, "verbose": False}
    batch = tokenizer_output(tokenizer, _as_list(texts), second, **options)
    if second is not None and not tokenizer.is_fast:
        for segment_ids, tokens in zip(batch[SEGMENT_IDS], batch["input_ids"], strict=True):
            if not any(segment_ids) and tokenizer.sep_token_id in tokens:
                start = tokens.index(tokenizer.sep_token_id) + 1
                segment_ids[start:] = [1] * (len(tokens) - start)
    return batch


# Spaces before words that are given one by one.

SPACED_WORDS = "spaced_words"  # false in tokenizer_config.json: trained on words without spaces
PROBES = ("a b", "the dog ran", "и на", "في من", "के में", "的 在")
WordSpaces = Literal["none", "inner", "every"]


def loses_spaces(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether words given one by one lack the space that they have in a text.

    So it is with byte-level tokenizers without `add_prefix_space`, and with those of Gemma.
    """
    as_given = with_spaces = 0
    for text in PROBES:
        words = text.split()
        in_text = tokenizer_output(tokenizer, [text], verbose=False)["input_ids"][0]
        as_given += _ids_of_words(tokenizer, words) == in_text
        with_spaces += _ids_of_words(tokenizer, spaced(words, "inner")) == in_text
    return with_spaces > as_given


def _ids_of_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[int]:
    batch = tokenizer_output(tokenizer, [list(words)], is_split_into_words=True, verbose=False)
    return list(batch["input_ids"][0])


def word_spaces(tokenizer: PreTrainedTokenizerBase, *, labels_words: bool) -> WordSpaces:
    """Which words given one by one get a space before them.

    Models that label words are trained with a space before every word, which is what
    `add_prefix_space` does and transformers 4 demanded; other models have seen words in texts, the
    first of which has none.

    Args:
        tokenizer: Of the model.
        labels_words: Whether the model is a token classifier.
    """
    if tokenizer.init_kwargs.get(SPACED_WORDS) is False and labels_words:
        return "none"
    with tokenizer_lock(tokenizer):
        if not loses_spaces(tokenizer):
            return "none"
    return "every" if labels_words else "inner"


def spaced(words: Sequence[str], spaces: WordSpaces) -> list[str]:
    """The words of a sentence with the spaces that they get; a word of nothing gets none."""
    if spaces == "none":
        return list(words)
    words_without_space = 1 if spaces == "inner" else 0
    return [
        *words[:words_without_space],
        *(f" {word}" if word else word for word in words[words_without_space:]),
    ]


# What a training says in tokenizer_config.json, for those who load the model.


@dataclass(frozen=True)
class TokenNeeds:
    """What a tokenizer leaves out and a model is given, for examples of one kind.

    Attributes:
        segments: Segment ids are added.
        spaced_words: A space is put before every word.
        padding: Rows are filled up with the padding token of the configuration, which is another
            than the tokenizer's, and the model reads its answer before it.
        attention_mask: What is padding is said beside the tokens.
    """

    segments: bool = False
    spaced_words: bool = False
    padding: bool = False
    attention_mask: bool = False

    def version(self) -> dict[str, bool]:
        """What a result's spec says of its tokens; earlier results without it had other ones."""
        return {name: True for name, is_needed in vars(self).items() if is_needed}

    def settings(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, bool | list[str]]:
        """Settings for tokenizer_config.json that say with which tokens a model was trained."""
        settings: dict[str, bool | list[str]] = {}
        if self.segments:
            settings[INPUT_NAMES] = list(dict.fromkeys([*tokenizer.model_input_names, SEGMENT_IDS]))
        if self.spaced_words:
            settings[SPACED_WORDS] = True
        return settings


def lacks_padding_mask(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer does not say which tokens are padding; headlab then does."""
    return PADDING_MASK not in tokenizer.model_input_names


def token_needs(
    segment_ids: SegmentIds, spaces: WordSpaces, *, pairs: bool, words: bool, mask: bool = False
) -> TokenNeeds:
    """What a model is given beyond its tokenizer's output.

    Args:
        segment_ids: Those that the tokenizer leaves out.
        spaces: Which words get a space.
        pairs: Whether the examples are pairs of texts.
        words: Whether the examples are sentences given as words.
        mask: Whether the tokenizer leaves out which tokens are padding.
    """
    segments = segment_ids.of_pairs if pairs else segment_ids.of_texts
    return TokenNeeds(
        segments=segments, spaced_words=words and spaces == "every", attention_mask=mask
    )


def state_earlier_training(
    tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, *, labels_words: bool
) -> None:
    """Note in the tokenizer of a model that headlab trained with which tokens it was trained.

    headlab states in the tokenizer's files what it adds to the tokenizer's output. Earlier versions
    added nothing, so that a model whose files state nothing was trained with that output alone.

    Args:
        tokenizer: Of the model, as loaded from its folder.
        config: The model's configuration.
        labels_words: Whether the model is a token classifier.
    """
    if missing_segment_ids(tokenizer, config).of_pairs:
        tokenizer.init_kwargs.setdefault(INPUT_NAMES, list(tokenizer.model_input_names))
    if labels_words and word_spaces(tokenizer, labels_words=True) == "every":
        tokenizer.init_kwargs.setdefault(SPACED_WORDS, False)


def classifies_words(module: PreTrainedModel) -> bool:
    """Whether a model of transformers is a token classifier."""
    return type(module).__name__.endswith("ForTokenClassification")


# Texts as tokens.


@dataclass(frozen=True)
class Tokenised:
    """Texts as tokens, cut to a length limit and not padded.

    Attributes:
        columns: Model inputs by name, int [text][token].
        batch: The tokenizer's output, of which a fast tokenizer's is not cut.
        kept_positions: Places of the tokens that are left of each text that was cut, by its row in
            `batch`.
    """

    columns: dict[str, Rows]
    batch: BatchEncoding
    kept_positions: Mapping[int, list[int]]

    def of_row(self, row: int, values: list[Value]) -> list[Value]:
        """What is left of values by token, like word ids, of a text before it was cut."""
        positions = self.kept_positions.get(row)
        if positions is None:
            return values
        return [values[position] for position in positions]

    def word_ids(self, row: int) -> list[int | None]:
        """The word of every token of a text, None for special tokens; for fast tokenizers."""
        return self.of_row(row, self.batch.word_ids(row))


def tokenise(
    tokenizer: PreTrainedTokenizerBase,
    texts: Texts,
    second: Sequence[str] | None = None,
    *,
    split: bool = False,
    segments: bool = False,
    target: bool = False,
    max_tokens: int | None = None,
) -> Tokenised:
    """Tokens of texts, as the tokenizer gives them, cut to a limit without changing the tokenizer.

    Args:
        tokenizer: Fast or in Python.
        texts: Texts, or lists of words if `split`.
        second: The second text of every pair.
        split: Whether texts are lists of words.
        segments: Whether to add segment ids that the tokenizer leaves out.
        target: Whether texts are in the language that is translated into.
        max_tokens: Tokens of a text with its special ones, at most.
    """
    options: TokenizerOptions = {"is_split_into_words": split, "verbose": False}
    if not tokenizer.is_fast and max_tokens is not None:  # truncates without changing itself
        options |= {"truncation": True, "max_length": max_tokens}
    with tokenizer_lock(tokenizer):
        if target:
            options["text_target"] = _as_list(texts)
            batch = tokenizer_output(tokenizer, **options)
        elif segments:
            batch = with_segment_ids(tokenizer, texts, second, **options)
        else:
            batch = tokenizer_output(tokenizer, _as_list(texts), second, **options)
    kept_positions: dict[int, list[int]] = {}
    if tokenizer.is_fast and max_tokens is not None:
        kept_positions = kept_positions_by_row(batch, max_tokens, tokenizer.truncation_side)
    columns = {name: list(batch[name]) for name in batch}
    # Without it, a model attends to the padding, and its answers depend on the batch that they are
    # computed in.
    columns.setdefault(PADDING_MASK, [[1] * len(row) for row in columns["input_ids"]])
    for row, positions in kept_positions.items():
        for values in columns.values():
            values[row] = [values[row][position] for position in positions]
    return Tokenised(columns, batch, kept_positions)


def _as_list(texts: Texts) -> Texts:
    """The texts as a list, which is what tokenizers take."""
    return list(texts)


def kept_positions_by_row(
    batch: BatchEncoding, max_tokens: int, truncation_side: str
) -> dict[int, list[int]]:
    """Places of the tokens that are left of each row that is longer than a limit."""
    return {
        row: kept_token_positions(batch.sequence_ids(row), max_tokens, truncation_side)
        for row, ids in enumerate(batch["input_ids"])
        if len(ids) > max_tokens
    }


def kept_token_positions(
    text_numbers: Sequence[int | None], max_tokens: int, truncation_side: str
) -> list[int]:
    """Places of the tokens that are left when a text or pair is cut, as tokenizers cut them.

    Special tokens stay; of a pair, the longer text loses tokens first.

    Args:
        text_numbers: For every token, 0 or 1 for the first or second text, None for a special
            token.
        max_tokens: Tokens that are left, at most.
        truncation_side: "right" if texts lose their ends, "left" if they lose their beginnings.
    """
    positions_by_text: tuple[list[int], list[int]] = ([], [])
    for position, text_number in enumerate(text_numbers):
        if text_number is not None:
            positions_by_text[text_number].append(position)
    room = max(0, max_tokens - text_numbers.count(None))
    removed_positions: set[int] = set()
    for positions, share in zip(
        positions_by_text,
        shares_of(len(positions_by_text[0]), len(positions_by_text[1]), room),
        strict=True,
    ):
        surplus = len(positions) - share
        removed_positions.update(
            positions[:surplus] if truncation_side == "left" else positions[share:]
        )
    return [position for position in range(len(text_numbers)) if position not in removed_positions]


def shares_of(first_length: int, second_length: int, room: int) -> tuple[int, int]:
    """Tokens that are left of each text of a pair, as the package tokenizers shares the room.

    Args:
        first_length: Number of tokens of the first text.
        second_length: Number of tokens of the second text; 0 for a single text.
        room: Number of tokens that are left of both.
    """
    if first_length + second_length <= room:
        return first_length, second_length
    shorter = min(first_length, second_length)
    longer = shorter if shorter > room else max(shorter, room - shorter)
    if shorter + longer > room:
        shorter = room // 2
        longer = shorter + room % 2
    if first_length <= second_length:
        return (shorter, longer)
    return (longer, shorter)
