"""Tasks made from files that a page sends: read and checked row by row, then saved with their declaration."""

from __future__ import annotations

import io
import json
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.files import MAX_SENT_BYTES, is_text, make_folder, unwritable, write_atomic
from headlab.tasks import SAVED, names
from headlab.tasks.base import KINDS, SPLITS, TREEBANK, Record, Split, decoded, lines_of, require_columns
from headlab.tasks.declared import (
    COLUMNS,
    LANGUAGE,
    Row,
    check_place,
    declaration,
    declared_task,
    example_of,
    labels_of,
)

# Files as they were sent, and what is to be made of them.

MAX_LABELS = 200
ASKED = ("text", "pair", "label", "target", "words", "labels", "context", "choices", "answer")  # each needs a column
MOST = 64  # tasks in a cache folder
ENDINGS = {**{f".{kind}": kind for kind in KINDS}, ".ndjson": "jsonl", ".conll": "conllu"}


@dataclass(frozen=True, eq=False)
class Upload:
    """A file as it was sent.  name: its owner's, which is shown and never a path.

    language, split: of all its rows; None where a column says it, and for the split where its rows are divided.
    """

    name: str
    data: bytes = field(repr=False)
    language: str | None = None
    split: Split | None = None


@dataclass(frozen=True)
class Draft:
    """A task to be made.  columns, splits, aligned: as in a declaration.

    share: of the rows that become dev, the others being test; None where a column or the files tell the split.
    """

    name: str
    format: str
    columns: Mapping[str, str]
    files: tuple[Upload, ...]
    splits: Mapping[Split, str] = field(default_factory=dict)
    aligned: bool = False
    share: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As the worker takes it."""
        sent = [
            {"name": f.name, "data": b64encode(f.data).decode(), "language": f.language, "split": f.split}
            for f in self.files
        ]
        plain = {"name": self.name, "format": self.format, "aligned": self.aligned, "share": self.share}
        return {**plain, "columns": dict(self.columns), "splits": dict(self.splits), "sent": sent}


def kind_of(name: str) -> str:
    """The format that a file's name tells. Raises HeadlabError for another ending."""
    kind = ENDINGS.get(PurePosixPath(name.lower()).suffix)
    if kind is None:
        raise HeadlabError(
            f"{name!r:.80} has none of the endings {', '.join(ENDINGS)}; save it as one of these",
            code="upload.format_unknown",
        )
    return kind


def read_upload(upload: Upload, kind: str) -> list[Record | HeadlabError]:
    """The records of a file in their order, errors in the place of those that cannot be read; never empty."""
    found: list[Record | HeadlabError] = []
    try:
        found.extend(KINDS[kind](_text(upload), upload.name))
    except HeadlabError as error:
        found.append(error)
    return found or [HeadlabError(f"{upload.name} has no rows; give a file with examples", code="upload.no_rows")]


def _text(upload: Upload) -> str:
    """A file's text. Raises HeadlabError for one that is too large, empty or no text."""
    if len(upload.data) > MAX_SENT_BYTES:
        raise HeadlabError(
            f"{upload.name} has {len(upload.data) / (1 << 20):,.0f} MiB, and {MAX_SENT_BYTES >> 20} may be sent; give "
            "fewer rows, or write a declaration beside the file (docs/tasks.md)",
            code="upload.too_large",
        )
    if not upload.data.strip():
        raise HeadlabError(f"{upload.name} is empty; give a file with examples", code="upload.empty")
    text = decoded(upload.data, upload.name)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise HeadlabError(
            f"{upload.name}, line {line}: a NUL character, which no text has; save the file as text in UTF-8",
            code="upload.not_text",
        )
    return text


# The check: every row as the task would read it, and every error of it.


@dataclass(frozen=True)
class Checked:
    """What was found.  errors: of rows and files, in their order; if there are none, the task can be saved.

    sizes: examples by language and split.  declaration: its text.  files: by the name that the declaration gives them.
    """

    labels: tuple[str, ...]
    sizes: Mapping[tuple[str, Split], int]
    errors: list[HeadlabError]
    declaration: str
    files: Mapping[str, bytes] = field(repr=False)

    @property
    def languages(self) -> list[str]:
        """The languages, in the order of the rows."""
        return list(dict.fromkeys(language for language, _ in self.sizes))


