"""What happens when a batch does not fit in the device's memory: halves of it, then a sentence."""

from __future__ import annotations

from collections import deque
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
R = TypeVar("R")


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


def halves(batch: Part, error: BaseException) -> list[Part]:
    """What is to be tried in place of a batch that failed.

    Raises the error again if it is another than full memory, and HeadlabError if the batch cannot be cut.
    """
    if not out_of_memory(error):
        raise error
    parts = batch.cut()
    if not parts:
        raise HeadlabError(TOO_LARGE, code="memory.example_too_large") from error
    return list(parts)  # type: ignore[arg-type] # parts of a thing are of its kind


def in_turn(waiting: deque[Part], run: Callable[[Part], R]) -> Iterator[tuple[Part, R]]:
    """Each batch with what `run` gives for it, in order; one that does not fit in memory is cut in two and tried again.

    run: may be called again with parts of a batch at which it failed, so it keeps nothing of a failed
    call.  Raises HeadlabError when a batch that cannot be cut does not fit.
    """
    while waiting:
        batch = waiting.popleft()
        try:
            found = run(batch)
        except (RuntimeError, MemoryError) as error:
            parts = halves(batch, error)
        else:
            yield batch, found
            continue
        # Outside the handler, so that the failed pass's tensors are free.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        waiting.extendleft(parts[::-1])


def halving(batches: Iterable[Part], run: Callable[[Part], None]) -> bool:
    """Run every batch as `in_turn` does. Returns whether any had to be cut."""
    waiting = deque(batches)
    given = len(waiting)
    return sum(1 for _ in in_turn(waiting, run)) > given


@contextmanager
def whole() -> Iterator[None]:
    """For work that cannot be cut: full memory becomes the sentence that says so."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise HeadlabError(TOO_LARGE, code="memory.example_too_large") from error
