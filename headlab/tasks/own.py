"""Tasks made from files that a page sends.

They are read and checked row by row, then saved with their declaration.
"""

from __future__ import annotations

import io
import json
import shutil
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import NamedTuple

from headlab.core import (
    MAX_SENT_BYTES,
    HeadlabError,
    JsonLike,
    is_text,
    make_folder,
    unwritable_error,
    write_atomic,
)
from headlab.tasks.base import SPLITS, TREEBANK, Example, Split
from headlab.tasks.columns import is_known_name
from headlab.tasks.declared import (
    COLUMNS,
    LANGUAGE,
    NAME,
    DeclaredRow,
    check_place,
    declaration,
    declared_task,
    example_of,
    labels_alike,
    labels_of,
)
from headlab.tasks.equal_texts import (
    FIRST_VERSION,
    NEWEST_VERSION,
    VERSIONS,
    DividedRow,
    dev_rows,
    notes_of_examples,
    text_of,
)
from headlab.tasks.record_files import KINDS, Record, looks_like_tokens, require_columns
from headlab.tasks.registry import SAVED_FOLDER, task_names
from headlab.tasks.text_files import decode_text, lines_of, require_no_nul

# Files as they were sent, and what is to be made of them.

MAX_LABELS = 200
# Each needs a column of its own; a group may be a text, such as the premise that several pairs
# share.
DISTINCT_MEANINGS = tuple(name for name in COLUMNS if name not in ("group", "id"))
MAX_SAVED_TASKS = 64  # tasks in a cache folder
ENDINGS = {
    **{f".{kind}": kind for kind in KINDS},
    ".ndjson": "jsonl",
    ".conll": "conllu",  # or one token a line, as `format_of` tells
    ".txt": "conll",
}


@dataclass(frozen=True, eq=False)
class Upload:
    """A file as it was sent.

    Attributes:
        name: Its owner's, which is shown and never a path.
        language, split: Of all its rows; None where a column says it, and for the split where its
            rows are divided.
    """

    name: str
    data: bytes = field(repr=False)
    language: str | None = None
    split: Split | None = None


@dataclass(frozen=True)
class Draft:
    """A task to be made.

    Attributes:
        columns, splits, aligned: As in a declaration.
        share: Of the rows that become dev, the others being test; None where a column or the files
            tell the split.
        division: The version of the division by share (`headlab.tasks.equal_texts`).
    """

    name: str
    format: str
    columns: Mapping[str, str]
    files: tuple[Upload, ...]
    splits: Mapping[Split, str] = field(default_factory=dict)
    aligned: bool = False
    share: float | None = None
    division: int = NEWEST_VERSION

    def to_json(self) -> dict[str, JsonLike]:
        """As the worker takes it."""
        sent_files = [
            {
                "name": f.name,
                "data": b64encode(f.data).decode(),
                "language": f.language,
                "split": f.split,
            }
            for f in self.files
        ]
        fields: dict[str, JsonLike] = {
            "name": self.name,
            "format": self.format,
            "aligned": self.aligned,
            "share": self.share,
            "division": self.division,
        }
        names_by_split: dict[str, str] = dict(self.splits.items())
        return {
            **fields,
            "columns": dict(self.columns),
            "splits": names_by_split,
            "sent": sent_files,
        }


def kind_of(name: str) -> str:
    """The format that a file's name tells. Raises HeadlabError for another ending."""
    kind = ENDINGS.get(PurePosixPath(name.lower()).suffix)
    if kind is None:
        raise HeadlabError(
            f"{name!r:.80} has none of the endings {', '.join(ENDINGS)}; save it as one of these",
            code="upload.format_unknown",
        )
    return kind


