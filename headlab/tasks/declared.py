"""User-defined tasks: the TOML declaration, and the csv, tsv, jsonl or CoNLL-U files it names."""

from __future__ import annotations

import glob
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Literal, TypedDict, TypeGuard, TypeVar, cast

from headlab.core import HeadlabError, JsonLike, content_key, is_text
from headlab.tasks.base import (
    SPLITS,
    Example,
    Likelihood,
    Source,
    Split,
    Task,
    data_root,
    in_random_order,
    writes_no_spaces,
)
from headlab.tasks.equal_texts import VERSIONS
from headlab.tasks.record_files import KINDS, Record, blank_row, read_records, state_of
from headlab.tasks.text_files import FileName, is_missing, is_visible, read_text

# The declaration of a task: a TOML file that says where its examples are and what their columns
# mean.

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
WHOLE_AS_DECIMAL = re.compile(r"([-+]?[0-9]+)\.0+")  # as a table of numbers with gaps writes 1
LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,19}")
KEYS = {
    "name": str,
    "format": str,
    "files": str,
    "columns": dict,
    "splits": dict,
    "labels": list,
    "languages": list,
    "aligned": bool,
    "label_map": dict,
    "division": int,
}
KINDS_OF_VALUES = {
    str: "a text in quotes",
    dict: "a table",
    list: "a list",
    bool: "true or false",
    int: "a whole number",
}
COLUMNS = (
    "text",
    "pair",
    "label",
    "target",
    "words",
    "labels",
    "context",
    "choices",
    "answer",
    "counterfactual",
    "group",
    "id",
    "language",
    "split",
)
# What an example consists of: the columns of each kind of task.
MEANINGS = (
    {"text", "label"},
    {"text", "pair", "label"},
    {"text", "target"},
    {"words", "labels"},
    {"context", "choices", "answer"},
    {"choices", "answer"},
    {"text"},
)
PLACES = re.compile(r"\{(language|split)\}")


@dataclass(frozen=True)
class Declaration:
    """The contents of a declaration.

    Attributes:
        path: The declaration file; `files` is relative to its folder.
        columns: Meaning -> column.
        splits: Name of each split in the data.
        labels, languages: None if they are to be collected from the data.
        label_map: {label: class of the model}, None if the model's own names are to be matched.
        division: The version of the division by share that made the files
            (`headlab.tasks.equal_texts`); None where they came divided, or were before there were
            versions.
    """

    path: Path
    name: str
    format: str
    files: str
    columns: Mapping[str, str]
    splits: Mapping[Split, str]
    labels: tuple[str, ...] | None
    languages: tuple[str, ...] | None
    aligned: bool
    label_map: Mapping[str, str] | None = None
    division: int | None = None

    @property
    def by_word(self) -> bool:
        """Whether labels belong to words, not to texts."""
        return "words" in self.columns

    @property
    def likelihood(self) -> Likelihood:
        """Whether a language model continues a text, and how."""
        if "choices" in self.columns:
            return "choices"
        if {"words", "label", "target"} & {*self.columns}:
            return ""
        return "tokens"

    @property
    def has_no_labels(self) -> bool:
        """Whether there are no labels: a text is to be generated or continued."""
        return "target" in self.columns or bool(self.likelihood)

    def file(self, root: Path, language: str, split: Split) -> Path:
        """The file that holds a language's split."""
        values_by_place = {"language": language, "split": self.splits[split]}
        return root / PLACES.sub(lambda place: values_by_place[place[1]], self.files)

    def matching_files(self, root: Path) -> list[tuple[Path, Mapping[str, str]]]:
        """Every file that matches `files`, with {language} and {split} as in its name."""
        wildcards = ""
        pattern = ""
        places = set[str]()
        for index, part in enumerate(PLACES.split(self.files)):  # text, place, text, ...
            if index % 2 == 0:
                wildcards += glob.escape(part)
                pattern += re.escape(part)
                continue
            wildcards += "*"
            pattern += f"(?P={part})" if part in places else rf"(?P<{part}>[^/]+?)"
            places.add(part)
        files: list[tuple[Path, Mapping[str, str]]] = []
        for path in sorted(root.glob(wildcards)):
            match = re.fullmatch(pattern, path.relative_to(root).as_posix())
            if match is not None:
                files.append((path, match.groupdict()))
        return files