def check(draft: Draft) -> Checked:
    """Read every row as the task would. Raises HeadlabError for a name, columns or files that fit no task."""
    if unknown := [name for name in draft.columns if name not in COLUMNS]:  # they become keys of the declaration
        raise HeadlabError(
            f"unknown column {unknown[0]!r:.60}; choose from {', '.join(COLUMNS)}", code="upload.column_unknown"
        )
    text = _toml(draft, ())
    if not is_text(text):
        raise HeadlabError("a column's name is no text in UTF-8; give it another", code="upload.column_invalid")
    said = declaration(text, Path(f"{draft.name}.toml"))
    _check_columns(draft.columns)
    _check_files(draft)
    found = {
        upload: [one if isinstance(one, HeadlabError) else Row(said, upload.name, one) for one in records]
        for upload, records in ((upload, read_upload(upload, draft.format)) for upload in draft.files)
    }
    rows = {upload: [row for row in of_file if isinstance(row, Row)] for upload, of_file in found.items()}
    whole = [row for of_file in rows.values() for row in of_file if _error(_placed, row) is None]
    labels = tuple(sorted({label for row in whole for label in _labels(row)}))
    errors = list(_of_rows(found, labels)) or list(_of_labels(said.unlabelled, labels, whole))
    if errors:
        return Checked(labels, {}, errors, _toml(draft, labels), {})
    sizes, files = dict[tuple[str, Split], int](), dict[str, bytes]()
    for upload, of_file in rows.items():
        splits = _splits(draft, upload, of_file)
        for row, split in zip(of_file, splits, strict=True):
            place = _language(row, upload), split
            sizes[place] = sizes.get(place, 0) + 1
        files |= _files(draft, upload, of_file, splits)
    errors += [
        HeadlabError(f"there are no dev examples in {language}; heads are chosen on dev", code="upload.no_dev")
        for language in dict.fromkeys(language for language, _ in sizes)
        if not sizes.get((language, "dev"))
    ]
    return Checked(labels, sizes, errors, _toml(draft, labels), files)


def _check_columns(columns: Mapping[str, str]) -> None:
    """Raise HeadlabError for a column of two meanings."""
    meant = [(name, columns[name]) for name in ASKED if name in columns]
    for at, (name, column) in enumerate(meant):
        if again := [other for other, same in meant[:at] if same == column]:
            raise HeadlabError(
                f"{again[0]} and {name} are both column {column}; give each a column of its own",
                code="upload.column_twice",
            )


def _check_files(draft: Draft) -> None:
    """Raise HeadlabError for no files, too many bytes, or two files that would be one."""
    if not draft.files:
        raise HeadlabError("no file is given; give one or more", code="upload.none")
    if (size := sum(len(upload.data) for upload in draft.files)) > MAX_SENT_BYTES:
        raise HeadlabError(
            f"the files have {size / (1 << 20):,.0f} MiB together, and {MAX_SENT_BYTES >> 20} may be sent; give fewer "
            "rows, or write a declaration beside the files (docs/tasks.md)",
            code="upload.too_large",
        )
    seen = dict[str, str]()
    for upload in draft.files:
        _check_file(draft, upload)
        place = _name(draft, upload.language, upload.split or "dev")
        if place in seen or upload.name in seen.values():
            raise HeadlabError(
                f"{upload.name} and {seen.get(place, upload.name)} are the same language, split and name, or a column "
                "tells these; give each file its own, or put the rows into one file",
                code="upload.place_twice",
            )
        seen[place] = upload.name


def _check_file(draft: Draft, upload: Upload) -> None:
    """Raise HeadlabError unless a file's language and split are told, once each."""
    if "language" not in draft.columns and not upload.language:
        raise HeadlabError(f"which language is {upload.name} in? Give its code, like de", code="upload.no_language")
    if upload.language and not LANGUAGE.fullmatch(upload.language):  # it becomes part of a file's name
        raise HeadlabError(
            f"{upload.name}: {upload.language!r:.60} is not a language code like de or zh-CN",
            code="upload.language_invalid",
        )
    if ("split" in draft.columns) + (draft.share is not None) + (upload.split is not None) != 1:
        raise HeadlabError(
            f"which examples are in {upload.name}? Name a column that says it, a split, or a share for dev",
            code="upload.no_split",
        )


