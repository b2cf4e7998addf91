"""A tokenizer as the fields of a GGUF file, for the kinds that llama.cpp splits texts alike.

llama.cpp has two that models of Llama's layers use. Byte-level BPE ("gpt2") splits a text into
words by a rule that it knows by name, and a word into pieces by merges. SentencePiece's BPE
("llama") splits the whole text into pieces by their scores. A tokenizer of another kind or rule is
refused: llama.cpp would give other tokens without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from headlab.core import HeadlabError
from headlab.models.token_texts import SPACE
from headlab.shrink.pieces import BYTE_TOKEN
from headlab.shrink.tokenizers_pieces import pair_of

if TYPE_CHECKING:
    from gguf import GGUFWriter
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

JsonObject = Mapping[str, Any]
"""A part of tokenizer.json."""

# Byte-level BPE: the rules by which a text is split into words.

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}
LLAMA_3_PATTERN = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
LLAMA_3_SPLIT = {
    "type": "Split",
    "pattern": {"Regex": LLAMA_3_PATTERN},
    "behavior": "Isolated",
    "invert": False,
}
WORD_RULES: Mapping[str, Sequence[JsonObject]] = {
    "gpt-2": (BYTE_LEVEL,),
    "smollm": (DIGITS, BYTE_LEVEL),
    "llama-bpe": (LLAMA_3_SPLIT, BYTE_LEVEL | {"use_regex": False}),
}
"""By llama.cpp's name, the steps that split a text, as in tokenizer.json."""
WHOLE_WORDS_FIRST = ("llama-bpe",)
"""Rules under which llama.cpp takes a word that is one token as it is, before any merge."""
IGNORED_SETTINGS = ("trim_offsets",)
"""Settings of a step that do not change what is split."""

# SentencePiece's BPE.

REPLACE_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPEND_SPACE = {"type": "Prepend", "prepend": SPACE}

# Both.

STRIPPING = ("lstrip", "rstrip", "single_word")
"""Settings of an added token that llama.cpp does not know."""
UNKNOWN_SETTINGS = ("continuing_subword_prefix", "end_of_word_suffix", "dropout")
"""Settings of byte-pair encoding that llama.cpp does not know."""


