"""Vocabularies of Marian's tokenizer: a SentencePiece model for each side, and ids of the pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

from headlab.models import building_alone
from headlab.shrink.piece_model import CUT_KINDS, PieceModel, is_single
from headlab.shrink.pieces import Pieces, Side
from headlab.shrink.vocabulary_cut import VocabularyCut

if TYPE_CHECKING:
    from transformers import MarianTokenizer

SETTINGS = ("source_lang", "target_lang", "sp_model_kwargs")
"""Settings that only this tokenizer has."""
SAMPLING = "enable_sampling"
"""The setting of SentencePiece under which a text is split at random."""


class MarianPieces(Pieces):
    """The vocabulary of a model that translates, of which both sides have the same ids."""

    tokenizer: MarianTokenizer

    sides: ClassVar[tuple[Side, ...]] = ("source", "target")

    def obstacle(self) -> str | None:
        """As in `Pieces`: ids of their own on each side, splits at random, or another kind."""
        if self.tokenizer.separate_vocabs:
            return "has a vocabulary of its own for each side (separate_vocabs)"
        if self.tokenizer.sp_model_kwargs.get(SAMPLING):
            return f"splits texts at random ({SAMPLING})"
        for side, piece_model in self._model_by_side.items():
            if piece_model.kind not in CUT_KINDS:
                return f"has a SentencePiece model of the kind {piece_model.kind} ({side} side)"
        return None

    @property
    def _id_by_piece(self) -> dict[str, int]:
        """The contents of vocab.json."""
        id_by_piece = self.tokenizer.encoder
        assert isinstance(id_by_piece, dict)
        return id_by_piece

    @cached_property
    def _model_by_side(self) -> dict[Side, PieceModel]:
        id_by_piece = self._id_by_piece
        unknown_id = id_by_piece[str(self.tokenizer.unk_token)]
        return {
            "source": PieceModel(self.tokenizer.spm_source, id_by_piece, unknown_id),
            "target": PieceModel(self.tokenizer.spm_target, id_by_piece, unknown_id),
        }

    @cached_property
    def piece_by_id(self) -> Mapping[int, str]:
        """As in `Pieces`; some may be in neither SentencePiece model, like >>fr<<."""
        return {number: piece for piece, number in self._id_by_piece.items()}

    def always_kept(self) -> Iterator[int]:
        """As in `Pieces`, with the marks of languages."""
        yield from self.tokenizer.added_tokens_decoder
        for mark in self.tokenizer.supported_language_codes:
            yield self._id_by_piece[mark]
        for piece, number in self._id_by_piece.items():
            if is_single(piece):  # also where SentencePiece does not know the character
                yield number
        for piece_model in self._model_by_side.values():
            yield piece_model.unknown_id
            yield from piece_model.always_kept()

    def text_by_id(self, side: Side) -> Mapping[int, str]:
        """As in `Pieces`."""
        return self._model_by_side[side].text_by_id()

    def ids_of(self, texts: Iterable[str], side: Side) -> set[int]:
        """As in `Pieces`, without the tokenizer, which takes fifty times as long for a word."""
        return self._model_by_side[side].ids_of(texts)

    def on_the_way_to(self, ids: Iterable[int]) -> set[int]:
        """As in `Pieces`; what is on the way on one side has to be made on the other, too."""
        given_ids = frozenset(ids)
        known_ids = set(given_ids)
        while True:
            models = self._model_by_side.values()
            parts = set(chain.from_iterable(model.on_the_way_to(known_ids) for model in models))
            if parts <= known_ids:
                return known_ids - given_ids
            known_ids |= parts

    def _without(self, cut: VocabularyCut) -> MarianTokenizer:
        """As in `Pieces`; it holds its SentencePiece models in memory and saves them from there."""
        tokenizer = self.tokenizer
        kept_ids = frozenset(cut.kept_ids.tolist())
        names = tokenizer.vocab_files_names
        vocabulary = {
            piece: int(cut.new_ids[number])
            for piece, number in self._id_by_piece.items()
            if number in kept_ids
        }
        added_tokens = {
            int(cut.new_ids[number]): token
            for number, token in tokenizer.added_tokens_decoder.items()
        }
        with TemporaryDirectory() as name, building_alone():
            folder = Path(name)
            for side, piece_model in self._model_by_side.items():
                (folder / names[f"{side}_spm"]).write_bytes(piece_model.cut_to(kept_ids))
            vocabulary_file = folder / names["vocab"]
            vocabulary_file.write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
            return type(tokenizer)(
                str(folder / names["source_spm"]),
                str(folder / names["target_spm"]),
                str(vocabulary_file),
                added_tokens_decoder=added_tokens,
                **{setting: getattr(tokenizer, setting) for setting in SETTINGS},
                **self._kept_settings(),
            )
