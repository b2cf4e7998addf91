"""The parts of a document: sections with drawings, tables, notes, facts and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from headlab.core import EMPTY_CELL, Cell, Table, ablation_title, duration_text, part
from headlab.report.again import Again

Facts = tuple[tuple[str, str], ...]
Record = TypeVar("Record", covariant=True)


@dataclass(frozen=True)
class ReportFigure:
    """Drawings that belong together.

    Attributes:
        drawings: SVG, side by side where there is room.
        caption: Below them.
        wide: Whether no other figure stands beside it.
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
    """Where a result comes from.

    Attributes:
        key: Of its run, or the file's name.
        title: What distinguishes it from the others of its section.
        facts: Names and values, in reading order.
    """

    key: str
    title: str
    facts: Facts


@dataclass(frozen=True)
class Section:
    """One section of a document: results that belong together.

    Attributes:
        title: What they are.
        kind: Of result, in a word or two.
        model: Name and fingerprint of their model.
        figures: In reading order.
        tables: Below the figures.
        notes: What to know of them, in sentences.
        made: Where each comes from.
        again: How they are made again.
    """

    title: str
    kind: str
    model: tuple[str, str]
    figures: Sequence[ReportFigure] = ()
    tables: Sequence[Table | Folded] = ()
    notes: Sequence[str] = ()
    made: Sequence[Made] = ()
    again: Again = field(default_factory=lambda: Again(()))


@dataclass(frozen=True)
class Item(Generic[Record]):
    """A result to report.

    Attributes:
        record: A stored record, a report or a mask.
        key: Its name in the document.
        meta: When and with what it was made.
        command: That made it, according to its file; empty if it does not say.
        file: The unique end of the path of its file; equal to `key` if it is all that the file
            holds, empty for a run.
        path: The whole path of that file.
    """

    record: Record
    key: str
    meta: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    file: str = ""
    path: str = ""


# Where a result comes from, as names and values: model, data, options, versions, time.

