"""A vocabulary of word pieces made from sentences, and the tokenizer of a Marian model with it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.models.adapter import first_line
from headlab.models.alone import alone

END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"
SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"


def check_pieces() -> None:
    """Raise HeadlabError where no vocabulary can be made: sentencepiece is not installed."""
    try:
        import sentencepiece  # noqa: F401
    except ImportError as error:
        raise HeadlabError(
            "vocabularies are made by the package sentencepiece, which is not here; pip install 'headlab[translation]'",
            code="package.sentencepiece_missing",
        ) from error


class NoVocabulary(HeadlabError):
    """Sentences of which no vocabulary of a size can be made: too few for it, or of more characters than it has."""

    def __init__(self, size: int, why: str, do: str) -> None:
        super().__init__(
            f"no vocabulary of {size} pieces can be made of these sentences ({why}); {do}", code="vocabulary.not_made"
        )
        self.size, self.why = size, why


def word_pieces(sentences: Iterable[str], size: int) -> bytes:
    """A sentencepiece model of at most `size` pieces (a unigram language model, Kudo 2018), equal for equal sentences.

    Ids are as Marian has them: 0 ends a text, 1 is unknown.  Raises HeadlabError where sentencepiece is not installed
    or can make nothing of the sentences.
    """
    check_pieces()
    import sentencepiece

    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=out, vocab_size=size, model_type="unigram",
            character_coverage=1.0, hard_vocab_limit=False, num_threads=1, minloglevel=3,
            eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, eos_piece=END, unk_piece=UNKNOWN,
        )  # fmt: skip
    except (RuntimeError, ValueError, OSError) as error:
        raise NoVocabulary(size, first_line(error), "give more of them, or another size with vocabulary=N") from error
    return out.getvalue()


def marian_tokenizer(pieces: bytes, pair: str, max_length: int, folder: Path) -> Any:
    """Marian's tokenizer with one vocabulary for both sides; the padding has the last id.

    pair: like en-de.  folder: where its files are put, which must stay as long as the tokenizer.
    """
    import sentencepiece
    from transformers import MarianTokenizer

    model = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    ids = {model.id_to_piece(i): i for i in range(len(model))} | {PADDING: len(model)}
    for name in (SOURCE, TARGET):
        (folder / name).write_bytes(pieces)
    (folder / VOCABULARY).write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    source, _, target = pair.partition("-")
    with alone():
        return MarianTokenizer(
            str(folder / SOURCE), str(folder / TARGET), str(folder / VOCABULARY), source_lang=source,
            target_lang=target or None, model_max_length=max_length, eos_token=END, unk_token=UNKNOWN,
            pad_token=PADDING,
        )  # fmt: skip


def pieces_sha256(pieces: bytes) -> str:
    """What names a vocabulary in a record."""
    return hashlib.sha256(pieces).hexdigest()
