"""The place of a shrunk model: what may stand there before, and how its files are left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.models.fingerprint import file_sha256
from headlab.training.place import require_folder, resolved

PROOF, MASK, CARD, CONFIG = "proof.json", "mask.json", "README.md", "config.json"


def check_out(out: Path, model: str | None = None) -> None:
    """Raise HeadlabError unless this is a new name, an empty folder, or a shrunk model as it was written.

    model: name or folder of the model that is read, which its own smaller one does not replace.
    """
    require_folder(out, "give the model a folder of its own, like --out smaller")
    place = resolved(out)
    if model is not None and Path(model).is_dir() and Path(model).resolve() == place:
        raise HeadlabError(f"{out} is the model that is shrunk, and would be lost; name another folder with --out")
    if not place.exists():
        return _writable(out, next(p for p in place.parents if p.exists()))
    if place.is_dir() and not any(place.iterdir()):
        return None
    if not (place.is_dir() and all((place / name).is_file() for name in (CONFIG, PROOF, MASK))):
        raise HeadlabError(
            f"{out} exists and holds nothing that shrink made, so it is not replaced; name another folder with --out"
        )
    if (other := _others(place)) is not None:
        raise HeadlabError(
            f"{out} holds {other}, which is not as shrink wrote it, so the folder is not replaced; move the file away, "
            "or name another folder with --out"
        )
    return None


def files_of(folder: Path) -> dict[str, str]:
    """{file: sha256} of all that a folder holds but its proof, by paths from the folder."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    return {name: file_sha256(path) for name, path in sorted(names.items()) if name != PROOF}


def finish(folder: Path) -> None:
    """Let whoever may read one of its files read all, and have every one on the disk."""
    mode = (folder / PROOF).stat().st_mode  # as new files are made here; safetensors gives its own to the owner only
    for path in folder.rglob("*"):
        if not path.is_dir():
            path.chmod(mode)
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _writable(out: Path, parent: Path) -> None:
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise HeadlabError(f"cannot write {out}: {parent} is no folder you may write to; name another with --out")


def _others(folder: Path) -> str | None:
    """A file that was added to the folder or changed since it was written."""
    try:
        proof: Any = read_json(folder / PROOF)
    except HeadlabError:
        return PROOF
    listed = proof.get("files") if isinstance(proof, dict) else None
    if not isinstance(listed, dict):
        return PROOF
    return next((name for name, found in files_of(folder).items() if listed.get(name) != found), None)
