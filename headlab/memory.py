"""What happens when a batch does not fit in the device's memory: halves of it, then a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from headlab.errors import HeadlabError
from headlab.records import Ints

TOO_LARGE = (
    "a single example does not fit in the device's memory; use a smaller model, shorter texts, or dtype bfloat16"
)


class Cuttable(Protocol):
    """Work that may be done in parts."""

    def cut(self) -> Sequence[Cuttable]:
        """Two halves of it, or nothing where it cannot be cut."""
        ...


Part = TypeVar("Part", bound=Cuttable)


@dataclass(frozen=True)
class Rows:
    """Rows of the caller's arrays that are computed together."""

    rows: Ints

    def cut(self) -> tuple[Rows, ...]:
        """Two halves of them; nothing where there is one only."""
        middle = len(self.rows) // 2
        return (Rows(self.rows[:middle]), Rows(self.rows[middle:])) if middle else ()


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device's memory is full."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def halving(batches: Iterable[Part], run: Callable[[Part], None]) -> bool:
    """Run every batch in order; one that does not fit in memory is cut in two and tried again.

    run: may be called again with parts of a batch at which it failed, so it keeps nothing of a failed
    call.  Returns whether any had to be cut.  Raises HeadlabError when one that cannot be cut does not fit.
    """
    waiting, short = list(batches)[::-1], False
    while waiting:
        batch = waiting.pop()
        try:
            run(batch)
            continue
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            parts = batch.cut()
            if not parts:
                raise HeadlabError(TOO_LARGE) from error
        # Outside the handler, so that the failed pass's tensors are free.
        short = True
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        waiting += list(parts)[::-1]  # type: ignore[arg-type] # parts of a thing are of its kind
    return short


@contextmanager
def whole() -> Iterator[None]:
    """For work that cannot be cut: full memory becomes the sentence that says so."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise HeadlabError(TOO_LARGE) from error
