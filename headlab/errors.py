"""The exception for problems that a user can solve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HeadlabError(Exception):
    """A problem the user can solve: the message says what was given, what is valid, and what to do.

    code: identifies the problem, as `area.what`, for scripts, tests and other processes, which must not depend on the
    wording.  It stays the same when the message is reworded.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Callable[..., HeadlabError], tuple[Any, ...], dict[str, Any]]:
        """Support pickle and copy for subclasses whose constructor arguments differ from `args`."""
        return _remade, (type(self), *self.args), self.__dict__


def _remade(kind: type[HeadlabError], *args: Any) -> HeadlabError:
    return kind.__new__(kind, *args)
