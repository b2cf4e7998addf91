"""The mask: which heads of which model are kept, how they were chosen, and its JSON file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from headlab import __version__
from headlab.errors import HeadlabError
from headlab.files import as_path, is_text, parse_json, read_json, write_json
from headlab.fingerprints import is_same_model
from headlab.records import Bools, Head, HeadGrid, content_key

# Permitted values of a mask file's fields: the same as in schemas/mask-2.schema.json, with messages in words.

MAX_HEADS = 4096
LARGEST, MOST, DEEPEST = (
    1e300,
    2**53,
    100,
)  # limits of numbers, counts and nesting, so that all can be shown and saved
SPLITS = ("train", "dev", "test")
TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)  # as in the schema
STACK = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
LINE = 80
ROUNDED = 0.002  # by which a difference may differ from that of two accuracies that were rounded to three digits
MIXED = "mixed"  # ablation of a combined mask of which some but not all parts were chosen under mean ablation


def text(value: Any) -> bool:
    """Whether a value is text."""
    return isinstance(value, str)


def named(value: Any) -> bool:
    """Whether a value is non-empty text or null."""
    return value is None or (text(value) and value != "")


def texts(value: Any) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(map(text, value))


def number(value: Any, low: float = -LARGEST, high: float = LARGEST) -> bool:
    """Whether a value is a number in these limits; true, false, infinity and NaN are not."""
    return type(value) in (int, float) and low <= value <= high


def whole(value: Any, low: int = 0) -> bool:
    """Whether a value is a whole number from `low` to 2 ** 53; 3.0 is one, as in JSON Schema."""
    return number(value, low, MOST) and (type(value) is int or value.is_integer())


def time(value: Any) -> bool:
    """Whether a value is a date and time with its zone in RFC 3339 format."""
    if not text(value) or TIME.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:  # month 99
        return False
    return True


def record(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is an object."""
    return isinstance(value, Mapping)


def versions(value: Any) -> bool:
    """Whether a value is an object of texts."""
    return record(value) and all(map(text, value.values()))


def counts(value: Any) -> bool:
    """Whether a value is an object of whole numbers."""
    return record(value) and all(map(whole, value.values()))


def shown(value: str, longest: int = LINE) -> str:
    """Text from a file on one line: without control characters, which a terminal would obey, and shortened to fit."""
    line = "".join(c if c.isprintable() else "?" for c in value[: longest + 1])
    return line if len(line) <= longest else line[: longest - 1] + "…"


class Field(NamedTuple):
    """Permitted values of a field: as a test, and in words."""

    fits: Callable[[Any], bool]
    words: str


TEXT, NAMED = Field(text, "text"), Field(named, "text, or null where it is of no one model")
NUMBER, SHARE = (
    Field(number, "a number"),
    Field(partial(number, low=0, high=1), "a number from 0 to 1"),
)
COUNT = Field(whole, "a whole number of 0 or more")
COUNTS = Field(counts, "an object of whole numbers of 0 or more")
SOME = Field(partial(whole, low=1), "a whole number of 1 or more")
ABLATION = Field(("zero", "mean").__contains__, '"zero" or "mean"')
ABLATIONS = Field(("zero", "mean", MIXED).__contains__, '"zero", "mean" or "mixed"')
OBJECT = Field(record, "an object")
MODEL = {"name": NAMED, "fingerprint": NAMED, "revision": NAMED}
ARCHITECTURE = {"class": TEXT, "model_type": TEXT}
CHOSEN = {
    "rule": TEXT, "k": COUNT, "threshold": NUMBER, "weight": NUMBER, "method": TEXT, "estimand": TEXT, "task": TEXT,
    "languages": Field(texts, "a list of texts"), "ablation": ABLATIONS, "score": OBJECT, "evaluated": OBJECT,
}  # fmt: skip
EVALUATION = {
    "task": TEXT,
    "languages": OBJECT,
    "size": SOME,
    "ablation": ABLATION,
    "label_map": OBJECT,
}
FIGURE = {
    "accuracy": SHARE, "n": SOME, "accuracy_low": NUMBER, "accuracy_high": NUMBER, "baseline": SHARE,
    "difference": NUMBER, "low": NUMBER, "high": NUMBER, "p": SHARE, "flipped_right": COUNT, "flipped_wrong": COUNT,
    "note": TEXT, "examples": COUNT, "examples_cut": COUNT, "token_limit": COUNT, "words_left_out": COUNTS,
}  # fmt: skip
TOP = {
    "model": OBJECT, "removed": COUNT, "chosen": OBJECT,
    "versions": Field(versions, "an object of texts"),
    "created": Field(time, "a time like 2026-11-21T09:30:00+00:00"),
}  # fmt: skip


