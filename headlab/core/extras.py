"""The extras of headlab: what to install where a package of one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headlab.core.errors import HeadlabError


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Import packages of an extra in the block, or say how to install it.

    Args:
        extra: Its name in pyproject.toml.

    Raises:
        HeadlabError: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "headlab":
            raise
        raise HeadlabError(
            f"this needs the package {error.name.partition('.')[0]}, which is not installed; run: "
            f"pip install 'headlab[{extra}]'",
            code="package.extra_missing",
        ) from error
