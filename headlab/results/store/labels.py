"""Names and notes that people give to results, kept beside them.

They are no part of a result: its key and its bytes stay, and a demo's result can be named too.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from headlab.core import CHOOSE_CACHE, HeadlabError, Json, read_json, write_json

FOLDER = ".labels"  # below a store's folder, whose listings leave out what begins with a dot
RUN_KEY = re.compile(r"[0-9a-f]{64}")
MAX_NAME_LENGTH = 80
MAX_NOTE_LENGTH = 2_000


@dataclass(frozen=True)
class ResultLabel:
    """What a person calls a result, and what they noted about it.

    Attributes:
        name: In a few words; empty for none.
        note: Some sentences; empty for none.
    """

    name: str = ""
    note: str = ""

    @property
    def words(self) -> str:
        """Both in one line; empty if there is neither."""
        quoted_name = f"“{self.name}”" if self.name else ""
        return ": ".join(filter(None, (quoted_name, " ".join(self.note.split()))))


NO_LABEL = ResultLabel()


def has_labels(root: Path) -> bool:
    """Whether any result was ever given a name or a note that is still there.

    Args:
        root: Folder of the store.
    """
    return next((root / FOLDER).glob("*.json"), None) is not None


def read_label(root: Path, key: str) -> ResultLabel:
    """The name and note of a result; empty ones where none were given or the file is damaged.

    Args:
        root: Folder of the store.
        key: Of the result.
    """
    if not RUN_KEY.fullmatch(key):
        return NO_LABEL
    try:
        fields: Json = read_json(root / FOLDER / f"{key}.json")
    except HeadlabError:
        return NO_LABEL
    if not isinstance(fields, dict):
        return NO_LABEL
    texts = {name: fields.get(name) for name in asdict(NO_LABEL)}
    return ResultLabel(
        **{name: _readable(text) for name, text in texts.items() if isinstance(text, str)}
    )


def _readable(text: str) -> str:
    """The text, with question marks for what is no character: a lone surrogate in a JSON file."""
    return text.encode("utf-8", "replace").decode("utf-8")


def write_label(root: Path, key: str, label: ResultLabel) -> None:
    """Keep the name and note of a result in place of earlier ones; empty ones remove them.

    Args:
        root: Folder of the store.
        key: Of the result.
        label: Both.

    Raises:
        HeadlabError: One of them is too long, or the cache cannot be written.
    """
    for kind, text, limit in (
        ("name", label.name, MAX_NAME_LENGTH),
        ("note", label.note, MAX_NOTE_LENGTH),
    ):
        if len(text) > limit:
            raise HeadlabError(
                f"the {kind} has {len(text):,} characters; at most {limit:,} are kept",
                code="label.too_long",
            )
    if not RUN_KEY.fullmatch(key):
        raise HeadlabError(f"{key[:80]!r} is not the key of a result", code="label.not_a_key")
    file = root / FOLDER / f"{key}.json"
    if label != NO_LABEL:
        fields = {name: _readable(text) for name, text in asdict(label).items()}
        write_json(file, fields, CHOOSE_CACHE)
        return
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise HeadlabError(
            f"the name and note in {file} cannot be removed ({error.strerror}); {CHOOSE_CACHE}",
            code="label.not_removed",
        ) from error
