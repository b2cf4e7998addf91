"""Several runs of one process at once, so that devices have work while one run waits for its last answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeVar

LOOK_SECONDS = 0.05
MOST = 16
Tick = Callable[[], None]
R = TypeVar("R")


class Ended(Exception):
    """Raised in a run whose fellow has failed or was stopped: not an error."""


def side_by_side(names: Iterable[str], run: Callable[[str, Tick], R], at_once: int, tick: Tick) -> dict[str, R]:
    """{name: run(name, tick)} in the names' order, so many at once, each in a thread of its own (one alone needs none).

    tick: called here meanwhile; may raise to stop. A run's own tick ends it then, as when another has failed.
    Raises what the first run that failed raised, when all have ended.
    """
    if at_once == 1:
        return {name: run(name, tick) for name in names}
    ended = threading.Event()

    def run_tick() -> None:
        if ended.is_set():
            raise Ended

    with ThreadPoolExecutor(max(1, min(at_once, MOST)), "run") as pool:
        futures = {name: pool.submit(run, name, run_tick) for name in names}
        waiting = set(futures.values())
        try:
            while waiting:
                tick()
                done, waiting = wait(waiting, LOOK_SECONDS, FIRST_COMPLETED)
                for future in done:
                    future.result()
        finally:
            ended.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return {name: future.result() for name, future in futures.items()}