def read_declaration(path: Path) -> Declaration:
    """Read and validate a declaration. Raises HeadlabError naming the file and the problem."""
    return declaration(read_text(path), path)


def declaration(text: str, path: Path) -> Declaration:
    """A declaration from its text, as `read_declaration` has it.

    Args:
        path: Of its file, which need not be there.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HeadlabError(
            f"{path} is not valid TOML: {error}", code="declaration.not_toml"
        ) from error
    except RecursionError as error:
        raise HeadlabError(
            f"{path} is nested too deeply for a task declaration", code="declaration.too_deep"
        ) from error
    try:
        content = _check_content(raw)
        columns = _columns(content)
        splits = _splits(content.get("splits", {}))
        labels = _strings(content, "labels")
        languages = _strings(content, "languages")
        label_map = _label_map(content)
        division = _division(content)
        if (labels or label_map) and not {"label", "labels"} & {*columns}:
            raise HeadlabError(
                "labels are listed or mapped where the columns say that texts are generated or "
                "continued; leave them out",
                code="declaration.labels_unused",
            )
    except HeadlabError as error:
        raise HeadlabError(
            f"{path}: {error} (docs/tasks.md says how a task is declared)", code=error.code
        ) from error
    return Declaration(
        path,
        content["name"],
        content["format"],
        content["files"],
        columns,
        splits,
        labels,
        languages,
        content.get("aligned", False),
        label_map,
        division,
    )


class DeclarationContent(TypedDict, total=False):
    """The keys of a declaration with values of their types.

    What is in its tables and lists is not checked yet.
    """

    name: str
    format: str
    files: str
    columns: dict[str, object]
    splits: dict[str, object]
    labels: list[object]
    languages: list[object]
    aligned: bool
    label_map: dict[str, object]
    division: int


def _check_content(document: Mapping[str, object]) -> DeclarationContent:
    """The content of a declaration.

    Raises HeadlabError for an invalid key, type, name, format or file path.
    """
    for key, value in document.items():
        if key not in KEYS:
            raise HeadlabError(
                f"unknown key {key!r:.60}; choose from {', '.join(KEYS)}",
                code="declaration.key_unknown",
            )
        kind = KEYS[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise HeadlabError(
                f"{key} is {value!r:.60}, where {KINDS_OF_VALUES[kind]} belongs",
                code="declaration.key_invalid",
            )
    missing = [key for key in ("name", "format", "files", "columns") if key not in document]
    if missing:
        raise HeadlabError(f"{', '.join(missing)} missing", code="declaration.key_missing")
    raw = cast("DeclarationContent", document)
    if not NAME.fullmatch(raw["name"]):
        raise HeadlabError(
            f"name is {raw['name']!r:.80}; use letters, digits, - and _, 60 at most",
            code="declaration.name_invalid",
        )
    if raw["format"] not in KINDS:
        raise HeadlabError(
            f"format is {raw['format']!r:.60}; use one of {', '.join(KINDS)}",
            code="declaration.format_unknown",
        )
    files = PurePosixPath(raw["files"])
    if not files.parts or files.is_absolute() or ".." in files.parts or "\0" in raw["files"]:
        raise HeadlabError(
            f"files is {raw['files']!r:.80}; name files below the declaration's folder, relative "
            "to it",
            code="declaration.files_invalid",
        )
    return raw


def _division(raw: DeclarationContent) -> int | None:
    """The version of the division by share, if any. Raises HeadlabError for an unknown one."""
    division = raw.get("division")
    if division is not None and division not in VERSIONS:
        raise HeadlabError(
            f"division is {division!r:.60}, and this headlab knows "
            f"{', '.join(map(str, VERSIONS))}; leave it out where the files came divided",
            code="declaration.division_unknown",
        )
    return division


def _label_map(raw: DeclarationContent) -> dict[str, str] | None:
    """The label map, if any.

    Raises HeadlabError for a class that is neither a name nor a number.
    """
    if "label_map" not in raw:
        return None
    for label, class_name in raw["label_map"].items():
        if not isinstance(class_name, str | int) or isinstance(class_name, bool):
            raise HeadlabError(
                f"label_map.{label:.60} is {class_name!r:.60}; give the name of a class of the "
                "model, or its number",
                code="declaration.label_map_invalid",
            )
    return {label: str(class_name) for label, class_name in raw["label_map"].items()}


def _columns(raw: DeclarationContent) -> dict[str, str]:
    """The columns. Raises HeadlabError if one is missing, unknown or ambiguous."""
    columns: dict[str, str] = {}
    for key, value in raw["columns"].items():
        if key not in COLUMNS:
            raise HeadlabError(
                f"unknown column {key!r:.60}; choose from {', '.join(COLUMNS)}",
                code="declaration.column_unknown",
            )
        if not isinstance(value, str) or not value:
            raise HeadlabError(
                f"columns.{key} is {value!r:.60}; give the name of a column",
                code="declaration.column_invalid",
            )
        columns[key] = value
    meanings = set(columns) - {"group", "id", "language", "split"}
    if "counterfactual" in meanings and not meanings & {"label", "target", "context"}:
        raise HeadlabError(
            "columns.counterfactual is a text for the place of the example's own, so it goes with text and "
            "label (and pair, if any), text and target, or context, choices and answer",
            code="declaration.columns_mismatch",
        )
    if meanings - {"counterfactual"} not in MEANINGS:
        raise HeadlabError(
            "columns must name text and label (and pair, if any), or text and target, or words "
            "and labels, or choices and answer (and context, if any), or text alone for a "
            "language model",
            code="declaration.columns_mismatch",
        )
    for place in ("language", "split"):
        if (place in columns) == (f"{{{place}}}" in raw["files"]):
            listed_languages = raw.get("languages", [])
            if place == "language" and place not in columns and len(listed_languages) == 1:
                continue  # the only language is listed in `languages`
            raise HeadlabError(
                f"give the {place} either by {{{place}}} in files or by columns.{place}, not both",
                code="declaration.place_ambiguous",
            )
    return columns


def _splits(raw: Mapping[str, object]) -> dict[Split, str]:
    for key, value in raw.items():
        if key not in SPLITS or not isinstance(value, str) or not value or "/" in value:
            raise HeadlabError(
                f"splits.{key} is {value!r:.60}; give the names that the data use for "
                f"{', '.join(SPLITS)}",
                code="declaration.split_invalid",
            )
    names = {split: str(raw.get(split, split)) for split in SPLITS}
    if len(set(names.values())) < len(names):
        raise HeadlabError("two splits have the same name", code="declaration.split_names_equal")
    return names


def _strings(
    raw: DeclarationContent, key: Literal["labels", "languages"]
) -> tuple[str, ...] | None:
    """The texts of a list, whole numbers as texts; None without one.

    Raises HeadlabError for anything else.
    """
    if key not in raw:
        return None
    texts = map(_as_text, raw[key])
    values = [text for text in texts if isinstance(text, str) and text]
    if not values or len(set(values)) < len(raw[key]):
        raise HeadlabError(
            f"{key} is {raw[key]!r:.80}; list each once", code="declaration.list_invalid"
        )
    wrong = [value for value in values if key == "languages" and not LANGUAGE.fullmatch(value)]
    if wrong:
        raise HeadlabError(
            f"{wrong[0]!r:.60} is not a language code like de or zh-CN",
            code="declaration.language_invalid",
        )
    return tuple(values)


# The task made from a declaration, read from csv, tsv or jsonl files.

Stamps = tuple[tuple[Path, int, int], ...]
Default = TypeVar("Default")


def declared_task(path: Path, data: Path | None = None, seed: int = 0) -> Task:
    """The task declared by a TOML file; see docs/tasks.md.

    Raises HeadlabError naming file, line and column for a declaration or data that cannot be read.

    Args:
        data: Folder that its files are relative to; None means the declaration's folder.
    """
    contents = read_declaration(path)
    root = _root(path, data)
    files = [path, *(file for file, _ in _task_files(contents, root))]
    languages, labels = _languages_and_labels(path, root, tuple(map(state_of, files)))
    salt = content_key([list(labels), contents.aligned])
    reader = partial(read, contents, root, labels, languages[0])
    return Task(
        contents.name,
        labels,
        languages,
        contents.aligned,
        reader,
        seed,
        salt,
        contents.label_map,
        contents.likelihood,
        declaration=path.absolute(),
        data=None if data is None else data.absolute(),
    )


def declared_source(path: Path, data: Path | None = None) -> Source:
    """Where the examples of a declared task come from.

    Raises HeadlabError if the declaration cannot be read.
    """
    contents = read_declaration(path)
    root = _root(path, data)
    description = f"{root}, as {path.name} declares"
    if contents.matching_files(root):
        return Source(description)
    return Source(description, False, _advice_on_no_rows(contents, root))


def _root(path: Path, data: Path | None) -> Path:
    """The folder that a task's files are relative to: the data folder, or the declaration's own."""
    if data is None:
        return path.parent
    return data_root(data) or path.parent


def _advice_on_no_rows(contents: Declaration, root: Path) -> str:
    files = contents.matching_files(root)
    if not files:
        return f"{contents.path}: no file below {root} matches {contents.files!r}"
    path, places = files[0]
    if "split" in places and places["split"] not in contents.splits.values():
        name = places["split"]
        return (
            f"{contents.path}: {path.name} matches {contents.files!r}, and its split {name!r:.60} is none of "
            f"{', '.join(contents.splits.values())}; name the splits as the data do, like splits = "
            '{ dev = "validation" }'
        )
    if "language" in places:
        return (
            f"{contents.path}: {path.name} matches {contents.files!r}, and "
            f"{places['language']!r:.60} in it is no language of the task; give a code like de or "
            "zh-CN, or list it in languages"
        )
    return f"{contents.path}: {path.name} has no rows; give a file with examples"


def read(
    contents: Declaration,
    root: Path,
    labels: tuple[str, ...],
    reference_language: str,
    language: str,
    split: Split,
    seed: int,
) -> Sequence[Example]:
    """A split in random order, examples of one group together.

    Args:
        reference_language: The language that the rows of an aligned task are compared with.
    """
    rows = _rows(contents, root, language, split)
    has_file_of_its_own = not {"language", "split"} & {*contents.columns}
    if contents.aligned and contents.format == "tsv" and has_file_of_its_own:
        _require_no_blank_line(rows)
    if contents.aligned and language != reference_language:
        reference_rows = _rows(contents, root, reference_language, split)
        part_name = f"{contents.name}, {split}: {language}"
        _check_same_rows(rows, reference_rows, part_name, reference_language)
    examples: list[Example] = []
    lines_by_id: dict[str, int] = {}
    for number, row in enumerate(rows):
        example = replace(example_of(row, f"{split}-{number}", labels, language), place=row.place)
        if example.id in lines_by_id:
            raise row.field_error(
                "id",
                f"{example.id!r:.60} is already on line {lines_by_id[example.id]}",
                code="data.id_twice",
            )
        lines_by_id[example.id] = row.record.line
        examples.append(example)
    return in_random_order(examples, seed)


@dataclass(frozen=True)
class DeclaredRow:
    """A record of a file, accessed by the meanings that the declaration gives its columns."""

    contents: Declaration
    path: FileName
    record: Record

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.path}, line {self.record.line}"

    def has(self, key: str) -> bool:
        """Whether there is a column with this meaning."""
        return key in self.contents.columns

    def value(self, key: str) -> JsonLike:
        """The field as read."""
        return self.record.values[self.contents.columns[key]]

    def text(self, key: str) -> str:
        """A text; an integer is converted to one. Raises HeadlabError for anything else."""
        value = _as_text(self.value(key))
        if not isinstance(value, str) or not is_visible(value) or not is_text(value):
            raise self.field_error(key, f"{value!r:.60}, expected a text", code="data.text_invalid")
        return value

    def text_or(self, key: str, default: Default) -> str | Default:
        """A text, or the default where no column has this meaning.

        Raises HeadlabError as `text` does.
        """
        if self.has(key):
            return self.text(key)
        return default

    def texts(self, key: str) -> list[str]:
        """Texts: a JSON list, or separated by spaces. Raises HeadlabError for anything else."""
        value = self.value(key)
        texts: object = value
        if isinstance(value, str) and self.contents.format != "jsonl":
            texts = value.split()
        if not isinstance(texts, list) or not texts or not all(map(_is_word, texts)):
            raise self.field_error(
                key, f"{value!r:.60}, expected a list of texts", code="data.texts_invalid"
            )
        return texts

    def field_error(self, key: str, problem: str, *, code: str) -> HeadlabError:
        """The error for a bad field, with its file, line and column."""
        return HeadlabError(
            f"{self.place}, column {self.contents.columns[key]}: {problem}", code=code
        )


def _as_text(value: object) -> object:
    """An integer as a text; anything else as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _is_word(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip()) and is_text(value)


