"""Devices elsewhere for a job: connected and given back without holding up the device's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from headlab.hooks.model import Model
from headlab.methods.run import Helpers

LOOK_SECONDS = 0.05
T = TypeVar("T")
Helping = Callable[[Model], AbstractContextManager[Helpers]]


class Background:
    """Enters and leaves contexts in a thread of its own, one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "helping")

    @contextmanager
    def using(self, context: AbstractContextManager[T], tick: Callable[[], None]) -> Iterator[T]:
        """A context for the time of a block. tick: called while it is entered; may raise to stop.

        Leaving it is not waited for, but the next one is entered only then.
        """
        coming = self._thread.submit(context.__enter__)
        try:
            while not coming.done():
                tick()
                wait([coming], LOOK_SECONDS)
            yield coming.result()
        finally:
            self._thread.submit(_leave, context, coming)


def _leave(context: AbstractContextManager[Any], coming: Future[Any]) -> None:
    if coming.exception() is None:
        context.__exit__(None, None, None)
