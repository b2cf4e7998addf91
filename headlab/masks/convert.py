"""Masks of other tools: reading their forms as headlab masks, and writing headlab masks in these forms."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from tokenize import TokenError
from typing import NamedTuple, TypeGuard

import numpy as np

from headlab.core import (
    Bools,
    Head,
    HeadGrid,
    HeadlabError,
    Json,
    JsonLike,
    JsonObject,
    JsonRecord,
    Stack,
    by_layer,
    parse_json,
)
from headlab.masks.mask import LINE, MAX_HEADS, STACK, Mask, mask_from_text, shown

# The head grid where a mask's file does not contain it: typed by hand, or from a config.json.

PART = re.compile(
    r"(?:([A-Za-z_][A-Za-z0-9_-]{0,39})=)?(?:([0-9]{1,4})[x×]([0-9]{1,4})|([0-9]{1,4}(?:/[0-9]{1,4})*))"
)
LAYERS, HEADS = (
    ("num_hidden_layers", "n_layer", "n_layers"),
    ("num_attention_heads", "n_head", "n_heads"),
)
BACKWARD = ("gpt2", "openai-gpt", "ctrl", "gpt_neo", "gptj", "gpt_neox", "llama")  # causal models


def parse_grid(text: str, stack: str = "encoder") -> HeadGrid:
    """A grid as typed: "12x12" (layers x heads), "4/4/3" (heads of each layer), "encoder=6x8,decoder=6x8,cross=6x8".

    Args:
        stack: Name of the stack where the text has none.

    Raises:
        HeadlabError: For anything else.
    """
    _check_stack(stack)
    stacks: dict[str, list[int]] = {}
    for part in text.split(","):
        found = PART.fullmatch(part.strip())
        name = (found.group(1) or stack) if found else stack
        if found is None or name in stacks:
            raise HeadlabError(
                f"grid {text[:80]!r} cannot be read; write layers x heads as 12x12, the heads of each layer as 4/4/3, "
                "or stacks as encoder=6x8,decoder=6x8,cross=6x8",
                code="grid.malformed",
            )
        _, layers, heads, uneven = found.groups()
        stacks[name] = [int(heads)] * int(layers) if layers else [int(n) for n in uneven.split("/")]
    _require_sizes(stacks.values(), f"grid {text[:80]!r}")
    return HeadGrid.from_json(stacks)


def _check_stack(name: str) -> None:
    if not STACK.fullmatch(name):
        raise HeadlabError(
            f"stack {shown(name)!r} is not a stack name; give encoder, decoder or cross",
            code="stack.name_invalid",
        )


def grid_of_config(config: JsonObject, what: str) -> HeadGrid:
    """The grid of a config.json with one stack. Raises HeadlabError if it has several, or lacks the sizes."""
    if config.get("is_encoder_decoder"):
        raise HeadlabError(
            f"{what} belongs to an encoder-decoder, and pruned_heads does not say which stack its heads are in",
            code="grid.ambiguous",
        )
    layers, heads = _size(config, LAYERS), _size(config, HEADS)
    if layers is None or heads is None:
        raise HeadlabError(
            f"{what} does not say how many layers and heads its model has; give --grid or --model",
            code="grid.unknown",
        )
    _require_sizes([[heads] * min(layers, MAX_HEADS + 1)], what)
    backward = config.get("is_decoder") is True or config.get("model_type") in BACKWARD
    return HeadGrid((Stack("decoder" if backward else "encoder", (heads,) * layers),))


def _size(config: JsonObject, names: Sequence[str]) -> int | None:
    """The first of these fields that a config has; None if it has none, or holds no whole number."""
    size = next((config[name] for name in names if name in config), None)
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def model_of_config(config: JsonObject) -> dict[str, JsonLike]:
    """The model of a config.json, as a mask records it: without fingerprint, as the weights are unknown."""
    name, classes, family = (
        config.get(key) for key in ("_name_or_path", "architectures", "model_type")
    )
    model: dict[str, JsonLike] = {
        "name": name if isinstance(name, str) and name else None,
        "fingerprint": None,
    }
    if (
        isinstance(classes, list)
        and classes
        and isinstance(classes[0], str)
        and isinstance(family, str)
    ):
        model["architecture"] = {"class": classes[0], "model_type": family}
    return model


def _require_sizes(stacks: Iterable[Sequence[int]], what: str) -> None:
    for heads in stacks:
        if not heads or len(heads) > MAX_HEADS or not all(0 <= n <= MAX_HEADS for n in heads):
            raise HeadlabError(
                f"{what} has impossible sizes; a model has 1 to {MAX_HEADS} layers and heads",
                code="grid.sizes_out_of_range",
            )


# Masks as other tools write them: which heads each form removes.

FORMS = {
    "headlab": "headlab's own mask file",
    "pruned-heads": 'transformers 4: {"layer": [heads removed]}, alone or as pruned_heads of a config.json',
    "text": 'heads removed as text, "9:3 10:10" (layer:head, or layer:head,head; E:, D: or A: before it names a stack)',
    "array": "[layer][head] of 0 and 1, as .npy or JSON (TextPruner)",
    "pairs": "(layer, head) pairs as JSON or .npy (TransformerLens)",
}
USES: Mapping[str, tuple[str, ...]] = {  # the options of each form
    "headlab": (), "pruned-heads": ("count_from",), "text": ("count_from",), "array": ("lists",),
    "pairs": ("count_from", "lists"),
}  # fmt: skip
LETTERS = {"E": "encoder", "D": "decoder", "A": "cross"}  # as in fairseq's pruning code
WORD = re.compile(r"(?:([EDA]):)?([0-9]{1,6}):([0-9]{1,6}(?:,[0-9]{1,6})*)")
# What numpy raises for a malformed header, which it parses as Python.
NO_ARRAY = (
    ValueError,
    OSError,
    EOFError,
    MemoryError,
    TypeError,
    SyntaxError,
    TokenError,
    RecursionError,
)
NUMPY = b"\x93NUMPY"
ONLY = ""  # the stack of a form that names none


@dataclass(frozen=True)
class ForeignMask:
    """Content of another tool's file: heads removed, or heads kept if `keeps`.

    A stack "" is the only one.

    Attributes:
        grid: Heads per layer, where the form has them.
        model: What the file says about it.
    """

    heads: frozenset[Head]
    keeps: bool = False
    grid: HeadGrid | None = None
    model: JsonRecord = field(default_factory=dict)


class Reading(NamedTuple):
    """How a form is read; a form uses only some of it (`USES`).

    Attributes:
        count_from: number of the first layer and of the first head, 0 or 1.
        lists: which heads the file lists, "kept" or "removed"; None for what is usual in the form.
        stack: name of the stack where the form names none.
    """

    count_from: int = 0
    lists: str | None = None
    stack: str = "encoder"


def read_pruned_heads(raw: bytes, what: str, reading: Reading) -> ForeignMask:
    """`pruned_heads` of transformers 4, or a config.json that contains it (grid and model are then read too)."""
    value: Json = parse_json(raw, what)
    config = value if isinstance(value, dict) and "pruned_heads" in value else None
    table = config["pruned_heads"] if config is not None else value
    if not isinstance(table, dict):
        raise HeadlabError(
            f'{what} is not a table of pruned heads; it should be like {{"0": [2, 5], "11": [0]}}',
            code="mask.pruned_heads_malformed",
        )
    heads = set()
    for layer, listed in table.items():
        if not (
            re.fullmatch("[0-9]{1,6}", layer) and isinstance(listed, list) and _are_counted(listed)
        ):
            raise HeadlabError(
                f"{what}: layer {layer!r} of pruned_heads must hold a list of heads, like [2, 5]",
                code="mask.layer_malformed",
            )
        heads |= {_head(ONLY, int(layer), head, reading.count_from, what) for head in listed}
    grid = None if config is None else grid_of_config(config, what)
    return ForeignMask(
        frozenset(heads), grid=grid, model={} if config is None else model_of_config(config)
    )


def read_text(raw: bytes, what: str, reading: Reading) -> ForeignMask:
    """Heads removed as "9:3 10:10,11"; "E:9:3" for the encoder, D: decoder, A: cross attention."""
    try:
        words = raw.decode().split()
    except UnicodeDecodeError as error:
        raise HeadlabError(
            f'{what} is not text; expected heads like "9:3 10:10"', code="mask.not_text"
        ) from error
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
        heads |= {
            _head(stack, int(layer), int(head), reading.count_from, what)
            for head in listed.split(",")
        }
    return ForeignMask(frozenset(heads))


def read_array(raw: bytes, what: str, reading: Reading) -> ForeignMask:
    """[layer][head] of 0 and 1; 1 is a kept head, or a removed one if `lists` is "removed"."""
    values = _values(raw, what)
    _check_stack(reading.stack)
    layers = values if isinstance(values, list) else []
    rows = [row for row in layers if isinstance(row, list)]  # a layer may have no heads
    if not rows or len(rows) < len(layers) or not all(map(_is_bit, chain.from_iterable(rows))):
        raise HeadlabError(
            f"{what} is not a mask of [layer][head] with 0 and 1; if it holds scores, choose a threshold first and "
            "save scores >= threshold",
            code="mask.array_malformed",
        )
    grid = HeadGrid((Stack(reading.stack, tuple(map(len, rows))),))
    marked = {
        Head(reading.stack, layer, head)
        for layer, row in enumerate(rows)
        for head, bit in enumerate(row)
        if bit
    }
    return ForeignMask(frozenset(marked), keeps=reading.lists in (None, "kept"), grid=grid)


def _is_bit(value: Json) -> bool:
    return type(value) in (bool, int, float) and value in (0, 1)


def read_pairs(raw: bytes, what: str, reading: Reading) -> ForeignMask:
    """(layer, head) pairs or (stack, layer, head) triples: heads removed, or kept if `lists` is "kept"."""
    pairs = _values(raw, what)
    if not isinstance(pairs, list):
        raise HeadlabError(
            f"{what} is not a list of (layer, head) pairs, like [[9, 3], [10, 10]]",
            code="mask.pairs_malformed",
        )
    heads = set()
    for pair in pairs:
        place = _place(pair)
        if place is None:
            raise HeadlabError(
                f"{what}: {repr(pair)[:40]} is not a (layer, head) pair like [9, 3]",
                code="mask.pair_malformed",
            )
        heads.add(_head(*place, reading.count_from, what))
    return ForeignMask(frozenset(heads), keeps=reading.lists == "kept")


def _place(pair: Json) -> tuple[str, int, int] | None:
    """(stack, layer, head) of a pair or triple; None for anything else. The stack of a pair is `ONLY`."""
    if not isinstance(pair, list):
        return None
    stack, numbers = ONLY, pair
    if len(pair) == 3 and isinstance(pair[0], str):
        stack, numbers = pair[0], pair[1:]
    if len(numbers) != 2 or not _are_counted(numbers):
        return None
    return stack, numbers[0], numbers[1]


READERS: Mapping[str, Callable[[bytes, str, Reading], ForeignMask]] = {
    "pruned-heads": read_pruned_heads, "text": read_text, "array": read_array, "pairs": read_pairs,
}  # fmt: skip


def as_utf8(raw: bytes) -> bytes:
    """A text file's bytes in UTF-8: Windows also writes UTF-16 or a byte order mark. Other files are unchanged."""
    if raw.startswith(NUMPY):
        return raw
    try:
        return raw.decode(json.detect_encoding(raw)).encode()
    except UnicodeError:
        return raw


