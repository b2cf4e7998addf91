"""Files of records: csv, tsv, jsonl, CoNLL-U and one token a line.

Errors name file, line and column.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from headlab.core import HeadlabError, Json, JsonLike, JsonObject, comma_list
from headlab.tasks.conllu_text import CONLLU, NO_WORD, WORD, ConlluSentence, conllu_sentences
from headlab.tasks.text_files import FileName, is_blank, lines_of, paragraphs, read_lines, read_text

# Tab-separated files of the tasks that come with headlab.


def read_tsv_columns(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The named columns of a tab-separated file, one tuple per row.

    The file has one header row and no quoting.

    Row i stands on line i + 2: blank lines may only follow the last row, since rows of several
    languages are compared by their place.  Raises HeadlabError naming file, line and column for a
    missing column, file and line for a row of another length and for a blank one.
    """
    first_line, *lines = read_lines(path)
    header = _check_header(first_line.split("\t"), path)
    require_columns(Record(1, dict.fromkeys(header)), path, columns, "tsv")
    while lines and is_blank(lines[-1]):
        lines.pop()
    rows = []
    for number, line in enumerate(lines, start=2):
        if is_blank(line):
            raise blank_row(path, number)
        values = _require_record(_record(header, line.split("\t"), path, number, "tsv")).values
        rows.append(tuple(str(values[name]) for name in columns))
    return rows


def blank_row(file_name: FileName, line: int) -> HeadlabError:
    """The error for a blank line among rows that are compared by their place."""
    return HeadlabError(
        f"{file_name}, line {line}: a blank line, though row i must mean the same in every "
        "language; remove the line, or put the row there",
        code="data.row_blank",
    )


def whole_number(text: str, path: Path, line: int, column: str, limit: int) -> int:
    """A number from 0 to below - 1. Raises HeadlabError naming file, line and column."""
    if not (text.isascii() and text.isdigit() and int(text) < limit):
        raise HeadlabError(
            f"{path}, line {line}, column {column}: {text!r:.60}, expected a number from 0 to "
            f"{limit - 1}",
            code="data.number_invalid",
        )
    return int(text)


# Users' files, record by record, with the line on which each record begins.


class Record(NamedTuple):
    """One record of a file.

    Attributes:
        line: On which it begins, from 1.
        values: By column.
    """

    line: int
    values: Mapping[str, JsonLike]


def read_records(path: Path, kind: str, columns: Sequence[str]) -> Sequence[Record]:
    """The records of a file, each with all the columns; cached until the file changes.

    Raises HeadlabError naming file, line and column.

    Args:
        kind: A key of KINDS.
    """
    _, modified_ns, size = state_of(path)
    records = _records(path, kind, modified_ns, size)
    required_columns = set(columns)
    incomplete = next(
        (record for record in records if not required_columns <= record.values.keys()), None
    )
    if incomplete is not None:
        if looks_like_tokens(read_text(path), kind):
            raise HeadlabError(f"{path}: {TOKENS_ADVICE}", code="data.tokens_as_rows")
        require_columns(incomplete, path, columns, kind)
    return records


def state_of(file: Path) -> tuple[Path, int, int]:
    """A file with its modification time and size. Raises HeadlabError if it cannot be read."""
    try:
        status = file.stat()
    except OSError as error:
        raise HeadlabError(
            f"cannot read {file} ({error.strerror}); check the task's files", code="data.unreadable"
        ) from error
    return file, status.st_mtime_ns, status.st_size


def require_columns(record: Record, file_name: FileName, columns: Sequence[str], kind: str) -> None:
    """Raise HeadlabError if a record lacks one of the columns, with what that looks like.

    Args:
        kind: Of the file, a key of KINDS.
    """
    absent = [name for name in columns if name not in record.values]
    if not absent:
        return
    present = [name for name in record.values if name]
    advice = separator_advice(present, kind) or _advice_on_names(absent, present, kind)
    raise HeadlabError(
        f"{file_name}, line {record.line}: no column {comma_list(absent)}; it has {comma_list(present)}"
        + (f"; {advice}" if advice else ""),
        code="data.column_missing",
    )


def _advice_on_names(absent: Sequence[str], present: Sequence[str], kind: str) -> str:
    """What to do about columns that are called a little otherwise, or not at all.

    Empty if neither is so.
    """
    by_letters = {name.strip().casefold(): name for name in present}
    for name in absent:
        similar = by_letters.get(name.strip().casefold())
        if similar is not None:
            return f"case and spaces count: its name is {similar!r:.60}"
    if kind in ("csv", "tsv"):
        return "its first row must hold the names of the columns"
    return ""