def format_of(upload: Upload) -> str:
    """The format of a file, told by its name or its contents.

    Contents tell where tables and one token a line have the same endings.

    Raises HeadlabError for another ending.
    """
    kind = kind_of(upload.name)
    if kind in ("csv", "jsonl"):
        return kind
    try:
        text = _text(upload)
    except HeadlabError:
        return kind  # the error is told when the file is read
    has_header = kind == "tsv" and any(map(is_known_name, lines_of(text)[0].split("\t")))
    is_tokens = not has_header and looks_like_tokens(text, kind)
    if kind == "conll" and not is_tokens:
        raise HeadlabError(
            f"{upload.name} does not have one token a line with its label in another column; save "
            "a table as csv, tsv or jsonl, with that ending",
            code="upload.not_tokens",
        )
    return "conll" if is_tokens else kind


def read_upload(upload: Upload, kind: str) -> list[Record | HeadlabError]:
    """The records of a file in their order; never empty.

    Errors stand in the place of those that cannot be read.
    """
    records: list[Record | HeadlabError] = []
    try:
        records.extend(KINDS[kind](_text(upload), upload.name))
    except HeadlabError as error:
        records.append(error)
    return records or [
        HeadlabError(f"{upload.name} has no rows; give a file with examples", code="upload.no_rows")
    ]


def _text(upload: Upload) -> str:
    """A file's text. Raises HeadlabError for one that is too large, empty or no text."""
    if len(upload.data) > MAX_SENT_BYTES:
        raise HeadlabError(
            f"{upload.name} has {len(upload.data) / (1 << 20):,.0f} MiB, and "
            f"{MAX_SENT_BYTES >> 20} may be sent; give fewer rows, or write a declaration beside "
            "the file (docs/tasks.md)",
            code="upload.too_large",
        )
    if not upload.data.strip():
        raise HeadlabError(
            f"{upload.name} is empty; give a file with examples", code="upload.empty"
        )
    text = decode_text(upload.data, upload.name)
    require_no_nul(text, upload.name, code="upload.not_text")
    return text


# The check: every row as the task would read it, and every error of it.


@dataclass(frozen=True)
class DraftCheck:
    """What reading a draft's files gave: the task, or the errors in it.

    Attributes:
        labels: The labels of all rows, sorted.
        sizes: Examples by language and split.
        errors: Of rows and files, in their order; if there are none, the task can be saved.
        declaration: Its text.
        files: By the name that the declaration gives them.
        label_counts: Texts, or words, by language and label.
        notes: Sentences on equal texts, without their full stop.
    """

    labels: tuple[str, ...]
    sizes: Mapping[tuple[str, Split], int]
    errors: list[HeadlabError]
    declaration: str
    files: Mapping[str, bytes] = field(repr=False)
    label_counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def languages(self) -> list[str]:
        """The languages, in the order of the rows."""
        return list(dict.fromkeys(language for language, _ in self.sizes))


class UploadedRow(NamedTuple):
    """A row of a file that can be read, as an example of a language."""

    upload: Upload
    declared_row: DeclaredRow
    language: str
    example: Example


def check_draft(draft: Draft) -> DraftCheck:
    """Read every row as the task would.

    Raises HeadlabError for a name, columns or files that fit no task.
    """
    # They become keys of the declaration.
    unknown = [name for name in draft.columns if name not in COLUMNS]
    if unknown:
        raise HeadlabError(
            f"unknown column {unknown[0]!r:.60}; choose from {', '.join(COLUMNS)}",
            code="upload.column_unknown",
        )
    text = _toml(draft, ())
    if not is_text(text):
        raise HeadlabError(
            "a column's name is no text in UTF-8; give it another", code="upload.column_invalid"
        )
    contents = declaration(text, Path(f"{draft.name}.toml"))
    _check_columns(draft.columns)
    _check_division(draft)
    _check_files(draft)
    rows_by_upload: dict[Upload, list[DeclaredRow | HeadlabError]] = {}
    for upload in draft.files:
        rows_by_upload[upload] = []
        for record in read_upload(upload, draft.format):
            if isinstance(record, HeadlabError):
                rows_by_upload[upload].append(record)
            else:
                rows_by_upload[upload].append(DeclaredRow(contents, upload.name, record))
    labels, label_errors = _all_labels(contents.has_no_labels, rows_by_upload)
    rows, row_errors = _read_rows(rows_by_upload, labels)
    errors = row_errors or label_errors
    if errors:
        return DraftCheck(labels, {}, errors, _toml(draft, labels), {})
    return _check_divided(draft, rows, labels)


