"""What a study found, as records with types: tables are views of them.

Stored reports are read back into them.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, lru_cache
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from headlab.core import (
    HEAD_COLUMNS,
    HEAD_FORMATS,
    Cell,
    Head,
    HeadlabError,
    Report,
    Table,
    import_implementation,
    is_number,
)
from headlab.studies.table import HOME, STUDIES

log = logging.getLogger(__name__)
PLACEHOLDER = re.compile(r"\{(\w+)\}")
NUMBERS = (int, float)
READ_RESULTS = 32  # that are held at once
READ_ROWS = 64  # tables whose rows are held at once
Names = Mapping[str, tuple[str, ...]]


class DataClass(Protocol):
    """A class made by `dataclass`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


RecordT = TypeVar("RecordT", bound=DataClass)
KindT = TypeVar("KindT", covariant=True)


# What a record says of itself, in the annotations of its fields.


class Column(NamedTuple):
    """The column that a field stands in: `rho: Annotated[float, Column("rho", ".2f")]`.

    Attributes:
        title: Name of the column. A placeholder, as in "lowest, {unit}", stands for a name in
            `Records.names`; a field that is a mapping has a column for each of these names, which
            are its keys.
        format: As in `Table.formats`.
    """

    title: str
    format: str = ""


class Columns(NamedTuple):
    """The columns of a field whose values are named tuples, a column for each part.

    Attributes:
        titles: Names of the columns.
        formats: Of each column, as in `Table.formats`.
    """

    titles: tuple[str, ...]
    formats: tuple[str, ...]


class TableName(NamedTuple):
    """The table of a field of a result: `Annotated[Records[Pair], TableName("pairs")]`."""

    name: str


HeadCells = Annotated[Head, Columns(HEAD_COLUMNS, HEAD_FORMATS)]
"""The head that a record is of, in the columns by which pages and figures know a head."""


# Records, and the table that shows them.


@dataclass(frozen=True)
class Records(Generic[RecordT]):
    """Records of one kind, with the words of the table that shows them.

    Attributes:
        title: One sentence.
        rows: The records.
        notes: Sentences below the table.
        names: What the placeholders in titles of columns stand for.
    """

    title: str
    rows: tuple[RecordT, ...]
    notes: tuple[str, ...] = ()
    names: Names = field(default_factory=dict)


class _CellColumn(NamedTuple):
    """A column of a field: its title, format, types of cells, and default.

    The title may have a placeholder.
    """

    title: str
    format: str
    types: frozenset[type]
    default: object

    def fits(self, cell: Cell) -> bool:
        """Whether a cell is of the part's types; a number is finite."""
        if isinstance(cell, int | float) and not isinstance(cell, bool):
            is_of_type = float in self.types or (int in self.types and isinstance(cell, int))
            return is_of_type and is_number(cell)
        return type(cell) in self.types

    def fits_all(self, cells: Sequence[Cell]) -> bool:
        """Whether `fits` is true of every cell of a column, which may have thousands."""
        allowed_types = self.types | {int} if float in self.types else self.types
        types = set(map(type, cells))
        if not types <= allowed_types:  # they may be of subclasses, as numbers of numpy are
            return all(map(self.fits, cells))
        if types.isdisjoint(NUMBERS):
            return True
        sizes = [abs(cell) for cell in cells if isinstance(cell, NUMBERS)]
        return all(map(sys.float_info.max.__ge__, sizes))

    @property
    def placeholder(self) -> str:
        """The name between braces in the title, or empty."""
        match = PLACEHOLDER.search(self.title)
        return match[1] if match else ""

    def titles(self, names: Names) -> list[str]:
        """The title for each of the names that its placeholder stands for; itself without one."""
        if not self.placeholder:
            return [self.title]
        braced = f"{{{self.placeholder}}}"
        return [self.title.replace(braced, name) for name in names.get(self.placeholder, ())]

    def names_in(self, titles: Sequence[str]) -> tuple[str, ...]:
        """What the placeholder stands for in those of some titles that fit."""
        prefix, suffix = self.title.split(f"{{{self.placeholder}}}")
        inner = slice(len(prefix), -len(suffix) or None)
        return tuple(
            title[inner]
            for title in titles
            if title.startswith(prefix) and title.endswith(suffix) and title[inner]
        )