def guess(raw: bytes, what: str) -> str:
    """The form of a file, from its content. Raises HeadlabError if it is ambiguous or unknown."""
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
            f'{what} is neither JSON nor a .npy file nor heads like "9:3 10:10"; the forms it may have are '
            f"{', '.join(FORMS)}",
            code="mask.form_unrecognised",
        )
    value = parse_json(raw, what)
    if isinstance(value, dict):
        return "headlab" if "format" in value else "pruned-heads"
    return _array_or_pairs(value, what)


def _array_or_pairs(value: Json, what: str) -> str:
    rows = value if isinstance(value, list) else []
    entries = [entry for row in rows if isinstance(row, list) for entry in row]
    if any(isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) for row in rows):
        return "pairs"
    if not all(isinstance(row, list) and len(row) == 2 for row in rows) or any(
        type(e) is bool for e in entries
    ):
        return "array"
    if rows and any(_counted(entry) and entry > 1 for entry in entries):
        return "pairs"
    raise HeadlabError(
        f"{what} could be an array of [layer][head] or a list of (layer, head) pairs; say which with --from array or "
        "--from pairs",
        code="mask.form_ambiguous",
    )


def _values(raw: bytes, what: str) -> Json:
    """Nested lists from JSON, or from a .npy file without objects."""
    if not raw.startswith(NUMPY):
        value: Json = parse_json(raw, what)
        return value
    try:
        array = np.load(io.BytesIO(raw), allow_pickle=False)
    except NO_ARRAY as error:
        why = shown(str(error), longest=2 * LINE)
        raise HeadlabError(
            f"{what} is not a .npy file of numbers ({why}); save it again with numpy.save",
            code="mask.npy_malformed",
        ) from error
    if array.dtype.kind not in "biuf":
        raise HeadlabError(
            f"{what} holds {shown(str(array.dtype))}, not numbers; save it again with numpy.save",
            code="mask.npy_not_numbers",
        )
    if array.dtype.kind == "f":
        array = array.astype(np.float64)  # JSON has no longdouble
    numbers: Json = array.tolist()
    return numbers


