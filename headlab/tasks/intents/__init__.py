"""The embedded task `intents`: voice commands in 15 languages.

They are sampled from Home Assistant's templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from headlab.core import HeadlabError
from headlab.tasks.base import Example, Split, Task
from headlab.tasks.intents.classes import LABELS, LANGUAGES, PINNED_VERSIONS


def intents_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: 17 classes, 15 languages, train in English only.

    Rows are not aligned across languages.

    Args:
        data: Not used; the templates come with the packages.
    """
    return Task("intents", LABELS, LANGUAGES, False, read, seed)


def read(language: str, split: Split, seed: int) -> Sequence[Example]:
    """The examples of a split, in an order in which every prefix is balanced.

    Raises HeadlabError if a source package is missing, or for a negative seed.
    """
    data_versions()
    if seed < 0:
        raise HeadlabError(
            f"task intents was given seed {seed}; use 0 or a larger whole number",
            code="seed.invalid",
        )
    from headlab.tasks.intents.splits import build  # needs the source packages, checked above

    return build(language, seed).examples.get(split, ())


def data_versions() -> dict[str, str]:
    """Installed version of each source package.

    With versions other than PINNED, the data and its hash differ.

    Raises HeadlabError with the pip command if one is missing.
    """
    try:
        return {name: version(name) for name in PINNED_VERSIONS}
    except PackageNotFoundError as error:
        raise HeadlabError(
            f"task intents needs the package {error.name}, which is not installed; run: "
            "pip install 'headlab[demo]'",
            code="package.intents_missing",
        ) from None
