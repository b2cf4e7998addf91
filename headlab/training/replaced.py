"""What may stand where a folder is put: nothing, or what the same kind of run wrote, with no file of the user's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.models.fingerprint import file_sha256
from headlab.training.place import require_folder, resolved

SHOWN = 3  # names of files that a sentence has room for


@dataclass(frozen=True)
class Writer:
    """Who writes folders of a kind.

    name: in sentences.  marks: files by which such a folder is known, all of one of the sets.  record: of these, the
    file that lists the others, under `files`, with their sha256.  do: what to do where `out` is not a folder for it.
    """

    name: str
    marks: tuple[tuple[str, ...], ...]
    record: str
    do: str


def check_replaced(out: Path, writer: Writer) -> None:
    """Raise HeadlabError unless this is a new name, an empty folder, or a folder as the writer left it."""
    require_folder(out, writer.do)
    place = resolved(out)  # as whatever replaces it goes where links and .. lead
    if not place.exists():
        return _writable(out, next(p for p in place.parents if p.exists()))
    if place.is_dir() and not any(place.iterdir()):
        return None
    if not (place.is_dir() and any(all((place / name).is_file() for name in names) for names in writer.marks)):
        raise HeadlabError(
            f"{out} exists and holds nothing that {writer.name} made, so it is not replaced; name another folder with "
            "--out",
            code="output.not_replaceable",
        )
    if found := _others(out, place, writer):
        be, it, files = ("is", "it", "the file") if len(found) == 1 else ("are", "them", "the files")
        raise HeadlabError(
            f"{out} holds {_named(found)}, which {be} not as {writer.name} wrote {it}, so the folder is not replaced; "
            f"move {files} away, or name another folder with --out",
            code="output.files_changed",
        )
    return None


def files_of(folder: Path, record: str) -> dict[str, str]:
    """{file: sha256} of all that a folder holds but its record, by paths from the folder."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    return {name: file_sha256(path) for name, path in sorted(names.items()) if name != record}


def _others(out: Path, place: Path, writer: Writer) -> list[str]:
    """Files that were added to the folder or changed since it was written."""
    try:
        record: Any = read_json(place / writer.record)
    except HeadlabError:
        return [writer.record]
    listed = record.get("files") if isinstance(record, dict) else None
    if not isinstance(listed, dict):
        raise HeadlabError(
            f"{out} does not say which of its files {writer.name} wrote ({writer.record} of an older version, or "
            "changed), so it is not replaced; delete it if nothing in it is yours, or name another folder with --out",
            code="output.record_unreadable",
        )
    return [name for name, found in files_of(place, writer.record).items() if listed.get(name) != found]


def _named(files: list[str]) -> str:
    more = len(files) - SHOWN
    return ", ".join(files[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _writable(out: Path, parent: Path) -> None:
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise HeadlabError(
            f"cannot write {out}: {parent} is not a folder you may write to; name another with --out",
            code="output.unwritable",
        )
