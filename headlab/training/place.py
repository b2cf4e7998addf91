"""A folder that is there whole or not at all: filled beside its place, and put there when it is finished."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headlab.errors import HeadlabError
from headlab.files import unwritable

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