def _rows_of_file(contents: Declaration, path: Path) -> Iterator[DeclaredRow]:
    """The records of one file.

    Raises HeadlabError for an unknown split or an invalid language code.
    """
    for record in read_records(path, contents.format, tuple(contents.columns.values())):
        row = DeclaredRow(contents, path, record)
        check_place(row)
        yield row


def check_place(row: DeclaredRow) -> None:
    """Raise HeadlabError for an unknown split or an invalid language code."""
    names = row.contents.splits.values()
    if row.has("split") and row.text("split") not in names:
        raise row.field_error(
            "split",
            f"{row.text('split')!r:.60} is none of {', '.join(names)}",
            code="data.split_unknown",
        )
    if row.has("language") and not LANGUAGE.fullmatch(row.text("language")):
        raise row.field_error(
            "language",
            f"{row.text('language')!r:.60} is not a language code like de or zh-CN",
            code="data.language_invalid",
        )


def _rows(contents: Declaration, root: Path, language: str, split: Split) -> list[DeclaredRow]:
    """The records of a language's split.

    Empty for train if it should have a file of its own, and there is none.
    """
    path = contents.file(root, language, split)
    if split == "train" and "{split}" in contents.files and is_missing(path):
        return []
    values_of_part = {"language": language, "split": contents.splits[split]}
    rows = []
    for row in _rows_of_file(contents, path):
        if all(row.text(key) == value for key, value in values_of_part.items() if row.has(key)):
            rows.append(row)
    return rows