def _counted(value: Json) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1_000_000


def _are_counted(values: list[Json]) -> TypeGuard[list[int]]:
    return all(map(_counted, values))


def _head(stack: str, layer: int, head: int, count_from: int, what: str) -> Head:
    if min(layer, head) < count_from:
        raise HeadlabError(
            f"{what} has layer {layer}, head {head}, though both count from {count_from}; count from 0",
            code="mask.counted_from_other",
        )
    return Head(stack, layer - count_from, head - count_from)


# Converting another tool's mask to headlab's, and back.


def convert_in(
    raw: bytes,
    what: str,
    form: str | None = None,
    *,
    grid: HeadGrid | None = None,
    model: JsonRecord | None = None,
    count_from: int | None = None,
    lists: str | None = None,
    stack: str | None = None,
) -> Mask:
    """The mask in a file of any form.

    Args:
        form: One of `FORMS`, or None to detect it from the content.
        grid, model: of the model it is for; a form without a grid needs it, and a mask without a
            fingerprint takes the model's.
        count_from, lists, stack: as in `Reading`; None for what is usual.

    Raises:
        HeadlabError: For a malformed file, an ambiguous form, heads that the grid does not have, or
            an option that the form does not use.
    """
    raw, form = as_utf8(raw), form_of(raw, what, form)
    _require_used(form, _given(count_from=count_from, lists=lists, stack=stack))
    if form == "headlab":
        mask = mask_from_text(raw, what)
        if grid is not None:
            fingerprint = None if model is None else model.get("fingerprint")
            mask.check(grid, str(fingerprint) if fingerprint else None)
        return mask if model is None or mask.fingerprint else replace(mask, model=dict(model))
    foreign_mask = READERS[form](
        raw, what, Reading(count_from or 0, lists, stack or Reading().stack)
    )
    chosen = {"rule": "converted", "converted_from": form}
    settled_grid = _settle(foreign_mask, grid, what)
    kept = _kept(foreign_mask, settled_grid, what)
    return Mask(settled_grid, kept, dict(foreign_mask.model if model is None else model), chosen)