class _RecordField(NamedTuple):
    """A field of a record, and the columns that it stands in.

    Attributes:
        name: Of the field.
        parts: One, or one for each part of a named tuple.
        tuple_kind: Class of the named tuple; None for another value.
        is_mapping: Whether it stands in a column for each of its keys.
    """

    name: str
    parts: tuple[_CellColumn, ...]
    tuple_kind: Any
    is_mapping: bool

    def columns(self, names: Names) -> list[tuple[str, str]]:
        """Title and format of each of its columns."""
        columns = []
        for part in self.parts:
            titles = part.titles(names)
            titles_shown = titles if self.is_mapping else titles[:1]
            columns += [(title, part.format) for title in titles_shown]
        return columns

    def cells(self, record: DataClass, names: Names) -> list[Cell]:
        """A record's cells in these columns."""
        value = getattr(record, self.name)
        if self.is_mapping:
            return [value.get(name) for name in names.get(self.parts[0].placeholder, ())]
        if self.tuple_kind:
            return list(value)
        return [value]


@cache
def _fields_of(kind: type[DataClass]) -> tuple[_RecordField, ...]:
    """The fields of a kind of record that stand in a table, in the order of its columns."""
    hints = get_type_hints(kind, include_extras=True)
    record_fields = []
    for data_field in fields(kind):
        hint, *extras = get_args(hints[data_field.name]) or (None,)
        for extra in extras:
            if isinstance(extra, Columns):
                parts = _tuple_parts(hint, extra)
                record_fields.append(_RecordField(data_field.name, parts, hint, False))
            elif isinstance(extra, Column):
                is_mapping = get_origin(hint) not in (None, UnionType)
                types = _types(get_args(hint)[-1] if is_mapping else hint)
                part = _CellColumn(extra.title, extra.format, types, data_field.default)
                record_fields.append(_RecordField(data_field.name, (part,), None, is_mapping))
    return tuple(record_fields)


def _tuple_parts(kind: Any, columns: Columns) -> tuple[_CellColumn, ...]:
    """The columns of a named tuple's parts."""
    hints = get_type_hints(kind)
    defaults = kind._field_defaults
    return tuple(
        _CellColumn(title, form, _types(hints[name]), defaults.get(name, MISSING))
        for name, title, form in zip(kind._fields, columns.titles, columns.formats, strict=True)
    )


def _types(hint: Any) -> frozenset[type]:
    """The types that a hint allows."""
    return frozenset(get_args(hint) or (hint,))


def table_of(records: Records[RecordT], kind: type[RecordT], name: str) -> Table:
    """The table that shows records.

    Args:
        records: They may be none.
        kind: Class of the records.
        name: Of the table.
    """
    record_fields = _fields_of(kind)
    columns = [
        column for record_field in record_fields for column in record_field.columns(records.names)
    ]
    rows = [
        tuple(
            cell
            for record_field in record_fields
            for cell in record_field.cells(record, records.names)
        )
        for record in records.rows
    ]
    titles = tuple(title for title, _ in columns)
    formats = tuple(form for _, form in columns)
    return Table(name, records.title, titles, formats, tuple(rows), records.notes)


# Back from a table to its records.


class _Unreadable(Exception):
    """A column is missing or does not hold what it should."""


