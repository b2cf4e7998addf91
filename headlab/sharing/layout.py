"""Which files are shared, by what names, and what every place that holds them can do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headlab.core import MAX_JSON_BYTES, HeadlabError
from headlab.masks import as_safe_line
from headlab.results import MAX_ARRAY_BYTES

CARD = "README.md"
MASKS_FOLDER = "masks"
SCORES_FOLDER = "scores"
SPEC = "spec.json"
RESULT = "result.npz"
SCORE_FILES = (RESULT, SPEC)
"""The files of scores, in the order in which they are written: what has a spec is whole."""
MASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
MASK_NAME_WORDS = "1 to 80 letters, digits, '.', '_' and '-', the first of them a letter or digit"
MASK_FILE = re.compile(rf"{MASKS_FOLDER}/({MASK_NAME.pattern})\.json")
SCORE_FILE = re.compile(rf"{SCORES_FOLDER}/([0-9a-f]{{64}})/({'|'.join(SCORE_FILES)})")
MAX_CARD_BYTES = 1 << 20
ZIP_BYTES = 1 << 20  # what an archive may need besides its arrays


class SharedPlace(Protocol):
    """A folder or a repository that holds masks and scores."""

    @property
    def word(self) -> str:
        """What a command calls it, and messages."""
        ...

    @property
    def kind(self) -> str:
        """What it is, in a word or two."""
        ...

    @property
    def word_for_others(self) -> str:
        """What a command of somebody else calls it, without a path of this machine."""
        ...

    @property
    def address(self) -> str:
        """Where it is: a path or a URL."""
        ...

    @property
    def state(self) -> str | None:
        """The commit that is read; None for a folder, or where there is none yet."""
        ...

    @property
    def exists(self) -> bool:
        """Whether there is such a place."""
        ...

    def check_may_write(self) -> None:
        """Raise HeadlabError if it is known beforehand that nothing can be written."""
        ...

    def names(self) -> Iterable[str]:
        """Paths of its files, of which none is read; empty if there is no such place."""
        ...

    def read(self, name: str) -> bytes:
        """A file.

        Args:
            name: One of `names`, as `SharedFiles` knows it.

        Raises:
            HeadlabError: It is missing, too large, a link, or cannot be had.
        """
        ...

    def write(self, files: Mapping[str, bytes], message: str) -> None:
        """Write files, replacing those of the same names, and leave the others.

        Args:
            files: By their names, in the order in which they become visible.
            message: What was done, in a line.

        Raises:
            HeadlabError: They cannot be written.
        """
        ...


@dataclass(frozen=True)
class SharedFiles:
    """What a place holds, by the names of its files alone.

    Attributes:
        masks: Names of its masks, sorted.
        scores: Keys of its scores, sorted; those of which both files are there.
        has_card: Whether it has a README.md.
    """

    masks: tuple[str, ...]
    scores: tuple[str, ...]
    has_card: bool

    @classmethod
    def named(cls, names: Iterable[str]) -> SharedFiles:
        """What these files are; those of other names are left out.

        Args:
            names: Paths in a place, with '/' between their parts.
        """
        masks: set[str] = set()
        files_by_key: dict[str, set[str]] = {}
        has_card = False
        for name in names:
            has_card = has_card or name == CARD
            if match := MASK_FILE.fullmatch(name):
                masks.add(match[1])
            elif match := SCORE_FILE.fullmatch(name):
                files_by_key.setdefault(match[1], set()).add(match[2])
        whole = {key for key, files in files_by_key.items() if files == set(SCORE_FILES)}
        return cls(tuple(sorted(masks)), tuple(sorted(whole)), has_card)


def mask_path(name: str) -> str:
    """The path of a mask in a place.

    Args:
        name: Of the mask.

    Raises:
        HeadlabError: No mask can be shared under this name.
    """
    if not MASK_NAME.fullmatch(name):
        raise HeadlabError(
            f"{as_safe_line(name)!r} cannot be the name of a shared mask: it takes "
            f"{MASK_NAME_WORDS}; rename the file",
            code="share.mask_name",
        )
    return f"{MASKS_FOLDER}/{name}.json"


def score_path(key: str, file: str) -> str:
    """The path of a file of scores in a place.

    Args:
        key: Of the scores.
        file: One of `SCORE_FILES`.
    """
    return f"{SCORES_FOLDER}/{key}/{file}"


def max_bytes(name: str) -> int:
    """How large a file may be.

    Args:
        name: Its path in a place.
    """
    if name == CARD:
        return MAX_CARD_BYTES
    if name.endswith(".npz"):
        return MAX_ARRAY_BYTES + ZIP_BYTES
    return MAX_JSON_BYTES


def require_size(name: str, size: int, place: str) -> None:
    """Raise HeadlabError for a file that is larger than any that headlab writes.

    Args:
        name: Its path in a place.
        size: In bytes.
        place: In messages.
    """
    limit = max_bytes(name)
    if size > limit:
        raise HeadlabError(
            f"{name} of {place} is larger than {limit >> 20} MiB, so it is not one of headlab's; "
            "remove it there, or name another place",
            code="share.file_too_large",
        )
