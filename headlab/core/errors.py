"""The exception for problems that a user can solve, and checks of arguments that raise it."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any


class HeadlabError(Exception):
    """A problem the user can solve: the message says what was given, what is valid, and what to do.

    Attributes:
        code: Identifies the problem, as `area.what`, for scripts, tests and other processes, which
            must not depend on the wording: it stays the same when the message is reworded.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Callable[..., HeadlabError], tuple[Any, ...], dict[str, Any]]:
        """Support pickle and copy for subclasses whose constructor arguments differ from `args`."""
        return _rebuild_error, (type(self), *self.args), self.__dict__


class UngatedPassWarning(UserWarning):
    """A pass was not gated although another thread has gated the model.

    The other thread is in a block of `headlab.gated`.
    """


# What torch, the kernel, C++ and oneDNN say; the last of a layer that the library cannot compute
# says more.
NO_MEMORY_PATTERN = re.compile(
    r"can't allocate memory|Cannot allocate memory|bad_alloc|could not create a primitive$"
)
MEMORY_FULL_WORDS = (
    "memory is full; end other programs, or take a smaller model, a smaller batch or shorter texts"
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error says that the memory of the machine or of the device is full."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError):  # torch's own, without importing torch
        if type(error).__name__ == "OutOfMemoryError":
            return True
        return NO_MEMORY_PATTERN.search(str(error)) is not None
    cannot_map_library = isinstance(error, ImportError) and "failed to map segment" in str(error)
    return cannot_map_library or isinstance(error, MemoryError)


def as_sentence(error: HeadlabError) -> str:
    """The message with one full stop at its end."""
    return f"{str(error).rstrip('.')}."


def comma_list(names: Iterable[str], limit: int = 40) -> str:
    """Names with commas between them, and how many more there are beyond a limit."""
    names = list(names)
    rest_text = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest_text


def _rebuild_error(kind: type[HeadlabError], *args: Any) -> HeadlabError:
    return kind.__new__(kind, *args)


def require_type(name: str, value: object, kinds: type | tuple[type, ...], fits: str) -> None:
    """Raise HeadlabError unless an argument is of one of these types.

    Args:
        name: The argument's name.
        value: What was given.
        kinds: The types that it may have.
        fits: What to give instead.
    """
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise HeadlabError(
            f"{name} is {value!r:.60} ({type(value).__name__}); give {fits}",
            code="argument.wrong_type",
        )


def require_flag(name: str, value: object) -> None:
    """Raise HeadlabError unless an argument is True or False.

    Args:
        name: The argument's name.
        value: What was given.
    """
    if not isinstance(value, bool):
        raise HeadlabError(
            f"{name} is {value!r:.60} ({type(value).__name__}); give True or False",
            code="argument.wrong_type",
        )


def require_seed(seed: object) -> int:
    """A seed as an int. Raises HeadlabError unless it is a whole number of at least 0."""
    require_type("seed", seed, Integral, "a whole number of at least 0")
    whole_seed: int = int(seed)  # type: ignore[call-overload]
    if whole_seed < 0:
        raise HeadlabError(f"seed is {seed}; choose 0 or more", code="seed.invalid")
    return whole_seed


# What libraries raise.


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most 200 characters."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]


# Of the packages written in Rust, which is no Exception; each package has a class of its own with
# this name.
PANIC_CLASS = "PanicException"


@contextmanager
def errors_as_headlab_errors(
    as_sentence: Callable[[BaseException], HeadlabError],
) -> Iterator[None]:
    """Raise whatever a library raises in the block as a HeadlabError.

    Errors that say that the memory is full stay as they are: they are not the model's fault.

    Args:
        as_sentence: Makes the HeadlabError of what was raised.
    """
    try:
        yield
    except HeadlabError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != PANIC_CLASS:
            raise
        if is_out_of_memory(error):
            raise
        raise as_sentence(error) from error
