"""Masks of other tools: reading their forms as headlab masks, and writing these forms."""

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
from headlab.masks.mask import (
    MAX_HEADS,
    MAX_LINE_LENGTH,
    STACK_PATTERN,
    Mask,
    as_safe_line,
    mask_from_text,
)

# The head grid where a mask's file does not contain it: typed by hand, or from a config.json.

GRID_PART = re.compile(
    r"(?:([A-Za-z_][A-Za-z0-9_-]{0,39})=)?"
    r"(?:([0-9]{1,4})[x×]([0-9]{1,4})|([0-9]{1,4}(?:/[0-9]{1,4})*))"
)
LAYER_COUNT_FIELDS = ("num_hidden_layers", "n_layer", "n_layers")
HEAD_COUNT_FIELDS = ("num_attention_heads", "n_head", "n_heads")
# causal models
CAUSAL_MODEL_TYPES = (
    "gpt2",
    "openai-gpt",
    "ctrl",
    "gpt_neo",
    "gptj",
    "gpt_neox",
    "llama",
)


def parse_grid(text: str, stack: str = "encoder") -> HeadGrid:
    """A grid as typed.

    Args:
        text: "12x12" (layers x heads), "4/4/3" (heads of each layer), or stacks as
            "encoder=6x8,decoder=6x8,cross=6x8".
        stack: Name of the stack where the text has none.

    Raises:
        HeadlabError: For anything else.
    """
    _check_stack(stack)
    stacks: dict[str, list[int]] = {}
    for part in text.split(","):
        match = GRID_PART.fullmatch(part.strip())
        name = stack
        if match is not None and match.group(1):
            name = match.group(1)
        if match is None or name in stacks:
            raise HeadlabError(
                f"grid {text[:80]!r} cannot be read; write layers x heads as 12x12, the heads of "
                "each layer as 4/4/3, or stacks as encoder=6x8,decoder=6x8,cross=6x8",
                code="grid.malformed",
            )
        _, layers, heads, heads_by_layer = match.groups()
        stacks[name] = (
            [int(heads)] * int(layers) if layers else [int(n) for n in heads_by_layer.split("/")]
        )
    _require_sizes(stacks.values(), f"grid {text[:80]!r}")
    return HeadGrid.of_heads(stacks)


def _check_stack(name: str) -> None:
    if not STACK_PATTERN.fullmatch(name):
        raise HeadlabError(
            f"stack {as_safe_line(name)!r} is not a stack name; give encoder, decoder or cross",
            code="stack.name_invalid",
        )


def grid_of_config(config: JsonObject, source: str) -> HeadGrid:
    """The grid of a config.json with one stack.

    Args:
        config: The parsed config.json.
        source: Its name, for messages.

    Raises:
        HeadlabError: It has several stacks, lacks the sizes, or has impossible ones.
    """
    if config.get("is_encoder_decoder"):
        raise HeadlabError(
            f"{source} belongs to an encoder-decoder, and pruned_heads does not say which stack "
            "its heads are in",
            code="grid.ambiguous",
        )
    layers = _config_size(config, LAYER_COUNT_FIELDS)
    heads = _config_size(config, HEAD_COUNT_FIELDS)
    if layers is None or heads is None:
        raise HeadlabError(
            f"{source} does not say how many layers and heads its model has; give --grid or "
            "--model",
            code="grid.unknown",
        )
    _require_sizes([[heads] * min(layers, MAX_HEADS + 1)], source)
    is_causal = config.get("is_decoder") is True or config.get("model_type") in CAUSAL_MODEL_TYPES
    stack = "decoder" if is_causal else "encoder"
    return HeadGrid((Stack(stack, (heads,) * layers),))


def _config_size(config: JsonObject, names: Sequence[str]) -> int | None:
    """The first of these fields that a config has; None if it holds no whole number."""
    size = next((config[name] for name in names if name in config), None)
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    return None