def _all_labels(
    is_unlabelled: bool, rows_by_upload: Mapping[Upload, Sequence[DeclaredRow | HeadlabError]]
) -> tuple[tuple[str, ...], list[HeadlabError]]:
    """The labels of all rows that can be read, sorted, and what is wrong with them as a whole."""
    readable_rows: list[DeclaredRow] = []
    labels_found = set[str]()
    for row in chain.from_iterable(rows_by_upload.values()):
        if isinstance(row, DeclaredRow) and _error_of(_check_row_place, row) is None:
            readable_rows.append(row)
            labels_found.update(_labels(row))
    labels = tuple(sorted(labels_found))
    return labels, list(_label_errors(is_unlabelled, labels, readable_rows))


def _check_divided(
    draft: Draft, rows: Sequence[UploadedRow], labels: tuple[str, ...]
) -> DraftCheck:
    """What the task has, once every row can be read."""
    splits = _splits(draft, rows)
    examples: dict[tuple[str, Split], list[Example]] = {}
    for row, split in zip(rows, splits, strict=True):
        examples.setdefault((row.language, split), []).append(row.example)
    sizes = {place: len(members) for place, members in examples.items()}
    errors = [
        HeadlabError(
            f"there are no dev examples in {language}; heads are chosen on dev",
            code="upload.no_dev",
        )
        for language in dict.fromkeys(language for language, _ in sizes)
        if not sizes.get((language, "dev"))
    ]
    return DraftCheck(
        labels,
        sizes,
        errors,
        _toml(draft, labels),
        _files_of(draft, rows, splits),
        _label_counts(rows, labels),
        tuple(
            notes_of_examples(
                examples, is_divided=draft.share is not None and draft.division > FIRST_VERSION
            )
        ),
    )


def _files_of(
    draft: Draft, rows: Sequence[UploadedRow], splits: Sequence[Split]
) -> dict[str, bytes]:
    """The files of the task, by the names that its declaration gives them."""
    files: dict[str, bytes] = {}
    for upload in draft.files:
        members = [
            (row.declared_row, split)
            for row, split in zip(rows, splits, strict=True)
            if row.upload is upload
        ]
        files |= _files_of_upload(
            draft, upload, [row for row, _ in members], [split for _, split in members]
        )
    return files


def _label_counts(rows: Sequence[UploadedRow], labels: Sequence[str]) -> dict[tuple[str, str], int]:
    """Texts, or words, by language and label."""
    counts = Counter[tuple[str, str]]()
    if not labels:
        return {}
    for row in rows:
        numbers = row.example.labels or (row.example.label,)
        counts.update((row.language, labels[number]) for number in numbers)
    return dict(counts)


def _check_columns(columns: Mapping[str, str]) -> None:
    """Raise HeadlabError for a column of two meanings."""
    meanings_by_column: dict[str, str] = {}
    for name in DISTINCT_MEANINGS:
        if name not in columns:
            continue
        earlier = meanings_by_column.setdefault(columns[name], name)
        if earlier != name:
            raise HeadlabError(
                f"{earlier} and {name} are both column {columns[name]}; give each a column of its "
                "own",
                code="upload.column_twice",
            )


def _check_division(draft: Draft) -> None:
    """Raise HeadlabError for a share that leaves dev or test empty.

    An unknown version of the division is refused too.
    """
    if draft.share is not None and not 0 < draft.share < 1:
        raise HeadlabError(
            f"the share of dev is {draft.share}; give a number between 0 and 1, both excluded",
            code="upload.share_invalid",
        )
    if draft.division not in VERSIONS:
        raise HeadlabError(
            f"division is {draft.division!r:.60}, and this headlab knows "
            f"{', '.join(map(str, VERSIONS))}",
            code="upload.division_unknown",
        )


