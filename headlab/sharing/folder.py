"""Masks and scores in a folder of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headlab.core import HeadlabError, file_mode, reason_of, write_atomic
from headlab.models import resolve_folder
from headlab.sharing.layout import (
    CARD,
    MASKS_FOLDER,
    SCORE_FILES,
    SCORES_FOLDER,
    max_bytes,
    require_size,
    score_path,
)

CHOOSE_FOLDER = "name a folder that you may write to"


@dataclass(frozen=True)
class SharedFolder:
    """A folder that holds masks and scores.

    Attributes:
        root: The folder.
        word: What a command calls it.
    """

    root: Path
    word: str

    @property
    def kind(self) -> str:
        """What it is."""
        return "folder"

    @property
    def word_for_others(self) -> str:
        """What a command beside it calls it: its own name alone."""
        return f"./{self.root.resolve().name}"

    @property
    def address(self) -> str:
        """Its path."""
        return str(self.root.absolute())

    @property
    def state(self) -> str | None:
        """None: a folder has no commits."""
        return None

    @property
    def exists(self) -> bool:
        """Whether there is such a folder.

        Raises:
            HeadlabError: Its path is that of something else.
        """
        mode = file_mode(self.root)
        if mode is not None and not stat.S_ISDIR(mode):
            raise HeadlabError(
                f"{self.word} is a file; name the folder that masks and scores are in",
                code="share.folder_is_file",
            )
        return mode is not None

    def check_may_write(self) -> None:
        """Raise HeadlabError for the root of a disk, which is nobody's folder of masks."""
        if not resolve_folder(self.root).name:
            raise HeadlabError(
                f"{self.word} is the root of a disk; name a folder in it",
                code="share.folder_is_root",
            )

    def names(self) -> Iterator[str]:
        """Paths of the files that are shared, as far as their names tell; none is opened."""
        if not self.exists:
            return
        if os.path.lexists(self.root / CARD):
            yield CARD
        for name in self._listed(MASKS_FOLDER):
            yield f"{MASKS_FOLDER}/{name}"
        for key in self._listed(SCORES_FOLDER):
            for file in SCORE_FILES:
                if os.path.lexists(self.root / SCORES_FOLDER / key / file):
                    yield score_path(key, file)

    def read(self, name: str) -> bytes:
        """A file of the folder; links are not followed.

        Args:
            name: Its path in the folder.

        Raises:
            HeadlabError: It is missing, too large, a link, or cannot be read.
        """
        self._refuse_links(name)
        path = self.root / name
        try:
            with open(os.open(path, _read_flags()), "rb") as file:  # noqa: PTH123 - of a descriptor
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise HeadlabError(
                        f"{name} of {self.word} is not a file; remove it there",
                        code="share.not_a_file",
                    )
                require_size(name, status.st_size, self.word)
                data = file.read(max_bytes(name) + 1)
        except (OSError, ValueError) as error:
            raise HeadlabError(
                f"cannot read {name} of {self.word} ({reason_of(error)}); check the folder",
                code="share.file_unreadable",
            ) from error
        require_size(name, len(data), self.word)  # it may have grown meanwhile
        return data

    def write(self, files: Mapping[str, bytes], message: str) -> None:
        """Write files, each whole or not at all.

        Args:
            files: By their paths in the folder, in the order in which they are written.
            message: Not kept.

        Raises:
            HeadlabError: A file cannot be written, or its folder is a link.
        """
        for name in files:
            self._refuse_links(name)
        for name, data in files.items():
            write_atomic(self.root / name, data, CHOOSE_FOLDER)

    def _listed(self, folder: str) -> list[str]:
        """Names of what is in a folder of it, sorted; empty for one that is missing."""
        path = self.root / folder
        if not path.is_dir():
            return []
        self._refuse_links(folder)
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - names alone
        except OSError as error:
            raise HeadlabError(
                f"cannot list {folder} of {self.word} ({reason_of(error)}); check the folder",
                code="share.folder_unreadable",
            ) from error

    def _refuse_links(self, name: str) -> None:
        """Raise HeadlabError if a part of a path below the folder is a link."""
        path = self.root
        for part in name.split("/"):
            path = path / part
            if path.is_symlink():
                raise HeadlabError(
                    f"{path.relative_to(self.root).as_posix()} of {self.word} is a link, which may "
                    "lead anywhere; put the file itself there",
                    code="share.link",
                )


def _read_flags() -> int:
    """Flags that neither follow a link nor wait for a pipe; Windows has neither of them."""
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    return flags
