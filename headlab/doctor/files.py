"""The files of a folder that are examined, found one after another."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headlab.core import reason_of
from headlab.doctor.checkpoints import CONFIG_NAME

PYTHON_SUFFIXES = (".py", ".pyw")
NOTEBOOK_SUFFIX = ".ipynb"
MAX_BYTES = {"Python": 2 << 20, "notebook": 64 << 20, "config": 4 << 20}
"""By kind, the largest file that is read: a syntax tree takes a hundred times as much."""
PACKAGE_FOLDERS = ("site-packages", "dist-packages", "node_modules")
COMPILED_FOLDER = "__pycache__"
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""What a folder holds that is a virtual environment, or one of conda."""

HIDDEN = "hidden folders"
ENVIRONMENT = "virtual environments"
PACKAGES = "folders of installed packages"
FOLDER_LINK = "links to folders"
TOO_LARGE = "files that are too large"
NOT_REGULAR = "pipes, devices and broken links"


@dataclass(frozen=True)
class CandidateFile:
    """A file to examine.

    Attributes:
        path: Its path.
        kind: "Python", "notebook" or "config".
    """

    path: Path
    kind: str


@dataclass(frozen=True)
class UnreadFolder:
    """A folder that the system does not open.

    Attributes:
        path: Its path.
        reason: In words.
    """

    path: Path
    reason: str


@dataclass
class Walk:
    """The files of a folder to examine, and what is left out on the way.

    Attributes:
        root: The folder, which is examined whatever its name is.
        skipped: How many files and folders were left out so far, by the reason.
        unread: Folders that could not be opened so far.
    """

    root: Path
    skipped: Counter[str] = field(default_factory=Counter)
    unread: list[UnreadFolder] = field(default_factory=list)

    def __iter__(self) -> Iterator[CandidateFile]:
        """The files in order of their names, folder by folder; nothing is read ahead."""
        unvisited = [self.root]
        while unvisited:
            folder = unvisited.pop()
            try:
                files, subfolders = self.list_folder(folder)
            except OSError as error:
                self.unread.append(UnreadFolder(folder, reason_of(error)))
                continue
            for name in sorted(files):
                path = folder / name
                kind = kind_of(name)
                reason = self._reason_to_skip(path, kind)
                if reason:
                    self.skipped[reason] += 1
                else:
                    yield CandidateFile(path, kind)
            unvisited += [folder / name for name in sorted(subfolders, reverse=True)]

    def list_folder(self, folder: Path) -> tuple[list[str], list[str]]:
        """Names of the files to examine in a folder, and of the folders to enter.

        Both are empty for a virtual environment.

        Raises:
            OSError: The system does not open the folder.
        """
        files: list[str] = []
        subfolders: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in ENVIRONMENT_MARKS and folder != self.root:
                    self.skipped[ENVIRONMENT] += 1
                    return [], []
                if entry.name == COMPILED_FOLDER:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    reason = reason_to_pass(entry.name)
                    if reason:
                        self.skipped[reason] += 1
                    else:
                        subfolders.append(entry.name)
                elif entry.is_symlink() and is_folder_link(entry):
                    self.skipped[FOLDER_LINK] += 1
                elif kind_of(entry.name):
                    files.append(entry.name)
        return files, subfolders

    def _reason_to_skip(self, path: Path, kind: str) -> str:
        """Why a file is not read; empty if it is."""
        try:
            status = path.stat()
        except OSError:
            return NOT_REGULAR
        if not stat.S_ISREG(status.st_mode):
            return NOT_REGULAR
        return TOO_LARGE if status.st_size > MAX_BYTES[kind] else ""


def is_folder_link(entry: os.DirEntry[str]) -> bool:
    """Whether a link leads to a folder; one that leads back to itself does not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def kind_of(name: str) -> str:
    """The kind of a file by its name; empty for one that is not examined."""
    if name == CONFIG_NAME:
        return "config"
    suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122 - names come by the million
    if suffix in PYTHON_SUFFIXES:
        return "Python"
    return "notebook" if suffix == NOTEBOOK_SUFFIX else ""


def reason_to_pass(name: str) -> str:
    """Why a folder of this name is not entered; empty if it is."""
    if name.startswith("."):
        return HIDDEN
    return PACKAGES if name in PACKAGE_FOLDERS else ""
