"""The pieces of a tokenizer's vocabulary: what each is, and which belong together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NoReturn

import torch

from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.models.token_texts import SPACE

KINDS = ("Unigram", "BPE", "WordPiece")
"""Kinds of tokenizers whose vocabulary can be cut, as the library tokenizers calls them."""
AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")
"""Settings of byte-pair encoding under which a merged piece is not both parts written together."""
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def read_pieces(model: Model) -> Pieces:
    """The pieces of a model's tokenizer.

    Raises:
        HeadlabError: It is none that the library tokenizers runs, or of an unknown kind.
    """
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        _refuse(model, "is not one that the library tokenizers runs")
    description = json.loads(backend.to_str())
    kind = description["model"]["type"]
    if kind not in KINDS:
        _refuse(model, f"is of the kind {kind}")
    if hasattr(model.tokenizer, "src_lang"):
        _refuse(
            model, f"is a {type(model.tokenizer).__name__}, which adds a code for each language"
        )
    for name in AFFIXES:
        if kind == "BPE" and description["model"].get(name):
            _refuse(model, f"has {name} set")
    pieces = Pieces(description)
    _require_rows(model, pieces)
    return pieces


def _refuse(model: Model, what: str) -> NoReturn:
    raise HeadlabError(
        f"the tokenizer of {model.name} {what}; headlab cuts plain vocabularies of "
        f"{', '.join(KINDS)}. Keep the vocabulary with --vocabulary keep",
        code="vocabulary.tokenizer_unknown",
    )


def _require_rows(model: Model, pieces: Pieces) -> None:
    """Raise HeadlabError unless every token has a row of the embeddings."""
    added_ids = [int(added["id"]) for added in pieces.description["added_tokens"]]
    largest_id = max([*pieces.piece_by_id, *added_ids])
    rows = embedding_rows(model)
    if largest_id >= rows:
        _refuse(model, f"has ids up to {largest_id}, but the model has {rows} embeddings")


def embedding_rows(model: Model) -> int:
    """How many tokens a model has an embedding of; the tokenizer may have fewer."""
    weight = model.module.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    return weight.shape[0]


@dataclass(frozen=True)
class Pieces:
    """A vocabulary as tokenizer.json describes it.

    Attributes:
        description: tokenizer.json.
    """

    description: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return str(self.description["model"]["type"])

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

    def of_scripts(self, scripts: Sequence[str]) -> Iterator[int]:
        """Ids of pieces whose letters are all of some scripts of Unicode, and that have one.

        Args:
            scripts: By their codes in ISO 15924, like Thai or Latn.
        """
        import regex

        script = "".join(rf"\p{{Script={name}}}" for name in scripts)
        has_one = regex.compile(rf"[{script}]")
        shared = r"\p{Script=Common}\p{Script=Inherited}"  # as the apostrophe of Hawaiian
        has_another = regex.compile(rf"[\p{{L}}--[{script}{shared}]]", flags=regex.VERSION1)
        for number, piece in self.piece_by_id.items():
            text = self.text_of(piece)
            if has_one.search(text) and not has_another.search(text):
                yield number

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


def is_script(code: str) -> bool:
    """Whether Unicode knows a script by this code."""
    import regex

    try:
        regex.compile(rf"\p{{Script={code}}}")
    except regex.error:
        return False
    return True


def parts_of(piece: str, rank_by_merge: Mapping[tuple[str, str], int]) -> set[str]:
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
