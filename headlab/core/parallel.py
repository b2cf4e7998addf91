"""How a process uses its device: batches in parallel, and smaller ones where memory is short."""

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

from headlab.core.errors import HeadlabError, is_out_of_memory
from headlab.core.records import Ints

# Batches that do not fit in the device's memory: they are cut in half, down to an error message.

EXAMPLE_TOO_LARGE = (
    "a single example does not fit in the device's memory; use a smaller model, shorter texts, or "
    "dtype bfloat16"
)


class Cuttable(Protocol):
    """Work that can be done in parts."""

    def halves(self) -> Sequence[Cuttable]:
        """Two halves, or nothing if it cannot be cut."""


Part = TypeVar("Part", bound=Cuttable)
R = TypeVar("R")


@dataclass(frozen=True)
class Rows:
    """Rows of the caller's arrays that are computed together."""

    rows: Ints

    def halves(self) -> tuple[Rows, ...]:
        """Two halves; nothing if there is only one row."""
        middle = len(self.rows) // 2
        if middle == 0:
            return ()
        return (Rows(self.rows[:middle]), Rows(self.rows[middle:]))


def parts_to_retry(batch: Part, error: BaseException) -> list[Part]:
    """The parts to try in place of a failed batch.

    Raises the error again unless memory was full, and HeadlabError if the batch cannot be cut.
    """
    if not is_out_of_memory(error):
        raise error
    parts = batch.halves()
    if not parts:
        raise HeadlabError(EXAMPLE_TOO_LARGE, code="memory.example_too_large") from error
    return list(parts)  # type: ignore[arg-type] # parts of a thing are of its kind


def run_in_turn(pending: deque[Part], compute: Callable[[Part], R]) -> Iterator[tuple[Part, R]]:
    """Each batch with the result of `run`, in order.

    A batch that does not fit in memory is cut in two and retried.

    Args:
        pending: The batches, which are taken from it.
        compute: Called again with parts of a failed batch, so a failed call must leave nothing
            behind.

    Raises:
        HeadlabError: When a batch that cannot be cut does not fit.
    """
    while pending:
        batch = pending.popleft()
        try:
            result = compute(batch)
        except (RuntimeError, MemoryError) as error:
            parts = parts_to_retry(batch, error)
        else:
            yield batch, result
            continue
        # Outside the handler, so that the failed pass's tensors are free.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        pending.extendleft(parts[::-1])


def run_halving(batches: Iterable[Part], compute: Callable[[Part], None]) -> bool:
    """Run every batch as `run_in_turn` does. Returns whether any had to be cut."""
    pending = deque(batches)
    batch_count = len(pending)
    return sum(1 for _ in run_in_turn(pending, compute)) > batch_count


@contextmanager
def memory_errors_explained() -> Iterator[None]:
    """For work that cannot be cut: turn an out-of-memory error into a HeadlabError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise HeadlabError(EXAMPLE_TOO_LARGE, code="memory.example_too_large") from error


class Machine(Protocol):
    """A model, as far as its passes may run in parallel."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def is_offloaded(self) -> bool:
        """Whether its weights come and go with each pass, so that only one may run at a time."""


# Use of a process's cores: batches in parallel, each on one thread, so that no result depends on
# their number.

POLL_SECONDS = 0.02
Tick = Callable[[], None]


class BatchEnded(Exception):
    """Raised in a batch whose result is no longer needed; not an error."""


@dataclass
class _ThreadSettings:
    """Number of torch threads before `one_thread` was entered, and number of threads inside it."""

    lock: threading.Lock
    threads_before: int = 1
    users: int = 0


@cache
def _thread_settings() -> _ThreadSettings:
    return _ThreadSettings(threading.Lock())


@contextmanager
def one_thread(device: torch.device) -> Iterator[int]:
    """Let each operation use one thread on a CPU; yields the number of threads configured before.

    On other devices nothing changes, and the number is 1. May be entered from several threads:
    torch has one setting for all of them, which the last to leave restores.
    """
    if device.type != "cpu":
        yield 1
        return
    settings = _thread_settings()
    with settings.lock:
        if not settings.users:
            settings.threads_before = torch.get_num_threads()
        settings.users += 1
        threads = settings.threads_before
        torch.set_num_threads(1)
    try:
        yield threads
    finally:
        with settings.lock:
            settings.users -= 1
            if not settings.users:
                torch.set_num_threads(threads)


def run_in_parallel(
    batches: Iterable[Part], compute: Callable[[Part, Tick], R], *, model: Machine, tick: Tick
) -> Iterator[tuple[Part, R]]:
    """Each batch with the result of `compute(batch, tick)`, in order.

    As many batches run in parallel as there are threads. One that does not fit in memory is cut in
    two and retried, so more may be returned than were given.

    Args:
        batches: The batches.
        compute: Computes a batch. A failed call must leave nothing behind. It calls its `tick`
            regularly, which ends it once another batch has failed.
        model: The model that `compute` uses.
        tick: Called in this thread between batches; the other threads pause in their own tick
            meanwhile, so it may use the device itself. It may raise to stop.

    Raises:
        HeadlabError: When a batch that cannot be cut does not fit.
    """
    pending = deque(batches)
    with one_thread(model.device) as threads:
        if model.is_offloaded or min(threads, len(pending)) <= 1:
            for batch, result in run_in_turn(pending, lambda part: compute(part, tick)):
                tick()
                yield batch, result
        else:
            yield from _run_side_by_side(pending, compute, tick, threads)


def _count_unfinished(running: Iterable[tuple[object, Future[R]]]) -> int:
    """How many of these batches have no result yet."""
    return sum(not future.done() for _, future in running)


def _run_side_by_side(
    pending: deque[Part], compute: Callable[[Part, Tick], R], tick: Tick, lanes: int
) -> Iterator[tuple[Part, R]]:
    has_ended = threading.Event()
    lanes_may_run = threading.Event()
    lanes_may_run.set()

    def lane_tick() -> None:
        lanes_may_run.wait()
        if has_ended.is_set():
            raise BatchEnded

    running: deque[tuple[Part, Future[R]]] = deque()
    # Each thread has its own thread count for the operations it starts.
    with ThreadPoolExecutor(
        lanes, "lane", initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        try:
            while pending or running:
                while pending and _count_unfinished(running) < lanes:
                    batch = pending.popleft()
                    running.append((batch, pool.submit(compute, batch, lane_tick)))
                lanes_may_run.clear()  # what `tick` serves has the cores to itself
                tick()
                lanes_may_run.set()
                wait(
                    [future for _, future in running if not future.done()],
                    POLL_SECONDS,
                    FIRST_COMPLETED,
                )
                while running and running[0][1].done():
                    batch, future = running.popleft()
                    try:
                        result = future.result()
                    except (RuntimeError, MemoryError) as error:
                        parts = parts_to_retry(batch, error)
                    else:
                        yield batch, result
                        continue
                    # Before the running ones: results are in the order of the batches.
                    running.extendleft(
                        (part, pool.submit(compute, part, lane_tick)) for part in parts[::-1]
                    )
        finally:
            has_ended.set()
            lanes_may_run.set()


# How long a pass takes: after an untimed one of the same kind, so that it does not pay for what
# another left behind.


def timed_pass(
    run_pass: Callable[[], object],
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of a second pass on the device, its queue emptied before and after."""

    def run_and_wait() -> None:
        run_pass()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    run_and_wait()
    start = clock()
    run_and_wait()
    return clock() - start
