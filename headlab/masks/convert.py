"""From another tool's mask to headlab's, and back."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.masks.foreign import FORMS, LETTERS, ONLY, READERS, USES, Told, as_utf8, guess
from headlab.masks.mask import Mask
from headlab.masks.read import mask_from_text
from headlab.records import Head, HeadGrid, by_layer


def convert_in(
    raw: bytes,
    what: str,
    form: str | None = None,
    *,
    grid: HeadGrid | None = None,
    model: Mapping[str, Any] | None = None,
    **how: Any,
) -> Mask:
    """The mask that a file of any form means.

    form: one of `FORMS`, or None to see by the content.  grid, model: of the model it is for; a form that lacks the
    grid needs it, and a mask without a fingerprint takes the model's.  how: count_from (0 or 1), lists ("kept" or
    "removed"), stack, as the form's reader takes them; None as if left out.  Raises HeadlabError for a broken file, a
    form that is not clear, heads that the grid does not have, or a count or list that the form does not use.
    """
    raw, form = as_utf8(raw), form_of(raw, what, form)
    how = {name: value for name, value in how.items() if value is not None}
    _require_used(form, how)
    if form == "headlab":
        mask = mask_from_text(raw, what)
        if grid is not None:
            mask.check(grid, None if model is None else model.get("fingerprint"))
        return mask if model is None or mask.model.get("fingerprint") else replace(mask, model=dict(model))
    told = READERS[form](raw, what, **how)
    chosen = {"rule": "converted", "converted_from": form}
    settled = _settle(told, grid, what)
    kept = _kept(told, settled, what)
    return Mask(settled, kept, dict(told.model if model is None else model), chosen)


def form_of(raw: bytes, what: str, form: str | None = None) -> str:
    """The form of a file: as named, or as its content says. Raises HeadlabError if it is unknown or not clear."""
    if form is not None and form not in FORMS:
        raise HeadlabError(f"unknown form {form!r}; use one of {', '.join(FORMS)}", code="mask.form_unknown")
    raw = as_utf8(raw)
    if form != "text" and not raw.strip():  # a text without a word removes nothing
        raise HeadlabError(f"{what} is empty; give a mask file, or the heads to remove", code="mask.empty")
    return form or guess(raw, what)


def _require_used(form: str, how: Iterable[str]) -> None:
    """Raise HeadlabError for a way to count or list that the form does not have."""
    for name in how:
        users = [other for other, used in USES.items() if name in used]
        if users and form not in users:
            words = name.replace("_", "-")
            raise HeadlabError(
                f"form {form} has no {words}, which is for {', '.join(users)}; leave it out",
                code="mask.form_option_unused",
            )


def _settle(told: Told, grid: HeadGrid | None, what: str) -> HeadGrid:
    """The grid to use: the model's, which what the file says must fit."""
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
            f"{what} is for {told.grid}; the model has {grid}. Give the model it was made for", code="mask.other_grid"
        )
    return grid


def _kept(told: Told, grid: HeadGrid, what: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    marked = np.zeros(grid.size, bool)
    if told.grid is not None and told.grid != grid:  # rows of several stacks, one below the other
        flat = {head: i for i, head in enumerate(told.grid.heads)}
        marked[[flat[head] for head in told.heads if head in flat]] = True
        return marked if told.keeps else ~marked
    for head in told.heads:
        marked[_index(head, grid, what)] = True
    return marked if told.keeps else ~marked


def _index(head: Head, grid: HeadGrid, what: str) -> int:
    if head.stack == ONLY:
        if len(grid.stacks) > 1:
            raise HeadlabError(
                f"{what} does not say of which stack layer {head.layer}, head {head.head} is; the model has {grid}. "
                "Write E:, D: or A: before it, or [stack, layer, head]",
                code="mask.stack_unnamed",
            )
        head = head._replace(stack=grid.stacks[0].name)
    try:
        return grid.index(head)
    except HeadlabError as error:
        raise HeadlabError(f"{what}: {error}, counted from 0", code=error.code) from None


def convert_out(
    mask: Mask, form: str, *, count_from: int | None = None, lists: str | None = None, binary: bool = False
) -> bytes:
    """A mask in another tool's form, as the bytes of a file.

    count_from, lists: as `convert_in` takes them.  binary: a .npy file, for arrays and pairs.  Raises HeadlabError
    where the form cannot say what the mask says, or does not use what is given.
    """
    if form in FORMS:
        _require_used(form, [name for name, v in {"count_from": count_from, "lists": lists}.items() if v is not None])
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
    if form == "pairs":
        pairs = _pairs(mask, count_from, kept=lists == "kept")
        return _npy(pairs, np.int64) if binary else _lines(pairs)
    raise HeadlabError(f"unknown form {form!r}; use one of {', '.join(FORMS)}", code="mask.form_unknown")


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
                f"the text form has no letter for stack {stack!r}; use form pairs", code="mask.stack_without_letter"
            )
        place = (f"{letters[stack]}:" if several else "") + str(layer + count_from)
        words.setdefault(place, []).append(str(head + count_from))
    return " ".join(f"{place}:{','.join(heads)}" for place, heads in words.items())


def _pairs(mask: Mask, count_from: int, *, kept: bool) -> list[list[Any]]:
    several = len(mask.grid.stacks) > 1
    chosen = mask.kept if kept else ~mask.kept
    return [
        [*([head.stack] if several else []), head.layer + count_from, head.head + count_from]
        for head, listed in zip(mask.grid.heads, chosen, strict=True)
        if listed
    ]


def _lines(value: object, indent: int | None = None) -> bytes:
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n").encode()


def _npy(rows: list[list[Any]], kind: type) -> bytes:
    if len({len(row) for row in rows}) > 1 or any(isinstance(v, str) for row in rows for v in row):
        raise HeadlabError(
            "a .npy file has rows of one length, and numbers only; write this mask as .json", code="mask.npy_unfit"
        )
    out = io.BytesIO()
    np.save(out, np.array(rows, kind), allow_pickle=False)
    return out.getvalue()
