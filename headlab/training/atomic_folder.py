"""Folders written atomically (complete or absent), and checks on what they may replace."""

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
from headlab.files import make_folder, read_json, unwritable
from headlab.models.files import file_sha256

# A folder written atomically: filled under a temporary name beside its target, then renamed.

NEW, OLD = ".new", ".old"  # suffixes: of a folder being filled, and of the one it replaces
HERE, EXCHANGE = -100, 2  # Linux's AT_FDCWD and RENAME_EXCHANGE


def require_folder(out: Path, do: str) -> None:
    """Raise HeadlabError, with the advice `do`, for a disk root, the working directory or an unusable path."""
    place = resolved(out)
    if ".." in out.parts and not out.parent.exists():  # what is written could not be read back under this name
        raise HeadlabError(
            f"{out} leads through a folder that does not exist; give {place}", code="output.parent_missing"
        )
    if not place.name:
        raise HeadlabError(f"{out} is the root of a disk; {do}", code="output.is_root")
    if place == Path.cwd():
        raise HeadlabError(f"{out} is the folder you work in; {do}", code="output.is_working_folder")


def resolved(out: Path) -> Path:
    """The absolute path, links followed. Raises HeadlabError for a link that leads back to itself."""
    try:
        return out.resolve()
    except (OSError, RuntimeError) as error:
        raise HeadlabError(
            f"{out} is a broken link; name another folder with --out", code="output.link_broken"
        ) from error


def checkpoint_beside(out: Path, key: str) -> Path:
    """Path of a training's checkpoint, beside `out`; it is used until the folder is written."""
    place = resolved(out)
    return place.with_name(f".{place.name}-{key[:12]}.checkpoint.safetensors")


@contextmanager
def built(out: Path) -> Iterator[Path]:
    """Yield a new folder to fill; it replaces `out` when the block ends, or is deleted if the block raises.

    Links are followed.  Leftovers of killed processes beside `out` are removed.  Raises HeadlabError if the folder
    cannot be written.
    """
    out = resolved(out)
    try:
        make_folder(out.parent)
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
    """Rename a finished folder to `out`; the folder it replaces is left under the other name, or deleted."""
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
    """Swap two folders atomically; False if the system or the disk cannot."""
    swap = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return swap is not None and swap(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0


def _held(out: Path) -> tuple[Path, int | None]:
    """A new folder to fill and its lock, which shows that a live process is using it."""
    while True:
        build = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=NEW, dir=out.parent))
        lock = _lock(build, wait=True)
        if build.is_dir():  # not swept away before it was locked
            build.chmod(0o755)
            return build, lock
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, *, wait: bool) -> int | None:
    """Lock a folder until the returned descriptor is closed or the process dies. None if it cannot be locked."""
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
    """Remove abandoned folders for `out`, and replaced ones if `out` exists."""
    ours = re.compile(rf"\.{re.escape(out.name)}\.[a-z0-9_]{{8}}(?:{re.escape(NEW)}|{re.escape(OLD)})")
    with suppress(OSError):  # another process may be sweeping too, or access is denied
        for left in [p for p in out.parent.iterdir() if ours.fullmatch(p.name) and p.is_dir()]:
            if left.suffix == OLD:
                if out.exists():
                    shutil.rmtree(left, ignore_errors=True)
            elif (lock := _lock(left, wait=False)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)


# What a folder may replace: nothing, or the unchanged output of the same kind of run.

SHOWN = 3  # file names listed in a message


@dataclass(frozen=True)
class Writer:
    """A kind of run that writes folders.

    name: in messages.  marks: sets of files; a folder with all files of one set is of this kind.  record: the one of
    these files that lists the others, under `files`, with their sha256.  do: advice if `out` cannot be used.
    """

    name: str
    marks: tuple[tuple[str, ...], ...]
    record: str
    do: str


def check_replaced(out: Path, writer: Writer) -> None:
    """Raise HeadlabError unless `out` is a new name, an empty folder, or a folder as the writer left it."""
    require_folder(out, writer.do)
    place = resolved(out)  # replacing it follows links and .. too
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
    """{path relative to the folder: sha256} of every file in a folder except its record."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    return {name: file_sha256(path) for name, path in sorted(names.items()) if name != record}


def _others(out: Path, place: Path, writer: Writer) -> list[str]:
    """Files added to the folder, or changed, since it was written."""
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
