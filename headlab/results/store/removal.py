"""Removing finished scores from the store: whole or not at all, and none that are in use."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headlab.core import (
    TEMPORARY_NAME,
    Flock,
    HeadlabError,
    flock,
    is_abandoned,
    reason_of,
    sync_folder,
)

SPEC_FILE = "spec.json"
RESULT_FILE = "result.npz"
LOG_FILE = "log.txt"
SCORE_FILES = frozenset((SPEC_FILE, RESULT_FILE, LOG_FILE))
"""What a folder of finished scores holds; one with anything else is not deleted."""
# Listings leave out what begins with a dot, so a folder is gone as soon as it has such a name.
REMOVED_SUFFIX = ".removed"
REMOVED_NAME = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{8}\.removed")


def bytes_in(folder: Path) -> int:
    """The bytes of all files in a folder and in those below it.

    What links lead to does not count, nor what may not be looked at or is deleted meanwhile. It is
    0 for a folder that does not exist.

    Args:
        folder: The folder.
    """
    total = 0
    for path, _, file_names in os.walk(folder):
        for file_name in file_names:
            with suppress(OSError):
                total += Path(path, file_name).lstat().st_size
    return total


def reason_to_stay(folder: Path) -> str:
    """Why a folder of finished scores may not be removed, in a clause; empty if it may be.

    A run that goes on keeps its checkpoint there, or locks the file that it writes. What headlab
    does not write there is somebody else's.

    Args:
        folder: The folder.
    """
    try:
        if folder.is_symlink():
            return "it is a link to another folder"
        reasons = [_reason_in_file(path) for path in sorted(folder.iterdir())]
    except OSError as error:
        return f"it cannot be looked at ({reason_of(error)})"
    return next(filter(None, reasons), "")


def _reason_in_file(path: Path) -> str:
    """Why the folder of a file may not be removed, as far as this file tells.

    Args:
        path: Of the file.

    Raises:
        OSError: The file cannot be looked at.
    """
    is_temporary = TEMPORARY_NAME.fullmatch(path.name) is not None
    if path.name.startswith("checkpoint."):
        return f"it holds {path.name}, so a run is at work in it or was interrupted"
    is_own = is_temporary or path.name in SCORE_FILES
    if not is_own or not stat.S_ISREG(path.lstat().st_mode):
        return f"it holds {path.name}, which is not a file of scores"
    with path.open("rb") as file:
        descriptor = file.fileno()
        if is_temporary:
            is_in_use = not is_abandoned(path, descriptor)
        else:
            is_in_use = flock(descriptor, wait=False) is Flock.HELD
    return f"another process uses {path.name} in it" if is_in_use else ""


def remove_folder(folder: Path) -> str:
    """Remove a folder of finished scores, unless something speaks against it.

    It is renamed before it is deleted. A process that is killed in between leaves nothing that a
    listing shows, and `sweep_removed` deletes the rest.

    Args:
        folder: The folder.

    Returns:
        Why it stays, as in `reason_to_stay`; empty if it is gone.

    Raises:
        HeadlabError: It may not be renamed or deleted.
    """
    random_part = secrets.token_hex(4)
    removed_folder = folder.with_name(f".{folder.name}.{random_part}{REMOVED_SUFFIX}")
    try:
        with _open_folder(folder) as descriptor:
            if flock(descriptor, wait=False) is Flock.HELD:
                return "another process has locked it"
            reason = reason_to_stay(folder)
            if reason:
                return reason
            folder.rename(removed_folder)
            sync_folder(folder.parent)
            _delete(removed_folder, folder)
    except OSError as error:
        if not os.path.lexists(folder) and not os.path.lexists(removed_folder):
            return ""  # another process was faster
        raise HeadlabError(
            f"cannot remove {folder} ({reason_of(error)}); check what you may do in "
            f"{folder.parent}, and run the same command again",
            code="run.unremovable",
        ) from error
    return ""


def _delete(removed_folder: Path, folder: Path) -> None:
    """Delete a renamed folder; one of which nothing may be deleted gets its name back.

    Args:
        removed_folder: The folder.
        folder: By its former name.

    Raises:
        OSError: Some of it cannot be deleted.
    """
    try:
        shutil.rmtree(removed_folder)
    except OSError:
        is_whole = all((removed_folder / name).exists() for name in (SPEC_FILE, RESULT_FILE))
        if is_whole:
            removed_folder.rename(folder)
        raise


def sweep_removed(root: Path) -> None:
    """Delete what removals have left that were killed before they were done.

    Args:
        root: Folder of the store.
    """
    leftovers = []
    with suppress(OSError):  # there is no store yet, or it may not be looked at
        leftovers = [path for path in root.iterdir() if REMOVED_NAME.fullmatch(path.name)]
    for leftover in leftovers:
        with suppress(OSError), _open_folder(leftover) as descriptor:
            if not leftover.is_symlink() and is_abandoned(leftover, descriptor):
                shutil.rmtree(leftover)


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    """Open a folder, so that it can be locked; what it was locked with ends with it.

    Args:
        folder: The folder.

    Yields:
        Its descriptor.

    Raises:
        OSError: It cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
