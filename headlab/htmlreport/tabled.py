"""Tables as they are printed: cells in words, and long ones cut with a note that says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headlab.tables import NOTHING, Cell, Table

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