def _error(do: Callable[..., object], *given: object) -> HeadlabError | None:
    try:
        do(*given)
    except HeadlabError as error:
        return error
    return None


def _placed(row: Row) -> None:
    require_columns(row.record, row.path, tuple(row.said.columns.values()))
    check_place(row)


def _labels(row: Row) -> list[str]:
    """The labels of a row; none where they cannot be read, which is said elsewhere."""
    with suppress(HeadlabError):
        return labels_of(row)
    return []


def _of_rows(found: Mapping[Upload, Sequence[Row | HeadlabError]], labels: tuple[str, ...]) -> Iterator[HeadlabError]:
    """The errors of all rows, in their order."""
    seen = dict[tuple[str, str, str], int]()

    def read(row: Row, upload: Upload) -> None:
        _placed(row)
        own = example_of(row, "", labels, _language(row, upload)).id
        if row.has("id"):
            place = (_language(row, upload), row.text("split") if row.has("split") else upload.split or "", own)
            if (line := seen.setdefault(place, row.record.line)) != row.record.line:
                raise row.wrong("id", f"{own!r:.60} is already on line {line}", code="data.id_twice")

    for upload, of_file in found.items():
        for row in of_file:
            error = row if isinstance(row, HeadlabError) else _error(read, row, upload)
            if error is not None:
                yield error


def _of_labels(unlabelled: bool, labels: Sequence[str], rows: Sequence[Row]) -> Iterator[HeadlabError]:
    """What is wrong with the labels as a whole."""
    if unlabelled or not rows:
        return
    said = rows[0].said
    column = said.columns["labels" if said.by_word else "label"]
    if len(labels) > MAX_LABELS:
        yield HeadlabError(
            f"column {column} has {len(labels):,} different values, and a task {MAX_LABELS} labels at most; choose the "
            "column that holds the labels",
            code="upload.labels_too_many",
        )
    if len(labels) == 1:
        yield HeadlabError(
            f"column {column} has {labels[0]!r:.60} in every row; a task needs two labels or more",
            code="upload.label_single",
        )


def _language(row: Row, upload: Upload) -> str:
    return row.text("language") if row.has("language") else str(upload.language)


def _splits(draft: Draft, upload: Upload, rows: Sequence[Row]) -> list[Split]:
    """The split of every row of a file."""
    if "split" in draft.columns:
        named = {name: split for split, name in rows[0].said.splits.items()}
        return [named[row.text("split")] for row in rows]
    if upload.split is not None:
        return [upload.split] * len(rows)
    dev = _divided([(_language(row, upload), row.text("group") if row.has("group") else "") for row in rows], draft)
    return ["dev" if at in dev else "test" for at in range(len(rows))]


def _divided(places: Sequence[tuple[str, str]], draft: Draft) -> set[int]:
    """Rows that become dev: a random share of each language's groups, so that no group is in both.

    places: language and group of every row; an empty group is the row's own.
    """
    languages = dict[str, dict[str, list[int]]]()
    for at, (language, group) in enumerate(places):
        languages.setdefault(language, {}).setdefault(group or f"\0{at}", []).append(at)
    dev = set[int]()
    for groups in languages.values():  # one seed: rows that mean the same in every language stay together
        members = list(groups.values())
        order = np.random.default_rng([0, 29]).permutation(len(members))
        most = max(1, min(round((draft.share or 0.0) * len(members)), len(members) - 1))
        dev |= {at for one in order[:most] for at in members[one]}
    return dev


def _name(draft: Draft, language: str | None, split: str) -> str:
    """The file that holds a language's split, as the declaration names it; no part of it is the owner's text."""
    told = {"language": str(language), "split": split}
    parts = [part for place, part in told.items() if place not in draft.columns]
    return ".".join([*(parts or ["data"]), draft.format])