def form_of(raw: bytes, what: str, form: str | None = None) -> str:
    """The form of a file: as given, or detected from its content. Raises HeadlabError if unknown or ambiguous."""
    if form is not None:
        _check_form(form)
    raw = as_utf8(raw)
    if form != "text" and not raw.strip():  # an empty text removes nothing
        raise HeadlabError(
            f"{what} is empty; give a mask file, or the heads to remove", code="mask.empty"
        )
    return form or guess(raw, what)


def _check_form(form: str) -> None:
    if form not in FORMS:
        raise HeadlabError(
            f"unknown form {form!r}; use one of {', '.join(FORMS)}", code="mask.form_unknown"
        )


def _given(**options: int | str | None) -> list[str]:
    """The names of the options that are given."""
    return [name for name, value in options.items() if value is not None]


def _require_used(form: str, how: Iterable[str]) -> None:
    """Raise HeadlabError for an option that the form does not have."""
    for name in how:
        users = [other for other, used in USES.items() if name in used]
        if users and form not in users:
            words = name.replace("_", "-")
            raise HeadlabError(
                f"form {form} has no {words}, which is for {', '.join(users)}; leave it out",
                code="mask.form_option_unused",
            )


def _settle(told: ForeignMask, grid: HeadGrid | None, what: str) -> HeadGrid:
    """The grid to use: the given one, which the file's must match, or else the file's."""
    if grid is None and told.grid is None:
        raise HeadlabError(
            f"{what} does not say how many layers and heads its model has; give --model, or --grid like 12x12",
            code="grid.unknown",
        )
    if grid is None or told.grid is None:
        return grid or told.grid or HeadGrid(())
    theirs = tuple(n for stack in told.grid.stacks for n in stack.heads)
    ours = tuple(n for stack in grid.stacks for n in stack.heads)
    if theirs != ours:
        raise HeadlabError(
            f"{what} is for {told.grid}; the model has {grid}. Give the model it was made for",
            code="mask.other_grid",
        )
    return grid