def check_fields(value: Mapping[str, Any], what: str) -> None:
    """Raise HeadlabError, naming the bad part, unless everything but grid and heads conforms to format version 2."""
    for part in ("model", "chosen", "versions"):
        for problem in _unwritable(value.get(part), part, what):
            raise problem
    _check(value, TOP, ("model",), what, "")
    model = value["model"]
    _check(model, MODEL, ("name", "fingerprint"), what, "model.")
    if model.get("architecture") is not None:
        _object(model["architecture"], what, "model.architecture")
        _check(
            model["architecture"], ARCHITECTURE, tuple(ARCHITECTURE), what, "model.architecture."
        )
    chosen = value.get("chosen", {})
    _check(chosen, CHOSEN, (), what, "chosen.")
    check_evaluated(chosen.get("evaluated", {}), what)


def check_evaluated(value: Any, what: str) -> None:
    """Raise HeadlabError unless a value is {split: {task, languages: {language: {accuracy, n, ...}}}}."""
    for split, part in value.items():
        place = f"chosen.evaluated.{split}"
        if split not in SPLITS:
            raise HeadlabError(
                f"{what}: chosen.evaluated may hold {', '.join(SPLITS)}; it holds {split!r}",
                code="mask.split_unknown",
            )
        _object(part, what, place)
        _check(part, EVALUATION, ("task", "languages"), what, f"{place}.")
        for language, figure in part["languages"].items():
            of = f"{place}.languages.{shown(language)}"
            _object(figure, what, of)
            _check(figure, FIGURE, ("accuracy", "n"), what, f"{of}.")
            if "examples_cut" in figure:
                _check(figure, FIGURE, ("examples", "token_limit"), what, f"{of}.")
            if contradiction := contradicts(figure):
                raise HeadlabError(
                    f"{what}: {of} contradicts itself: {contradiction}; correct or remove it",
                    code="mask.figure_contradictory",
                )


def contradicts(figure: Mapping[str, Any]) -> str:
    """How the numbers of an evaluation contradict each other, in words; empty if they do not."""
    for low, high in (("low", "high"), ("accuracy_low", "accuracy_high")):
        if low in figure and high in figure and figure[low] > figure[high]:
            return f"{low} {figure[low]:g} is above {high} {figure[high]:g}"
    if "difference" in figure and "baseline" in figure:
        given, found = figure["difference"], figure["accuracy"] - figure["baseline"]
        if abs(given - found) > ROUNDED:
            return f"difference is {given:g}, but accuracy - baseline is {found:g}"
    return ""


def unfit(value: Mapping[str, Any], fields: Mapping[str, Field]) -> list[str]:
    """The fields of an object that have invalid values."""
    return [name for name, field in fields.items() if name in value and not field.fits(value[name])]


def _unwritable(value: Any, place: str, what: str) -> Iterator[HeadlabError]:
    """Errors, with their place, for values that JSON cannot represent, also in free-form fields."""
    waiting: list[tuple[Any, str, int]] = [(value, place, 0)]
    while waiting:
        value, place, deep = waiting.pop()
        if isinstance(value, str) and not is_text(value):
            yield HeadlabError(
                f"{what}: {shown(place)} holds half of a surrogate pair, which is not valid text; write the "
                "character itself",
                code="mask.text_surrogate",
            )
        elif isinstance(value, float) and not math.isfinite(value):
            yield HeadlabError(
                f"{what}: {shown(place)} holds infinity or NaN, which JSON does not allow; leave it out",
                code="mask.number_not_finite",
            )
        elif isinstance(value, Mapping | list | tuple):
            if deep == DEEPEST:
                yield HeadlabError(
                    f"{what}: {shown(place)} is nested more than {DEEPEST} levels deep; simplify it",
                    code="mask.nested_too_deep",
                )
                continue
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            for name, part in pairs:
                waiting += [(name, place, deep), (part, f"{place}.{name}", deep + 1)]


def _object(value: Any, what: str, place: str) -> None:
    if not record(value):
        raise HeadlabError(f"{what}: {place} must be an object", code="mask.field_not_object")


def _check(
    value: Mapping[str, Any],
    fields: Mapping[str, Field],
    required: tuple[str, ...],
    what: str,
    place: str,
) -> None:
    for name in required:
        if name not in value:
            raise HeadlabError(
                f"{what}: {place}{name} is missing; it must be {fields[name].words}",
                code="mask.field_missing",
            )
    for name in unfit(value, fields):
        raise HeadlabError(
            f"{what}: {place}{name} must be {fields[name].words}", code="mask.field_invalid"
        )


# The mask: which heads of which model are kept, and how they were chosen.

MASK_VERSION = 2
FORMAT = "headlab-mask"


