"""The parts of a document: sections with drawings, tables, notes, facts, and how to make the results again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from headlab.core import NOTHING, Cell, Table, duration, part
from headlab.report.again import Again

# The parts of a document: sections with drawings, tables, notes and how to make the results again.

Facts = tuple[tuple[str, str], ...]
Record = TypeVar("Record", covariant=True)


@dataclass(frozen=True)
class Figure:
    """Drawings that belong together.

    drawings: SVG, side by side where there is room.  caption: below them.  wide: with no other figure beside it.
    """

    drawings: Sequence[str]
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Folded:
    """A table that is collapsed on screen until clicked, and printed in full on paper."""

    table: Table


@dataclass(frozen=True)
class Made:
    """Where a result comes from. key: of its run, or the file's name.  facts: (name, value), in reading order."""

    key: str
    title: str
    facts: Facts


@dataclass(frozen=True)
class Section:
    """One section of a document: results that belong together.

    model: name and fingerprint of their model.  kind: of result, in a word or two.
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
class Item(Generic[Record]):
    """A result to report. record: a stored record, a report or a mask.  key: its name in the document.

    meta: when and with what it was made.  command: the command that made it, according to its file, or empty.  file:
    the unique end of the path of its file; equal to `key` if it is the whole content of the file, empty for a run.
    path: the whole path of that file.
    """

    record: Record
    key: str
    meta: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    file: str = ""
    path: str = ""


# Where a result comes from, as names and values: model, data, options, versions, time.

MODEL, DATA = (
    ("name", "revision", "fingerprint", "dtype"),
    ("name", "language", "split", "size", "seed", "data_hash"),
)
NAMES = {
    "data_hash": "data hash (sha256)",
    "fingerprint": "model's fingerprint (sha256)",
    "dtype": "precision",
}
TOLD = (
    "model",
    "task",
    "method",
    "options",
    "ablation",
    "seed",
    "kind",
    "format",
    "order",
    "removed",
    "command",
)
UNNAMED = ("not said", "")
EQUAL_TEXTS = "equal_texts"
LONGEST = 600  # characters of one value


def model_of(spec: Any) -> tuple[str, str]:
    """Name and fingerprint of a spec's model."""
    found = part(spec, "model")
    if not isinstance(found, Mapping):
        return UNNAMED
    return str(found.get("name") or UNNAMED[0]), str(found.get("fingerprint") or "")


def facts_of(
    spec: Mapping[str, Any], meta: Mapping[str, Any], more: Sequence[tuple[str, str]] = ()
) -> Facts:
    """All facts in a spec and in a result's metadata, in reading order. more: further facts, after the options."""
    # Listed nowhere else; the command is shown with the commands.
    beside = (
        (name.replace("_", " "), as_text(value)) for name, value in spec.items() if name not in TOLD
    )
    when = (
        (name, as_text(value)) for name, value in meta.items() if name != EQUAL_TEXTS
    )  # a note of the section
    rows = [*_model(spec), *_data(spec), *_choices(spec), *more, *beside, *when]
    return tuple((name, value[:LONGEST]) for name, value in rows if value)


def _model(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in MODEL:
        if (value := part(spec, "model", name)) is not None:
            yield "model" if name == "name" else NAMES.get(name, name), str(value)


def _data(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in DATA:
        if (value := part(spec, "task", name)) is not None:
            yield (
                "task"
                if name == "name"
                else "data seed"
                if name == "seed"
                else NAMES.get(name, name),
                as_text(value),
            )
    if (classes := part(spec, "task", "classes")) is not None:
        yield "the model's class of each label (assumed)", as_text(classes)
    if (sizes := part(spec, "task", "sizes")) is not None:
        yield "examples by split and language", as_text(sizes)


def _choices(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "method", as_text(part(spec, "method", "name") or "")
    for name, value in (part(spec, "method", "options") or part(spec, "options") or {}).items():
        yield f"option {name}", as_text(value)
    if (order := part(spec, "order")) is not None:
        yield "heads ordered by", as_text(order)
    for name in ("ablation", "seed"):
        if (value := spec.get(name)) is not None:
            yield name, as_text(value)


def as_text(value: Any) -> str:
    """A value as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {as_text(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def spent(forwards: int, seconds: float) -> tuple[tuple[str, str], ...]:
    """The cost of a result, as facts."""
    return (("forward passes of one example", f"{forwards:,}"), ("time", duration(seconds)))


# Tables as text; long ones are cut, with a note that says so.

FORMAT = re.compile(r"[+]?,?(\.\d{1,2})?[dfegs%]?")
NAUGHT = re.compile(r"-0(\.0+)?%?")
MOST_ROWS, HAS = 400, "has it"
LONG = 12  # rows from which a table is folded


@dataclass(frozen=True)
class Printed:
    """A table as text. numbers: whether each column is right-aligned.  folded: whether it is collapsed."""

    title: str
    columns: Sequence[str]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    folded: bool


def printed(table: Table, *, folded: bool | None = None, most: int = MOST_ROWS) -> Printed:
    """A table as text, with at most `most` rows. folded: by default, whether it is long."""
    found = shortened(table, most)
    rows = [
        [cell(value, form) for value, form in zip(row, found.formats, strict=True)]
        for row in found.rows
    ]
    fold = len(rows) > LONG if folded is None else folded
    return Printed(
        found.title, found.columns, [bool(form) for form in found.formats], rows, found.notes, fold
    )


def shortened(table: Table, most: int) -> Table:
    """The table cut to at most `most` rows: those of heads that have the role, if it says so, then the first ones."""
    rows, notes = table.rows, list(table.notes)
    if len(rows) > most and HAS in table.columns:
        place = table.columns.index(HAS)
        rows = tuple(row for row in rows if row[place] is True)
        notes.append(
            f"{len(rows)} of {len(table.rows)} rows: those that have it; all are in the result itself."
        )
    if len(rows) > most:
        notes.append(f"The first {most} of {len(rows)} rows; all are in the result itself.")
        rows = rows[:most]
    return replace(table, rows=rows, notes=tuple(notes))


def cell(value: Cell, form: str) -> str:
    """A cell as text. A file may hold any format: one that does not fit is ignored."""
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
    return (
        words.replace("-", "+" if form.startswith("+") else "", 1)
        if NAUGHT.fullmatch(words)
        else words
    )
