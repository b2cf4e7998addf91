"""The declaration of a user's own task: a TOML file that says where its examples are and what their columns mean."""

from __future__ import annotations

import glob
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headlab.errors import HeadlabError
from headlab.tasks.base import SPLITS, Split
from headlab.tasks.folder import read_text
from headlab.tasks.records_file import KINDS

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,19}")
KEYS = {"name": str, "format": str, "files": str, "columns": dict, "splits": dict, "labels": list, "languages": list,
        "aligned": bool}  # fmt: skip
COLUMNS = ("text", "pair", "label", "target", "group", "id", "words", "labels", "language", "split")
PLACES = re.compile(r"\{(language|split)\}")


@dataclass(frozen=True)
class Declaration:
    """What a declaration says.

    path: the file itself; names of files are relative to its folder.  columns: meaning -> column.  splits:
    what the data call each split.  labels, languages: None where they are to be collected.
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

    @property
    def by_word(self) -> bool:
        """Whether words are labelled, not texts."""
        return "words" in self.columns

    @property
    def generated(self) -> bool:
        """Whether a text is to be generated; then nothing is labelled."""
        return "target" in self.columns

    def file(self, root: Path, language: str, split: Split) -> Path:
        """The file that holds a language's split."""
        told = {"language": language, "split": self.splits[split]}
        return root / PLACES.sub(lambda place: told[place[1]], self.files)

    def found(self, root: Path) -> list[tuple[Path, Mapping[str, str]]]:
        """Every file that fits `files`, with what stands for {language} and {split} in its name."""
        parts = PLACES.split(self.files)  # text, place, text, ...
        wild = "".join("*" if i % 2 else glob.escape(part) for i, part in enumerate(parts))
        seen, pattern = set[str](), ""
        for i, part in enumerate(parts):
            again = f"(?P={part})" if part in seen else rf"(?P<{part}>[^/]+?)"
            pattern += again if i % 2 else re.escape(part)
            seen |= {part} if i % 2 else set()
        files = ((path, re.fullmatch(pattern, path.relative_to(root).as_posix())) for path in sorted(root.glob(wild)))
        return [(path, match.groupdict()) for path, match in files if match]


def read_declaration(path: Path) -> Declaration:
    """Read and check a declaration. Raises HeadlabError that names the file and what is wrong with it."""
    try:
        raw = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise HeadlabError(f"{path} is not valid TOML: {error}", code="declaration.not_toml") from error
    except RecursionError as error:
        raise HeadlabError(
            f"{path} is nested too deep to be a task's declaration", code="declaration.too_deep"
        ) from error
    try:
        _check(raw)
        columns, splits = _columns(raw), _splits(raw.get("splits", {}))
        labels, languages = _strings(raw, "labels"), _strings(raw, "languages")
        if labels and "target" in columns:
            raise HeadlabError(
                "labels are listed where columns.target says that texts are generated; leave them out",
                code="declaration.labels_unused",
            )
    except HeadlabError as error:
        raise HeadlabError(f"{path}: {error} (docs/tasks.md says how a task is declared)", code=error.code) from error
    return Declaration(
        path, raw["name"], raw["format"], raw["files"], columns, splits, labels, languages, raw.get("aligned", False)
    )


def _check(raw: Mapping[str, Any]) -> None:
    """Raise HeadlabError for keys, types, a name or a place of files that cannot be."""
    for key, value in raw.items():
        if key not in KEYS:
            raise HeadlabError(
                f"unknown key {key!r:.60}; choose from {', '.join(KEYS)}", code="declaration.key_unknown"
            )
        if not isinstance(value, KEYS[key]):
            raise HeadlabError(
                f"{key} is {value!r:.60}, where a {KEYS[key].__name__} belongs", code="declaration.key_invalid"
            )
    missing = [key for key in ("name", "format", "files", "columns") if key not in raw]
    if missing:
        raise HeadlabError(f"{', '.join(missing)} missing", code="declaration.key_missing")
    if not NAME.fullmatch(raw["name"]):
        raise HeadlabError(
            f"name is {raw['name']!r:.80}; use letters, digits, - and _, 60 at most", code="declaration.name_invalid"
        )
    if raw["format"] not in KINDS:
        raise HeadlabError(
            f"format is {raw['format']!r:.60}; use one of {', '.join(KINDS)}", code="declaration.format_unknown"
        )
    files = PurePosixPath(raw["files"])
    if not files.parts or files.is_absolute() or ".." in files.parts or "\0" in raw["files"]:
        raise HeadlabError(
            f"files is {raw['files']!r:.80}; name files below the declaration's folder, relative to it",
            code="declaration.files_invalid",
        )


def _columns(raw: Mapping[str, Any]) -> dict[str, str]:
    """The columns, checked to say all that has to be known and nothing twice."""
    columns: dict[str, Any] = dict(raw["columns"])
    for key, value in columns.items():
        if key not in COLUMNS:
            raise HeadlabError(
                f"unknown column {key!r:.60}; choose from {', '.join(COLUMNS)}", code="declaration.column_unknown"
            )
        if not isinstance(value, str) or not value:
            raise HeadlabError(
                f"columns.{key} is {value!r:.60}; give the name of a column", code="declaration.column_invalid"
            )
    if not _says_what(set(columns)):
        raise HeadlabError(
            "columns names neither text and label (and pair, if any) nor text and target nor words and labels",
            code="declaration.columns_mismatch",
        )
    for place in ("language", "split"):
        if (place in columns) == (f"{{{place}}}" in raw["files"]):
            alone = raw.get("languages", [])
            if place == "language" and place not in columns and len(alone) == 1:
                continue  # there is one, and it is named
            raise HeadlabError(
                f"say the {place} either by {{{place}}} in files or by columns.{place}, not both",
                code="declaration.place_ambiguous",
            )
    return columns


def _says_what(columns: set[str]) -> bool:
    named = {"text", "pair", "label", "target", "words", "labels"} & columns
    return named in ({"text", "label"}, {"text", "pair", "label"}, {"text", "target"}, {"words", "labels"})


def _splits(raw: Mapping[str, Any]) -> dict[Split, str]:
    for key, value in raw.items():
        if key not in SPLITS or not isinstance(value, str) or not value or "/" in value:
            raise HeadlabError(
                f"splits.{key} is {value!r:.60}; say what the data call {', '.join(SPLITS)}",
                code="declaration.split_invalid",
            )
    names = {split: str(raw.get(split, split)) for split in SPLITS}
    if len(set(names.values())) < len(names):
        raise HeadlabError("two splits have the same name", code="declaration.split_names_equal")
    return names


def _strings(raw: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    if key not in raw:
        return None
    values = [str(value) if isinstance(value, int) and not isinstance(value, bool) else value for value in raw[key]]
    if not values or not all(isinstance(value, str) and value for value in values) or len(set(values)) < len(values):
        raise HeadlabError(f"{key} is {raw[key]!r:.80}; list each once", code="declaration.list_invalid")
    wrong = [value for value in values if key == "languages" and not LANGUAGE.fullmatch(value)]
    if wrong:
        raise HeadlabError(
            f"{wrong[0]!r:.60} is not a language code like de or zh-CN", code="declaration.language_invalid"
        )
    return tuple(values)
