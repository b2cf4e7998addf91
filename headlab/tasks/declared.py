"""A user's own task, made from its declaration and read from csv, tsv or jsonl files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from headlab.errors import HeadlabError
from headlab.files import is_text
from headlab.records import content_key
from headlab.tasks.base import Example, Split, Task
from headlab.tasks.declaration import LANGUAGE, Declaration, read_declaration
from headlab.tasks.folder import data_root
from headlab.tasks.order import in_order
from headlab.tasks.records_file import Record, read_records
from headlab.tasks.source import Source

Stamps = tuple[tuple[Path, int, int], ...]


def declared_task(path: Path, data: Path | None = None, seed: int = 0) -> Task:
    """The task that a TOML file declares; docs/tasks.md says how.

    data: folder that its files are relative to; None: the declaration's own.  Raises HeadlabError naming
    file, line and column for a declaration or data that cannot be read.
    """
    said, root = read_declaration(path), _root(path, data)
    files = (path, *(part.path for part in _parts(said, root)))
    languages, labels = _learned(path, root, tuple(_state(file) for file in files))
    salt = content_key([list(labels), said.aligned])
    reader = partial(read, said, root, labels, languages[0])
    return Task(said.name, labels, languages, said.aligned, reader, seed, salt)


def _state(file: Path) -> tuple[Path, int, int]:
    """A file with what changes when it does. Raises HeadlabError where it cannot be looked at."""
    try:
        found = file.stat()
    except OSError as error:
        raise HeadlabError(
            f"cannot read {file} ({error.strerror}); check the task's files", code="data.unreadable"
        ) from error
    return file, found.st_mtime_ns, found.st_size


def declared_source(path: Path, data: Path | None = None) -> Source:
    """Where its examples come from. Raises HeadlabError for a declaration that cannot be read."""
    said, root = read_declaration(path), _root(path, data)
    words = f"{root}, as {path.name} declares"
    return Source(words) if said.found(root) else Source(words, False, _nothing(said, root))


def _root(path: Path, data: Path | None) -> Path:
    return (None if data is None else data_root(data)) or path.parent


def _nothing(said: Declaration, root: Path) -> str:
    return f"{said.path}: no file below {root} matches {said.files!r}"


def read(
    said: Declaration, root: Path, labels: tuple[str, ...], first: str, language: str, split: Split, seed: int
) -> Sequence[Example]:
    """A split in a random order, examples of one group side by side.

    first: the language that aligned ones are held against.
    """
    rows = _rows(said, root, language, split)
    if said.aligned and language != first:
        _same_rows(rows, _rows(said, root, first, split), f"{said.name}, {split}: {language}", first)
    examples, lines = [], dict[str, int]()
    for number, row in enumerate(rows):
        example = _example(row, f"{split}-{number}", labels)
        if example.id in lines:
            raise row.wrong("id", f"{example.id!r:.60} is already on line {lines[example.id]}", code="data.id_twice")
        lines[example.id] = row.record.line
        examples.append(example)
    return in_order(examples, seed)


@dataclass(frozen=True)
class Row:
    """A record of a file, asked by what the declaration says its columns mean."""

    said: Declaration
    path: Path
    record: Record

    def has(self, key: str) -> bool:
        """Whether there is a column for it."""
        return key in self.said.columns

    def value(self, key: str) -> Any:
        """The field as it was read."""
        return self.record.values[self.said.columns[key]]

    def text(self, key: str) -> str:
        """A text; a whole number is taken as it is written. Raises HeadlabError for anything else."""
        value = self.value(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip() or not is_text(value):
            raise self.wrong(key, f"{value!r:.60}, expected a text", code="data.text_invalid")
        return value

    def many(self, key: str) -> list[str]:
        """Texts: a JSON list, or what spaces separate."""
        value = self.value(key)
        texts: Any = value.split() if isinstance(value, str) and self.said.format != "jsonl" else value
        if not isinstance(texts, list) or not texts or not all(map(_is_word, texts)):
            raise self.wrong(key, f"{value!r:.60}, expected a list of texts", code="data.texts_invalid")
        return texts

    def wrong(self, key: str, what: str, *, code: str) -> HeadlabError:
        """What is wrong, with its place."""
        return HeadlabError(f"{self.path}, line {self.record.line}, column {self.said.columns[key]}: {what}", code=code)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_text(value)


def _every(said: Declaration, path: Path) -> Iterator[Row]:
    """Records of one file; none of a split or language that nobody could ask for."""
    for record in read_records(path, said.format, tuple(said.columns.values())):
        row = Row(said, path, record)
        if row.has("split") and row.text("split") not in said.splits.values():
            raise row.wrong(
                "split",
                f"{row.text('split')!r:.60} is none of {', '.join(said.splits.values())}",
                code="data.split_unknown",
            )
        if row.has("language") and not LANGUAGE.fullmatch(row.text("language")):
            raise row.wrong(
                "language",
                f"{row.text('language')!r:.60} is not a language code like de or zh-CN",
                code="data.language_invalid",
            )
        yield row


def _rows(said: Declaration, root: Path, language: str, split: Split) -> list[Row]:
    """The records of a language's split; none where train has no file of its own."""
    path = said.file(root, language, split)
    if split == "train" and "{split}" in said.files and not path.is_file():
        return []
    wanted = {"language": language, "split": said.splits[split]}
    return [row for row in _every(said, path) if all(row.text(k) == v for k, v in wanted.items() if row.has(k))]


