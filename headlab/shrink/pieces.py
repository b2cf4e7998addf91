"""The pieces of a tokenizer's vocabulary: what a vocabulary is asked when it is cut."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headlab.core import HeadlabError
from headlab.models.tokenising import (
    INPUT_NAMES,
    SPACED_WORDS,
    TokenizerOptions,
    tokenizer_lock,
    tokenizer_output,
)
from headlab.shrink.vocabulary_cut import VocabularyCut

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Side = Literal["source", "target"]
"""What a model does with a text: it reads a source, and writes a target."""
TEXTS_AT_ONCE = 1000
"""Texts that are split in one call."""
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
KEPT_SETTINGS = (
    "model_max_length",
    "padding_side",
    "truncation_side",
    "clean_up_tokenization_spaces",
    "chat_template",
    "extra_special_tokens",
)
"""Settings of a tokenizer that stay."""
STATED_SETTINGS = (INPUT_NAMES, SPACED_WORDS)
"""Settings that stay where a tokenizer's files state them."""


def rows_of(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], side: Side = "source"
) -> list[list[int]]:
    """Token ids of texts, without those of special tokens.

    Args:
        tokenizer: That splits them.
        texts: Of one side.
        side: Whether they are read or written; most tokenizers make no difference.
    """
    rows: list[list[int]] = []
    options: TokenizerOptions = {"add_special_tokens": False, "verbose": False}
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        texts_at_once = list(texts[start : start + TEXTS_AT_ONCE])
        with tokenizer_lock(tokenizer):
            if side == "target":
                options["text_target"] = texts_at_once
                rows += tokenizer_output(tokenizer, **options)["input_ids"]
            else:
                rows += tokenizer_output(tokenizer, texts_at_once, **options)["input_ids"]
    return rows


@dataclass(frozen=True)
class Pieces(ABC):
    """A vocabulary, of a kind that can be cut.

    Attributes:
        tokenizer: That splits texts into its pieces.
    """

    tokenizer: PreTrainedTokenizerBase

    sides: ClassVar[tuple[Side, ...]] = ("source",)
    """Sides that texts are split for in different ways; one where it makes no difference."""

    @property
    @abstractmethod
    def piece_by_id(self) -> Mapping[int, str]:
        """Every piece of the vocabulary, added tokens aside."""

    @abstractmethod
    def obstacle(self) -> str | None:
        """Why it cannot be cut, as the end of a sentence on the tokenizer; None if it can."""

    @abstractmethod
    def always_kept(self) -> Iterator[int]:
        """Ids of pieces that stay whatever the languages: special tokens, single characters."""

    @abstractmethod
    def text_by_id(self, side: Side) -> Mapping[int, str]:
        """What the pieces of a side stand for in a text, spaces aside."""

    @abstractmethod
    def on_the_way_to(self, ids: Iterable[int]) -> set[int]:
        """Ids of pieces that a byte-pair encoding makes before it makes those given.

        Of other kinds, none: they find a piece at once.
        """

    @abstractmethod
    def _without(self, cut: VocabularyCut) -> PreTrainedTokenizerBase:
        """The tokenizer without the pieces that go."""

    def ids_of(self, texts: Iterable[str], side: Side) -> set[int]:
        """Ids of all pieces of some texts of a side; special tokens in them aside."""
        return set(chain.from_iterable(rows_of(self.tokenizer, list(texts), side)))

    @property
    def largest_id(self) -> int:
        """The largest id of a piece or an added token."""
        return max([*self.piece_by_id, *self.tokenizer.added_tokens_decoder])

    def of_scripts(self, scripts: Sequence[str], side: Side = "source") -> Iterator[int]:
        """Ids of pieces whose letters are all of some scripts of Unicode, and that have one.

        Args:
            scripts: By their codes in ISO 15924, like Thai or Latn.
            side: Whose pieces.
        """
        import regex

        script = "".join(rf"\p{{Script={name}}}" for name in scripts)
        has_one = regex.compile(rf"[{script}]")
        shared = r"\p{Script=Common}\p{Script=Inherited}"  # as the apostrophe of Hawaiian
        has_another = regex.compile(rf"[\p{{L}}--[{script}{shared}]]", flags=regex.VERSION1)
        for number, text in self.text_by_id(side).items():
            if has_one.search(text) and not has_another.search(text):
                yield number

    def cut_tokenizer(self, cut: VocabularyCut) -> PreTrainedTokenizerBase:
        """The tokenizer of the smaller vocabulary.

        Args:
            cut: Which pieces stay.

        Raises:
            HeadlabError: The new tokenizer gives its tokens other numbers than the cut.
        """
        smaller = self._without(cut)
        expected_ids = {
            token: int(cut.new_ids[token_id])
            for token, token_id in self.tokenizer.get_vocab().items()
            if cut.keeps(token_id)
        }
        if smaller.get_vocab() != expected_ids:
            raise HeadlabError(
                f"the new {type(smaller).__name__} numbers the pieces that stay otherwise, so "
                "nothing was written; please report this, and keep the vocabulary with "
                "--vocabulary keep",
                code="vocabulary.numbers_differ",
            )
        return smaller

    def _kept_settings(self) -> dict[str, Any]:
        """What a smaller tokenizer is told as the original was: its settings and special tokens."""
        tokenizer = self.tokenizer
        settings = {name: getattr(tokenizer, name, None) for name in KEPT_SETTINGS}
        settings |= {name: tokenizer.init_kwargs.get(name) for name in STATED_SETTINGS}
        known_settings = {name: value for name, value in settings.items() if value is not None}
        return known_settings | tokenizer.special_tokens_map


def is_script(code: str) -> bool:
    """Whether Unicode knows a script by this code."""
    import regex

    try:
        regex.compile(rf"\p{{Script={code}}}")
    except regex.error:
        return False
    return True


def parts_of(piece: str, rank_by_merge: Mapping[tuple[str, str], float]) -> set[str]:
    """All pieces that merges make on the way to a piece, itself and its characters included.

    Args:
        piece: To make.
        rank_by_merge: By pair of pieces the place of its merge; lower ones come first.
    """
    parts = list(piece)
    met = set(parts)
    while len(parts) > 1:
        ranks = [rank_by_merge.get(pair) for pair in pairwise(parts)]
        known_ranks = [rank for rank in ranks if rank is not None]
        if not known_ranks:
            break
        place = ranks.index(min(known_ranks))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        met.add(parts[place])
    return met
