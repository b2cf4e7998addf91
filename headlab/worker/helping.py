"""Devices elsewhere for a job: connected and given back without holding up the device's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from headlab.gates import Model
from headlab.methods.work import Helpers

LOOK_SECONDS = 0.05
T = TypeVar("T")
Helping = Callable[[Model], AbstractContextManager[Helpers]]


@contextmanager
def in_background(context: AbstractContextManager[T], tick: Callable[[], None]) -> Iterator[T]:
    """Enter and leave a context in a thread of its own. tick: called while it is entered; may raise to stop."""
    with ThreadPoolExecutor(1, "helping") as thread:
        coming = thread.submit(context.__enter__)
        try:
            while not coming.done():
                tick()
                wait([coming], LOOK_SECONDS)
            yield coming.result()
        finally:
            if coming.exception() is None:
                thread.submit(context.__exit__, None, None, None).result()
