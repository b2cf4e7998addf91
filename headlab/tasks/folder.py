"""Where a task's files are, and tab-separated ones read with errors that name file, line and column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headlab.errors import HeadlabError
from headlab.tasks.base import SPLITS

VARIABLE = "HEADLAB_DATA"


def data_root(given: Path | None) -> Path | None:
    """The folder of data that was given, or that of $HEADLAB_DATA; None if there is neither.

    Raises HeadlabError if it is not a folder.
    """
    named = os.environ.get(VARIABLE)
    root = given if given is not None else Path(named) if named else None
    if root is not None and not root.is_dir():
        where = "--data" if given is not None else f"${VARIABLE}"
        raise HeadlabError(
            f"{where} is {root}, which is not a folder; name the folder that holds the task's files",
            code="data.not_a_folder",
        )
    return root


def subfolder(given: Path | None, name: str) -> Path | None:
    """A task's own part of the data folder; None where there is none. Raises HeadlabError as `data_root`."""
    root = data_root(given)
    return root / name if root is not None and (root / name).is_dir() else None


def languages_in(given: Path | None, folder: str, suffix: str) -> tuple[str, ...]:
    """Languages with a file `folder/{language}.{split}.{suffix}` below the data folder, English first.

    Nothing where there is no such folder: whoever reads an example is told.
    """
    named = given or os.environ.get(VARIABLE)
    files = sorted(Path(named, folder).glob(f"*.*.{suffix}")) if named else []
    parts = [file.name.removesuffix(f".{suffix}").split(".") for file in files]
    found = dict.fromkeys(part[0] for part in parts if len(part) == 2 and part[0] and part[1] in SPLITS)
    return tuple(sorted(found, key=lambda language: (language != "en", language)))


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 text file. Raises HeadlabError as `read_text`."""
    # only real line ends: a sentence may hold a form feed or a Unicode line separator
    return read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")


def read_text(path: Path) -> str:
    """A UTF-8 text file, line ends as they are. Raises HeadlabError naming file, line and byte of what is no UTF-8."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HeadlabError(
            f"cannot read {path} ({error.strerror}); check the data folder", code="data.unreadable"
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, start = data.count(b"\n", 0, error.start) + 1, data.rfind(b"\n", 0, error.start)
        raise HeadlabError(
            f"{path}, line {line}, byte {error.start - start}: not UTF-8; save the file as UTF-8", code="data.not_utf8"
        ) from error


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The named columns of a tab-separated file with one header row and no quoting, a tuple a row.

    Raises HeadlabError that names file, line and column for a column that is missing, or a row of another length.
    """
    header, *lines = read_lines(path)
    names = header.split("\t")
    absent = [name for name in columns if name not in names]
    if absent:
        raise HeadlabError(
            f"{path}, line 1: no column {', '.join(absent)}; it has {', '.join(names)}", code="data.column_missing"
        )
    places = [names.index(name) for name in columns]
    out = []
    for number, line in enumerate(lines, start=2):
        fields = line.split("\t")
        if len(fields) != len(names):
            raise HeadlabError(
                f"{path}, line {number}: {len(fields)} fields where the header has {len(names)}",
                code="data.fields_mismatch",
            )
        out.append(tuple(fields[place] for place in places))
    return out


def whole_number(text: str, path: Path, line: int, column: str, below: int) -> int:
    """A number from 0 to below - 1. Raises HeadlabError naming file, line and column."""
    if not (text.isascii() and text.isdigit() and int(text) < below):
        raise HeadlabError(
            f"{path}, line {line}, column {column}: {text!r:.60}, expected a number from 0 to {below - 1}",
            code="data.number_invalid",
        )
    return int(text)
