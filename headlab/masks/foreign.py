"""Masks as other tools write them: which heads each form removes, and the same forms made of a mask."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from tokenize import TokenError
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.files import parse_json
from headlab.masks.fields import LINE, STACK, shown
from headlab.masks.grids import grid_of_config, model_of_config
from headlab.records import Head, HeadGrid, Stack

FORMS = {
    "headlab": "headlab's own mask file",
    "pruned-heads": 'transformers 4: {"layer": [heads removed]}, alone or as pruned_heads of a config.json',
    "text": 'heads removed as text, "9:3 10:10" (layer:head, or layer:head,head; E:, D: or A: before it names a stack)',
    "array": "[layer][head] of 0 and 1, as .npy or JSON (TextPruner)",
    "pairs": "(layer, head) pairs as JSON or .npy (TransformerLens)",
}
USES: Mapping[str, tuple[str, ...]] = {  # what can be said of how a form counts and lists
    "headlab": (), "pruned-heads": ("count_from",), "text": ("count_from",), "array": ("lists",),
    "pairs": ("count_from", "lists"),
}  # fmt: skip
LETTERS = {"E": "encoder", "D": "decoder", "A": "cross"}  # as fairseq's pruning code names them
WORD = re.compile(r"(?:([EDA]):)?([0-9]{1,6}):([0-9]{1,6}(?:,[0-9]{1,6})*)")
# What numpy lets out of a header that was changed: it is parsed as Python.
NO_ARRAY = (ValueError, OSError, EOFError, MemoryError, TypeError, SyntaxError, TokenError, RecursionError)
NUMPY = b"\x93NUMPY"
ONLY = ""  # the stack of a form that names none


@dataclass(frozen=True)
class Told:
    """What a file of another tool says: heads removed, or heads kept if `keeps`.

    A stack "" is the only one.  grid: heads per layer, where the form has them.  model: what it tells of its model.
    """

    heads: frozenset[Head]
    keeps: bool = False
    grid: HeadGrid | None = None
    model: Mapping[str, Any] = field(default_factory=dict)


def read_pruned_heads(raw: bytes, what: str, *, count_from: int = 0, **_: Any) -> Told:
    """`pruned_heads` of transformers 4, or a whole config.json that has it (grid and model are then read too)."""
    value = parse_json(raw, what)
    config = value if isinstance(value, dict) and "pruned_heads" in value else None
    table = config["pruned_heads"] if config is not None else value
    if not isinstance(table, dict):
        raise HeadlabError(
            f'{what} is not a table of pruned heads; it should be like {{"0": [2, 5], "11": [0]}}',
            code="mask.pruned_heads_malformed",
        )
    heads = set()
    for layer, listed in table.items():
        if not (re.fullmatch("[0-9]{1,6}", layer) and isinstance(listed, list) and all(map(_counted, listed))):
            raise HeadlabError(
                f"{what}: layer {layer!r} of pruned_heads must hold a list of heads, like [2, 5]",
                code="mask.layer_malformed",
            )
        heads |= {_head(ONLY, int(layer), head, count_from, what) for head in listed}
    grid = None if config is None else grid_of_config(config, what)
    return Told(frozenset(heads), grid=grid, model={} if config is None else model_of_config(config))


def read_text(raw: bytes, what: str, *, count_from: int = 0, **_: Any) -> Told:
    """Heads removed as "9:3 10:10,11"; "E:9:3" for the encoder, D: decoder, A: cross attention."""
    try:
        words = raw.decode().split()
    except UnicodeDecodeError as error:
        raise HeadlabError(f'{what} is not text; expected heads like "9:3 10:10"', code="mask.not_text") from error
    heads = set()
    for word in words:
        found = WORD.fullmatch(word)
        if found is None:
            raise HeadlabError(
                f'{what}: {word[:40]!r} is not a head; write layer:head, as in "9:3 10:10" or "E:9:3,4"',
                code="mask.head_malformed",
            )
        letter, layer, listed = found.groups()
        stack = LETTERS.get(letter, ONLY)
        heads |= {_head(stack, int(layer), int(head), count_from, what) for head in listed.split(",")}
    return Told(frozenset(heads))


def read_array(raw: bytes, what: str, *, stack: str = "encoder", lists: str | None = None, **_: Any) -> Told:
    """[layer][head] of 0 and 1; a 1 is a head kept, or removed if `lists` says so."""
    rows = _values(raw, what)
    flat = isinstance(rows, list) and rows and all(isinstance(row, list) for row in rows)  # a layer may have no head
    if not STACK.fullmatch(stack):
        raise HeadlabError(
            f"stack {shown(stack)!r} is not a stack name; give encoder, decoder or cross", code="stack.name_invalid"
        )
    if not flat or not all(type(v) in (bool, int, float) and v in (0, 1) for row in rows for v in row):
        raise HeadlabError(
            f"{what} is not a mask of [layer][head] with 0 and 1; if it holds scores, choose a threshold first and "
            "save scores >= threshold",
            code="mask.array_malformed",
        )
    grid = HeadGrid((Stack(stack, tuple(map(len, rows))),))
    marked = {Head(stack, at, head) for at, row in enumerate(rows) for head, v in enumerate(row) if v}
    return Told(frozenset(marked), keeps=(lists or "kept") == "kept", grid=grid)


def read_pairs(raw: bytes, what: str, *, count_from: int = 0, lists: str | None = None, **_: Any) -> Told:
    """(layer, head) pairs, or (stack, layer, head) triples: heads removed, or kept if `lists` says so."""
    pairs = _values(raw, what)
    if not isinstance(pairs, list):
        raise HeadlabError(
            f"{what} is not a list of (layer, head) pairs, like [[9, 3], [10, 10]]", code="mask.pairs_malformed"
        )
    heads = set()
    for pair in pairs:
        named = isinstance(pair, list) and len(pair) == 3 and isinstance(pair[0], str)
        place = pair[1:] if named else pair
        if not (isinstance(place, list) and len(place) == 2 and all(map(_counted, place))):
            raise HeadlabError(
                f"{what}: {repr(pair)[:40]} is no (layer, head) pair, like [9, 3]", code="mask.pair_malformed"
            )
        heads.add(_head(pair[0] if named else ONLY, place[0], place[1], count_from, what))
    return Told(frozenset(heads), keeps=lists == "kept")


READERS: Mapping[str, Callable[..., Told]] = {
    "pruned-heads": read_pruned_heads, "text": read_text, "array": read_array, "pairs": read_pairs,
}  # fmt: skip


def as_utf8(raw: bytes) -> bytes:
    """A text file's bytes in UTF-8: Windows also writes UTF-16, or a mark before the text. Others come as they are."""
    if raw.startswith(NUMPY):
        return raw
    try:
        return raw.decode(json.detect_encoding(raw)).encode()
    except UnicodeError:
        return raw