@dataclass(frozen=True)
class Mask:
    """Heads kept (True) and removed (False) of one model.

    kept: bool [head] in the grid's order.  model: name, revision, fingerprint and architecture of the model it was
    made for.  chosen: how (method, rule and its options, task, languages), and under `evaluated` its accuracies.
    versions: of the software that made it.  created: time, UTC.  Both are None for a new mask: the file then records
    the software that writes it, and the time of writing.
    """

    grid: HeadGrid
    kept: Bools
    model: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] | None = None
    created: str | None = None

    def __post_init__(self) -> None:
        if self.kept.shape != (self.grid.size,):
            raise HeadlabError(
                f"mask has shape {self.kept.shape}; {self.grid} needs ({self.grid.size},)",
                code="mask.shape_mismatch",
            )

    @property
    def removed(self) -> tuple[Head, ...]:
        """Heads that are switched off, in grid order."""
        return tuple(
            head for head, kept in zip(self.grid.heads, self.kept, strict=True) if not kept
        )

    @property
    def ablation(self) -> str | None:
        """The ablation under which its heads were chosen; None if not recorded.

        "mixed" for a combined mask of which some, but not all, parts were chosen under mean ablation.
        """
        return ablation_of(self.chosen)

    @property
    def of_means(self) -> bool:
        """Whether it, or a mask it was combined from, was chosen under mean ablation, which removed heads do not have."""
        return not {"mean", MIXED}.isdisjoint(_ablations(self.chosen))

    @property
    def digest(self) -> str:
        """sha256 of what the mask does (grid and kept heads), however it was chosen."""
        return content_key([self.grid.to_json(), self.kept.tolist()])

    def to_json(self) -> dict[str, Any]:
        """The mask file's content; see docs/mask-format.md.

        Raises HeadlabError where stack names, `model`, `chosen` or `versions` do not conform to the format.
        """
        for stack in self.grid.stacks:
            if not STACK.fullmatch(stack.name):
                raise HeadlabError(
                    f"the mask: {shown(stack.name)!r} is not a stack name, like encoder or my_stack",
                    code="stack.name_invalid",
                )
        value = {
            "format": FORMAT,
            "version": MASK_VERSION,
            "model": {"name": None, "fingerprint": None, **self.model},
            "grid": self.grid.to_json(),
            "kept": self.rows(),
            "removed": len(self.removed),
            "chosen": dict(self.chosen),
            "versions": dict(installed() if self.versions is None else self.versions),
            "created": self.created or datetime.now(UTC).isoformat(timespec="seconds"),
        }
        check_fields(value, "the mask")
        return value

    def rows(self) -> dict[str, list[list[int]]]:
        """{stack: [layer][head]}, 1 = kept."""
        return {
            stack: [[int(kept) for kept in layer] for layer in layers]
            for stack, layers in self.grid.layers_by_stack(self.kept).items()
        }

    def save(self, path: str | Path) -> None:
        """Write the mask file atomically. Raises HeadlabError if it cannot be written."""
        write_json(Path(path), self.to_json())

    def check(self, grid: HeadGrid, fingerprint: str | None) -> None:
        """Raise HeadlabError, with the reason, unless the mask belongs to this model.

        A mask that names no model (fingerprint None) only needs to have the same grid.
        """
        if self.grid != grid:
            raise HeadlabError(
                f"the mask is for a model with {self.grid}; this model has {grid}. Load the model it was made for",
                code="mask.other_grid",
            )
        made_for = self.model.get("fingerprint")
        if fingerprint and made_for and not is_same_model(made_for, fingerprint):
            name, theirs = (
                shown(str(self.model.get("name") or "another model")),
                shown(str(made_for)[:12]),
            )
            raise HeadlabError(
                f"the mask was made for {name} (fingerprint {theirs}); this model's is {fingerprint[:12]}. "
                "The shapes agree, but heads of one model say nothing about those of another",
                code="mask.other_model",
            )


def ablation_of(chosen: Mapping[str, Any]) -> str | None:
    """The ablation in `chosen`: its own field, that of its scores' spec, or that of the masks it was combined from."""
    score, parts = chosen.get("score"), chosen.get("combined")
    found = chosen.get("ablation") or (
        score.get("ablation") if isinstance(score, Mapping) else None
    )
    if found is None and isinstance(parts, list):
        return common_ablation({ablation_of(part) for part in parts if isinstance(part, Mapping)})
    return str(found) if ABLATIONS.fits(found) else None


def _ablations(chosen: Mapping[str, Any]) -> Iterator[str | None]:
    """The ablation a mask was chosen under, and those of the masks it was combined from."""
    yield ablation_of(chosen)
    parts = chosen.get("combined")
    for part in parts if isinstance(parts, list | tuple) else ():
        if isinstance(part, Mapping):
            yield from _ablations(part)