class HasTokenizer(Protocol):
    """A model with its tokenizer: a `headlab.hooks.Model`, or what was made of one."""

    @property
    def name(self) -> str:
        """As messages call it."""
        ...

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer."""
        ...

    @property
    def module(self) -> PreTrainedModel:
        """The transformers module, for the size of its embeddings and its end tokens."""
        ...


@dataclass(frozen=True)
class TokenizedModel:
    """A module with a tokenizer of its own.

    Attributes:
        name: As messages call it.
        tokenizer: Of the module.
        module: The transformers module.
    """

    name: str
    tokenizer: PreTrainedTokenizerBase
    module: PreTrainedModel


@dataclass(frozen=True)
class Splitting:
    """How a text is split, as GGUF has it.

    Attributes:
        model: "gpt2" for byte-level BPE, "llama" for SentencePiece's.
        rule: llama.cpp's name of the rule that splits texts into words.
        adds_space: Whether a space is put before a text.
        merges: Of byte-level BPE: both parts with a space between them, the first applied first.
        scores: Of SentencePiece's, by piece: pieces of higher scores are put together first.
    """

    model: Literal["gpt2", "llama"]
    rule: str
    adds_space: bool
    merges: tuple[str, ...] = ()
    scores: Mapping[str, float] | None = None


@dataclass(frozen=True)
class TokenFields:
    """A tokenizer as GGUF has it.

    Attributes:
        splitting: How a text is split.
        tokens: By id.
        types: By id, numbers of gguf's `TokenType`.
        special_ids: By the name of the writer's method, the id of a special token.
        adds_start: Whether a text begins with the start token.
        adds_end: Whether it ends with the end token.
        chat_template: Of the tokenizer; None without one.
    """

    splitting: Splitting
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    special_ids: Mapping[str, int]
    adds_start: bool
    adds_end: bool
    chat_template: str | None

    def add_to(self, writer: GGUFWriter) -> None:
        """Add all fields to a file."""
        writer.add_tokenizer_model(self.splitting.model)
        writer.add_tokenizer_pre(self.splitting.rule)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.splitting.merges:
            writer.add_token_merges(self.splitting.merges)
        if self.splitting.scores is not None:
            scores = self.splitting.scores
            writer.add_token_scores([float(scores.get(token, 0.0)) for token in self.tokens])
        for method, token_id in self.special_ids.items():
            getattr(writer, method)(token_id)
        writer.add_add_bos_token(self.adds_start)
        writer.add_add_eos_token(self.adds_end)
        writer.add_add_space_prefix(self.splitting.adds_space)
        if self.chat_template:
            writer.add_chat_template(self.chat_template)


def token_fields(model: HasTokenizer) -> TokenFields:
    """The tokenizer of a model as fields of a GGUF file.

    Raises:
        HeadlabError: It splits texts in a way that llama.cpp does not know.
    """
    tokenizer = model.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        _refuse(model, "is none that the library tokenizers runs")
    description = json.loads(backend.to_str())
    kind = description["model"]["type"]
    if kind != "BPE":
        _refuse(model, f"is of the kind {kind}")
    for name in UNKNOWN_SETTINGS:
        if description["model"].get(name):
            _refuse(model, f"has {name} set")
    _require_plain_added_tokens(model, description)
    is_sentencepiece = bool(description["model"].get("byte_fallback"))
    split = _sentencepiece_splitting if is_sentencepiece else _byte_level_splitting
    splitting = split(model, description)
    tokens, types = _tokens_and_types(model, description)
    ids = tokenizer("a")["input_ids"]
    return TokenFields(
        splitting=splitting,
        tokens=tokens,
        types=types,
        special_ids=_special_ids(model),
        adds_start=bool(ids) and ids[0] == tokenizer.bos_token_id,
        adds_end=bool(ids) and ids[-1] == tokenizer.eos_token_id,
        chat_template=_chat_template(tokenizer),
    )


def _require_plain_added_tokens(model: HasTokenizer, description: JsonObject) -> None:
    """Raise HeadlabError unless llama.cpp finds added tokens in a text as transformers does."""
    for added in description["added_tokens"]:
        if any(added[name] for name in STRIPPING):
            _refuse(
                model, f"has an added token, {added['content']}, that takes the spaces around it"
            )
        is_found_later = added["normalized"] and not added["special"]
        if is_found_later and description["normalizer"] is not None:
            _refuse(model, f"looks for its added token {added['content']} in changed texts")


def _refuse(model: HasTokenizer, what: str) -> NoReturn:
    raise HeadlabError(
        f"the tokenizer of {model.name} {what}; headlab writes GGUF for byte-level BPE that splits "
        f"texts as one of {', '.join(WORD_RULES)} does, and for SentencePiece's BPE. Use --as "
        "folder or --as small",
        code="gguf.tokenizer_unknown",
    )


def _steps(part: JsonObject | None, name: str) -> list[JsonObject]:
    """The steps of a normalizer or of what splits words, without what does not matter.

    Args:
        part: As in tokenizer.json; None for no step.
        name: Under which a sequence has its steps.
    """
    if part is None:
        return []
    steps = part[name] if part["type"] == "Sequence" else [part]
    return [
        {key: value for key, value in step.items() if key not in IGNORED_SETTINGS} for step in steps
    ]


def _byte_level_splitting(model: HasTokenizer, description: JsonObject) -> Splitting:
    """How byte-level BPE splits a text.

    Raises:
        HeadlabError: Not as llama.cpp does under any rule.
    """
    if description["normalizer"] is not None:
        _refuse(model, "changes texts before it splits them")
    steps = _steps(description["pre_tokenizer"], "pretokenizers")
    rules = [name for name, known in WORD_RULES.items() if steps == [dict(step) for step in known]]
    if not rules:
        kinds = ", ".join(str(step["type"]) for step in steps) or "nothing"
        _refuse(model, f"splits texts by a rule that headlab does not know ({kinds})")
    takes_whole_words = bool(description["model"].get("ignore_merges"))
    if takes_whole_words != (rules[0] in WHOLE_WORDS_FIRST):
        _refuse(model, "takes whole words from its vocabulary where llama.cpp does not, or not so")
    merges = tuple(" ".join(merge) for merge in _merges(description))
    return Splitting("gpt2", rules[0], adds_space=False, merges=merges)


def _sentencepiece_splitting(model: HasTokenizer, description: JsonObject) -> Splitting:
    """How SentencePiece's BPE splits a text.

    Raises:
        HeadlabError: Not as llama.cpp does.
    """
    changes = _steps(description["normalizer"], "normalizers")
    steps = _steps(description["pre_tokenizer"], "pretokenizers")
    if changes == [PREPEND_SPACE, REPLACE_SPACES] and not steps:
        adds_space = True
    elif changes == [REPLACE_SPACES] and not steps:
        adds_space = False
    elif not changes and len(steps) == 1 and _is_one_word(steps[0]):
        adds_space = steps[0]["prepend_scheme"] != "never"
    else:
        kinds = ", ".join(str(step["type"]) for step in [*changes, *steps]) or "nothing"
        _refuse(model, f"changes or splits texts in a way that headlab does not know ({kinds})")
    if description["model"].get("ignore_merges"):
        _refuse(model, "takes whole words from its vocabulary where llama.cpp does not")
    scores = scores_of_merges(description["model"]["vocab"], _merges(description))
    if scores is None:
        _refuse(model, "has merges that are not those of SentencePiece's scores")
    return Splitting("llama", "default", adds_space, scores=scores)


def _is_one_word(step: JsonObject) -> bool:
    """Whether a step only writes spaces as SentencePiece does."""
    return step["type"] == "Metaspace" and step["replacement"] == SPACE and not step["split"]


def _merges(description: JsonObject) -> list[tuple[str, str]]:
    """Pairs of pieces that are put together, the first applied first."""
    return [pair_of(merge) for merge in description["model"]["merges"]]


def scores_of_merges(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]]
) -> dict[str, float] | None:
    """Scores of pieces, under which putting the best-scored pair together follows the merges.

    Args:
        vocabulary: Every piece with its id.
        merges: Pairs of pieces, the first applied first.

    Returns:
        For every piece that a merge makes minus the place of its first one; None where no scores
        give the same, as a pair of pieces makes a third without being a merge, or merges of a piece
        do not follow each other.
    """
    first_places: dict[str, int] = {}
    last_place = 0
    for place, (left, right) in enumerate(merges):
        first_place = first_places.setdefault(left + right, place)
        if first_place < last_place:
            return None
        last_place = first_place
    known_merges = set(merges)
    if any(pair not in known_merges for pair in _pairs_that_make_a_piece(vocabulary)):
        return None
    return {piece: -float(place) for piece, place in first_places.items()}


def _pairs_that_make_a_piece(vocabulary: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """All pairs of pieces that written together are a piece."""
    for piece in vocabulary:
        for cut in range(1, len(piece)):
            if piece[:cut] in vocabulary and piece[cut:] in vocabulary:
                yield piece[:cut], piece[cut:]


def _tokens_and_types(
    model: HasTokenizer, description: JsonObject
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """All tokens and their types by id; ids that no token has are marked as unused.

    Args:
        model: Of the tokenizer.
        description: As in tokenizer.json.

    Raises:
        HeadlabError: There are tokens without an embedding.
    """
    from gguf import TokenType

    vocabulary_size = model.module.config.vocab_size
    vocabulary: Mapping[str, int] = description["model"]["vocab"]
    added_tokens = description["added_tokens"]
    largest_id = max([*vocabulary.values(), *(added["id"] for added in added_tokens)])
    if largest_id >= vocabulary_size:
        _refuse(model, f"has ids up to {largest_id} for {vocabulary_size} embeddings")
    tokens = [f"[PAD{token_id}]" for token_id in range(vocabulary_size)]
    types = [TokenType.UNUSED] * vocabulary_size
    has_byte_tokens = bool(description["model"].get("byte_fallback"))
    for text, token_id in vocabulary.items():
        tokens[token_id] = text
        is_byte = has_byte_tokens and BYTE_TOKEN.fullmatch(text)
        types[token_id] = TokenType.BYTE if is_byte else TokenType.NORMAL
    for added in added_tokens:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    unknown_id = model.tokenizer.unk_token_id
    if has_byte_tokens and unknown_id is not None:
        types[unknown_id] = TokenType.UNKNOWN
    return tuple(tokens), tuple(map(int, types))


def _special_ids(model: HasTokenizer) -> dict[str, int]:
    """The id of each special token, by the name of the writer's method.

    Where the tokenizer names no end, the model's settings do; llama.cpp would take some ordinary
    token for it.

    Raises:
        HeadlabError: No end token is named.
    """
    tokenizer = model.tokenizer
    end_ids = _end_ids(model)
    if not end_ids:
        _refuse(model, "names no token that ends a text, nor does the model")
    start_id = tokenizer.bos_token_id
    ids = {
        "add_bos_token_id": end_ids[0] if start_id is None else start_id,
        "add_eos_token_id": end_ids[0],
        "add_eot_token_id": end_ids[1] if len(end_ids) > 1 else None,
        "add_unk_token_id": tokenizer.unk_token_id,
        "add_pad_token_id": tokenizer.pad_token_id,
    }
    return {method: token_id for method, token_id in ids.items() if token_id is not None}


def _end_ids(model: HasTokenizer) -> list[int]:
    """Ids of tokens that end a text: the tokenizer's first, then those that the model names."""
    named_ids: list[int | None] = [model.tokenizer.eos_token_id]
    for settings in (getattr(model.module, "generation_config", None), model.module.config):
        value = getattr(settings, "eos_token_id", None)
        named_ids += value if isinstance(value, list) else [value]
    return list(dict.fromkeys(token_id for token_id in named_ids if token_id is not None))


def _chat_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The chat template; of several, the default one."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):
        template = template.get("default")
    return str(template) if template else None