@lru_cache(maxsize=64)
def _records(path: Path, kind: str, _modified_ns: int, _size: int) -> tuple[Record, ...]:
    return tuple(map(_require_record, KINDS[kind](read_text(path), path)))


def _require_record(record: Record | HeadlabError) -> Record:
    if isinstance(record, HeadlabError):
        raise record
    return record


# Each reader yields a record, or in its place the error of one that cannot be read, so that a
# file's errors can be listed; it raises HeadlabError for what leaves nothing after it readable.
RecordsOrErrors = Iterator[Record | HeadlabError]


# What to do about a file whose only column has one of these marks in its name, by its kind.
ADVICE_ON_SEPARATORS: Mapping[str, Mapping[str, str]] = {
    "csv": {
        "\t": "tabs in its name; give the file the ending .tsv",
        "|": "vertical bars in its name; put commas between the columns, or tabs and give the "
        "file the ending .tsv",
    },
    "tsv": {
        ",": "commas in its name; give the file the ending .csv",
        ";": "semicolons in its name; give the file the ending .csv",
        "|": "vertical bars in its name; put tabs between the columns",
    },
}


def separator_advice(columns: Sequence[str], kind: str) -> str:
    """What to do about a file with other separators than its ending tells.

    Args:
        columns: the names of all its columns.
        kind: a key of KINDS.

    Returns:
        A sentence without its capital and full stop; empty where the file has several columns, or
        its only column's name has no separator.
    """
    if len(columns) != 1:
        return ""
    (name,) = columns
    marks = [mark for mark in ADVICE_ON_SEPARATORS.get(kind, {}) if mark in name]
    if not marks:
        return ""
    mark = max(marks, key=name.count)
    return f"the header is one column alone, with {ADVICE_ON_SEPARATORS[kind][mark]}"


# The first line of a csv file, written for Excel.
SEPARATOR_LINE = re.compile(r'"?sep=([^\w\s"]|\t)"?\s*')
LINE_END = re.compile("[\r\n]")


def _csv(text: str, file_name: FileName) -> RecordsOrErrors:
    """Comma-separated values as in RFC 4180, or with the semicolons of Excel in many countries.

    Raises HeadlabError for malformed quoting and for other separators.
    """
    # The limit is the process's, so it is never lowered.
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    first_line = LINE_END.split(text, maxsplit=1)[0]
    separator_line = SEPARATOR_LINE.fullmatch(first_line)
    separator = separator_line[1] if separator_line else csv_separator(first_line)
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=separator, strict=True)
    header: list[str] | None = None
    line = 1
    try:
        if separator_line:
            next(reader)
            line = 2
        for fields in reader:
            if fields and not (is_blank(fields[0]) and all(map(is_blank, fields))):
                if header is None:
                    header = _check_header(fields, file_name)
                else:
                    yield _record(header, fields, file_name, line, "csv")
            line = reader.line_num + 1
    except csv.Error as error:
        raise HeadlabError(
            f"{file_name}, line {reader.line_num}: {error}; the record begins on line {line}",
            code="data.csv_malformed",
        ) from error


def csv_separator(header: str) -> str:
    """What separates the columns of a csv file.

    It is a semicolon where the header has semicolons alone, else a comma.
    """
    widths = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in ",;"}
    if widths[","] == 1 and widths[";"] > 1:
        return ";"
    return ","


def _tsv(text: str, file_name: FileName) -> RecordsOrErrors:
    """Tab-separated, without quoting; blank lines are no rows."""
    header: list[str] | None = None
    for number, line in enumerate(lines_of(text), start=1):
        if is_blank(line):
            continue
        if header is None:
            header = _check_header(line.split("\t"), file_name)
        else:
            yield _record(header, line.split("\t"), file_name, number, "tsv")


def _check_header(header: list[str], file_name: FileName) -> list[str]:
    """The names of the columns, of which some may have none.

    Raises HeadlabError for a name that stands twice.
    """
    repeated_names = sorted({name for name in header if name and header.count(name) > 1})
    if repeated_names:
        raise HeadlabError(
            f"{file_name}, line 1: the column {repeated_names[0]!r:.60} appears twice; give each "
            "column its own name",
            code="data.column_twice",
        )
    return header


