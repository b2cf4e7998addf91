"""An iterator read in a thread of its own, so that no click waits for its next value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """The newest value of an iterator that a thread reads from now on.

    Streamlit lets a click in a fragment wait for the end of the run under way, so a run must be short:
    the page looks at `value` again and again instead of reading the iterator itself.  error: what ended
    the iterator, if anything did.
    """

    def __init__(self, make: Callable[[], Generator[T]]) -> None:
        self.value: T | None = None
        self.error: Exception | None = None
        self.done = False
        self._make = make
        self._seen = 0
        self._news = threading.Condition()
        self._stopped = threading.Event()
        threading.Thread(target=self._read, name="figures", daemon=True).start()

    def stop(self) -> None:
        """Close the iterator at its next value."""
        self._stopped.set()

    def wait(self, values: int, seconds: float) -> None:
        """Return once so many values have come, or the end, or the time is up."""
        with self._news:
            self._news.wait_for(lambda: self.done or self._seen >= values, timeout=seconds)

    def _read(self) -> None:
        try:
            with closing(self._make()) as values:
                for value in values:
                    with self._news:
                        self.value, self._seen = value, self._seen + 1
                        self._news.notify_all()
                    if self._stopped.is_set():
                        break
        except Exception as error:  # it belongs to whoever looks, not to this thread
            self.error = error
        with self._news:
            self.done = True
            self._news.notify_all()
