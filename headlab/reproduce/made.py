"""Models that a reproduction keeps in the cache, read as what they are: files that anything may have happened to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headlab.errors import HeadlabError

VERSION = 1  # of all that goes into the folders; part of their names, so that older ones are not taken


@contextmanager
def as_written(folder: Path) -> Iterator[None]:
    """For the reading of a record: what is missing from it, or of another kind, becomes what to do."""
    try:
        yield
    except (HeadlabError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise HeadlabError(
            f"{folder} is not what this version writes; delete it and run the command again",
            code="reproduce.folder_other_version",
        ) from error