def _check_files(draft: Draft) -> None:
    """Raise HeadlabError for no files, too many bytes, or two files that would be one."""
    if not draft.files:
        raise HeadlabError("no file is given; give one or more", code="upload.none")
    size = sum(len(upload.data) for upload in draft.files)
    if size > MAX_SENT_BYTES:
        raise HeadlabError(
            f"the files have {size / (1 << 20):,.0f} MiB together, and {MAX_SENT_BYTES >> 20} may "
            "be sent; give fewer rows, or write a declaration beside the files (docs/tasks.md)",
            code="upload.too_large",
        )
    names_by_place = dict[str, str]()
    for upload in draft.files:
        _check_file(draft, upload)
        file_name = _file_name(draft, upload.language, upload.split or "dev")
        if file_name in names_by_place or upload.name in names_by_place.values():
            raise HeadlabError(
                f"{upload.name} and {names_by_place.get(file_name, upload.name)} are the same "
                "language, split and name, or a column tells these; give each file its own, or "
                "put the rows into one file",
                code="upload.place_twice",
            )
        names_by_place[file_name] = upload.name


def _check_file(draft: Draft, upload: Upload) -> None:
    """Raise HeadlabError unless a file's language and split are told, once each."""
    if "language" not in draft.columns and not upload.language:
        raise HeadlabError(
            f"which language is {upload.name} in? Give its code, like de", code="upload.no_language"
        )
    # It becomes part of a file's name.
    if upload.language and not LANGUAGE.fullmatch(upload.language):
        raise HeadlabError(
            f"{upload.name}: {upload.language!r:.60} is not a language code like de or zh-CN",
            code="upload.language_invalid",
        )
    if ("split" in draft.columns) + (draft.share is not None) + (upload.split is not None) != 1:
        raise HeadlabError(
            f"which examples are in {upload.name}? Name a column that says it, a split, or a "
            "share for dev",
            code="upload.no_split",
        )


def _error_of(function: Callable[..., object], *arguments: object) -> HeadlabError | None:
    """The HeadlabError that a call raises; None if it raises none."""
    try:
        function(*arguments)
    except HeadlabError as error:
        return error
    return None


def _check_row_place(row: DeclaredRow) -> None:
    """Raise HeadlabError unless a row has all columns, a known split and a language code."""
    require_columns(row.record, row.path, tuple(row.contents.columns.values()), row.contents.format)
    check_place(row)


def _labels(row: DeclaredRow) -> list[str]:
    """The labels of a row; none where they cannot be read, which is said elsewhere."""
    with suppress(HeadlabError):
        return labels_of(row)
    return []


def _read_rows(
    rows_by_upload: Mapping[Upload, Sequence[DeclaredRow | HeadlabError]], labels: tuple[str, ...]
) -> tuple[list[UploadedRow], list[HeadlabError]]:
    """The rows that can be read, and the errors of the others, both in their order."""
    lines_by_id: dict[tuple[str, str, str], int] = {}
    uploaded_rows: list[UploadedRow] = []
    errors: list[HeadlabError] = []
    for upload, rows in rows_by_upload.items():
        for row in rows:
            try:
                if isinstance(row, HeadlabError):
                    raise row
                uploaded_rows.append(_read_row(row, upload, labels, lines_by_id))
            except HeadlabError as error:
                errors.append(error)
    return uploaded_rows, errors


def _read_row(
    row: DeclaredRow,
    upload: Upload,
    labels: tuple[str, ...],
    lines_by_id: dict[tuple[str, str, str], int],
) -> UploadedRow:
    """A row as an example; its id, if it has one, is noted in lines_by_id.

    Raises HeadlabError for a wrong row.
    """
    _check_row_place(row)
    language = _language(row, upload)
    example = replace(example_of(row, "", labels, language), place=row.place)
    if row.has("id"):
        split = row.text_or("split", upload.split or "")
        line = lines_by_id.setdefault((language, split, example.id), row.record.line)
        if line != row.record.line:
            raise row.field_error(
                "id", f"{example.id!r:.60} is already on line {line}", code="data.id_twice"
            )
    return UploadedRow(upload, row, language, example)


