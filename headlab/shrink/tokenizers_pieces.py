"""Vocabularies of tokenizers that the library tokenizers runs, as tokenizer.json has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from headlab.core import Ints
from headlab.models.token_texts import SPACE
from headlab.models.tokenising import INPUT_NAMES
from headlab.shrink.pieces import BYTE_TOKEN, Pieces, Side, parts_of
from headlab.shrink.vocabulary_cut import VocabularyCut

KINDS = ("Unigram", "BPE", "WordPiece")
"""Kinds of tokenizers whose vocabulary can be cut, as the library tokenizers calls them."""
AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")
"""Settings of byte-pair encoding under which a merged piece is not both parts written together."""


class TokenizersPieces(Pieces):
    """A vocabulary as tokenizer.json describes it."""

    @cached_property
    def description(self) -> Mapping[str, Any]:
        """tokenizer.json."""
        description: dict[str, Any] = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return description

    @property
    def kind(self) -> str:
        """One of `KINDS`, if it can be cut."""
        return str(self.description["model"]["type"])

    def obstacle(self) -> str | None:
        """As in `Pieces`: another kind, languages that it is told, or affixes."""
        if self.kind not in KINDS:
            return f"is of the kind {self.kind}"
        if hasattr(self.tokenizer, "src_lang"):
            return f"is a {type(self.tokenizer).__name__}, which adds a code for each language"
        for name in AFFIXES:
            if self.kind == "BPE" and self.description["model"].get(name):
                return f"has {name} set"
        return None

    @cached_property
    def piece_by_id(self) -> dict[int, str]:
        """Every piece of the vocabulary, added tokens aside."""
        vocabulary = self.description["model"]["vocab"]
        if self.kind == "Unigram":
            return {number: piece for number, (piece, _) in enumerate(vocabulary)}
        return {number: piece for piece, number in vocabulary.items()}

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether pieces are bytes, each written as a character."""
        return any(step["type"] == "ByteLevel" for step in self._splitting_steps())

    def _splitting_steps(self) -> Iterator[Mapping[str, Any]]:
        part = self.description.get("pre_tokenizer")
        if part is not None:
            yield from part.get("pretokenizers", [part])

    def always_kept(self) -> Iterator[int]:
        """Ids of special tokens, single characters and bytes, and the unlikeliest piece.

        From the score of that piece Unigram takes what an unknown character costs.
        """
        for added in self.description["added_tokens"]:
            yield int(added["id"])
        model = self.description["model"]
        unknown_token = model.get("unk_token")
        for number, piece in self.piece_by_id.items():
            is_single = len(piece) == 1 or len(self.text_of(piece)) <= 1
            if is_single or BYTE_TOKEN.fullmatch(piece) or piece == unknown_token:
                yield number
        if self.kind == "Unigram":
            yield min(range(len(model["vocab"])), key=lambda number: model["vocab"][number][1])
            if model.get("unk_id") is not None:
                yield int(model["unk_id"])

    def text_of(self, piece: str) -> str:
        """What a piece stands for in a text, spaces aside; of part of a character nothing."""
        # An added token may stand in the vocabulary as it is.
        if self.is_byte_level and byte_by_character().keys() >= set(piece):
            numbers = bytes(byte_by_character()[character] for character in piece)
            return numbers.decode(errors="ignore").strip()
        if self.kind == "WordPiece":
            prefix = str(self.description["model"].get("continuing_subword_prefix", "##"))
            return piece.removeprefix(prefix)
        return piece.replace(SPACE, "")

    def text_by_id(self, side: Side) -> Mapping[int, str]:
        """As in `Pieces`; the sides are no different."""
        return {number: self.text_of(piece) for number, piece in self.piece_by_id.items()}

    def on_the_way_to(self, ids: Iterable[int]) -> set[int]:
        """Ids of pieces that a byte-pair encoding makes before it makes those given.

        Of other kinds, none: they find a piece at once.
        """
        if self.kind != "BPE":
            return set()
        rank_by_merge = {
            merge: rank
            for rank, merge in enumerate(map(pair_of, self.description["model"]["merges"]))
        }
        id_by_piece = {piece: number for number, piece in self.piece_by_id.items()}
        ids_on_the_way: set[int] = set()
        for number in ids:
            piece = self.piece_by_id.get(number)  # None for an added token
            if piece is not None and len(piece) > 1:
                parts = parts_of(piece, rank_by_merge)
                ids_on_the_way.update(id_by_piece[part] for part in parts if part in id_by_piece)
        return ids_on_the_way

    def _without(self, cut: VocabularyCut) -> PreTrainedTokenizerFast:
        """As in `Pieces`."""
        description = json.dumps(cut_description(self.description, cut))
        settings = self._kept_settings()
        if self.tokenizer.model_input_names != PreTrainedTokenizerFast.model_input_names:
            settings[INPUT_NAMES] = self.tokenizer.model_input_names
        return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(description), **settings)


