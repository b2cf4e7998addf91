"""Reading mask files of every version, trusting nothing in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.files import parse_json, read_json
from headlab.masks.fields import (
    CHOSEN,
    MAX_HEADS,
    STACK,
    TOP,
    check_evaluated,
    check_fields,
    number,
    record,
    unfit,
    whole,
)
from headlab.masks.mask import FORMAT, MASK_VERSION, Mask
from headlab.records import Bools, HeadGrid

AS_WRITTEN = "as_written"  # what a file of version 1 held in another form than version 2 gives it


def load_mask(path: str | Path) -> Mask:
    """Read a mask file. Raises HeadlabError if it is missing, broken or of an unknown version."""
    return mask_from_json(read_json(Path(path)), str(path))


def mask_from_text(text: bytes | str, what: str = "the uploaded file") -> Mask:
    """Read a mask from JSON text. Raises HeadlabError naming `what`."""
    return mask_from_json(parse_json(text, what), what)


def mask_from_json(value: Any, what: str = "mask") -> Mask:
    """Read a mask of version 1 or 2 from parsed JSON. Raises HeadlabError that names the bad part."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise HeadlabError(
            f'{what} is not a headlab mask: it lacks "format": "headlab-mask". Export one from the Prune page, or '
            "make one of another tool's file with headlab mask convert",
            code="mask.not_a_mask",
        )
    found = value.get("version")
    if not number(found) or found not in (1, MASK_VERSION):
        raise _other_version(found, what)
    if found == 1:
        value = _from_version_1(value, what)
    check_fields(value, what)
    grid = _read_grid(value.get("grid"), what)
    kept = _read_kept(value.get("kept"), grid, what)
    off = int((~kept).sum())
    if value.get("removed", off) != off:
        raise HeadlabError(
            f"{what}: removed is {value['removed']}, but kept has {off} heads that are 0; correct one",
            code="mask.removed_mismatch",
        )
    return Mask(grid, kept, value["model"], value.get("chosen", {}), value.get("versions", {}), value.get("created"))


def _other_version(found: Any, what: str) -> HeadlabError:
    known = f"this headlab reads versions 1 to {MASK_VERSION}"
    if number(found) and found > MASK_VERSION:
        return HeadlabError(
            f"{what} has mask version {found}, which a newer headlab wrote; {known}, so update headlab to use it",
            code="mask.version_newer",
        )
    return HeadlabError(
        f"{what} has mask version {str(found)[:40]!r}; {known}, so export the mask again", code="mask.version_unknown"
    )


def _from_version_1(value: dict[str, Any], what: str) -> dict[str, Any]:
    """The same mask as version 2 has it: `chosen` was free form, `evaluated` of one split, the time not read."""
    model, chosen = value.get("model"), value.get("chosen", {})
    if not record(model) or not record(chosen):
        raise HeadlabError(f"{what}: model and chosen must be objects", code="mask.field_not_object")
    if not all(isinstance(model.get(key), str) and model[key] for key in ("name", "fingerprint")):
        raise HeadlabError(
            f"{what}: model must hold the name and the fingerprint of the model it was made for",
            code="mask.model_unnamed",
        )
    loose = {key: model[key] for key in ("revision", "architecture") if key in model}
    model = {key: part for key, part in model.items() if key not in loose or _named_once(key, part)}
    value = {key: part for key, part in value.items() if key in ("format", "grid", "kept", "created")}
    if unfit(value, TOP):  # a time that is none
        del value["created"]
    return value | {"model": model, "chosen": _chosen_of_version_1(dict(chosen)), "versions": {}}


def _named_once(key: str, part: Any) -> bool:
    return key == "revision" and (part is None or (isinstance(part, str) and part != ""))


def _chosen_of_version_1(chosen: dict[str, Any]) -> dict[str, Any]:
    seen = chosen.get("evaluated")
    if record(seen) and isinstance(seen.get("split"), str):
        chosen["evaluated"] = {seen["split"]: {key: part for key, part in seen.items() if key != "split"}}
    odd = unfit(chosen, CHOSEN)
    if "evaluated" in chosen and "evaluated" not in odd:
        try:
            check_evaluated(chosen["evaluated"], "")
        except HeadlabError:
            odd.append("evaluated")
    if not odd:
        return chosen
    kept = {key: seen if key == "evaluated" else chosen[key] for key in odd}
    return {key: part for key, part in chosen.items() if key not in odd} | {AS_WRITTEN: kept}


def _read_kept(value: Any, grid: HeadGrid, what: str) -> Bools:
    if not isinstance(value, dict):
        raise HeadlabError(f"{what}: kept must be an object {{stack: [layer][head]}}", code="mask.kept_malformed")
    for stack in value.values():
        rows = stack if isinstance(stack, list) else []
        for entry in (entry for row in rows if isinstance(row, list) for entry in row):
            if type(entry) not in (bool, int, float) or entry not in (0, 1):
                raise HeadlabError(
                    f"{what}: every head in kept must have one number, 0 or 1", code="mask.kept_not_binary"
                )
    return np.array(grid.unnest(value, f"{what}: kept"), dtype=bool)


def _read_grid(value: Any, what: str) -> HeadGrid:
    good = (
        isinstance(value, dict)
        and value
        and all(
            STACK.fullmatch(name) and isinstance(heads, list) and heads and all(map(_heads, heads))
            for name, heads in value.items()
        )
    )
    if not good:
        raise HeadlabError(
            f'{what}: grid must be an object like {{"encoder": [12, 12, 12]}}, heads per layer',
            code="mask.grid_malformed",
        )
    return HeadGrid.from_json({name: [int(n) for n in heads] for name, heads in value.items()})


def _heads(value: Any) -> bool:
    return whole(value) and value <= MAX_HEADS