def model_of_config(config: JsonObject) -> dict[str, JsonLike]:
    """The model of a config.json, as a mask records it: without fingerprint, which is unknown."""
    name = config.get("_name_or_path")
    classes = config.get("architectures")
    model_type = config.get("model_type")
    model: dict[str, JsonLike] = {
        "name": name if isinstance(name, str) and name else None,
        "fingerprint": None,
    }
    class_name = classes[0] if isinstance(classes, list) and classes else None
    if isinstance(class_name, str) and isinstance(model_type, str):
        model["architecture"] = {"class": class_name, "model_type": model_type}
    return model


def _require_sizes(stacks: Iterable[Sequence[int]], source: str) -> None:
    for heads in stacks:
        counts_are_possible = all(0 <= count <= MAX_HEADS for count in heads)
        if not heads or len(heads) > MAX_HEADS or not counts_are_possible:
            raise HeadlabError(
                f"{source} has impossible sizes; a model has 1 to {MAX_HEADS} layers and heads",
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
OPTIONS_BY_FORM: Mapping[str, tuple[str, ...]] = {  # the options of each form
    "headlab": (),
    "pruned-heads": ("count_from",),
    "text": ("count_from",),
    "array": ("lists",),
    "pairs": ("count_from", "lists"),
}
STACK_BY_LETTER = {"E": "encoder", "D": "decoder", "A": "cross"}  # as in fairseq's pruning code
HEADS_OF_LAYER = re.compile(r"(?:([EDA]):)?([0-9]{1,6}):([0-9]{1,6}(?:,[0-9]{1,6})*)")
# What numpy raises for a malformed header, which it parses as Python.
NPY_ERRORS = (
    ValueError,
    OSError,
    EOFError,
    MemoryError,
    TypeError,
    SyntaxError,
    TokenError,
    RecursionError,
)
NPY_MAGIC = b"\x93NUMPY"
UNNAMED_STACK = ""  # stands for the only stack of a model, in forms that name none


@dataclass(frozen=True)
class ForeignMask:
    """Content of another tool's file.

    Attributes:
        heads: Heads that the file lists; their stack may be `UNNAMED_STACK`.
        keeps: Whether the listed heads are kept; else they are removed.
        grid: Heads per layer, where the form has them.
        model: What the file says about it.
    """

    heads: frozenset[Head]
    keeps: bool = False
    grid: HeadGrid | None = None
    model: JsonRecord = field(default_factory=dict)


class ReadOptions(NamedTuple):
    """How a form is read; a form uses only some of it (`OPTIONS_BY_FORM`).

    Attributes:
        count_from: Number of the first layer and of the first head, 0 or 1.
        lists: Which heads the file lists, "kept" or "removed"; None for what is usual in the form.
        stack: Name of the stack where the form names none.
    """

    count_from: int = 0
    lists: str | None = None
    stack: str = "encoder"


def read_pruned_heads(raw: bytes, source: str, options: ReadOptions) -> ForeignMask:
    """`pruned_heads` of transformers 4, or a config.json that contains it.

    Grid and model are read from a config.json too.
    """
    value: Json = parse_json(raw, source)
    config = value if isinstance(value, dict) and "pruned_heads" in value else None
    heads_by_layer = config["pruned_heads"] if config is not None else value
    if not isinstance(heads_by_layer, dict):
        raise HeadlabError(
            f'{source} is not a table of pruned heads; it should be like {{"0": [2, 5], "11": '
            f"[0]}}",
            code="mask.pruned_heads_malformed",
        )
    heads = set()
    for layer, layer_heads in heads_by_layer.items():
        if not (
            re.fullmatch("[0-9]{1,6}", layer)
            and isinstance(layer_heads, list)
            and _are_indices(layer_heads)
        ):
            raise HeadlabError(
                f"{source}: layer {layer!r} of pruned_heads must hold a list of heads, like [2, 5]",
                code="mask.layer_malformed",
            )
        for head in layer_heads:
            heads.add(_head_from_0(UNNAMED_STACK, int(layer), head, options.count_from, source))
    grid = None if config is None else grid_of_config(config, source)
    return ForeignMask(
        frozenset(heads), grid=grid, model={} if config is None else model_of_config(config)
    )


def read_text(raw: bytes, source: str, options: ReadOptions) -> ForeignMask:
    """Heads removed as "9:3 10:10,11"; "E:9:3" for the encoder, D: decoder, A: cross attention."""
    try:
        words = raw.decode().split()
    except UnicodeDecodeError as error:
        raise HeadlabError(
            f'{source} is not text; expected heads like "9:3 10:10"', code="mask.not_text"
        ) from error
    heads = set()
    for word in words:
        match = HEADS_OF_LAYER.fullmatch(word)
        if match is None:
            raise HeadlabError(
                f'{source}: {word[:40]!r} is not a head; write layer:head, as in "9:3 10:10" or '
                '"E:9:3,4"',
                code="mask.head_malformed",
            )
        letter, layer, layer_heads = match.groups()
        stack = STACK_BY_LETTER.get(letter, UNNAMED_STACK)
        for head in layer_heads.split(","):
            heads.add(_head_from_0(stack, int(layer), int(head), options.count_from, source))
    return ForeignMask(frozenset(heads))


def read_array(raw: bytes, source: str, options: ReadOptions) -> ForeignMask:
    """[layer][head] of 0 and 1; 1 is a kept head, or a removed one if `lists` is "removed"."""
    values = _nested_lists(raw, source)
    _check_stack(options.stack)
    layers = values if isinstance(values, list) else []
    rows = [row for row in layers if isinstance(row, list)]  # a layer may have no heads
    all_are_lists = len(rows) == len(layers)
    if not rows or not all_are_lists or not all(map(_is_bit, chain.from_iterable(rows))):
        raise HeadlabError(
            f"{source} is not a mask of [layer][head] with 0 and 1; if it holds scores, choose a "
            "threshold first and save scores >= threshold",
            code="mask.array_malformed",
        )
    grid = HeadGrid((Stack(options.stack, tuple(map(len, rows))),))
    marked_heads = set()
    for layer, row in enumerate(rows):
        for head, bit in enumerate(row):
            if bit:
                marked_heads.add(Head(options.stack, layer, head))
    return ForeignMask(frozenset(marked_heads), keeps=options.lists in (None, "kept"), grid=grid)


def _is_bit(value: Json) -> bool:
    return type(value) in (bool, int, float) and value in (0, 1)


def read_pairs(raw: bytes, source: str, options: ReadOptions) -> ForeignMask:
    """(layer, head) pairs or (stack, layer, head) triples of heads removed.

    They are the heads kept if `lists` is "kept".
    """
    pairs = _nested_lists(raw, source)
    if not isinstance(pairs, list):
        raise HeadlabError(
            f"{source} is not a list of (layer, head) pairs, like [[9, 3], [10, 10]]",
            code="mask.pairs_malformed",
        )
    heads = set()
    for pair in pairs:
        location = _stack_layer_head(pair)
        if location is None:
            raise HeadlabError(
                f"{source}: {repr(pair)[:40]} is not a (layer, head) pair like [9, 3]",
                code="mask.pair_malformed",
            )
        heads.add(_head_from_0(*location, options.count_from, source))
    return ForeignMask(frozenset(heads), keeps=options.lists == "kept")


def _stack_layer_head(pair: Json) -> tuple[str, int, int] | None:
    """(stack, layer, head) of a pair or triple; None for anything else.

    The stack of a pair is `UNNAMED_STACK`.
    """
    if not isinstance(pair, list):
        return None
    stack = UNNAMED_STACK
    numbers = pair
    if len(pair) == 3 and isinstance(pair[0], str):
        stack = pair[0]
        numbers = pair[1:]
    if len(numbers) != 2 or not _are_indices(numbers):
        return None
    return stack, numbers[0], numbers[1]


READERS: Mapping[str, Callable[[bytes, str, ReadOptions], ForeignMask]] = {
    "pruned-heads": read_pruned_heads,
    "text": read_text,
    "array": read_array,
    "pairs": read_pairs,
}


def as_utf8(raw: bytes) -> bytes:
    """A text file's bytes in UTF-8; Windows also writes UTF-16 or a byte order mark.

    Other files are unchanged.
    """
    if raw.startswith(NPY_MAGIC):
        return raw
    try:
        return raw.decode(json.detect_encoding(raw)).encode()
    except UnicodeError:
        return raw


def detect_form(raw: bytes, source: str) -> str:
    """The form of a file, from its content. Raises HeadlabError if it is ambiguous or unknown."""
    if raw.startswith(NPY_MAGIC):
        return _array_or_pairs(_nested_lists(raw, source), source)
    words = raw.decode(errors="replace").split()
    if words and all(map(HEADS_OF_LAYER.fullmatch, words)):
        return "text"
    if raw.startswith((b"PK\x03\x04", b"\x80")):
        raise HeadlabError(
            f"{source} looks like a pickled tensor, which can run code, so headlab does not read "
            "it; where it was made, save numpy.save('mask.npy', mask.numpy()) and give that",
            code="mask.pickled",
        )
    if not raw.lstrip().startswith((b"{", b"[")):
        raise HeadlabError(
            f'{source} is neither JSON nor a .npy file nor heads like "9:3 10:10"; the forms it '
            f"may have are {', '.join(FORMS)}",
            code="mask.form_unrecognised",
        )
    value = parse_json(raw, source)
    if isinstance(value, dict):
        if "format" in value:
            return "headlab"
        return "pruned-heads"
    return _array_or_pairs(value, source)


def _array_or_pairs(value: Json, source: str) -> str:
    """Whether nested lists are of form "array" or "pairs".

    Raises:
        HeadlabError: They could be either.
    """
    rows = value if isinstance(value, list) else []
    entries = []
    for row in rows:
        if isinstance(row, list):
            entries += row
            if len(row) == 3 and isinstance(row[0], str):
                return "pairs"
    has_rows_of_two = all(isinstance(row, list) and len(row) == 2 for row in rows)
    if not has_rows_of_two or any(type(entry) is bool for entry in entries):
        return "array"
    if rows and any(_is_index(entry) and entry > 1 for entry in entries):
        return "pairs"
    raise HeadlabError(
        f"{source} could be an array of [layer][head] or a list of (layer, head) pairs; say which "
        "with --from array or --from pairs",
        code="mask.form_ambiguous",
    )


def _nested_lists(raw: bytes, source: str) -> Json:
    """Nested lists from JSON, or from a .npy file without objects."""
    if not raw.startswith(NPY_MAGIC):
        value: Json = parse_json(raw, source)
        return value
    try:
        array = np.load(io.BytesIO(raw), allow_pickle=False)
    except NPY_ERRORS as error:
        reason = as_safe_line(str(error), max_length=2 * MAX_LINE_LENGTH)
        raise HeadlabError(
            f"{source} is not a .npy file of numbers ({reason}); save it again with numpy.save",
            code="mask.npy_malformed",
        ) from error
    if array.dtype.kind not in "biuf":
        raise HeadlabError(
            f"{source} holds {as_safe_line(str(array.dtype))}, not numbers; save it again with numpy.save",
            code="mask.npy_not_numbers",
        )
    if array.dtype.kind == "f":
        array = array.astype(np.float64)  # JSON has no longdouble
    numbers: Json = array.tolist()
    return numbers


def _is_index(value: Json) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1_000_000


def _are_indices(values: list[Json]) -> TypeGuard[list[int]]:
    return all(map(_is_index, values))


def _head_from_0(stack: str, layer: int, head: int, count_from: int, source: str) -> Head:
    """The head of a file that counts layers and heads from `count_from`."""
    if min(layer, head) < count_from:
        raise HeadlabError(
            f"{source} has layer {layer}, head {head}, though both count from {count_from}; count "
            "from 0",
            code="mask.counted_from_other",
        )
    return Head(stack, layer - count_from, head - count_from)


# Converting another tool's mask to headlab's, and back.


def convert_in(
    raw: bytes,
    source: str,
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
        raw: Content of the file.
        source: Its name, for messages.
        grid: Grid of the model that it is for; a form without a grid needs it.
        model: That model, as a mask records it; a mask without a fingerprint takes it over.
        count_from: As in `ReadOptions`; None for what is usual.
        lists: As in `ReadOptions`.
        stack: As in `ReadOptions`; None for what is usual.

    Raises:
        HeadlabError: For a malformed file, an ambiguous form, heads that the grid does not have, or
            an option that the form does not use.
    """
    raw = as_utf8(raw)
    form = form_of_file(raw, source, form)
    _require_used(form, _given_names(count_from=count_from, lists=lists, stack=stack))
    if form == "headlab":
        mask = mask_from_text(raw, source)
        if grid is not None:
            fingerprint = None if model is None else model.get("fingerprint")
            mask.check(grid, str(fingerprint) if fingerprint else None)
        if model is None or mask.fingerprint:
            return mask
        return replace(mask, model=dict(model))
    options = ReadOptions(count_from or 0, lists, stack or ReadOptions().stack)
    foreign_mask = READERS[form](raw, source, options)
    choice = {"rule": "converted", "converted_from": form}
    settled_grid = _grid_to_use(foreign_mask, grid, source)
    kept_heads = _kept_heads(foreign_mask, settled_grid, source)
    mask_model = foreign_mask.model if model is None else model
    return Mask(settled_grid, kept_heads, dict(mask_model), choice)


def form_of_file(raw: bytes, source: str, form: str | None = None) -> str:
    """The form of a file: as given, or detected from its content.

    Raises:
        HeadlabError: The form is unknown or ambiguous.
    """
    if form is not None:
        _check_form(form)
    raw = as_utf8(raw)
    if form != "text" and not raw.strip():  # an empty text removes nothing
        raise HeadlabError(
            f"{source} is empty; give a mask file, or the heads to remove", code="mask.empty"
        )
    return form or detect_form(raw, source)


def _check_form(form: str) -> None:
    if form not in FORMS:
        raise HeadlabError(
            f"unknown form {form!r}; use one of {', '.join(FORMS)}", code="mask.form_unknown"
        )


def _given_names(**options: int | str | None) -> list[str]:
    """The names of the options that are given."""
    return [name for name, value in options.items() if value is not None]


def _require_used(form: str, option_names: Iterable[str]) -> None:
    """Raise HeadlabError for an option that the form does not have."""
    for name in option_names:
        forms_with_option = [
            user_form for user_form, form_options in OPTIONS_BY_FORM.items() if name in form_options
        ]
        if forms_with_option and form not in forms_with_option:
            option_text = name.replace("_", "-")
            raise HeadlabError(
                f"form {form} has no {option_text}, which is for {', '.join(forms_with_option)}; "
                "leave it out",
                code="mask.form_option_unused",
            )


def _grid_to_use(foreign_mask: ForeignMask, grid: HeadGrid | None, source: str) -> HeadGrid:
    """The grid to use: the given one, which the file's must match, or else the file's."""
    if grid is None and foreign_mask.grid is None:
        raise HeadlabError(
            f"{source} does not say how many layers and heads its model has; give --model, or "
            "--grid like 12x12",
            code="grid.unknown",
        )
    if grid is None or foreign_mask.grid is None:
        return grid or foreign_mask.grid or HeadGrid(())
    heads_in_file = tuple(chain.from_iterable(stack.heads for stack in foreign_mask.grid.stacks))
    heads_in_model = tuple(chain.from_iterable(stack.heads for stack in grid.stacks))
    if heads_in_file != heads_in_model:
        raise HeadlabError(
            f"{source} is for {foreign_mask.grid}; the model has {grid}. Give the model it was "
            "made for",
            code="mask.other_grid",
        )
    return grid


def _kept_heads(foreign_mask: ForeignMask, grid: HeadGrid, source: str) -> Bools:
    """The heads of a grid that another tool's mask keeps, bool [head]."""
    is_listed = np.zeros(grid.size, bool)
    if foreign_mask.grid is not None and foreign_mask.grid != grid:
        # The file's rows are those of several stacks, one below the other.
        for index, head in enumerate(foreign_mask.grid.heads):
            is_listed[index] = head in foreign_mask.heads
    else:
        for head in foreign_mask.heads:
            is_listed[_head_index(head, grid, source)] = True
    if foreign_mask.keeps:
        return is_listed
    return ~is_listed


def _head_index(head: Head, grid: HeadGrid, source: str) -> int:
    """The place of a head in a grid; a head of `UNNAMED_STACK` is of its only stack."""
    if head.stack == UNNAMED_STACK:
        if len(grid.stacks) > 1:
            raise HeadlabError(
                f"{source} does not say which stack layer {head.layer}, head {head.head} is in; "
                f"the model has {grid}. Write E:, D: or A: before the head, or give it as [stack, "
                "layer, head]",
                code="mask.stack_unnamed",
            )
        head = head._replace(stack=grid.stacks[0].name)
    try:
        return grid.index(head)
    except HeadlabError as error:
        raise HeadlabError(f"{source}: {error}, counted from 0", code=error.code) from None


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
        mask: The mask.
        form: One of `FORMS`.
        count_from: Number of the first layer and of the first head, 0 or 1; None for 0.
        lists: Which heads an array marks with 1 or pairs list, "kept" or "removed"; None for kept
            in an array and removed in pairs.
        binary: Whether arrays and pairs are written as a .npy file; without effect on other forms.

    Raises:
        HeadlabError: If the form cannot express the mask, or does not use an option that is given.
    """
    _check_form(form)
    _require_used(form, _given_names(count_from=count_from, lists=lists))
    count_from = count_from or 0
    if form == "headlab":
        return mask.to_text().encode()
    mask.require_heads(f"the form {form} holds")
    if form == "pruned-heads":
        return _json_bytes(_pruned_heads(mask, count_from))
    if form == "text":
        return (_removed_as_text(mask, count_from) + "\n").encode()
    if form == "array":
        is_one = mask.kept if lists != "removed" else ~mask.kept
        rows = [layer.astype(int).tolist() for _, _, layer in by_layer(mask.grid, is_one)]
        if binary:
            return _npy_bytes(rows, np.uint8)
        return _json_bytes(rows)
    pairs = _listed_pairs(mask, count_from, list_kept=lists == "kept")
    if binary:
        return _npy_bytes(pairs, np.int64)
    return _json_bytes(pairs)


def _pruned_heads(mask: Mask, count_from: int) -> dict[str, list[int]]:
    if len(mask.grid.stacks) > 1:
        raise HeadlabError(
            f"pruned_heads has one stack of layers, this mask is of {mask.grid}; use form text or "
            "pairs",
            code="mask.several_stacks",
        )
    table: dict[str, list[int]] = {}
    for head in mask.removed:
        table.setdefault(str(head.layer + count_from), []).append(head.head + count_from)
    return table


def _removed_as_text(mask: Mask, count_from: int) -> str:
    has_several_stacks = len(mask.grid.stacks) > 1
    letter_by_stack = {name: letter for letter, name in STACK_BY_LETTER.items()}
    heads_by_layer: dict[str, list[str]] = {}
    for stack, layer, head in mask.removed:
        if has_several_stacks and stack not in letter_by_stack:
            raise HeadlabError(
                f"the text form has no letter for stack {stack!r}; use form pairs",
                code="mask.stack_without_letter",
            )
        layer_text = str(layer + count_from)
        if has_several_stacks:
            layer_text = f"{letter_by_stack[stack]}:{layer_text}"
        heads_by_layer.setdefault(layer_text, []).append(str(head + count_from))
    return " ".join(
        f"{layer_text}:{','.join(heads)}" for layer_text, heads in heads_by_layer.items()
    )


def _listed_pairs(mask: Mask, count_from: int, *, list_kept: bool) -> list[list[str | int]]:
    has_several_stacks = len(mask.grid.stacks) > 1
    is_listed = mask.kept if list_kept else ~mask.kept
    pairs: list[list[str | int]] = []
    for index in np.flatnonzero(is_listed):
        head = mask.grid.heads[index]
        pair: list[str | int] = [head.layer + count_from, head.head + count_from]
        pairs.append([head.stack, *pair] if has_several_stacks else pair)
    return pairs


def _json_bytes(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _npy_bytes(rows: Sequence[Sequence[str | int]], dtype: type[np.integer]) -> bytes:
    lengths = {len(row) for row in rows}
    if len(lengths) > 1 or any(isinstance(entry, str) for entry in chain.from_iterable(rows)):
        raise HeadlabError(
            "a .npy file holds numbers in rows of equal length; write this mask as .json",
            code="mask.npy_unfit",
        )
    npy_file = io.BytesIO()
    np.save(npy_file, np.array(rows, dtype), allow_pickle=False)
    return npy_file.getvalue()
