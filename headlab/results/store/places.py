"""Where the files of results are on this machine, noted so that commands can name them.

A result's spec names its task and its model, and says nothing of where they are: the same data in
another folder gives the same result. What made a result is therefore noted apart, in a folder that
may be deleted or left out when the results are given to others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeGuard

from headlab.core import HeadlabError, Json, content_key, json_at, read_json

FOLDER = ".places"  # below a store's folder, whose listings leave out what begins with a dot


@dataclass(frozen=True)
class FilePlaces:
    """The absolute paths of what a result was made of.

    None for what is no file here, or is not known.

    Attributes:
        declaration: File that declares the task.
        data: Folder of the task's files, where the command named one.
        trees: CoNLL-U file of gold trees.
        corpus: Text file that word frequencies were counted in.
        model: Folder of the model.
    """

    declaration: Path | None = None
    data: Path | None = None
    trees: Path | None = None
    corpus: Path | None = None
    model: Path | None = None


NO_PLACES = FilePlaces()
NoteFields = tuple[str, tuple[str, ...]]  # a note's key, and the fields of `FilePlaces` in it
TASK_FIELDS = ("declaration", "data")
DATA_FIELDS = ("declaration", "data", "trees")


def note_places(root: Path, spec: Mapping[str, Json], places: FilePlaces) -> None:
    """Note where the files of a result are; later notes replace earlier ones.

    A cache that cannot be written stays as it is: its results then have commands without these
    paths.

    Args:
        root: Folder of the store.
        spec: Of the result.
        places: What is known of its files.
    """
    paths = {
        name: str(Path(path).absolute())
        for name, path in asdict(places).items()
        if path is not None
    }
    for notes in _notes_about(spec):
        for key, names in notes:
            note = {name: paths[name] for name in names if name in paths}
            file = root / FOLDER / f"{key}.json"
            if note and _read_note(file) != note:
                _write_note(file, note)


def noted_places(root: Path, spec: Mapping[str, Json]) -> FilePlaces:
    """Where the files of a result are, as far as that was noted and they are still there.

    Args:
        root: Folder of the store.
        spec: Of the result, or any that names its task and its model as theirs does.
    """
    paths: dict[str, Path] = {}
    for notes in _notes_about(spec):
        for key, names in notes:
            note = _read_note(root / FOLDER / f"{key}.json")
            noted_paths = {name: note.get(name) for name in names}
            existing = {name: Path(path) for name, path in noted_paths.items() if _exists(path)}
            if existing:
                paths |= existing
                break
    return FilePlaces(**paths)


def _notes_about(spec: Mapping[str, Json]) -> list[list[NoteFields]]:
    """The notes about a spec's files: about its task, its model and its corpus.

    Of each there may be several, the most exact first.
    """
    task = json_at(spec, "task", "name")
    data_hash = json_at(spec, "task", "data_hash")
    fingerprint = json_at(spec, "model", "fingerprint")
    corpus_sha256 = json_at(spec, "frequencies", "sha256")
    task_notes: list[NoteFields] = []
    model_notes: list[NoteFields] = []
    corpus_notes: list[NoteFields] = []
    if isinstance(task, str) and isinstance(data_hash, str):
        task_notes.append((_note_key("task", task, data_hash), DATA_FIELDS))
    if isinstance(task, str):
        task_notes.append((_note_key("task", task), TASK_FIELDS))
    if isinstance(fingerprint, str):
        model_notes.append((_note_key("model", fingerprint), ("model",)))
    if isinstance(corpus_sha256, str):
        corpus_notes.append((_note_key("corpus", corpus_sha256), ("corpus",)))
    return [task_notes, model_notes, corpus_notes]


def _note_key(*names: str) -> str:
    try:
        return content_key(list(names))
    except ValueError:  # a lone surrogate: valid in the JSON of a file, but not in UTF-8
        return "unnamed"


def _write_note(file: Path, note: Mapping[str, str]) -> None:
    """Write a note, without the care that results get: one that is lost or torn is read as none."""
    with suppress(OSError):  # a cache that is full or read-only
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(note, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _read_note(file: Path) -> dict[str, Json]:
    """A note; empty where there is none that can be read."""
    try:
        note: Json = read_json(file)
    except HeadlabError:
        return {}
    return note if isinstance(note, dict) else {}


def _exists(path: Json) -> TypeGuard[str]:
    """Whether a note names something that exists."""
    try:
        return isinstance(path, str) and Path(path).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False