def _label_errors(
    is_unlabelled: bool, labels: Sequence[str], rows: Sequence[DeclaredRow]
) -> Iterator[HeadlabError]:
    """What is wrong with the labels as a whole."""
    if is_unlabelled or not rows:
        return
    contents = rows[0].contents
    column = contents.columns["labels" if contents.by_word else "label"]
    if len(labels) > MAX_LABELS:
        yield HeadlabError(
            f"column {column} has {len(labels):,} different values, and a task {MAX_LABELS} "
            "labels at most; choose the column that holds the labels",
            code="upload.labels_too_many",
        )
    problem = labels_alike(labels)
    if problem:
        yield HeadlabError(f"column {column} has {problem}", code="data.labels_alike")
    if len(labels) == 1:
        yield HeadlabError(
            f"column {column} has {labels[0]!r:.60} in every row; a task needs two labels or more",
            code="upload.label_single",
        )


def _language(row: DeclaredRow, upload: Upload) -> str:
    return row.text_or("language", str(upload.language))


def _splits(draft: Draft, rows: Sequence[UploadedRow]) -> list[Split]:
    """The split of every row."""
    if draft.share is not None:
        dev = dev_rows(
            [_divided_row(draft, row) for row in rows],
            draft.share,
            is_aligned=draft.aligned,
            version=draft.division,
        )
        return ["dev" if index in dev else "test" for index in range(len(rows))]
    return [_row_split(row) for row in rows]


def _divided_row(draft: Draft, row: UploadedRow) -> DividedRow:
    group = row.declared_row.text_or("group", "")
    return DividedRow(draft.files.index(row.upload), row.language, group, text_of(row.example))


def _row_split(row: UploadedRow) -> Split:
    """The split that a row's column or file tells."""
    if row.declared_row.has("split"):
        splits = {name: split for split, name in row.declared_row.contents.splits.items()}
        return splits[row.declared_row.text("split")]
    assert row.upload.split is not None
    return row.upload.split


def _file_name(draft: Draft, language: str | None, split: str) -> str:
    """The file that holds a language's split, as the declaration names it.

    No part of it is the owner's text.
    """
    values_by_place = {"language": str(language), "split": split}
    parts = [part for place, part in values_by_place.items() if place not in draft.columns]
    return ".".join([*(parts or ["data"]), draft.format])


def _files_of_upload(
    draft: Draft, upload: Upload, rows: Sequence[DeclaredRow], splits: Sequence[Split]
) -> dict[str, bytes]:
    """The files that an upload becomes: itself, unchanged, or one for dev and one for test."""
    if draft.share is None:
        return {_file_name(draft, upload.language, upload.split or "dev"): upload.data}
    text = decode_text(upload.data, upload.name)
    # What the readers take for lines.
    if draft.format == "csv":
        lines = list(io.StringIO(text, newline=""))
    else:
        lines = [f"{line}\n" for line in lines_of(text)]
    starts = [*(row.record.line - 1 for row in rows), len(lines)]
    head = "".join(lines[: starts[0]])
    files: dict[str, bytes] = {}
    for split in SPLITS:
        if split not in splits:
            continue
        content = head
        for row_split, (start, end) in zip(splits, pairwise(starts), strict=True):
            if row_split == split:
                content += "".join(lines[start:end])
        files[_file_name(draft, upload.language, split)] = content.encode()
    return files


def _toml(draft: Draft, labels: Sequence[str]) -> str:
    """The declaration's text."""
    files = _file_name(draft, "{language}", "{split}")
    lines = [
        f"name = {_toml_string(draft.name)}",
        f"format = {_toml_string(draft.format)}",
        f"files = {_toml_string(files)}",
    ]
    if labels:
        lines.append(f"labels = [{', '.join(map(_toml_string, labels))}]")
    if draft.aligned:
        lines.append("aligned = true")
    if draft.share is not None and draft.division > FIRST_VERSION:
        lines.append(f"division = {draft.division}")
    for table, rows in (("columns", draft.columns), ("splits", draft.splits)):
        if rows:
            lines += ["", f"[{table}]"]
            lines += [f"{key} = {_toml_string(value)}" for key, value in rows.items()]
    return "\n".join(lines) + "\n"