def _record(
    header: list[str], fields: list[str], file_name: FileName, line: int, kind: str
) -> Record | HeadlabError:
    """A row as a record, or its error.

    It has too many or too few fields, or the names of the columns.

    Raises HeadlabError where the header has other separators than a file of this kind: all other
    rows would be wrong for the same reason.
    """
    if len(fields) != len(header):
        return _uneven_record(header, fields, file_name, line, kind)
    if fields == header and len(header) > 1:
        return HeadlabError(
            f"{file_name}, line {line}: the names of the columns once more; remove the line",
            code="data.header_twice",
        )
    return Record(line, dict(zip(header, fields, strict=True)))


def _uneven_record(
    header: Sequence[str], fields: Sequence[str], file_name: FileName, line: int, kind: str
) -> Record | HeadlabError:
    """A row with another number of fields than the header.

    It is a record if only columns without a name are missing.
    """
    named_width = len(header)
    while named_width and not header[named_width - 1]:
        named_width -= 1
    if (
        named_width < len(header)
        and len(fields) >= named_width
        and not any(map(str.strip, fields[named_width:]))
    ):
        return Record(line, dict(zip(header[:named_width], fields[:named_width], strict=True)))
    mismatch = f"{file_name}, line {line}: {len(fields)} fields where the header has {len(header)}"
    advice = separator_advice(header, kind)
    if advice:
        raise HeadlabError(f"{mismatch}; {advice}", code="data.separator_other")
    if len(fields) == len(header) + 1 and not fields[-1].strip():
        mismatch += "; its last field is empty, so remove the separator at its end"
    return HeadlabError(mismatch, code="data.fields_mismatch")


def _jsonl(text: str, file_name: FileName) -> RecordsOrErrors:
    """One JSON object per line.

    Raises HeadlabError for objects over several lines, or in one list.
    """
    _require_lines_of_json(text, file_name)
    for number, line in enumerate(lines_of(text), start=1):
        if not is_blank(line):
            yield _json_record(line, file_name, number)


def _require_lines_of_json(text: str, file_name: FileName) -> None:
    """Raise HeadlabError for JSON that is one list, or an object over several lines."""
    json_text = text.lstrip()
    try:
        if json_text.startswith("["):
            objects = json.loads(json_text)
            spans_lines = bool(objects) and all(isinstance(value, dict) for value in objects)
        else:
            _, end = json.JSONDecoder().raw_decode(json_text)
            spans_lines = LINE_END.search(json_text, 0, end) is not None
    except (ValueError, RecursionError):
        return  # the line with the error is named when it is read
    if spans_lines:
        raise HeadlabError(
            f"{file_name} is one JSON list or has objects over several lines; write each object "
            "on a line of its own (jq -c '.[]' does that with a list, jq -c . with objects)",
            code="data.json_not_lines",
        )


def _json_record(line: str, file_name: FileName, number: int) -> Record | HeadlabError:
    try:
        values = json.loads(line)
        if isinstance(values, dict) and line.count('":') + line.count('" :') > len(values):
            # Slower, so only where a name may stand twice.
            values = json.loads(line, object_pairs_hook=_unique_fields)
    except json.JSONDecodeError as error:
        return HeadlabError(
            f"{file_name}, line {number}, character {error.colno}: {error.msg}; give one JSON "
            "object a line",
            code="data.json_malformed",
        )
    # Nested too deep, or a number with too many digits.
    except (RecursionError, ValueError) as error:
        return HeadlabError(f"{file_name}, line {number}: {error}", code="data.json_unusable")
    if not isinstance(values, dict):
        return HeadlabError(
            f"{file_name}, line {number}: {line!r:.60} is not a JSON object; give one per line",
            code="data.json_not_object",
        )
    return Record(number, values)


def _unique_fields(fields: list[tuple[str, Json]]) -> JsonObject:
    """An object of these fields. Raises ValueError for a name that stands twice."""
    values = dict(fields)
    if len(values) < len(fields):
        names = [name for name, _ in fields]
        repeated_name = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"the name {repeated_name!r:.60} stands twice in one object; give each field a name "
            "of its own"
        )
    return values


def _conllu(text: str, file_name: FileName) -> RecordsOrErrors:
    """One record a sentence, with the columns of CoNLL-U.

    A column is a list with the value of every word, None where it is _.

    Raises HeadlabError for one token a line in other columns: every sentence would be wrong for the
    same reason.
    """
    if looks_like_tokens(text, "conllu"):
        raise HeadlabError(f"{file_name}: {TOKENS_ADVICE}", code="data.tokens_as_rows")
    for sentence in conllu_sentences(text, file_name):
        record = _sentence(sentence)
        if record is not None:
            yield record