def _task_files(contents: Declaration, root: Path) -> list[tuple[Path, Mapping[str, str]]]:
    """The files of the task with the values in their names, as `Declaration.matching_files`.

    Files of a language or split that the task does not have are left out.
    """

    def is_of_task(split: str | None = None, language: str | None = None) -> bool:
        if split not in (None, *contents.splits.values()):
            return False
        if language is None:
            return True
        is_code = LANGUAGE.fullmatch(language) is not None
        return is_code and language in (contents.languages or (language,))

    return [
        (path, places) for path, places in contents.matching_files(root) if is_of_task(**places)
    ]


@lru_cache(maxsize=64)
def _languages_and_labels(
    path: Path, root: Path, _stamps: Stamps
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Languages, English first, and labels, sorted: as declared, or else collected from the files.

    Cached while no file changes: a worker makes the task anew for every request.
    """
    contents = read_declaration(path)
    knows_labels = bool(contents.labels) or contents.has_no_labels
    codes = set[str]()
    labels = set[str]()
    for file, places in _task_files(contents, root):
        if places.get("language"):
            codes.add(places["language"])
        if knows_labels and (places.get("language") or contents.languages):
            continue  # everything is known without reading the rows
        for row in _rows_of_file(contents, file):
            language = row.text_or("language", places.get("language"))
            if language:
                codes.add(language)
            split = row.text_or("split", places.get("split"))
            is_of_task = not language or language in (contents.languages or (language,))
            if split != contents.splits["test"] and is_of_task:
                labels.update(labels_of(row))
    languages = contents.languages or tuple(sorted(codes, key=lambda code: (code != "en", code)))
    if not languages:
        raise HeadlabError(_advice_on_no_rows(contents, root), code="data.files_missing")
    problem = labels_alike(sorted(labels))
    if problem and not contents.labels:
        raise HeadlabError(
            f"{contents.path}: the data have {problem}, or list the labels",
            code="data.labels_alike",
        )
    if not (contents.labels or labels or contents.has_no_labels):
        raise HeadlabError(
            f"{contents.path}: train and dev have no label to collect; list the labels",
            code="data.labels_missing",
        )
    return languages, contents.labels or tuple(sorted(labels))


def labels_alike(labels: Sequence[str]) -> str:
    """What is said of two labels that are one, written in two ways; empty if there are none.

    Spaces around a label do not count, nor the point of a whole number: 1 and 1.0 are one, 3.1 and
    3.10 are two.
    """
    first_labels: dict[str, str] = {}
    for label in labels:
        plain_label = label.strip()
        decimal = WHOLE_AS_DECIMAL.fullmatch(plain_label)
        if decimal is not None:
            plain_label = decimal[1]
        earlier = first_labels.setdefault(plain_label, label)
        if earlier != label:
            return (
                f"the labels {earlier!r:.60} and {label!r:.60}, which are the same but for how "
                "they are written; write them alike"
            )
    return ""


def labels_of(row: DeclaredRow) -> list[str]:
    """The labels of a record."""
    if row.contents.has_no_labels:
        return []
    if row.contents.by_word:
        return row.texts("labels")
    return [row.text("label")]


def _require_no_blank_line(rows: Sequence[DeclaredRow]) -> None:
    """Raise HeadlabError for a line without a row between two rows that follow each other."""
    for row, following in pairwise(rows):
        if following.record.line > row.record.line + 1:
            raise blank_row(row.path, row.record.line + 1)


def _check_same_rows(
    rows: Sequence[DeclaredRow],
    reference_rows: Sequence[DeclaredRow],
    part_name: str,
    reference_language: str,
) -> None:
    """Raise HeadlabError if row i cannot mean the same in both languages."""
    if len(rows) != len(reference_rows):
        raise HeadlabError(
            f"{part_name} has {len(rows)} rows, {reference_language} has {len(reference_rows)}; "
            "row i of an aligned task must mean the same in every language",
            code="data.rows_mismatch",
        )
    for row, reference_row in zip(rows, reference_rows, strict=True):
        for key in ("id", "group"):
            if row.has(key) and row.text(key) != reference_row.text(key):
                raise row.field_error(
                    key,
                    f"{row.text(key)!r:.60}, where {reference_language} has "
                    f"{reference_row.text(key)!r:.60}; row i of an aligned task must mean the "
                    "same in every language",
                    code="data.rows_differ",
                )


def example_of(row: DeclaredRow, name: str, labels: tuple[str, ...], language: str) -> Example:
    """A record as an example.

    Args:
        name: Its id and group where no column gives them.
    """
    example_id = row.text_or("id", name)
    group = row.text_or("group", name)
    if row.has("choices"):
        return _choice_example(row, example_id, group, language)
    if row.contents.likelihood:
        return Example(example_id, "", group=group, target=row.text("text"))
    if row.has("target"):
        return Example(
            example_id,
            row.text("text"),
            group=group,
            target=row.text("target"),
            counterfactuals=_counterfactuals(row),
        )
    return _labelled_example(row, example_id, group, labels)


def _choice_example(row: DeclaredRow, example_id: str, group: str, language: str) -> Example:
    """A context, if any, with its choices.

    A space goes between them, unless the language writes none.
    """
    context = _context(row)
    choices = _choices(row)
    answer = row.text("answer").strip()
    answer_numbers = [
        number for number, choice in enumerate(choices) if answer in (choice, str(number))
    ]
    if len(answer_numbers) > 1:
        raise row.field_error(
            "answer",
            f"{answer!r:.60} is one of the choices, and also the number of another; write all "
            "answers of the file as texts that are not numbers, or use choices that are not "
            "numbers",
            code="data.answer_unknown",
        )
    if not answer_numbers:
        raise row.field_error(
            "answer",
            f"{answer!r:.60} is none of the choices, nor a number from 0 to {len(choices) - 1}",
            code="data.answer_unknown",
        )
    space = " " if context and not writes_no_spaces(language) else ""
    return Example(
        example_id,
        context,
        answer_numbers[0],
        group=group,
        choices=tuple(space + choice for choice in choices),
        counterfactuals=_counterfactuals(row),
    )


def _counterfactuals(row: DeclaredRow) -> tuple[str, ...]:
    """The text whose outputs stand in a closed player's place, if there is one.

    A context has no space behind it, as in `_context`.
    """
    if not row.has("counterfactual"):
        return ()
    value = row.value("counterfactual")
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    text = row.text("counterfactual")
    return (text.rstrip() if row.has("context") else text,)


def _context(row: DeclaredRow) -> str:
    """The context without the space behind it.

    Empty without such a column, or where it is blank.
    """
    if not row.has("context"):
        return ""
    value = row.value("context")
    if isinstance(value, str) and not value.strip():
        return ""
    return row.text("context").rstrip()


def _choices(row: DeclaredRow) -> list[str]:
    """The choices: a JSON list, or texts separated by |.

    Raises HeadlabError for fewer than two, or two alike.
    """
    value = row.value("choices")
    if isinstance(value, str):
        try:
            is_json = value.lstrip().startswith("[")
            value = json.loads(value) if is_json else value.split("|")
        except (ValueError, RecursionError) as error:
            raise row.field_error(
                "choices", f"{value!r:.60} is not a JSON list", code="data.choices_invalid"
            ) from error
    values = [_as_text(choice) for choice in value] if isinstance(value, list) else []
    texts = [text for text in values if _is_word(text)]
    if len(texts) < 2 or len(texts) < len(values):
        problem = (
            f"{value!r:.60}, expected two texts or more, none of them empty: a JSON list, or "
            "separated by |"
        )
        raise row.field_error("choices", problem, code="data.choices_invalid")
    choices = [choice.strip() for choice in texts]
    if len({*choices}) < len(choices):
        raise row.field_error(
            "choices", f"two of {choices!r:.80} are the same", code="data.choices_equal"
        )
    return choices


def _labelled_example(
    row: DeclaredRow, example_id: str, group: str, labels: tuple[str, ...]
) -> Example:
    """A text, a pair or words, with their labels."""

    def index(label: str, key: str) -> int:
        if label not in labels:
            raise row.field_error(
                key,
                f"{label!r:.60} is none of the labels {', '.join(labels)[:200]}",
                code="data.label_unknown",
            )
        return labels.index(label)

    if not row.contents.by_word:
        pair = row.text_or("pair", None)
        return Example(
            example_id,
            row.text("text"),
            index(row.text("label"), "label"),
            pair,
            group,
            counterfactuals=_counterfactuals(row),
        )
    words = row.texts("words")
    tags = row.texts("labels")
    if len(words) != len(tags):
        raise row.field_error(
            "labels", f"{len(tags)} labels for {len(words)} words", code="data.labels_mismatch"
        )
    numbers = tuple(index(tag, "labels") for tag in tags)
    return Example(example_id, " ".join(words), group=group, words=tuple(words), labels=numbers)
