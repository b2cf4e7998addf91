"""How a process uses its device: batches side by side on its cores, and smaller ones where memory is short."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

import torch

from headlab.errors import HeadlabError
from headlab.records import Ints

# What happens when a batch does not fit in the device's memory: halves of it, then a sentence.

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


# How a process uses its cores: batches side by side, each on one thread, so that no number depends on how many.

LOOK_SECONDS = 0.02
Tick = Callable[[], None]


class Ended(Exception):
    """Raised in a batch whose result nobody waits for any more: not an error."""


@dataclass
class _Threads:
    """How many threads there were before `one_thread` was entered, and how many are in it."""

    lock: threading.Lock
    before: int = 1
    inside: int = 0


@cache
def _threads() -> _Threads:
    return _Threads(threading.Lock())


@contextmanager
def one_thread(device: torch.device) -> Iterator[int]:
    """Let each operation use one thread on a processor; gives the number of threads that were to be used.

    On other devices nothing changes, and the number is 1. May be entered from several threads: torch keeps one
    number for all of them, which the last to leave puts back.
    """
    if device.type != "cpu":
        yield 1
        return
    kept = _threads()
    with kept.lock:
        if not kept.inside:
            kept.before = torch.get_num_threads()
        kept.inside += 1
        threads = kept.before
        torch.set_num_threads(1)
    try:
        yield threads
    finally:
        with kept.lock:
            kept.inside -= 1
            if not kept.inside:
                torch.set_num_threads(threads)


def spread(
    batches: Iterable[Part], run: Callable[[Part, Tick], R], *, device: torch.device, tick: Tick
) -> Iterator[tuple[Part, R]]:
    """Each batch with what `run(batch, tick)` gives for it, in order; as many at once as there are threads.

    One that does not fit in memory is cut in two and tried again, so there may be more than were given; run keeps
    nothing of a failed call, and calls its `tick` now and then: it ends the batch when the rest has failed.
    tick: called here, while batches are under way; may raise to stop.  Raises HeadlabError when a
    batch that cannot be cut does not fit.
    """
    waiting = deque(batches)
    with one_thread(device) as threads:
        if min(threads, len(waiting)) <= 1:
            yield from _with_ticks(waiting, run, tick)
        else:
            yield from _side_by_side(waiting, run, tick, threads)


def _with_ticks(waiting: deque[Part], run: Callable[[Part, Tick], R], tick: Tick) -> Iterator[tuple[Part, R]]:
    for batch, found in in_turn(waiting, lambda part: run(part, tick)):
        tick()
        yield batch, found


def _side_by_side(
    waiting: deque[Part], run: Callable[[Part, Tick], R], tick: Tick, lanes: int
) -> Iterator[tuple[Part, R]]:
    ended = threading.Event()

    def lane_tick() -> None:
        if ended.is_set():
            raise Ended

    under_way: deque[tuple[Part, Future[R]]] = deque()
    # Threads keep a number of their own for the operations they start.
    with ThreadPoolExecutor(lanes, "lane", initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            while waiting or under_way:
                while waiting and sum(not future.done() for _, future in under_way) < lanes:
                    batch = waiting.popleft()
                    under_way.append((batch, pool.submit(run, batch, lane_tick)))
                tick()
                wait([future for _, future in under_way if not future.done()], LOOK_SECONDS, FIRST_COMPLETED)
                while under_way and under_way[0][1].done():
                    batch, future = under_way.popleft()
                    try:
                        found = future.result()
                    except (RuntimeError, MemoryError) as error:
                        parts = halves(batch, error)
                    else:
                        yield batch, found
                        continue
                    # Before those that are under way: results come in the order of the batches.
                    under_way.extendleft((part, pool.submit(run, part, lane_tick)) for part in parts[::-1])
        finally:
            ended.set()