def _sentence(sentence: ConlluSentence) -> Record | HeadlabError | None:
    """A sentence of CoNLL-U as a record; None for one without words."""
    try:
        words = [word.fields for word in sentence.words()]
    except HeadlabError as error:
        return error
    if not words:
        return None
    values: dict[str, list[str | None]] = {}
    for column in CONLLU:
        # A word may be written as _.
        values[column] = [
            None if column != "FORM" and fields[column] == "_" else fields[column]
            for fields in words
        ]
    return Record(sentence.line, values)


# One token a line in columns without names, as XTREME and CoNLL-2003 have them.

DOCUMENT_START = "-DOCSTART-"
# Such as "# id 3f2a domain=en" and "# sent_id = 7".
COMMENT = re.compile(r"#\s+(id|newdoc|newpar)\b|#\s*[^\s=]+\s*=")
TOKENS_ADVICE = (
    'it looks like one token a line, a blank line between sentences; declare it with format = "conll", where columns '
    "are called by their numbers, the first one 1 (on the page: give the file the ending .conll)"
)


def _token_lines(text: str, file_name: FileName) -> RecordsOrErrors:
    """One record a sentence, with the columns by their numbers from 1.

    A column is a list with the value of every token.

    Columns stand between tabs, or between spaces where a line has no tab. Lines that begin a
    document, and comments before a sentence, are left out.
    """
    width = 0
    for tokens in token_sentences(text):
        rows = [_token_fields(line) for _, line in tokens]
        width = width or len(rows[0])
        unfit_index = next((index for index, row in enumerate(rows) if len(row) != width), None)
        if unfit_index is None:
            values = {str(column + 1): [row[column] for row in rows] for column in range(width)}
            yield Record(tokens[0][0], values)
            continue
        yield HeadlabError(
            f"{file_name}, line {tokens[unfit_index][0]}: {len(rows[unfit_index])} fields where "
            f"the first token has {width}: {tokens[unfit_index][1]!r:.60}",
            code="data.fields_mismatch",
        )


def token_sentences(text: str) -> Iterator[list[tuple[int, str]]]:
    """The lines of each sentence that hold tokens, with their numbers; no sentence is empty.

    A line that begins with # is a comment where it stands before a sentence and is like none of the
    file's other lines, as it has no tab or another number of columns, or reads like one that these
    files have.
    """
    marks = ("#", DOCUMENT_START)
    first_token = next(
        (line for line in lines_of(text) if not is_blank(line) and not line.startswith(marks)), None
    )
    for block in paragraphs(text):
        tokens: list[tuple[int, str]] = []
        for number, line in block:
            begins_document = line.split()[0] == DOCUMENT_START
            if not begins_document and (tokens or not _is_comment(line, first_token)):
                tokens.append((number, line))
        if tokens:
            yield tokens


def _is_comment(line: str, first_token: str | None) -> bool:
    """Whether a line before a sentence is a comment.

    Args:
        first_token: The file's first line that surely is none.
    """
    if not line.startswith("#"):
        return False
    if COMMENT.match(line):
        return True
    return first_token is not None and _columns(line) != _columns(first_token)


def _columns(line: str) -> tuple[bool, int]:
    """Whether the columns of a line stand between tabs, and how many there are."""
    return "\t" in line, len(_token_fields(line))


def _token_fields(line: str) -> list[str]:
    if "\t" in line:
        return line.split("\t")
    return line.split()


def looks_like_tokens(text: str, kind: str) -> bool:
    """Whether a file has one token a line, whatever kind it was given as.

    Args:
        kind: What it was given as. A table must have several sentences, and no space in its first
            column; CoNLL-U a first token with other columns; any other file as many columns for
            every token, two or more.
    """
    sentences = token_sentences(text)
    if kind == "conllu":
        _, first_token = next(sentences, [(0, "")])[0]
        fields = _token_fields(first_token)
        return 1 < len(fields) != len(CONLLU) and not (
            WORD.fullmatch(fields[0]) or NO_WORD.fullmatch(fields[0])
        )
    lines_by_sentence = [[line for _, line in sentence] for sentence in sentences]
    lines = list(chain.from_iterable(lines_by_sentence))
    if kind == "tsv":
        in_columns = len(lines_by_sentence) > 1 and all("\t" in line for line in lines)
        return in_columns and not any(" " in line.split("\t")[0].strip() for line in lines)
    widths = {len(_token_fields(line)) for line in lines}
    return kind == "conll" and len(widths) == 1 and widths != {1}


KINDS: Mapping[str, Callable[[str, FileName], RecordsOrErrors]] = MappingProxyType(
    {"csv": _csv, "tsv": _tsv, "jsonl": _jsonl, "conllu": _conllu, "conll": _token_lines}
)
