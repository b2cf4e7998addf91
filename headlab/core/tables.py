"""Tables and reports: the results of an experiment, ready for a page, a CSV file or a document."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from headlab.core.errors import HeadlabError
from headlab.core.json_types import Json, as_list, as_number, as_object
from headlab.core.run_spec import RunSpec

Cell = str | int | float | bool | None
EMPTY_CELL = "–"


@dataclass(frozen=True)
class Table:
    """Rows under named columns; units are part of the column names.

    None is a cell without a value.

    Attributes:
        name: Name of the table, usable as a file name.
        title: One sentence.
        columns: Names of the columns.
        formats: Format of each column, as in `format` (empty: unformatted); values keep all their
            digits.
        rows: The cells of each row.
        notes: Notes below the table.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    formats: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        column_count = len(self.columns)
        if len(self.formats) != column_count or any(len(row) != column_count for row in self.rows):
            raise HeadlabError(
                f"table {self.name}: a row or the formats do not have its {column_count} columns",
                code="table.length_mismatch",
            )

    def column(self, name: str) -> list[Any]:
        """Values of a column, row by row. Raises HeadlabError for an unknown column."""
        if name not in self.columns:
            raise HeadlabError(
                f"table {self.name} has no column {name!r}; it has {', '.join(self.columns)}",
                code="table.column_unknown",
            )
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def csv(self) -> str:
        """The table as CSV with a header and all digits."""
        csv_text = io.StringIO()
        writer = csv.writer(csv_text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return csv_text.getvalue()

    def shown_cells(self) -> list[list[str]]:
        """Cells as displayed text."""
        formats = [
            P_FORMAT if is_p_column(name) and column_format else column_format
            for name, column_format in zip(self.columns, self.formats, strict=True)
        ]
        return [list(map(_cell_text, row, formats)) for row in self.rows]

    def markdown(self) -> str:
        """The table in Markdown: numbers right-aligned, notes below."""
        rule = ["---:" if form else "---" for form in self.formats]
        lines = [
            _markdown_line(self.columns),
            _markdown_line(rule),
            *(_markdown_line(row) for row in self.shown_cells()),
        ]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

    def to_json(self) -> dict[str, Json]:
        """Everything, as JSON values."""
        return {
            "name": self.name,
            "title": self.title,
            "columns": list(self.columns),
            "formats": list(self.formats),
            "rows": [list(row) for row in self.rows],
            "notes": list(self.notes),
        }

    @staticmethod
    def from_json(value: Json) -> Table:
        """Inverse of `to_json`. Raises HeadlabError for what is not a table."""
        try:
            fields = as_object(value)
            texts = {name: tuple(_texts(fields[name])) for name in ("columns", "formats", "notes")}
            rows = tuple(tuple(map(_cell, as_list(row))) for row in as_list(fields["rows"]))
            (name, title) = _texts([fields["name"], fields["title"]])
        except (KeyError, TypeError, ValueError) as error:
            raise HeadlabError(
                f"this is not a table ({type(error).__name__}: {error})", code="table.malformed"
            ) from error
        return Table(name, title, texts["columns"], texts["formats"], rows, texts["notes"])


@dataclass(frozen=True)
class Report:
    """What an experiment found.

    Attributes:
        name: Name of the experiment.
        tables: Its tables.
        notes: Caveats.
        spec: Everything the numbers depend on.
        example_forwards: Forward passes of one example that it took, without results from the
            store.
        seconds: Time that it took, without results from the store.
    """

    name: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    spec: RunSpec = field(default_factory=RunSpec)
    example_forwards: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", RunSpec.of(self.spec))

    def rows(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The rows of a table as {column: value}.

        None without it, as in a report of another version.
        """
        for table in self.tables:
            if table.name == name:
                yield from (dict(zip(table.columns, row, strict=True)) for row in table.rows)

    def table(self, name: str) -> Table:
        """A table by its name. Raises HeadlabError for an unknown name."""
        for table in self.tables:
            if table.name == name:
                return table
        raise HeadlabError(
            f"report {self.name} has no table {name!r}; it has "
            f"{', '.join(t.name for t in self.tables)}",
            code="report.table_unknown",
        )

    def to_json(self) -> dict[str, Json]:
        """Everything, as JSON values."""
        return {
            "name": self.name,
            "tables": [table.to_json() for table in self.tables],
            "notes": list(self.notes),
            "spec": self.spec.to_json(),
            "example_forwards": self.example_forwards,
            "seconds": self.seconds,
        }

    @staticmethod
    def from_json(value: Json) -> Report:
        """Inverse of `to_json`. Raises HeadlabError for what is not a report."""
        try:
            fields = as_object(value)
            tables = tuple(Table.from_json(table) for table in as_list(fields["tables"]))
            notes = tuple(_texts(fields["notes"]))
            (name,) = _texts([fields["name"]])
            spec = RunSpec.from_json(as_object(fields["spec"]))
            forwards = int(as_number(fields["example_forwards"]))
            seconds = float(as_number(fields["seconds"]))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise HeadlabError(
                f"this is not a report ({type(error).__name__}: {error})", code="report.malformed"
            ) from error
        return Report(name, tables, notes, spec, forwards, seconds)


def _markdown_line(cells: Iterable[Cell]) -> str:
    texts = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
    return f"| {' | '.join(texts)} |"


# p-values: of a column named p, whatever its format, so that results of earlier versions are shown
# alike.

P_FORMAT = "p"
MIN_SHOWN_P = 0.001


def is_p_column(column: str) -> bool:
    """Whether a column holds p-values, by its name: p, p (Holm), p of the loss, own p, p_holm."""
    return re.fullmatch(r"(.* )?p([ ,(].*|_holm)?", column) is not None


def p_value_text(p: float) -> str:
    """A p-value in three digits: 0.012, < 0.001."""
    if p < MIN_SHOWN_P:
        return f"< {MIN_SHOWN_P}"
    return f"{p:.3f}"


def p_equals_text(p: float) -> str:
    """The same in a sentence: p = 0.012, p < 0.001."""
    if p < MIN_SHOWN_P:
        return f"p {p_value_text(p)}"
    return f"p = {p_value_text(p)}"


def _cell_text(cell: Cell, form: str) -> str:
    if cell is None:
        return EMPTY_CELL
    if form == P_FORMAT:
        if isinstance(cell, int | float) and not isinstance(cell, bool):
            return p_value_text(cell)
        return str(cell)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if not form or isinstance(cell, str):
        return str(cell)
    try:
        return format(cell, form)
    except (ValueError, OverflowError):  # of a file that somebody changed: the number itself
        return str(cell)


def is_number(cell: object) -> TypeGuard[float]:
    """Whether a cell is a finite number."""
    return (
        isinstance(cell, int | float)
        and not isinstance(cell, bool)
        and abs(cell) <= sys.float_info.max
    )


def _texts(value: Json) -> list[str]:
    """A list of texts. Raises ValueError for anything else."""
    values = value if isinstance(value, list) else [None]
    texts = [text for text in values if isinstance(text, str)]
    if len(texts) < len(values):
        raise ValueError("a list of texts was expected")
    return texts


def _cell(value: Json) -> Cell:
    """A cell of a table. Raises ValueError for anything else."""
    if isinstance(value, list | dict):
        raise ValueError(f"{value!r:.40} is not a cell")
    return value


def duration_text(seconds: float) -> str:
    """A time in words: 40 s, 12 min, 3.5 h, 3 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} days"


def percent_text(share: float, decimals: int = 0) -> str:
    """A share as text, like 95 %, with a space that no line breaks at.

    Args:
        share: From 0 to 1.
        decimals: Digits after the point.
    """
    return f"{100 * share:.{decimals}f}\N{NO-BREAK SPACE}%"


def size_text(count: int) -> str:
    """A number of bytes in MB or kB."""
    if count >= 1e6:
        return f"{count / 1e6:,.1f} MB"
    return f"{count / 1e3:,.1f} kB"


def clock_text(seconds: float) -> str:
    """A time as a clock shows it: 1:02:03 for 3,723 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
