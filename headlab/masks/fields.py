"""What the fields of a mask file may hold: the same that schemas/mask-2.schema.json says, in sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

from headlab.errors import HeadlabError
from headlab.files import is_text

MAX_HEADS = 4096
LARGEST, MOST, DEEPEST = 1e300, 2**53, 100  # of a number, a count, and lists in lists: all can be shown and written
SPLITS = ("train", "dev", "test")
TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)  # as the schema has it
STACK = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
LINE = 80
MIXED = "mixed"  # the ablation of a mask made of others, of which some but not all were chosen under mean


def text(value: Any) -> bool:
    """Whether a value is text."""
    return isinstance(value, str)


def named(value: Any) -> bool:
    """Whether a value is text that is not empty, or null."""
    return value is None or (text(value) and value != "")


def texts(value: Any) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(map(text, value))


def number(value: Any) -> bool:
    """Whether a value is a number from -1e300 to 1e300; true, false, infinity and NaN are none."""
    return type(value) in (int, float) and abs(value) <= LARGEST


def share(value: Any) -> bool:
    """Whether a value is a number from 0 to 1."""
    return number(value) and 0 <= value <= 1


def whole(value: Any) -> bool:
    """Whether a value is a whole number from 0 to 2 to the 53, 3.0 included, as JSON Schema has it."""
    return number(value) and 0 <= value <= MOST and (type(value) is int or value.is_integer())


def several(value: Any) -> bool:
    """Whether a value is a whole number of 1 or more."""
    return whole(value) and value >= 1


def time(value: Any) -> bool:
    """Whether a value is a date and time with its zone, as RFC 3339 writes it."""
    return text(value) and TIME.fullmatch(value) is not None


def ablation(value: Any) -> bool:
    """Whether a value is a way to remove a head."""
    return text(value) and value in ("zero", "mean")


def ablations(value: Any) -> bool:
    """Whether a value is a way to remove a head, or says that masks of several ways were combined."""
    return ablation(value) or (text(value) and value == MIXED)


def record(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is an object."""
    return isinstance(value, Mapping)


def versions(value: Any) -> bool:
    """Whether a value is an object of texts."""
    return record(value) and all(map(text, value.values()))


def shown(value: str, longest: int = LINE) -> str:
    """Text out of a file on one line: no control characters, which a terminal would obey, and no more than fits."""
    line = "".join(c if c.isprintable() else "?" for c in value[: longest + 1])
    return line if len(line) <= longest else line[: longest - 1] + "…"


class Field(NamedTuple):
    """What a field may hold: as a test, and in words."""

    fits: Callable[[Any], bool]
    words: str


TEXT, SHARE, NUMBER = Field(text, "text"), Field(share, "a number from 0 to 1"), Field(number, "a number")
COUNT, SOME = Field(whole, "a whole number of 0 or more"), Field(several, "a whole number of 1 or more")
NAMED, ABLATION = Field(named, "text, or null where it is of no one model"), Field(ablation, '"zero" or "mean"')
ABLATIONS = Field(ablations, '"zero", "mean" or "mixed"')
OBJECT = Field(record, "an object")
MODEL = {"name": NAMED, "fingerprint": NAMED, "revision": NAMED}
ARCHITECTURE = {"class": TEXT, "model_type": TEXT}
CHOSEN = {
    "rule": TEXT, "k": COUNT, "threshold": NUMBER, "weight": NUMBER, "method": TEXT, "estimand": TEXT, "task": TEXT,
    "languages": Field(texts, "a list of texts"), "ablation": ABLATIONS, "score": OBJECT, "evaluated": OBJECT,
}  # fmt: skip
EVALUATION = {"task": TEXT, "languages": OBJECT, "size": SOME, "ablation": ABLATION}
FIGURE = {
    "accuracy": SHARE, "n": SOME, "accuracy_low": NUMBER, "accuracy_high": NUMBER, "baseline": SHARE,
    "difference": NUMBER, "low": NUMBER, "high": NUMBER, "p": NUMBER, "flipped_right": COUNT, "flipped_wrong": COUNT,
}  # fmt: skip
TOP = {
    "model": OBJECT, "removed": COUNT, "chosen": OBJECT,
    "versions": Field(versions, "an object of texts"), "created": Field(time, "a time like 2026-11-21T09:30:00+00:00"),
}  # fmt: skip


def check_fields(value: Mapping[str, Any], what: str) -> None:
    """Raise HeadlabError, naming the bad part, unless all but grid and heads is as version 2 of the format has it."""
    for part in ("model", "chosen", "versions"):
        for problem in _unwritable(value.get(part), part, what):
            raise problem
    _check(value, TOP, ("model",), what, "")
    model = value["model"]
    _check(model, MODEL, ("name", "fingerprint"), what, "model.")
    if model.get("architecture") is not None:
        _object(model["architecture"], what, "model.architecture")
        _check(model["architecture"], ARCHITECTURE, tuple(ARCHITECTURE), what, "model.architecture.")
    chosen = value.get("chosen", {})
    _check(chosen, CHOSEN, (), what, "chosen.")
    check_evaluated(chosen.get("evaluated", {}), what)


def check_evaluated(value: Any, what: str) -> None:
    """Raise HeadlabError unless a value is {split: {task, languages: {language: {accuracy, n, ...}}}}."""
    for split, part in value.items():
        place = f"chosen.evaluated.{split}"
        if split not in SPLITS:
            raise HeadlabError(
                f"{what}: chosen.evaluated may hold {', '.join(SPLITS)}; it holds {split!r}", code="mask.split_unknown"
            )
        _object(part, what, place)
        _check(part, EVALUATION, ("task", "languages"), what, f"{place}.")
        for language, figure in part["languages"].items():
            of = f"{place}.languages.{shown(language)}"
            _object(figure, what, of)
            _check(figure, FIGURE, ("accuracy", "n"), what, f"{of}.")


def unfit(value: Mapping[str, Any], fields: Mapping[str, Field]) -> list[str]:
    """The fields of an object that hold what they may not."""
    return [name for name, field in fields.items() if name in value and not field.fits(value[name])]


def _unwritable(value: Any, place: str, what: str) -> Iterator[HeadlabError]:
    """What no file could hold, with its place, free fields included."""
    waiting: list[tuple[Any, str, int]] = [(value, place, 0)]
    while waiting:
        value, place, deep = waiting.pop()
        if isinstance(value, str) and not is_text(value):
            yield HeadlabError(
                f"{what}: {shown(place)} holds half of a surrogate pair, which is no text; write the character itself",
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
                    f"{what}: {shown(place)} is nested more than {DEEPEST} levels deep; leave out what no reader needs",
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
    value: Mapping[str, Any], fields: Mapping[str, Field], required: tuple[str, ...], what: str, place: str
) -> None:
    for name in required:
        if name not in value:
            raise HeadlabError(
                f"{what}: {place}{name} is missing; it must be {fields[name].words}", code="mask.field_missing"
            )
    for name in unfit(value, fields):
        raise HeadlabError(f"{what}: {place}{name} must be {fields[name].words}", code="mask.field_invalid")