class _RecordReader(Generic[RecordT]):
    """Reads the rows of one table as records, column by column."""

    def __init__(self, table: Table, kind: type[RecordT]) -> None:
        self._table = table
        self._kind = kind
        self._fields = _fields_of(kind)
        self._indices = {title: index for index, title in enumerate(table.columns)}
        self.names = self._names_in(table.columns)

    def _names_in(self, columns: Sequence[str]) -> Names:
        """What the placeholders stand for in a table with these columns."""
        parts = [part for record_field in self._fields for part in record_field.parts]
        plain = {part.title for part in parts if not part.placeholder}
        candidates = [title for title in columns if title not in plain]
        names: dict[str, tuple[str, ...]] = {}
        for part in parts:
            if part.placeholder:
                names.setdefault(part.placeholder, part.names_in(candidates))
        return MappingProxyType(names)

    def records(self) -> tuple[RecordT, ...]:
        """The record of each row. Raises _Unreadable."""
        if not self._table.rows:
            return ()
        names = tuple(record_field.name for record_field in self._fields)
        columns = [self._values(record_field) for record_field in self._fields]
        positional_names: tuple[str, ...] = getattr(self._kind, "__match_args__", ())
        if positional_names[: len(names)] == names:  # several times as fast as by name
            return tuple(map(self._kind, *columns))
        rows = zip(*columns, strict=True)
        return tuple(self._kind(**dict(zip(names, row, strict=True))) for row in rows)

    def readable(self) -> tuple[RecordT, ...]:
        """The records of the rows that can be read."""
        try:
            return self.records()
        except _Unreadable:
            rows = tuple(filter(self._is_readable, self._table.rows))
            return _RecordReader(replace(self._table, rows=rows), self._kind).records()

    def _is_readable(self, row: Sequence[Cell]) -> bool:
        """Whether each field can be read from a row."""
        for record_field in self._fields:
            for part, title in self._columns_of(record_field):
                index = self._indices.get(title)
                if index is None and part.default is MISSING:
                    return False
                if index is not None and not part.fits(row[index]):
                    return False
        return True

    def _columns_of(self, record_field: _RecordField) -> list[tuple[_CellColumn, str]]:
        """The columns that a field is read from, each as what it is a column of, and its title."""
        parts = record_field.parts
        if record_field.is_mapping:
            return [(parts[0], title) for title in parts[0].titles(self.names)]
        return [(part, next(iter(part.titles(self.names)), part.title)) for part in parts]

    def _values(self, record_field: _RecordField) -> Sequence[object]:
        """A field's value in each row. Raises _Unreadable."""
        columns = [self._cells(part, title) for part, title in self._columns_of(record_field)]
        if record_field.is_mapping:
            names = self.names[record_field.parts[0].placeholder]
            rows = zip(*columns, strict=True) if columns else ((),) * len(self._table.rows)
            return [MappingProxyType(dict(zip(names, row, strict=True))) for row in rows]
        if record_field.tuple_kind:
            return list(map(record_field.tuple_kind, *columns))
        return columns[0]

    def _cells(self, part: _CellColumn, title: str) -> Sequence[object]:
        """The cells of a column, or its default in each row. Raises _Unreadable."""
        index = self._indices.get(title)
        if index is None and part.default is not MISSING:
            return [part.default] * len(self._table.rows)
        if index is None:
            raise _Unreadable(title)
        cells = [row[index] for row in self._table.rows]
        if not part.fits_all(cells):
            raise _Unreadable(title)
        return cells


def records_of(table: Table, kind: type[RecordT]) -> Records[RecordT]:
    """Inverse of `table_of`; a column that the table lacks has its default.

    Raises:
        HeadlabError: If the table lacks a column without a default, or holds another type of cell.
    """
    reader = _RecordReader(table, kind)
    try:
        rows = reader.records()
    except _Unreadable as error:
        raise HeadlabError(
            f"table {table.name}: column {error} is missing or does not hold what it should",
            code="table.column_unreadable",
        ) from error
    return Records(table.title, rows, table.notes, reader.names)


class _Reading(Generic[KindT]):
    """A report that is read as instances of a class, as the key of a cache.

    Two are equal if they are of the very same report, so that no cell of its tables is compared or
    hashed. A store gives the same report for as long as its files stay as they are.

    Attributes:
        report: The report.
        kind: The class.
    """

    def __init__(self, report: Report, kind: type[KindT]) -> None:
        self.report = report
        self.kind = kind

    def __eq__(self, other_reading: object) -> bool:
        if not isinstance(other_reading, _Reading):
            return NotImplemented
        return other_reading.report is self.report and other_reading.kind is self.kind

    def __hash__(self) -> int:
        return hash((id(self.report), self.kind))


def readable_rows(report: Report, name: str, kind: type[RecordT]) -> tuple[RecordT, ...]:
    """The rows of a report's table that can be read, without those that lack something.

    For reports that another version or package may have written. They are read once per report, and
    shared.

    Args:
        report: A stored report.
        name: Of the table; a report without it has no rows.
        kind: Class of the records.
    """
    return cast("tuple[RecordT, ...]", _readable_rows(_Reading(report, kind), name))


@lru_cache(maxsize=READ_ROWS)
def _readable_rows(reading: _Reading[DataClass], name: str) -> tuple[DataClass, ...]:
    """As `readable_rows`."""
    records: list[DataClass] = []
    for table in reading.report.tables:
        if table.name == name:
            records += _RecordReader(table, reading.kind).readable()
    return tuple(records)


# What a study found.


