"""Tiny Marian models whose tokenizers are real: SentencePiece, trained on sentences of a task."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import sentencepiece
import torch
from sentencepiece import sentencepiece_model_pb2
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

import headlab
from headlab.hooks import Model, make_gateable
from headlab.models.checkpoint import Checkpoint, building_alone

MARKS = (">>de<<", ">>ru<<")
ALONE = "ᚠ"
"""A character that the tokenizer has an id of, but SentencePiece no piece."""
WITHOUT_ID = "▁lights"
"""A piece of the source side that the tokenizer has no id of."""


@cache
def sentences(language: str, split: str = "dev") -> tuple[str, ...]:
    """Texts of the embedded task."""
    examples = headlab.task("intents").examples(language, split)
    return tuple(example.text for example in examples)


@cache
def piece_model(languages: tuple[str, ...], kind: str = "unigram", size: int = 600) -> bytes:
    """The file of a SentencePiece model of some languages."""
    file = io.BytesIO()
    texts = [text for language in languages for text in sentences(language)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=file,
        vocab_size=size,
        model_type=kind,
        hard_vocab_limit=False,
        user_defined_symbols=["@@"],
        num_threads=1,
        minloglevel=3,
        bos_id=-1,
        **({} if kind in ("unigram", "bpe") else {"use_all_vocab": True}),
    )
    return file.getvalue()


def piece_model_of(score_by_piece: Mapping[str, float]) -> bytes:
    """The file of a Unigram model of given pieces, besides <unk> and @@, which users set."""
    model = sentencepiece_model_pb2.ModelProto.FromString(piece_model(("en",)))
    special_entries = [entry for entry in model.pieces if entry.piece in ("<unk>", "@@")]
    del model.pieces[:]
    model.pieces.extend(special_entries)
    for piece, score in score_by_piece.items():
        model.pieces.add(piece=piece, score=score)
    return bytes(model.SerializeToString())


def pieces_of(model: bytes) -> list[str]:
    """The pieces of a SentencePiece model."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(number) for number in range(len(processor))]


def marian_tokenizer(
    folder: Path, source: bytes, target: bytes, **options: object
) -> MarianTokenizer:
    """A tokenizer whose ids are other than the places of pieces in the SentencePiece models.

    Args:
        folder: For its files; it must exist as long as the tokenizer.
        source: File of the SentencePiece model of the source side.
        target: The same of the target side.
        options: Further ones of the tokenizer.
    """
    pieces = {*pieces_of(source), *pieces_of(target)} - {"</s>", "<unk>", WITHOUT_ID}
    # As in the models of OPUS: the end, the unknown, pieces of both sides, and padding at the end.
    ordered_pieces = sorted(pieces, key=lambda piece: piece[::-1])
    tokens = ["</s>", "<unk>", *ordered_pieces, ALONE, *MARKS, "<pad>"]
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    ids = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    (folder / "target_vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    with building_alone():
        return MarianTokenizer(
            str(folder / "source.spm"),
            str(folder / "target.spm"),
            str(folder / "vocab.json"),
            str(folder / "target_vocab.json"),
            source_lang="en",
            target_lang="de",
            model_max_length=64,
            **options,
        )


def tiny_marian(tokenizer: MarianTokenizer, seed: int = 0) -> Model:
    """A model of random weights, its logits' biases too, and three rows more than tokens."""
    padding, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    special_ids = {
        "pad_token_id": padding,
        "decoder_start_token_id": padding,
        "eos_token_id": end,
        "forced_eos_token_id": end,
    }
    config = MarianConfig(
        vocab_size=len(tokenizer) + 3,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=128,
        scale_embedding=True,
        init_std=0.3,
        **special_ids,
    )
    with building_alone():
        torch.manual_seed(seed)
        module = MarianMTModel(config).eval()
    module.generation_config = GenerationConfig(
        max_length=20, bad_words_ids=[[padding], [2, 3]], **special_ids
    )
    with torch.no_grad():
        module.final_logits_bias.normal_()
    return make_gateable(Checkpoint("tiny", "test", "tiny-marian", module, tokenizer))


def translation_folder(root: Path, sizes: dict[str, int]) -> Path:
    """A data folder with the pair en-de: sentences of the embedded task, side by side.

    Args:
        root: The folder.
        sizes: Pairs of each split.
    """
    (root / "mt").mkdir(parents=True)
    for split, size in sizes.items():
        rows = zip(_held_out(split, "en")[:size], _held_out(split, "de")[:size], strict=True)
        lines = ["source\ttarget", *("\t".join(row) for row in rows)]
        (root / f"mt/en-de.{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def _held_out(split: str, language: str) -> Sequence[str]:
    return sentences(language, "test" if split == "test" else "dev")
