"""What a document consists of: sections with drawings, tables, notes, facts, and the way to make them again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headlab.report.commands import Again, part
from headlab.tables import NOTHING, Cell, Table, duration

# What a document consists of: sections with drawings, tables, notes and the way to make them again.

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Figure:
    """Drawings that belong together.

    drawings: SVG, one beside the other where there is room.  caption: below them.  wide: with no other figure beside.
    """

    drawings: Sequence[str]
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Folded:
    """A table that is behind a line to click on, on the screen; on paper it is there as all others are."""

    table: Table


@dataclass(frozen=True)
class Made:
    """Where a result comes from. key: of its run, or the file's name.  facts: names and values, in reading order."""

    key: str
    title: str
    facts: Facts


@dataclass(frozen=True)
class Section:
    """What is told of results that belong together.

    model: name and fingerprint of the model they are of.  kind: of result, in a word or two.
    """

    title: str
    kind: str
    model: tuple[str, str]
    figures: Sequence[Figure] = ()
    tables: Sequence[Table | Folded] = ()
    notes: Sequence[str] = ()
    made: Sequence[Made] = ()
    again: Again = field(default_factory=lambda: Again(()))


@dataclass(frozen=True)
class Item:
    """A result to report. record: what `headlab.store` reads, a report or a mask.  key: its name in the document.

    meta: when and with what it was made.  command: that the file it was read from says made it, or empty.  file: that
    it was read from, by as much of its path as tells it from the others; equal to `key` where it is all of that file,
    empty for a run.
    """

    record: object
    key: str
    meta: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    file: str = ""


# Where a result comes from, as names and values: model, data, options, versions, time.

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


# Tables as they are printed: cells in words, and long ones cut with a note that says so.

FORMAT = re.compile(r"[+]?,?(\.\d{1,2})?[dfegs%]?")
NAUGHT = re.compile(r"-0(\.0+)?%?")
MOST_ROWS, HAS = 400, "has it"
LONG = 12  # rows from which a table is folded


@dataclass(frozen=True)
class Printed:
    """A table as text. numbers: whether each column's cells stand to the right.  folded: behind a line to click on."""

    title: str
    columns: Sequence[str]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    folded: bool


def printed(table: Table, *, folded: bool | None = None, most: int = MOST_ROWS) -> Printed:
    """A table as text, its rows no more than `most`; folded: by default where it is long."""
    found = shortened(table, most)
    rows = [[cell(value, form) for value, form in zip(row, found.formats, strict=True)] for row in found.rows]
    fold = len(rows) > LONG if folded is None else folded
    return Printed(found.title, found.columns, [bool(form) for form in found.formats], rows, found.notes, fold)


def shortened(table: Table, most: int) -> Table:
    """The table, or its rows that matter: those of heads that have the role where that is told, and the first."""
    rows, notes = table.rows, list(table.notes)
    if len(rows) > most and HAS in table.columns:
        place = table.columns.index(HAS)
        rows = tuple(row for row in rows if row[place] is True)
        notes.append(f"{len(rows)} of {len(table.rows)} rows: those that have it; all are in the result itself.")
    if len(rows) > most:
        notes.append(f"The first {most} of {len(rows)} rows; all are in the result itself.")
        rows = rows[:most]
    return replace(table, rows=rows, notes=tuple(notes))


def cell(value: Cell, form: str) -> str:
    """A cell in words. A file may bring any format: one that does not fit leaves the value as it is."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or not FORMAT.fullmatch(form):
        return str(value)
    try:
        words = format(value, form) if form else str(value)
    except (ValueError, OverflowError):
        return str(value)
    return words.replace("-", "+" if form.startswith("+") else "", 1) if NAUGHT.fullmatch(words) else words
