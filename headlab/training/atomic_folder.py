"""A folder that is there whole or not at all, and what it may replace."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.files import read_json, unwritable
from headlab.models.files import file_sha256

# A folder that is there whole or not at all: filled beside its place, and put there when it is finished.

NEW, OLD = ".new", ".old"  # ends of names: a folder that is being filled, and the one it replaces
HERE, EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def require_folder(out: Path, do: str) -> None:
    """Raise HeadlabError, saying what to do, for the root of a disk, the folder one works in, and a path of no use."""
    place = resolved(out)
    if ".." in out.parts and not out.parent.exists():  # what is written at the place could not be read by this name
        raise HeadlabError(
            f"{out} leads through a folder that does not exist; give {place}", code="output.parent_missing"
        )
    if not place.name:
        raise HeadlabError(f"{out} is the root of a disk; {do}", code="output.is_root")
    if place == Path.cwd():
        raise HeadlabError(f"{out} is the folder you work in; {do}", code="output.is_working_folder")


def resolved(out: Path) -> Path:
    """Where a path leads, links followed. Raises HeadlabError for a link that leads back to itself."""
    try:
        return out.resolve()
    except (OSError, RuntimeError) as error:
        raise HeadlabError(
            f"{out} is a broken link; name another folder with --out", code="output.link_broken"
        ) from error


def checkpoint_beside(out: Path, key: str) -> Path:
    """Where a training's state is kept until its folder is written."""
    place = resolved(out)
    return place.with_name(f".{place.name}-{key[:12]}.checkpoint.safetensors")


@contextmanager
def built(out: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `out` at the end of the block, or is gone where that raises.

    A link is followed.  What killed processes left beside the place is removed.  Raises HeadlabError where the folder
    cannot be written.
    """
    out = resolved(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _sweep(out)
        build, lock = _held(out)
    except OSError as error:
        raise unwritable(out, error) from error
    try:
        yield build
        _put(build, out)
    except OSError as error:
        raise unwritable(out, error) from error
    finally:
        shutil.rmtree(build, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _put(build: Path, out: Path) -> None:
    """Give a finished folder its name; the folder that had it is left under the other name, or gone."""
    if not out.exists():
        build.replace(out)
    elif not exchanged(build, out):
        old = build.with_suffix(OLD)
        out.replace(old)
        try:
            build.replace(out)
        except OSError:
            old.replace(out)
            raise
        shutil.rmtree(old, ignore_errors=True)


def exchanged(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system or the disk cannot."""
    swap = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return swap is not None and swap(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0


def _held(out: Path) -> tuple[Path, int | None]:
    """A new folder that nobody takes for a dead process's leftover, as it is locked, and its lock."""
    while True:
        build = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=NEW, dir=out.parent))
        lock = _lock(build, wait=True)
        if build.is_dir():  # not swept away before it was locked
            build.chmod(0o755)
            return build, lock
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, *, wait: bool) -> int | None:
    """Lock a folder until what is returned is closed, or its holder is killed. None if the lock cannot be had."""
    try:
        import fcntl  # missing on Windows

        opened = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(opened)
        return None
    return opened


def _sweep(out: Path) -> None:
    """Remove folders for this place that nobody fills any more, and replaced ones while there is another."""
    ours = re.compile(rf"\.{re.escape(out.name)}\.[a-z0-9_]{{8}}(?:{re.escape(NEW)}|{re.escape(OLD)})")
    with suppress(OSError):  # another process sweeps too, or may not be interfered with
        for left in [p for p in out.parent.iterdir() if ours.fullmatch(p.name) and p.is_dir()]:
            if left.suffix == OLD:
                if out.exists():
                    shutil.rmtree(left, ignore_errors=True)
            elif (lock := _lock(left, wait=False)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)


# What may stand where a folder is put: nothing, or what the same kind of run wrote, with no file of the user's.

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
