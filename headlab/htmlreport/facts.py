"""Where a result comes from, as names and values: model, data, options, versions, time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headlab.htmlreport.commands import part
from headlab.htmlreport.parts import Facts

MODEL, DATA = ("name", "revision", "fingerprint", "dtype"), ("name", "language", "split", "size", "seed", "data_hash")
NAMES = {"data_hash": "data hash (sha256)", "fingerprint": "model's fingerprint (sha256)", "dtype": "precision"}
TOLD = ("model", "task", "method", "options", "ablation", "seed", "kind", "format", "order", "removed")
UNNAMED = ("not said", "")
LONGEST = 600  # letters of one value


def model_of(spec: Any) -> tuple[str, str]:
    """Name and fingerprint of the model that a spec is of."""
    found = part(spec, "model")
    if not isinstance(found, Mapping):
        return UNNAMED
    return str(found.get("name") or UNNAMED[0]), str(found.get("fingerprint") or "")


def facts_of(spec: Mapping[str, Any], meta: Mapping[str, Any], more: Sequence[tuple[str, str]] = ()) -> Facts:
    """All that a spec and what is kept beside a result say, in reading order. more: after the options."""
    rows = [*_model(spec), *_data(spec), *_choices(spec), *more, *_beside(spec), *_when(meta)]
    return tuple((name, value[:LONGEST]) for name, value in rows if value)


def _model(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in MODEL:
        if (value := part(spec, "model", name)) is not None:
            yield "model" if name == "name" else NAMES.get(name, name), str(value)


def _data(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in DATA:
        if (value := part(spec, "task", name)) is not None:
            yield "task" if name == "name" else "data seed" if name == "seed" else NAMES.get(name, name), told(value)
    if (sizes := part(spec, "task", "sizes")) is not None:
        yield "examples by split and language", told(sizes)


def _choices(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "method", told(part(spec, "method", "name") or "")
    for name, value in (part(spec, "method", "options") or part(spec, "options") or {}).items():
        yield f"option {name}", told(value)
    if (order := part(spec, "order")) is not None:
        yield "heads ordered by", told(order)
    for name in ("ablation", "seed"):
        if (value := spec.get(name)) is not None:
            yield name, told(value)


def _beside(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a spec says that is named nowhere else, a command aside: that stands among the commands."""
    for name, value in spec.items():
        if name not in (*TOLD, "command"):
            yield name.replace("_", " "), told(value)


def _when(meta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in meta.items():
        yield name, told(value)


def told(value: Any) -> str:
    """A value in words."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {told(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(told, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def spent(forwards: int, seconds: float) -> tuple[tuple[str, str], ...]:
    """What a result took."""
    return (("forward passes of one example", f"{forwards:,}"), ("time", duration(seconds)))


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