class _TableField(NamedTuple):
    """A field of a result that is shown as a table.

    Attributes:
        name: Of the field.
        table: Name of the table.
        kind: Class of the records.
        is_optional: Whether a report may lack the table.
        marks: What else the annotation says of the records.
    """

    name: str
    table: str
    kind: type[DataClass]
    is_optional: bool
    marks: tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """What a study found.

    A subclass is a frozen dataclass whose fields are records, each shown as a table:
    `layers: Annotated[Records[LayerMean], TableName("depth")]`.

    `Records[...] | None` is a table that a report may lack. A subclass with fields that stand in no
    table of their own has its own `from_report`; one whose tables are another view of its records
    has its own `tables`.

    Attributes:
        notes: Caveats, in sentences.
    """

    notes: tuple[str, ...] = ()

    def tables(self) -> tuple[Table, ...]:
        """The tables of the report, in their order."""
        tables = []
        for table_field in _table_fields(type(self)):
            records = getattr(self, table_field.name)
            if records is not None:
                tables.append(table_of(records, table_field.kind, table_field.table))
        return tuple(tables)

    @classmethod
    def from_report(cls, report: Report) -> Self:
        """The result that a report shows.

        Args:
            report: One of this study, maybe stored by an earlier version.

        Raises:
            HeadlabError: If the report lacks a table, or a table holds something else.
        """
        return cls(notes=report.notes, **cls.records_in(report))

    @classmethod
    def records_in(cls, report: Report) -> dict[str, Any]:
        """{field: its records} as a report's tables show them.

        Raises HeadlabError as `from_report` does.
        """
        records: dict[str, Records[DataClass] | None] = {}
        for table_field in _table_fields(cls):
            is_there = any(table.name == table_field.table for table in report.tables)
            if is_there or not table_field.is_optional:
                table = report.table(table_field.table)
                records[table_field.name] = records_of(table, table_field.kind)
            else:
                records[table_field.name] = None
        return records


def _table_fields(result: type[StudyResult]) -> tuple[_TableField, ...]:
    """The fields of a class of results that are shown as tables."""
    hints = get_type_hints(result, include_extras=True)
    table_fields = []
    for data_field in fields(result):
        hint, *extras = get_args(hints[data_field.name]) or (None,)
        for extra in extras:
            if isinstance(extra, TableName):
                marks = tuple(mark for mark in extras if mark is not extra)
                is_optional = NoneType in get_args(hint)
                (kind,) = get_args(get_args(hint)[0] if is_optional else hint)
                table_fields.append(
                    _TableField(data_field.name, extra.name, kind, is_optional, marks)
                )
    return tuple(table_fields)


MarkT = TypeVar("MarkT")


def marked_records(
    result: StudyResult, mark: type[MarkT]
) -> Iterator[tuple[MarkT, Records[DataClass]]]:
    """The records of a result whose fields have a mark in their annotation beside the table's name.

    Args:
        result: What a study found.
        mark: Class of the mark.

    Yields:
        The mark, and the records; fields of the same mark in their order.
    """
    for table_field in _table_fields(type(result)):
        records = getattr(result, table_field.name)
        for found_mark in table_field.marks:
            if isinstance(found_mark, mark) and records is not None:
                yield found_mark, records


def head_of(record: DataClass) -> Head | None:
    """The head that a record is of, as its field of `HeadCells` says.

    None for a record without one.
    """
    for record_field in _fields_of(type(record)):
        if record_field.tuple_kind is Head:
            head: Head = getattr(record, record_field.name)
            return head
    return None


StudyOutcome = StudyResult | tuple[Sequence[Table], Sequence[str]]
"""What a study's `run` returns: a result; or tables and notes, of which there are no figures."""


def shown_parts(outcome: StudyOutcome) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Tables and notes of what a study's `run` returned."""
    if isinstance(outcome, StudyResult):
        return outcome.tables(), outcome.notes
    tables, notes = outcome
    return tuple(tables), tuple(notes)


ResultT = TypeVar("ResultT", bound=StudyResult)


def typed_result(report: Report, kind: type[ResultT]) -> ResultT:
    """What a report found, read once per report, and shared: nobody may change it.

    Args:
        report: One of the study, maybe stored by an earlier version.
        kind: Class of the study's results.

    Raises:
        HeadlabError: If the report does not hold such a result.
    """
    return cast(ResultT, _typed_result(_Reading(report, kind)))


@lru_cache(maxsize=READ_RESULTS)
def _typed_result(reading: _Reading[StudyResult]) -> StudyResult:
    """As `typed_result`."""
    return reading.kind.from_report(reading.report)


def result_of(report: Report) -> StudyResult | None:
    """What a report found, by the class that its study names; None for a study without one.

    It is read once per report, and shared: nobody may change it.

    Raises:
        HeadlabError: If the report does not hold what its study finds, or the study cannot read it,
            as one from another package may not.
    """
    study = STUDIES.get(report.name)
    if study is None or not study.result:
        return None
    module, _, name = study.result.partition(":")
    try:
        kind: type[StudyResult] = getattr(import_implementation(module, HOME), name)
        return typed_result(report, kind)
    except HeadlabError:
        raise
    except Exception as error:  # a package can raise anything
        log.warning("what %s found cannot be read", report.name, exc_info=True)
        raise HeadlabError(
            f"study {report.name} cannot read its report ({type(error).__name__}: {error})",
            code="report.study_failed",
        ) from error
