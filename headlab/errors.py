"""The one exception that a user can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HeadlabError(Exception):
    """A problem the user can solve: says what was given, what fits, and what to do.

    code: which problem it is, `area.what`, for whoever must not depend on the wording: scripts, tests, other
    processes.  It stays as it is when the message is reworded.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Callable[..., HeadlabError], tuple[Any, ...], dict[str, Any]]:
        """For pickle and copy: what a subclass's constructor takes is not what an exception keeps of it."""
        return _remade, (type(self), *self.args), self.__dict__


def _remade(kind: type[HeadlabError], *args: Any) -> HeadlabError:
    return kind.__new__(kind, *args)
