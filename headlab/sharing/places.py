"""Which place a word means: a folder of this machine, or a repository of the hub.

The form of the word alone decides, so that a command means the same wherever it is run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from headlab.core import HUB_ID, HeadlabError, is_folder
from headlab.masks import as_safe_line
from headlab.sharing.folder import SharedFolder
from headlab.sharing.hub import HubRepository
from headlab.sharing.layout import SharedPlace

HUB_PREFIX = "hf://"
# ./x, ../x, /x, ~/x, x/ and the folders . and .. themselves; on Windows .\x and C:\x, too
FOLDER_WORD = re.compile(r"\.{1,2}|(\.{1,2}|~)?/.*|.*/", re.DOTALL)
WINDOWS_FOLDER_WORD = re.compile(r"\.{1,2}|(\.{1,2}|~)?[/\\].*|[A-Za-z]:[/\\].*|.*[/\\]", re.DOTALL)
FORMS = "a folder, like ./masks or /data/masks, or a repository of the hub, like owner/name"


def place_of(word: str, *, revision: str | None = None) -> SharedPlace:
    """The place that a word means.

    Args:
        word: A path that begins with `.`, `..`, `~` or `/` or ends with `/` is a folder;
            `owner/name` and `hf://owner/name` are a repository of the hub.
        revision: Branch, tag or commit of a repository; None for its main branch.

    Raises:
        HeadlabError: It is neither; it is `owner/name` and there is a folder `owner` here; or a
            folder is given a revision.
    """
    form = WINDOWS_FOLDER_WORD if os.name == "nt" else FOLDER_WORD
    if "\0" not in word and form.fullmatch(word):
        if revision is not None:
            raise HeadlabError(
                f"--revision is of a repository of the hub, and {as_safe_line(word)} is a folder; "
                "leave it out",
                code="share.revision_of_folder",
            )
        return SharedFolder(_expanded(word), as_safe_line(word, 200))
    repository = word.removeprefix(HUB_PREFIX)
    if not HUB_ID.fullmatch(repository):
        raise HeadlabError(
            f"{as_safe_line(word)!r} is no place for masks: give {FORMS}",
            code="share.place_unclear",
        )
    owner = repository.split("/")[0]
    if repository == word and is_folder(owner):
        raise HeadlabError(
            f"{word} has the form of a repository of the hub, and there is a folder {owner} here, "
            f"too; write ./{word} for a folder, or {HUB_PREFIX}{word} for the hub",
            code="share.place_unclear",
        )
    return HubRepository(repository, revision)


def _expanded(word: str) -> Path:
    """The path of a folder, with the home of the user for `~`."""
    path = Path(word)
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise HeadlabError(
            f"{as_safe_line(word)} cannot be found, as no home folder is known; give the whole "
            "path",
            code="home.unknown",
        ) from error