def common_ablation(found: Set[str | None]) -> str | None:
    """The common ablation of several masks; MIXED if some but not all have mean ablation, None if unknown."""
    if len(found) == 1:
        return next(iter(found))
    return MIXED if found & {"mean", MIXED} else None


def full_mask(grid: HeadGrid) -> Mask:
    """The mask that keeps every head."""
    return Mask(grid, np.ones(grid.size, bool))


@cache
def installed() -> dict[str, str]:
    """Installed versions of headlab, torch and transformers, as a new mask records them; imports neither package."""
    found = {"headlab": __version__}
    for name in ("torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # pages that use a remote worker need neither
            continue
    return found


def architecture_of(module: Any) -> dict[str, str]:
    """{"class", "model_type"} of a transformers model, as a mask records its architecture."""
    return {"class": type(module).__name__, "model_type": str(module.config.model_type)}


# Reading mask files of every version; their content is not trusted.

AS_WRITTEN = "as_written"  # fields of a version 1 file that do not conform to version 2


def load_mask(path: str | Path) -> Mask:
    """Read a mask file. Raises HeadlabError if it is missing, broken or of an unknown version."""
    return mask_from_json(read_json(as_path("path", path)), str(path))


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
            f"{what}: removed is {value['removed']}, but kept has {off} zeros; correct one of them",
            code="mask.removed_mismatch",
        )
    return Mask(
        grid,
        kept,
        value["model"],
        value.get("chosen", {}),
        value.get("versions", {}),
        value.get("created"),
    )


def _other_version(found: Any, what: str) -> HeadlabError:
    known = f"this headlab reads versions 1 to {MASK_VERSION}"
    if number(found) and found > MASK_VERSION:
        return HeadlabError(
            f"{what} has mask version {found}, which a newer headlab wrote; {known}, so update headlab to use it",
            code="mask.version_newer",
        )
    return HeadlabError(
        f"{what} has mask version {str(found)[:40]!r}; {known}, so export the mask again",
        code="mask.version_unknown",
    )


def _from_version_1(value: dict[str, Any], what: str) -> dict[str, Any]:
    """The mask as version 2: in version 1 `chosen` was free-form, `evaluated` had one split, times were unchecked."""
    model, chosen = value.get("model"), value.get("chosen", {})
    if not record(model) or not record(chosen):
        raise HeadlabError(
            f"{what}: model and chosen must be objects", code="mask.field_not_object"
        )
    if not all(isinstance(model.get(key), str) and model[key] for key in ("name", "fingerprint")):
        raise HeadlabError(
            f"{what}: model must hold the name and the fingerprint of the model it was made for",
            code="mask.model_unnamed",
        )
    loose = {key: model[key] for key in ("revision", "architecture") if key in model}
    model = {
        key: part
        for key, part in model.items()
        if key not in loose or (key == "revision" and NAMED.fits(part))
    }
    value = {
        key: part for key, part in value.items() if key in ("format", "grid", "kept", "created")
    }
    if unfit(value, TOP):  # an invalid time
        del value["created"]
    return value | {"model": model, "chosen": _chosen_of_version_1(dict(chosen)), "versions": {}}


def _chosen_of_version_1(chosen: dict[str, Any]) -> dict[str, Any]:
    seen = chosen.get("evaluated")
    if record(seen) and isinstance(seen.get("split"), str):
        chosen["evaluated"] = {
            seen["split"]: {key: part for key, part in seen.items() if key != "split"}
        }
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
        raise HeadlabError(
            f"{what}: kept must be an object {{stack: [layer][head]}}", code="mask.kept_malformed"
        )
    for stack in value.values():
        rows = stack if isinstance(stack, list) else []
        for entry in (entry for row in rows if isinstance(row, list) for entry in row):
            if type(entry) not in (bool, int, float) or entry not in (0, 1):
                raise HeadlabError(
                    f"{what}: every head in kept must have one number, 0 or 1",
                    code="mask.kept_not_binary",
                )
    return np.array(grid.unnest(value, f"{what}: kept"), dtype=bool)


def _read_grid(value: Any, what: str) -> HeadGrid:
    good = (
        isinstance(value, dict)
        and value
        and all(
            STACK.fullmatch(name)
            and isinstance(heads, list)
            and heads
            and all(whole(n) and n <= MAX_HEADS for n in heads)
            for name, heads in value.items()
        )
    )
    if not good:
        raise HeadlabError(
            f'{what}: grid must be an object like {{"encoder": [12, 12, 12]}}, heads per layer',
            code="mask.grid_malformed",
        )
    return HeadGrid.from_json({name: [int(n) for n in heads] for name, heads in value.items()})