def pair_of(merge: str | Sequence[str]) -> tuple[str, str]:
    """Both parts of a merge in tokenizer.json, which has had two ways to write it."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


@cache
def byte_by_character() -> dict[str, int]:
    """The byte that each character stands for in byte-level BPE.

    A printable byte of Latin-1 stands for itself; the others follow from U+0100 on.
    """
    bytes_by_character: dict[str, int] = {}
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = 0
    for byte in range(0x100):
        if byte in printable:
            bytes_by_character[chr(byte)] = byte
        else:
            bytes_by_character[chr(0x100 + others)] = byte
            others += 1
    return bytes_by_character


# The tokenizer without the pieces that are gone.


def cut_description(description: Mapping[str, Any], cut: VocabularyCut) -> dict[str, Any]:
    """tokenizer.json of the smaller vocabulary.

    Args:
        description: tokenizer.json as it was.
        cut: Which pieces stay.
    """
    smaller: dict[str, Any] = json.loads(json.dumps(description))
    new_ids = cut.new_ids
    model = smaller["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [
            piece for old_id, piece in enumerate(model["vocab"]) if new_ids[old_id] >= 0
        ]
        if model.get("unk_id") is not None:
            model["unk_id"] = int(new_ids[model["unk_id"]])
    else:
        kept_pieces = {
            piece: int(new_ids[old_id])
            for piece, old_id in model["vocab"].items()
            if new_ids[old_id] >= 0
        }
        model["vocab"] = kept_pieces
    if model["type"] == "BPE":
        model["merges"] = [
            merge for merge in model["merges"] if _is_kept_merge(merge, model["vocab"])
        ]
    for added in smaller["added_tokens"]:
        added["id"] = int(new_ids[added["id"]])
    if smaller.get("padding"):
        smaller["padding"]["pad_id"] = int(new_ids[smaller["padding"]["pad_id"]])
    if smaller.get("post_processor"):
        _renumber_processor(smaller["post_processor"], new_ids)
    return smaller


def _is_kept_merge(merge: str | Sequence[str], kept_pieces: Mapping[str, int]) -> bool:
    left, right = pair_of(merge)
    return left in kept_pieces and right in kept_pieces and left + right in kept_pieces


def _renumber_processor(processor: dict[str, Any], new_ids: Ints) -> None:
    """Write the new ids of special tokens into what adds them to a text, in place."""
    for step in processor.get("processors", ()):
        _renumber_processor(step, new_ids)
    if processor["type"] == "TemplateProcessing":
        for special in processor["special_tokens"].values():
            special["ids"] = [int(new_ids[old_id]) for old_id in special["ids"]]
    for name in ("cls", "sep"):  # of BertProcessing and RobertaProcessing
        if name in processor:
            token, old_id = processor[name]
            processor[name] = [token, int(new_ids[old_id])]