def _kept(foreign_mask: ForeignMask, grid: HeadGrid, what: str) -> Bools:
    marked = np.zeros(grid.size, bool)
    if (
        foreign_mask.grid is not None and foreign_mask.grid != grid
    ):  # the file's rows are those of several stacks, one below the other
        index_by_head = {head: i for i, head in enumerate(foreign_mask.grid.heads)}
        marked[[index_by_head[head] for head in foreign_mask.heads if head in index_by_head]] = True
        return marked if foreign_mask.keeps else ~marked
    for head in foreign_mask.heads:
        marked[_index(head, grid, what)] = True
    return marked if foreign_mask.keeps else ~marked


def _index(head: Head, grid: HeadGrid, what: str) -> int:
    if head.stack == ONLY:
        if len(grid.stacks) > 1:
            raise HeadlabError(
                f"{what} does not say which stack layer {head.layer}, head {head.head} is in; the model has {grid}. "
                "Write E:, D: or A: before the head, or give it as [stack, layer, head]",
                code="mask.stack_unnamed",
            )
        head = head._replace(stack=grid.stacks[0].name)
    try:
        return grid.index(head)
    except HeadlabError as error:
        raise HeadlabError(f"{what}: {error}, counted from 0", code=error.code) from None


def convert_out(
    mask: Mask,
    form: str,
    *,
    count_from: int | None = None,
    lists: str | None = None,
    binary: bool = False,
) -> bytes:
    """A mask in another tool's form, as the bytes of a file.

    Args:
        count_from, lists: as in `convert_in`.
        binary: a .npy file, for arrays and pairs.

    Raises:
        HeadlabError: If the form cannot express the mask, or does not use an option that is given.
    """
    _check_form(form)
    _require_used(form, _given(count_from=count_from, lists=lists))
    count_from = count_from or 0
    if form == "headlab":
        return _lines(mask.to_json(), indent=1)
    if form == "pruned-heads":
        return _lines(_pruned_heads(mask, count_from))
    if form == "text":
        return (_text(mask, count_from) + "\n").encode()
    if form == "array":
        ones = mask.kept if lists != "removed" else ~mask.kept
        rows = [values.astype(int).tolist() for _, _, values in by_layer(mask.grid, ones)]
        return _npy(rows, np.uint8) if binary else _lines(rows)
    pairs = _pairs(mask, count_from, kept=lists == "kept")
    return _npy(pairs, np.int64) if binary else _lines(pairs)


def _pruned_heads(mask: Mask, count_from: int) -> dict[str, list[int]]:
    if len(mask.grid.stacks) > 1:
        raise HeadlabError(
            f"pruned_heads has one stack of layers, this mask is of {mask.grid}; use form text or pairs",
            code="mask.several_stacks",
        )
    table: dict[str, list[int]] = {}
    for head in mask.removed:
        table.setdefault(str(head.layer + count_from), []).append(head.head + count_from)
    return table


def _text(mask: Mask, count_from: int) -> str:
    several, letters = len(mask.grid.stacks) > 1, {name: letter for letter, name in LETTERS.items()}
    words: dict[str, list[str]] = {}
    for stack, layer, head in mask.removed:
        if several and stack not in letters:
            raise HeadlabError(
                f"the text form has no letter for stack {stack!r}; use form pairs",
                code="mask.stack_without_letter",
            )
        place = (f"{letters[stack]}:" if several else "") + str(layer + count_from)
        words.setdefault(place, []).append(str(head + count_from))
    return " ".join(f"{place}:{','.join(heads)}" for place, heads in words.items())


def _pairs(mask: Mask, count_from: int, *, kept: bool) -> list[list[str | int]]:
    several = len(mask.grid.stacks) > 1
    chosen = mask.kept if kept else ~mask.kept
    return [
        [*([head.stack] if several else []), head.layer + count_from, head.head + count_from]
        for head, listed in zip(mask.grid.heads, chosen, strict=True)
        if listed
    ]


def _lines(value: object, indent: int | None = None) -> bytes:
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n").encode()


def _npy(rows: Sequence[Sequence[str | int]], kind: type[np.integer]) -> bytes:
    if len({len(row) for row in rows}) > 1 or any(isinstance(v, str) for row in rows for v in row):
        raise HeadlabError(
            "a .npy file holds numbers in rows of equal length; write this mask as .json",
            code="mask.npy_unfit",
        )
    out = io.BytesIO()
    np.save(out, np.array(rows, kind), allow_pickle=False)
    return out.getvalue()