MODEL = ("name", "revision", "fingerprint", "dtype")
DATA = ("name", "language", "split", "size", "seed", "data_hash")
NAMES = {
    "data_hash": "data hash (sha256)",
    "fingerprint": "model's fingerprint (sha256)",
    "dtype": "precision",
}
DATA_NAMES = {**NAMES, "name": "task", "seed": "data seed"}
FIELDS_SHOWN_ELSEWHERE = (
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
MAX_VALUE_LENGTH = 600  # characters of one value


def model_of(spec: Any) -> tuple[str, str]:
    """Name and fingerprint of a spec's model."""
    model = part(spec, "model")
    if not isinstance(model, Mapping):
        return UNNAMED
    return str(model.get("name") or UNNAMED[0]), str(model.get("fingerprint") or "")


def facts_of(
    spec: Mapping[str, Any], meta: Mapping[str, Any], more: Sequence[tuple[str, str]] = ()
) -> Facts:
    """All facts in a spec and in a result's metadata, in reading order.

    Args:
        spec: Of the result.
        meta: Its metadata.
        more: Further facts, after the options.
    """
    # Fields that no other fact shows; the command is shown with the commands.
    other_facts = (
        (name.replace("_", " "), as_text(value))
        for name, value in spec.items()
        if name not in FIELDS_SHOWN_ELSEWHERE
    )
    # Equal texts are told in a note of the section.
    times_and_versions = (
        (name, as_text(value)) for name, value in meta.items() if name != EQUAL_TEXTS
    )
    rows = [
        *_model_facts(spec),
        *_data_facts(spec),
        *_choice_facts(spec),
        *more,
        *other_facts,
        *times_and_versions,
    ]
    return tuple((name, value[:MAX_VALUE_LENGTH]) for name, value in rows if value)


def _model_facts(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in MODEL:
        if (value := part(spec, "model", name)) is not None:
            yield "model" if name == "name" else NAMES.get(name, name), str(value)


def _data_facts(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in DATA:
        if (value := part(spec, "task", name)) is not None:
            yield DATA_NAMES.get(name, name), as_text(value)
    if (classes := part(spec, "task", "classes")) is not None:
        yield "the model's class of each label (assumed)", as_text(classes)
    if (sizes := part(spec, "task", "sizes")) is not None:
        yield "examples by split and language", as_text(sizes)


def _choice_facts(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "method", as_text(part(spec, "method", "name") or "")
    for name, value in (part(spec, "method", "options") or part(spec, "options") or {}).items():
        yield f"option {name}", as_text(value)
    if (order := part(spec, "order")) is not None:
        yield "heads ordered by", as_text(order)
    for name in ("ablation", "seed"):
        if (value := spec.get(name)) is not None:
            yield name, as_text(value, name)


def as_text(value: Any, name: str = "") -> str:
    """A value as text.

    Args:
        value: The value.
        name: Of its field, if it has one: an ablation is in words.
    """
    if name == "ablation" and isinstance(value, str):
        return ablation_title(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{field} {as_text(inner, field)}" for field, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def cost_facts(forwards: int, seconds: float) -> tuple[tuple[str, str], ...]:
    """The cost of a result, as facts."""
    return (("forward passes of one example", f"{forwards:,}"), ("time", duration_text(seconds)))


# Tables as text; long ones are cut, with a note that says so.

FORMAT = re.compile(r"[+]?,?(\.\d{1,2})?[dfegs%]?")
NAUGHT = re.compile(r"-0(\.0+)?%?")
MAX_ROWS = 400
HAS = "has it"
MAX_UNFOLDED_ROWS = 12  # a table with more rows is folded


@dataclass(frozen=True)
class Printed:
    """A table as text.

    Attributes:
        title: Above it.
        columns: Their titles.
        numbers: Whether each column is right-aligned.
        rows: Texts [row][column].
        notes: Below it.
        folded: Whether it is collapsed on screen until clicked.
    """

    title: str
    columns: Sequence[str]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    folded: bool


def printed(table: Table, *, folded: bool | None = None, max_rows: int = MAX_ROWS) -> Printed:
    """A table as text, with at most `most` rows.

    Args:
        folded: By default, whether it is long.
    """
    cut_table = shortened(table, max_rows)
    rows = [
        [cell(value, form) for value, form in zip(row, cut_table.formats, strict=True)]
        for row in cut_table.rows
    ]
    is_folded = len(rows) > MAX_UNFOLDED_ROWS if folded is None else folded
    return Printed(
        cut_table.title,
        cut_table.columns,
        [bool(form) for form in cut_table.formats],
        rows,
        cut_table.notes,
        is_folded,
    )


def shortened(table: Table, max_rows: int) -> Table:
    """The table cut to at most `most` rows, with notes that say so.

    A table that says which heads have a role is cut to those first.
    """
    rows = table.rows
    notes = list(table.notes)
    if len(rows) > max_rows and HAS in table.columns:
        column = table.columns.index(HAS)
        rows = tuple(row for row in rows if row[column] is True)
        notes.append(
            f"{len(rows)} of {len(table.rows)} rows: those that have it; all are in the result itself."
        )
    if len(rows) > max_rows:
        notes.append(f"The first {max_rows} of {len(rows)} rows; all are in the result itself.")
        rows = rows[:max_rows]
    return replace(table, rows=rows, notes=tuple(notes))


def cell(value: Cell, form: str) -> str:
    """A cell as text. A file may hold any format: one that does not fit is ignored."""
    if value is None:
        return EMPTY_CELL
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or not FORMAT.fullmatch(form):
        return str(value)
    try:
        words = format(value, form) if form else str(value)
    except (ValueError, OverflowError):
        return str(value)
    if NAUGHT.fullmatch(words):
        return words.replace("-", "+" if form.startswith("+") else "", 1)
    return words