def _toml_string(text: str) -> str:
    """A TOML string: JSON's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# Saving: a folder of its own, all of it or nothing, and never over another task.


def save_task(draft: Draft, cache: Path) -> DraftCheck:
    """Save a task as `tasks/NAME/` below the cache folder.

    The same task sent again changes nothing.

    Raises HeadlabError for the first error of its rows, for a name that another task has, and for a
    folder that cannot be written.
    """
    checked = _saved_before(draft, cache) or check_draft(draft)
    if checked.errors:
        remainder = ""
        if len(checked.errors) > 1:
            remainder = f"; and {len(checked.errors) - 1} more errors"
        raise HeadlabError(f"{checked.errors[0]}{remainder}", code=checked.errors[0].code)
    root = cache / SAVED_FOLDER
    files = {**checked.files, f"{draft.name}.toml": checked.declaration.encode()}
    if _holds_just(root / draft.name, files):
        return checked
    if draft.name in (*task_names(), TREEBANK) or (root / draft.name).exists():
        raise _name_taken(draft.name)
    if root.is_dir() and sum(1 for _ in root.iterdir()) >= MAX_SAVED_TASKS:
        raise HeadlabError(
            f"{MAX_SAVED_TASKS} tasks have been saved already; whoever runs headlab can remove "
            f"some from {SAVED_FOLDER}/ below its cache and restart it",
            code="upload.tasks_too_many",
        )
    _write_task(root, draft.name, files, checked)
    return checked


def _saved_before(draft: Draft, cache: Path) -> DraftCheck | None:
    """What an earlier version's division made of a draft, if that is saved; else None.

    The task then stays as it is.
    """
    if draft.share is None or not NAME.fullmatch(draft.name):
        return None
    if not (cache / SAVED_FOLDER / draft.name).is_dir():
        return None
    for version in range(FIRST_VERSION, draft.division):
        earlier = check_draft(replace(draft, division=version))
        files = {**earlier.files, f"{draft.name}.toml": earlier.declaration.encode()}
        if not earlier.errors and _holds_just(cache / SAVED_FOLDER / draft.name, files):
            return earlier
    return None


def _name_taken(name: str) -> HeadlabError:
    return HeadlabError(
        f"there is already another task {name}; choose another name", code="upload.taken"
    )


def _holds_just(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether a folder holds just these files."""
    try:
        return {path.name: path.read_bytes() for path in folder.iterdir()} == files
    except OSError:
        return False


def _write_task(root: Path, name: str, files: Mapping[str, bytes], checked: DraftCheck) -> None:
    """Write the files under a temporary name, read them as the task, and move them into place."""
    temporary_folder = root / f".{name}.{token_hex(4)}.tmp"
    try:
        make_folder(temporary_folder)
        for file, data in files.items():
            write_atomic(temporary_folder / file, data)
        _verify(temporary_folder, name, checked)
        temporary_folder.rename(root / name)
    except OSError as error:
        if (root / name).exists():  # saved by someone else meanwhile
            raise _name_taken(name) from error
        raise unwritable_error(root / name, error) from error
    finally:
        shutil.rmtree(temporary_folder, ignore_errors=True)


def _verify(folder: Path, name: str, checked: DraftCheck) -> None:
    """Raise HeadlabError unless the written task has just the examples that were found."""
    try:
        written_task = declared_task(folder / f"{name}.toml")
        sizes = {
            (language, split): len(written_task.read(language, split, written_task.seed))
            for language, split in checked.sizes
        }
    except HeadlabError as error:
        raise HeadlabError(str(error).replace(f"{folder}/", ""), code=error.code) from error
    if sizes != checked.sizes or set(written_task.languages) != set(checked.languages):
        raise HeadlabError(
            f"the task {name} would not have the examples that its files have; report this, with "
            "the files' first rows",
            code="upload.not_the_same",
        )
