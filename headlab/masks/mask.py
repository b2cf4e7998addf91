"""The mask: which heads of which model are kept, how they were chosen, and its JSON file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, TypeGuard, cast

import numpy as np

from headlab import __version__
from headlab.core import (
    Bools,
    Head,
    HeadGrid,
    HeadlabError,
    JsonLike,
    JsonRecord,
    as_path,
    content_key,
    is_same_model,
    is_text,
    parse_json,
    read_json,
    write_json,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

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


def text(value: object) -> TypeGuard[str]:
    """Whether a value is text."""
    return isinstance(value, str)


def named(value: object) -> bool:
    """Whether a value is non-empty text or null."""
    return value is None or (text(value) and value != "")


def texts(value: object) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(map(text, value))


def number(value: object, low: float = -LARGEST, high: float = LARGEST) -> TypeGuard[int | float]:
    """Whether a value is a number in these limits; true, false, infinity and NaN are not."""
    if not isinstance(value, int | float) or type(value) not in (int, float):
        return False
    return low <= value <= high


def whole(value: object, low: int = 0) -> TypeGuard[int | float]:
    """Whether a value is a whole number from `low` to 2 ** 53; 3.0 is one, as in JSON Schema."""
    return number(value, low, MOST) and float(value).is_integer()


def time(value: object) -> bool:
    """Whether a value is a date and time with its zone in RFC 3339 format."""
    if not text(value) or TIME.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:  # month 99
        return False
    return True


def record(value: object) -> TypeGuard[JsonRecord]:
    """Whether a value is an object."""
    return isinstance(value, Mapping)


def versions(value: object) -> bool:
    """Whether a value is an object of texts."""
    return record(value) and all(map(text, value.values()))


def counts(value: object) -> bool:
    """Whether a value is an object of whole numbers."""
    return record(value) and all(map(whole, value.values()))


def shown(value: str, longest: int = LINE) -> str:
    """Text from a file on one line: without control characters, which a terminal would obey, and shortened to fit."""
    line = "".join(c if c.isprintable() else "?" for c in value[: longest + 1])
    return line if len(line) <= longest else line[: longest - 1] + "…"


class Field(NamedTuple):
    """Permitted values of a field: as a test, and in words."""

    fits: Callable[[object], bool]
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


class RecordedAccuracy(TypedDict, total=False):
    """One language's figures on one split, as docs/mask-format.md lists them; shares, not percentages.

    Attributes:
        accuracy: of the mask; always there, like `n`.
        n: number of answers that the accuracy is over.
        accuracy_low: lower end of the 95 % interval of the accuracy.
        accuracy_high: its upper end.
        baseline: accuracy of the untouched model on the same examples.
        difference: accuracy - baseline.
        low: lower end of the paired 95 % interval of the difference.
        high: its upper end.
        p: of the difference.
        flipped_right: answers that are right with the mask only.
        flipped_wrong: answers that are wrong with the mask only.
        note: what to know besides the figures.
        examples: number of examples.
        examples_cut: how many of them were cut to `token_limit`.
        token_limit: maximum number of tokens of an example.
        words_left_out: number of labelled words without an answer, by reason.
    """

    accuracy: float
    n: int
    accuracy_low: float
    accuracy_high: float
    baseline: float
    difference: float
    low: float
    high: float
    p: float
    flipped_right: int
    flipped_wrong: int
    note: str
    examples: int
    examples_cut: int
    token_limit: int
    words_left_out: Mapping[str, int]


INTERVALS: tuple[tuple[Literal["low", "accuracy_low"], Literal["high", "accuracy_high"]], ...] = (
    ("low", "high"),
    ("accuracy_low", "accuracy_high"),
)  # lower and upper ends


class RecordedSplit(TypedDict, total=False):
    """The accuracies of a mask on one split.

    Attributes:
        task: name of the task; always there, like `languages`.
        languages: the figures of each language.
        size: number of examples that were asked for of each language.
        ablation: what a removed head outputs, "zero" or "mean".
        label_map: the model's class of each label.
    """

    task: str
    languages: Mapping[str, RecordedAccuracy]
    size: int
    ablation: str
    label_map: Mapping[str, str]


class Choice(TypedDict, total=False):
    """The fields of `chosen` that headlab writes; docs/mask-format.md says what is checked of them.

    Attributes:
        rule: by which the heads were removed.
        k: number of heads that the rule removed.
        threshold: of rule threshold.
        weight: λ of learned gates.
        step: of learned gates, that the mask is of.
        correction: of the p-values of rule harmful.
        method: of the scores.
        estimand: of the scores.
        task: name of the task.
        languages: that it was chosen for.
        ablation: what a removed head outputs.
        order: of a front, that its first heads were removed of.
        score: spec of the scores.
        gates: spec of the learned gates.
        front: spec of the front.
        combined: how each part of a combined mask was chosen.
        note: what to know of a combined mask.
    """

    rule: str
    k: int
    threshold: float
    weight: float
    step: int
    correction: str
    method: str
    estimand: str
    task: str
    languages: list[str]
    ablation: str
    order: str
    score: JsonRecord
    gates: JsonRecord
    front: JsonRecord
    combined: list[JsonRecord]
    note: str


def check_fields(value: JsonRecord, what: str) -> None:
    """Raise HeadlabError, naming the bad part, unless everything but grid and heads conforms to format version 2."""
    for part in ("model", "chosen", "versions"):
        for problem in _unwritable(value.get(part), part, what):
            raise problem
    _check(value, TOP, ("model",), what, "")
    model = _object(value["model"], what, "model")
    _check(model, MODEL, ("name", "fingerprint"), what, "model.")
    if model.get("architecture") is not None:
        architecture = _object(model["architecture"], what, "model.architecture")
        _check(architecture, ARCHITECTURE, tuple(ARCHITECTURE), what, "model.architecture.")
    chosen = _object(value.get("chosen", {}), what, "chosen")
    _check(chosen, CHOSEN, (), what, "chosen.")
    check_evaluated(_object(chosen.get("evaluated", {}), what, "chosen.evaluated"), what)


def check_evaluated(evaluated: JsonRecord, what: str) -> None:
    """Raise HeadlabError unless a value is {split: {task, languages: {language: {accuracy, n, ...}}}}."""
    for split, recorded in evaluated.items():
        place = f"chosen.evaluated.{split}"
        if split not in SPLITS:
            raise HeadlabError(
                f"{what}: chosen.evaluated may hold {', '.join(SPLITS)}; it holds {split!r}",
                code="mask.split_unknown",
            )
        part = _object(recorded, what, place)
        _check(part, EVALUATION, ("task", "languages"), what, f"{place}.")
        languages = _object(part["languages"], what, f"{place}.languages")
        for language, figures in languages.items():
            _check_accuracy(figures, what, f"{place}.languages.{shown(language)}")


def _check_accuracy(figures: JsonLike, what: str, place: str) -> None:
    """Raise HeadlabError unless the figures of one language are valid and agree with each other."""
    figure = _object(figures, what, place)
    _check(figure, FIGURE, ("accuracy", "n"), what, f"{place}.")
    if "examples_cut" in figure:
        _check(figure, FIGURE, ("examples", "token_limit"), what, f"{place}.")
    if contradiction := contradicts(cast("RecordedAccuracy", figure)):
        raise HeadlabError(
            f"{what}: {place} contradicts itself: {contradiction}; correct or remove it",
            code="mask.figure_contradictory",
        )


def contradicts(figure: RecordedAccuracy) -> str:
    """How the numbers of an evaluation contradict each other, in words; empty if they do not."""
    for low, high in INTERVALS:
        if low in figure and high in figure and figure[low] > figure[high]:
            return f"{low} {figure[low]:g} is above {high} {figure[high]:g}"
    if "difference" in figure and "baseline" in figure:
        recorded, computed = figure["difference"], figure["accuracy"] - figure["baseline"]
        if abs(recorded - computed) > ROUNDED:
            return f"difference is {recorded:g}, but accuracy - baseline is {computed:g}"
    return ""


def unfit(value: JsonRecord, fields: Mapping[str, Field]) -> list[str]:
    """The fields of an object that have invalid values."""
    return [name for name, field in fields.items() if name in value and not field.fits(value[name])]


def _unwritable(value: JsonLike, place: str, what: str) -> Iterator[HeadlabError]:
    """Errors, with their place, for values that JSON cannot represent, also in free-form fields."""
    waiting: list[tuple[JsonLike, str, int]] = [(value, place, 0)]
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
            parts: Iterable[tuple[str | int, JsonLike]] = (
                value.items() if isinstance(value, Mapping) else enumerate(value)
            )
            for name, part in parts:
                waiting += [(name, place, deep), (part, f"{place}.{name}", deep + 1)]


def _object(value: object, what: str, place: str) -> JsonRecord:
    """A value that must be an object. Raises HeadlabError, naming its place, for any other."""
    if not record(value):
        raise HeadlabError(f"{what}: {place} must be an object", code="mask.field_not_object")
    return value


def _check(
    value: JsonRecord,
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

    Both are None for a new mask: the file then records the software that writes it, and the time of
    writing.

    Attributes:
        kept: bool [head] in the grid's order.
        model: name, revision, fingerprint and architecture of the model it was made for.
        chosen: how (method, rule and its options, task, languages), and under `evaluated` its
            accuracies.
        versions: of the software that made it.
        created: time, UTC.
    """

    grid: HeadGrid
    kept: Bools
    model: JsonRecord = field(default_factory=dict)
    chosen: JsonRecord = field(default_factory=dict)
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

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the model it was made for; None if it names none."""
        fingerprint = self.model.get("fingerprint")
        return str(fingerprint) if fingerprint else None

    @property
    def name(self) -> str:
        """Name of the model it was made for; empty if it names none."""
        return str(self.model.get("name") or "")

    @property
    def architecture(self) -> Mapping[str, str] | None:
        """Class and model type of the model it was made for; None if they are not recorded."""
        return cast("Mapping[str, str] | None", self.model.get("architecture"))

    @property
    def choice(self) -> Choice:
        """How it was chosen, by the fields that headlab writes; `chosen` may hold others."""
        return cast("Choice", self.chosen)

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages it was chosen for; none where they are not recorded."""
        languages = self.chosen.get("languages")
        return tuple(map(str, languages)) if isinstance(languages, list | tuple) else ()

    @property
    def evaluated(self) -> Mapping[str, RecordedSplit]:
        """Its recorded accuracies by split; none for a mask without any."""
        return cast("Mapping[str, RecordedSplit]", self.chosen.get("evaluated", {}))

    def to_json(self) -> dict[str, JsonLike]:
        """The mask file's content; see docs/mask-format.md.

        Raises HeadlabError where stack names, `model`, `chosen` or `versions` do not conform to the format.
        """
        for stack in self.grid.stacks:
            if not STACK.fullmatch(stack.name):
                raise HeadlabError(
                    f"the mask: {shown(stack.name)!r} is not a stack name, like encoder or my_stack",
                    code="stack.name_invalid",
                )
        value: dict[str, JsonLike] = {
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
        made_for = self.fingerprint
        if fingerprint and made_for and not is_same_model(made_for, fingerprint):
            name, theirs = (
                shown(str(self.model.get("name") or "another model")),
                shown(made_for[:12]),
            )
            raise HeadlabError(
                f"the mask was made for {name} (fingerprint {theirs}); this model's is {fingerprint[:12]}. "
                "The shapes agree, but heads of one model say nothing about those of another",
                code="mask.other_model",
            )


def ablation_of(chosen: JsonRecord) -> str | None:
    """The ablation in `chosen`: its own field, that of its scores' spec, or that of the masks it was combined from."""
    score, parts = chosen.get("score"), chosen.get("combined")
    found = chosen.get("ablation") or (
        score.get("ablation") if isinstance(score, Mapping) else None
    )
    if found is None and isinstance(parts, list):
        return common_ablation({ablation_of(part) for part in parts if isinstance(part, Mapping)})
    return str(found) if ABLATIONS.fits(found) else None


def _ablations(chosen: JsonRecord) -> Iterator[str | None]:
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


def architecture_of(module: PreTrainedModel) -> dict[str, str]:
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


def mask_from_json(value: object, what: str = "mask") -> Mask:
    """Read a mask of version 1 or 2 from parsed JSON. Raises HeadlabError that names the bad part."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise HeadlabError(
            f'{what} is not a headlab mask: it lacks "format": "headlab-mask". Export one from the Prune page, or '
            "make one of another tool's file with headlab mask convert",
            code="mask.not_a_mask",
        )
    version_number = value.get("version")
    if not number(version_number) or version_number not in (1, MASK_VERSION):
        raise _other_version(version_number, what)
    return _mask_of(_from_version_1(value, what) if version_number == 1 else value, what)


def _mask_of(value: JsonRecord, what: str) -> Mask:
    """The mask in a file's content of version 2. Raises HeadlabError that names the bad part."""
    check_fields(value, what)
    grid = _read_grid(value.get("grid"), what)
    kept = _read_kept(value.get("kept"), grid, what)
    off = int((~kept).sum())
    if value.get("removed", off) != off:
        raise HeadlabError(
            f"{what}: removed is {value['removed']}, but kept has {off} zeros; correct one of them",
            code="mask.removed_mismatch",
        )
    created = value.get("created")
    return Mask(
        grid,
        kept,
        _object(value["model"], what, "model"),
        _object(value.get("chosen", {}), what, "chosen"),
        cast("Mapping[str, str]", value.get("versions", {})),  # as check_fields found
        None if created is None else str(created),
    )


def _other_version(found: object, what: str) -> HeadlabError:
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


def _from_version_1(value: JsonRecord, what: str) -> dict[str, JsonLike]:
    """The mask as version 2: in version 1 `chosen` was free-form, `evaluated` had one split, times were unchecked."""
    model = value.get("model")
    chosen = value.get("chosen", {})
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
    content = {
        key: part for key, part in value.items() if key in ("format", "grid", "kept", "created")
    }
    if unfit(content, TOP):  # an invalid time
        del content["created"]
    return content | {"model": model, "chosen": _chosen_of_version_1(dict(chosen)), "versions": {}}


def _chosen_of_version_1(chosen: dict[str, JsonLike]) -> dict[str, JsonLike]:
    seen = chosen.get("evaluated")
    split = seen.get("split") if record(seen) else None
    if record(seen) and isinstance(split, str):
        chosen["evaluated"] = {split: {key: part for key, part in seen.items() if key != "split"}}
    odd = unfit(chosen, CHOSEN)
    if "evaluated" in chosen and "evaluated" not in odd:
        try:
            check_evaluated(_object(chosen["evaluated"], "", "chosen.evaluated"), "")
        except HeadlabError:
            odd.append("evaluated")
    if not odd:
        return chosen
    kept = {key: seen if key == "evaluated" else chosen[key] for key in odd}
    return {key: part for key, part in chosen.items() if key not in odd} | {AS_WRITTEN: kept}


def _read_kept(value: object, grid: HeadGrid, what: str) -> Bools:
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


def _read_grid(value: object, what: str) -> HeadGrid:
    if not isinstance(value, dict) or not value or not all(map(_is_stack, value.items())):
        raise HeadlabError(
            f'{what}: grid must be an object like {{"encoder": [12, 12, 12]}}, heads per layer',
            code="mask.grid_malformed",
        )
    return HeadGrid.from_json({name: [int(n) for n in heads] for name, heads in value.items()})


def _is_stack(item: tuple[str, object]) -> bool:
    """Whether an item of a grid's object is the name of a stack and the heads of its layers."""
    name, heads = item
    if not STACK.fullmatch(name) or not isinstance(heads, list) or not heads:
        return False
    return all(whole(n) and n <= MAX_HEADS for n in heads)