def guess(raw: bytes, what: str) -> str:
    """The form of a file, from its content. Raises HeadlabError where it could be more than one, or is none."""
    if raw.startswith(NUMPY):
        return _array_or_pairs(_values(raw, what), what)
    words = raw.decode(errors="replace").split()
    if words and all(map(WORD.fullmatch, words)):
        return "text"
    if raw.startswith((b"PK\x03\x04", b"\x80")):
        raise HeadlabError(
            f"{what} looks like a pickled tensor, which can run code, so headlab does not read it; where it was made, "
            "save numpy.save('mask.npy', mask.numpy()) and give that",
            code="mask.pickled",
        )
    if not raw.lstrip().startswith((b"{", b"[")):
        raise HeadlabError(
            f'{what} is neither JSON nor a .npy file nor heads like "9:3 10:10"; forms that are read: '
            f"{', '.join(FORMS)}",
            code="mask.form_unrecognised",
        )
    value = parse_json(raw, what)
    if isinstance(value, dict):
        return "headlab" if "format" in value else "pruned-heads"
    return _array_or_pairs(value, what)


def _array_or_pairs(value: Any, what: str) -> str:
    rows = value if isinstance(value, list) else []
    entries = [entry for row in rows if isinstance(row, list) for entry in row]
    if any(isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) for row in rows):
        return "pairs"
    if not all(isinstance(row, list) and len(row) == 2 for row in rows) or any(type(e) is bool for e in entries):
        return "array"
    if rows and any(_counted(entry) and entry > 1 for entry in entries):
        return "pairs"
    raise HeadlabError(
        f"{what} could be an array of [layer][head] or a list of (layer, head) pairs; say which with --from array or "
        "--from pairs",
        code="mask.form_ambiguous",
    )


def _values(raw: bytes, what: str) -> Any:
    """Nested lists of JSON, or of a .npy file without objects."""
    if not raw.startswith(NUMPY):
        return parse_json(raw, what)
    try:
        array = np.load(io.BytesIO(raw), allow_pickle=False)
    except NO_ARRAY as error:
        why = shown(str(error), longest=2 * LINE)
        raise HeadlabError(
            f"{what} is not a .npy file of numbers ({why}); save it again with numpy.save", code="mask.npy_malformed"
        ) from error
    if array.dtype.kind not in "biuf":
        raise HeadlabError(
            f"{what} holds {shown(str(array.dtype))}, not numbers; save it again with numpy.save",
            code="mask.npy_not_numbers",
        )
    return (array.astype(np.float64) if array.dtype.kind == "f" else array).tolist()  # longdouble has no number of JSON


def _counted(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1_000_000


def _head(stack: str, layer: int, head: int, count_from: int, what: str) -> Head:
    if min(layer, head) < count_from:
        raise HeadlabError(
            f"{what} has layer {layer}, head {head}, though both count from {count_from}; count from 0",
            code="mask.counted_from_other",
        )
    return Head(stack, layer - count_from, head - count_from)
