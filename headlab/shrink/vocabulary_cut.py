"""A smaller vocabulary: which pieces stay, their new numbers, and what texts lose by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from headlab.core import Bools, HeadlabError, Ints

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class VocabularyCut:
    """Which pieces stay, and their new numbers.

    Attributes:
        languages: That the vocabulary is cut to.
        sources: By language, where its words came from: "wordfreq", or "script Thai".
        kept_ids: Old ids, ascending; a piece's place in it is its new id.
        size_before: Rows of the embeddings before.
    """

    languages: tuple[str, ...]
    sources: Mapping[str, str]
    kept_ids: Ints
    size_before: int

    @cached_property
    def new_ids(self) -> Ints:
        """By old id the new one, int [old id]; −1 for pieces that are gone."""
        new_ids = np.full(self.size_before, -1, dtype=np.int64)
        new_ids[self.kept_ids] = np.arange(len(self.kept_ids))
        return new_ids

    @cached_property
    def is_kept(self) -> Bools:
        """By old id whether the piece stays, bool [old id]."""
        return np.asarray(self.new_ids >= 0)

    def keeps(self, token_id: int) -> bool:
        """Whether a piece stays; the model need not have an embedding of it."""
        return 0 <= token_id < self.size_before and bool(self.is_kept[token_id])


def require_fewer_pieces(cut: VocabularyCut) -> None:
    """Raise HeadlabError for a cut by which no piece goes."""
    if len(cut.kept_ids) == cut.size_before:
        raise HeadlabError(
            f"all {cut.size_before:,} pieces of the vocabulary stay for {', '.join(cut.languages)}, "
            "so there is nothing to cut; leave it with --vocabulary keep",
            code="vocabulary.nothing_to_cut",
        )


class Losses(TypedDict):
    """What texts of a language lose by a cut.

    Attributes:
        pieces_lost: Share of their pieces that are gone.
        texts_changed: Share of texts that are split otherwise now.
        texts: How many there are.
    """

    pieces_lost: float
    texts_changed: float
    texts: int


class VocabularyRecord(TypedDict):
    """A smaller vocabulary in proof.json.

    Attributes:
        languages: That it was cut to.
        sources: By language, where its words came from: "wordfreq", or "script Thai".
        pieces_before: Rows of the embeddings before.
        pieces_after: Rows that stay.
        held_out: By language, what texts lose that were held out when it was counted.
    """

    languages: list[str]
    sources: dict[str, str]
    pieces_before: int
    pieces_after: int
    held_out: dict[str, Losses]


@dataclass(frozen=True)
class SmallerVocabulary:
    """A cut, and the tokenizer that was made by it.

    Attributes:
        cut: Which pieces stay.
        tokenizer: Of these.
        held_out: By language, what texts lose that were held out when it was counted.
    """

    cut: VocabularyCut
    tokenizer: PreTrainedTokenizerBase
    held_out: Mapping[str, Losses] = field(default_factory=dict)

    def record(self) -> VocabularyRecord:
        """The vocabulary as proof.json has it."""
        return {
            "languages": list(self.cut.languages),
            "sources": dict(self.cut.sources),
            "pieces_before": self.cut.size_before,
            "pieces_after": len(self.cut.kept_ids),
            "held_out": dict(self.held_out),
        }
