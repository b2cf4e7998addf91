"""How a process uses its cores: batches side by side, each on one thread, so that no number depends on how many.

A sum over two threads is another sum than over one, in the last bits. Batches that have a thread each
give the same bits on any number of cores, and lose less time to waiting for each other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch

from headlab.memory import Cuttable, halves, in_turn

LOOK_SECONDS = 0.02
Tick = Callable[[], None]
Part = TypeVar("Part", bound=Cuttable)
R = TypeVar("R")


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
