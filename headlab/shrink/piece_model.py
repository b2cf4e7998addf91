"""A SentencePiece model with fewer pieces, for tokenizers that number its pieces themselves."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headlab.core import HeadlabError, first_line
from headlab.models.token_texts import SPACE
from headlab.shrink.pieces import BYTE_TOKEN, parts_of

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

CUT_KINDS = ("UNIGRAM", "BPE")
"""Kinds of SentencePiece models that can be cut, as SentencePiece calls them."""
NO_PLACE = -1
PLACES = ("unk_id", "bos_id", "eos_id", "pad_id")
"""Settings of SentencePiece's training that are places of pieces in the model; −1 for none."""


def is_single(piece: str) -> bool:
    """Whether a piece is a character or a byte, a space in front of it aside."""
    return len(piece.replace(SPACE, "")) <= 1 or BYTE_TOKEN.fullmatch(piece) is not None


@dataclass(frozen=True)
class PieceModel:
    """A SentencePiece model whose pieces have ids of the tokenizer, not their places in the model.

    Attributes:
        processor: The model.
        id_by_piece: The tokenizer's ids.
        unknown_id: The tokenizer's id of pieces that it has no id of.
    """

    processor: SentencePieceProcessor
    id_by_piece: Mapping[str, int]
    unknown_id: int

    @cached_property
    def _messages(self) -> Any:
        """Module of the messages that a model's file is made of.

        Raises:
            HeadlabError: protobuf, which reads them, is missing or too old.
        """
        try:
            from sentencepiece import sentencepiece_model_pb2
        except Exception as error:  # an old protobuf raises an error of its own
            raise HeadlabError(
                "cutting a vocabulary of SentencePiece needs the package protobuf, in a version "
                f"that sentencepiece takes ({first_line(error)}); run: pip install -U "
                "'headlab[vocabulary]'",
                code="package.protobuf_missing",
            ) from error
        return sentencepiece_model_pb2

    @cached_property
    def _file(self) -> Any:
        """The model's file, read: its pieces with scores and types, and its settings."""
        return self._messages.ModelProto.FromString(self.processor.serialized_model_proto())

    @property
    def kind(self) -> str:
        """UNIGRAM, BPE, WORD or CHAR."""
        return str(self._messages.TrainerSpec.ModelType.Name(self._file.trainer_spec.model_type))

    def id_of(self, piece: str) -> int:
        """The tokenizer's id of a piece."""
        return self.id_by_piece.get(piece, self.unknown_id)

    def _is_ordinary(self, entry: Any) -> bool:
        """Whether a piece is no special one, like a control symbol, a byte or one that users set."""
        return bool(entry.type == self._messages.ModelProto.SentencePiece.NORMAL)

    def always_kept(self) -> Iterator[int]:
        """Ids of special pieces and single characters, and of the unlikeliest piece.

        From the score of that piece Unigram takes what an unknown character costs.
        """
        ordinary_entries = [entry for entry in self._file.pieces if self._is_ordinary(entry)]
        for entry in self._file.pieces:
            if is_single(entry.piece) or not self._is_ordinary(entry):
                yield self.id_of(entry.piece)
        yield self.id_of(min(ordinary_entries, key=lambda entry: entry.score).piece)

    def text_by_id(self) -> dict[int, str]:
        """What its pieces stand for in a text, spaces aside; of those that have ids."""
        pieces = [entry.piece for entry in self._file.pieces if entry.piece in self.id_by_piece]
        return {self.id_by_piece[piece]: piece.replace(SPACE, "") for piece in pieces}

    def ids_of(self, texts: Iterable[str]) -> set[int]:
        """Ids of all pieces of some texts."""
        rows = self.processor.encode(list(texts), out_type=str)
        return {self.id_of(piece) for piece in {piece for row in rows for piece in row}}

    def on_the_way_to(self, ids: Container[int]) -> set[int]:
        """Ids of pieces that a byte-pair encoding makes before it makes those with some ids."""
        if self.kind != "BPE":
            return set()
        return {
            self.id_of(part)
            for entry in self._file.pieces
            if self._is_ordinary(entry) and self.id_of(entry.piece) in ids
            for part in parts_of(entry.piece, self._cost_by_merge)
            if part in self._known_pieces
        }

    @cached_property
    def _known_pieces(self) -> frozenset[str]:
        return frozenset(entry.piece for entry in self._file.pieces)

    @cached_property
    def _cost_by_merge(self) -> dict[tuple[str, str], float]:
        """By the two parts of every piece, wherever it is parted, minus its score.

        SentencePiece merges whatever gives a piece, that of the highest score first.
        """
        types = self._messages.ModelProto.SentencePiece
        return {
            (entry.piece[:place], entry.piece[place:]): -entry.score
            for entry in self._file.pieces
            if entry.type in (types.NORMAL, types.USER_DEFINED, types.UNUSED)
            for place in range(1, len(entry.piece))
        }

    def cut_to(self, ids: Container[int]) -> bytes:
        """The file of the model with the pieces of some ids alone; scores and settings stay.

        Pieces that the tokenizer has no id of stay with the unknown token: without one, its
        characters would be split into others.

        Args:
            ids: Of the tokenizer; all that `always_kept` gives are among them.
        """
        smaller = self._messages.ModelProto()
        smaller.CopyFrom(self._file)
        del smaller.pieces[:]
        smaller.pieces.extend(
            entry for entry in self._file.pieces if self.id_of(entry.piece) in ids
        )
        place_by_piece = {entry.piece: place for place, entry in enumerate(smaller.pieces)}
        smaller.trainer_spec.vocab_size = len(smaller.pieces)
        for name in PLACES:
            old_place = getattr(self._file.trainer_spec, name)
            if 0 <= old_place < len(self._file.pieces):
                piece = self._file.pieces[old_place].piece
                setattr(smaller.trainer_spec, name, place_by_piece.get(piece, NO_PLACE))
        return bytes(smaller.SerializeToString())
