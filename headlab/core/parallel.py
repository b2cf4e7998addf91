"""How a process uses its device: batches run in parallel on its cores, and smaller ones where memory is short."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

import torch

from headlab.core.errors import HeadlabError, out_of_memory
from headlab.core.records import Ints

# Batches that do not fit in the device's memory: they are cut in half, down to an error message.

TOO_LARGE = "a single example does not fit in the device's memory; use a smaller model, shorter texts, or dtype bfloat16"


class Cuttable(Protocol):
    """Work that can be done in parts."""

    def cut(self) -> Sequence[Cuttable]:
        """Two halves, or nothing if it cannot be cut."""


Part = TypeVar("Part", bound=Cuttable)
R = TypeVar("R")


@dataclass(frozen=True)
class Rows:
    """Rows of the caller's arrays that are computed together."""

    rows: Ints

    def cut(self) -> tuple[Rows, ...]:
        """Two halves; nothing if there is only one row."""
        middle = len(self.rows) // 2
        return (Rows(self.rows[:middle]), Rows(self.rows[middle:])) if middle else ()


def halves(batch: Part, error: BaseException) -> list[Part]:
    """The parts to try in place of a failed batch.

    Raises the error again unless memory was full, and HeadlabError if the batch cannot be cut.
    """
    if not out_of_memory(error):
        raise error
    parts = batch.cut()
    if not parts:
        raise HeadlabError(TOO_LARGE, code="memory.example_too_large") from error
    return list(parts)  # type: ignore[arg-type] # parts of a thing are of its kind


def in_turn(waiting: deque[Part], run: Callable[[Part], R]) -> Iterator[tuple[Part, R]]:
    """Each batch with the result of `run`, in order.

    A batch that does not fit in memory is cut in two and retried.

    Args:
        run: Called again with parts of a failed batch, so a failed call must leave nothing behind.

    Raises:
        HeadlabError: When a batch that cannot be cut does not fit.
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
    """For work that cannot be cut: turn an out-of-memory error into a HeadlabError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise HeadlabError(TOO_LARGE, code="memory.example_too_large") from error


class Machine(Protocol):
    """A model, as far as its passes may run in parallel.  offloaded: whether only one may run at a time."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def offloaded(self) -> bool:
        """Whether its weights come and go with each pass."""


# Use of a process's cores: batches in parallel, each on one thread, so that no result depends on
# their number.

LOOK_SECONDS = 0.02
Tick = Callable[[], None]


class Ended(Exception):
    """Raised in a batch whose result is no longer needed; not an error."""


@dataclass
class _Threads:
    """Number of torch threads before `one_thread` was entered, and number of threads inside it."""

    lock: threading.Lock
    before: int = 1
    inside: int = 0


@cache
def _threads() -> _Threads:
    return _Threads(threading.Lock())


@contextmanager
def one_thread(device: torch.device) -> Iterator[int]:
    """Let each operation use one thread on a CPU; yields the number of threads configured before.

    On other devices nothing changes, and the number is 1. May be entered from several threads:
    torch has one setting for all of them, which the last to leave restores.
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
    batches: Iterable[Part], run: Callable[[Part, Tick], R], *, on: Machine, tick: Tick
) -> Iterator[tuple[Part, R]]:
    """Each batch with the result of `run(batch, tick)`, in order.

    As many in parallel as there are threads.

    A batch that does not fit in memory is cut in two and retried, so more may be returned than were
    given; a failed call of `run` must leave nothing behind, and `run` calls its `tick` regularly,
    which ends it once the others have failed.

    Args:
        on: The model that `run` uses.
        tick: Called in this thread while batches run, which wait for it where they call theirs: it
            may use the device itself, and may raise to stop.

    Raises:
        HeadlabError: When a batch that cannot be cut does not fit.
    """
    waiting = deque(batches)
    with one_thread(on.device) as threads:
        if on.offloaded or min(threads, len(waiting)) <= 1:
            for batch, found in in_turn(waiting, lambda part: run(part, tick)):
                tick()
                yield batch, found
        else:
            yield from _side_by_side(waiting, run, tick, threads)


def _side_by_side(
    waiting: deque[Part], run: Callable[[Part, Tick], R], tick: Tick, lanes: int
) -> Iterator[tuple[Part, R]]:
    ended, free = threading.Event(), threading.Event()
    free.set()

    def lane_tick() -> None:
        free.wait()
        if ended.is_set():
            raise Ended

    under_way: deque[tuple[Part, Future[R]]] = deque()
    # Each thread has its own thread count for the operations it starts.
    with ThreadPoolExecutor(
        lanes, "lane", initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        try:
            while waiting or under_way:
                while waiting and sum(not future.done() for _, future in under_way) < lanes:
                    batch = waiting.popleft()
                    under_way.append((batch, pool.submit(run, batch, lane_tick)))
                free.clear()  # what `tick` serves has the cores to itself
                tick()
                free.set()
                wait(
                    [future for _, future in under_way if not future.done()],
                    LOOK_SECONDS,
                    FIRST_COMPLETED,
                )
                while under_way and under_way[0][1].done():
                    batch, future = under_way.popleft()
                    try:
                        found = future.result()
                    except (RuntimeError, MemoryError) as error:
                        parts = halves(batch, error)
                    else:
                        yield batch, found
                        continue
                    # Before the running ones: results are in the order of the batches.
                    under_way.extendleft(
                        (part, pool.submit(run, part, lane_tick)) for part in parts[::-1]
                    )
        finally:
            ended.set()
            free.set()


# How long a pass takes: after an untimed one of the same kind, so that it does not pay for what
# another left behind.


def timed_pass(
    run: Callable[[], object], device: torch.device, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of a second pass on the device, its queue emptied before and after."""

    def once() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    once()
    begun = clock()
    once()
    return clock() - begun
