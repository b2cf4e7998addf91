"""Files of a user's own examples: csv, tsv and jsonl, record by record, with the line that each begins on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from headlab.errors import HeadlabError
from headlab.tasks.folder import read_lines, read_text


class Record(NamedTuple):
    """One record of a file.  line: where it begins, from 1.  values: by column."""

    line: int
    values: Mapping[str, Any]


def read_records(path: Path, kind: str, columns: Sequence[str]) -> Sequence[Record]:
    """The records of a file of a kind of KINDS, each with all the columns. Kept until the file changes.

    Raises HeadlabError naming file, line and column.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise HeadlabError(
            f"cannot read {path} ({error.strerror}); check the task's files", code="data.unreadable"
        ) from error
    found = _records(path, kind, stat.st_mtime_ns, stat.st_size)
    for line, values in found:
        absent = [name for name in columns if name not in values]
        if absent:
            raise HeadlabError(
                f"{path}, line {line}: no column {', '.join(absent)}; it has {', '.join(values)}",
                code="data.column_missing",
            )
    return found


@lru_cache(maxsize=64)
def _records(path: Path, kind: str, _changed: int, _size: int) -> tuple[Record, ...]:
    return tuple(KINDS[kind](path))


def _csv(path: Path) -> Iterator[Record]:
    """Comma-separated, RFC 4180: quotes around a field, doubled inside, whatever breaks them refused."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    header: list[str] | None = None
    line = 1
    try:
        for fields in reader:
            if header is None:
                header = _checked(fields, path)
            elif fields:  # an empty line
                yield _record(header, fields, path, line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise HeadlabError(
            f"{path}, line {reader.line_num}: {error}; the record begins on line {line}", code="data.csv_malformed"
        ) from error


def _tsv(path: Path) -> Iterator[Record]:
    """Tab-separated, without quoting."""
    first, *lines = read_lines(path)
    header = _checked(first.split("\t"), path)
    for number, line in enumerate(lines, start=2):
        yield _record(header, line.split("\t"), path, number)


def _checked(header: list[str], path: Path) -> list[str]:
    double = sorted({name for name in header if header.count(name) > 1})
    if double:
        raise HeadlabError(
            f"{path}, line 1: the column {double[0]!r:.60} appears twice; name each column once",
            code="data.column_twice",
        )
    return header


def _record(header: Sequence[str], fields: Sequence[str], path: Path, line: int) -> Record:
    if len(fields) != len(header):
        raise HeadlabError(
            f"{path}, line {line}: {len(fields)} fields where the header has {len(header)}", code="data.fields_mismatch"
        )
    return Record(line, dict(zip(header, fields, strict=True)))


def _jsonl(path: Path) -> Iterator[Record]:
    """One JSON object a line."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise HeadlabError(
                f"{path}, line {number}, character {error.colno}: {error.msg}", code="data.json_malformed"
            ) from error
        except (RecursionError, ValueError) as error:  # nested too deep, or a number with too many digits
            raise HeadlabError(f"{path}, line {number}: {error}", code="data.json_unusable") from error
        if not isinstance(values, dict):
            raise HeadlabError(
                f"{path}, line {number}: {line!r:.60} is not a JSON object; give one per line",
                code="data.json_not_object",
            )
        yield Record(number, values)


KINDS: Mapping[str, Callable[[Path], Iterator[Record]]] = MappingProxyType({"csv": _csv, "tsv": _tsv, "jsonl": _jsonl})