class Part(NamedTuple):
    """A file of the task.  language, split: as its name says them; None where it does not."""

    path: Path
    language: str | None
    split: str | None


def _parts(said: Declaration, root: Path) -> list[Part]:
    """The files of the task, but for those of a language or split that it does not have."""
    found = (Part(path, places.get("language"), places.get("split")) for path, places in said.found(root))
    return [
        part
        for part in found
        if part.split in (None, *said.splits.values())
        and (part.language is None or LANGUAGE.fullmatch(part.language))
        and (part.language is None or part.language in (said.languages or (part.language,)))
    ]


@lru_cache(maxsize=64)
def _learned(path: Path, root: Path, _stamps: Stamps) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Languages, English first, and labels, sorted, as declared or else as found in one pass over the files.

    Kept while no file changes: a worker asks for a task with every request.
    """
    said = read_declaration(path)
    codes, labels = set[str](), set[str]()
    for part in _parts(said, root):
        codes |= {part.language} if part.language else set()
        # then nothing is to be learned from the rows
        told = (said.labels or said.generated) and (part.language or said.languages)
        for row in () if told else _every(said, part.path):
            own = row.text("language") if row.has("language") else part.language
            codes |= {own} if own else set()
            split = row.text("split") if row.has("split") else part.split
            if split != said.splits["test"] and (not own or own in (said.languages or (own,))):
                labels.update(_labels(row))
    languages = said.languages or tuple(sorted(codes, key=lambda code: (code != "en", code)))
    if not languages:
        raise HeadlabError(_nothing(said, root), code="data.files_missing")
    if not (said.labels or labels or said.generated):
        raise HeadlabError(
            f"{said.path}: train and dev have no label to collect; list the labels", code="data.labels_missing"
        )
    return languages, said.labels or tuple(sorted(labels))


def _labels(row: Row) -> list[str]:
    """The labels that a record has."""
    if row.said.generated:
        return []
    return row.many("labels") if row.said.by_word else [row.text("label")]


def _same_rows(rows: Sequence[Row], others: Sequence[Row], what: str, first: str) -> None:
    """Raise HeadlabError where row i cannot mean the same in both."""
    if len(rows) != len(others):
        raise HeadlabError(
            f"{what} has {len(rows)} rows, {first} has {len(others)}; row i of an aligned task must mean the same in "
            "every language",
            code="data.rows_mismatch",
        )
    for mine, other in zip(rows, others, strict=True):
        for key in ("id", "group"):
            if mine.has(key) and mine.text(key) != other.text(key):
                raise mine.wrong(
                    key,
                    f"{mine.text(key)!r:.60}, where {first} has {other.text(key)!r:.60}; "
                    "row i of an aligned task must mean the same in every language",
                    code="data.rows_differ",
                )


def _example(row: Row, name: str, labels: tuple[str, ...]) -> Example:
    """name: what the example is called where no column says it."""

    def index(label: str, key: str) -> int:
        if label not in labels:
            raise row.wrong(
                key, f"{label!r:.60} is none of the labels {', '.join(labels)[:200]}", code="data.label_unknown"
            )
        return labels.index(label)

    own, group = (row.text(key) if row.has(key) else name for key in ("id", "group"))
    if row.said.generated:
        return Example(own, row.text("text"), group=group, target=row.text("target"))
    if not row.said.by_word:
        pair = row.text("pair") if row.has("pair") else None
        return Example(own, row.text("text"), index(row.text("label"), "label"), pair, group)
    words, tags = row.many("words"), row.many("labels")
    if len(words) != len(tags):
        raise row.wrong("labels", f"{len(tags)} labels for {len(words)} words", code="data.labels_mismatch")
    numbers = tuple(index(tag, "labels") for tag in tags)
    return Example(own, " ".join(words), group=group, words=tuple(words), labels=numbers)
