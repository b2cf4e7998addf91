"""The extras of headlab: what to install where a package of one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headlab.core.errors import HeadlabError


def missing_package(error: ModuleNotFoundError) -> str:
    """The package that an import lacks; empty for a module of headlab's own, which is a fault."""
    package = (error.name or "").partition(".")[0]
    return "" if package == "headlab" else package


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
        package = missing_package(error)
        if not package:
            raise
        raise HeadlabError(
            f"this needs the package {package}, which is not installed; run: "
            f"pip install 'headlab[{extra}]'",
            code="package.extra_missing",
        ) from error