def _files(draft: Draft, upload: Upload, rows: Sequence[Row], splits: Sequence[Split]) -> dict[str, bytes]:
    """The files that an upload becomes: itself, unchanged, or one for dev and one for test."""
    if draft.share is None:
        return {_name(draft, upload.language, upload.split or "dev"): upload.data}
    text = decoded(upload.data, upload.name)
    # what the readers take for lines
    lines = list(io.StringIO(text, newline="")) if draft.format == "csv" else [f"{line}\n" for line in lines_of(text)]
    starts = [*(row.record.line - 1 for row in rows), len(lines)]
    parts = ["".join(lines[a:b]) for a, b in pairwise(starts)]
    head = "".join(lines[: starts[0]])
    return {
        _name(draft, upload.language, split): (
            head + "".join(p for p, s in zip(parts, splits, strict=True) if s == split)
        ).encode()
        for split in SPLITS
        if split in splits
    }


def _toml(draft: Draft, labels: Sequence[str]) -> str:
    """The declaration's text."""
    files = _name(draft, "{language}", "{split}")
    lines = [f"name = {_quoted(draft.name)}", f"format = {_quoted(draft.format)}", f"files = {_quoted(files)}"]
    lines += [f"labels = [{', '.join(map(_quoted, labels))}]"] if labels else []
    lines += ["aligned = true"] if draft.aligned else []
    for table, rows in (("columns", draft.columns), ("splits", draft.splits)):
        lines += ["", f"[{table}]", *(f"{key} = {_quoted(value)}" for key, value in rows.items())] if rows else []
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML string: JSON's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# Saving: a folder of its own, all of it or nothing, and never over another task.


def save(draft: Draft, cache: Path) -> Checked:
    """Save a task as `tasks/NAME/` below the cache folder; the same task sent again changes nothing.

    Raises HeadlabError for the first error of its rows, for a name that another task has, and for a folder that cannot
    be written.
    """
    found = check(draft)
    if found.errors:
        more = f"; and {len(found.errors) - 1} more errors" if len(found.errors) > 1 else ""
        raise HeadlabError(f"{found.errors[0]}{more}", code=found.errors[0].code)
    root = cache / SAVED
    files = {**found.files, f"{draft.name}.toml": found.declaration.encode()}
    if _same(root / draft.name, files):
        return found
    if draft.name in (*names(), TREEBANK) or (root / draft.name).exists():
        raise _taken(draft.name)
    if root.is_dir() and sum(1 for _ in root.iterdir()) >= MOST:
        raise HeadlabError(
            f"{MOST} tasks have been saved already; whoever runs headlab can remove some from {SAVED}/ below its cache "
            "and restart it",
            code="upload.tasks_too_many",
        )
    _put(root, draft.name, files, found)
    return found


def _taken(name: str) -> HeadlabError:
    return HeadlabError(f"there is already another task {name}; choose another name", code="upload.taken")


def _same(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether a folder holds just these files."""
    try:
        return {path.name: path.read_bytes() for path in folder.iterdir()} == files
    except OSError:
        return False


def _put(root: Path, name: str, files: Mapping[str, bytes], found: Checked) -> None:
    """Write the files under a temporary name, read them as the task, and move them into place."""
    made = root / f".{name}.{token_hex(4)}.tmp"
    try:
        make_folder(made)
        for file, data in files.items():
            write_atomic(made / file, data)
        _verify(made, name, found)
        made.rename(root / name)
    except OSError as error:
        if (root / name).exists():  # saved by someone else meanwhile
            raise _taken(name) from error
        raise unwritable(root / name, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _verify(folder: Path, name: str, found: Checked) -> None:
    """Raise HeadlabError unless the written task has just the examples that were found."""
    try:
        made = declared_task(folder / f"{name}.toml")
        sizes = {(language, split): len(made.read(language, split, made.seed)) for language, split in found.sizes}
    except HeadlabError as error:
        raise HeadlabError(str(error).replace(f"{folder}/", ""), code=error.code) from error
    if sizes != found.sizes or set(made.languages) != set(found.languages):
        raise HeadlabError(
            f"the task {name} would not have the examples that its files have; report this, with the files' first rows",
            code="upload.not_the_same",
        )
