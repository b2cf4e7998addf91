"""An iterator read in its own thread, so that no click waits for its next value."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, Generic, TypeVar, cast

from headlab.dashboard.streamlit_private import let_requests_through

T = TypeVar("T")


class LatestValue(Generic[T]):
    """The newest value of an iterator, which a thread starts reading at once.

    In streamlit, a click in a fragment waits for the current run to end, so a run must be short:
    the page polls `value` instead of reading the iterator itself.

    Attributes:
        value: The newest value; None before the first.
        first_value: The first value; None before it.
        error: The exception that ended the iterator, if any.
        done: Whether the iterator has ended.

    Args:
        make: Gives the iterator, in the thread.
        stop_event: Set by `stop`; for an iterator that must know whether it is still wanted.
    """

    def __init__(
        self, make: Callable[[], Generator[T]], stop_event: threading.Event | None = None
    ) -> None:
        self.value: T | None = None
        self.first_value: T | None = None
        self.error: Exception | None = None
        self.done = False
        self._start_time = time.monotonic()
        self._make = make
        self._value_count = 0
        self._news = threading.Condition()
        self._stopped = threading.Event() if stop_event is None else stop_event
        threading.Thread(target=self._read, name="figures", daemon=True).start()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._start_time

    def stop(self) -> None:
        """Close the iterator at its next value."""
        self._stopped.set()

    def wait(self, value_count: int, seconds: float) -> bool:
        """Block until values have arrived, the iterator has ended, or the time is up.

        Args:
            value_count: How many values.
            seconds: The time.

        Returns:
            False if the time was up.
        """
        with self._news:
            return self._news.wait_for(
                lambda: self.done or self._value_count >= value_count, timeout=seconds
            )

    def _read(self) -> None:
        try:
            with closing(self._make()) as values:
                for value in values:
                    with self._news:
                        if self._value_count == 0:
                            self.first_value = value
                        self.value = value
                        self._value_count += 1
                        self._news.notify_all()
                    if self._stopped.is_set():
                        break
        except Exception as error:  # for the caller to raise, not this thread
            self.error = error
        with self._news:
            self.done = True
            self._news.notify_all()


GIVE_WAY_SECONDS = 0.1


def await_values(live: LatestValue[Any], value_count: int, seconds: float = math.inf) -> None:
    """Block until so many values have arrived, it has ended, or it is that old.

    Another request may end this run meanwhile.

    Args:
        live: What is waited for.
        value_count: How many values.
        seconds: Its age.
    """
    while live.age < seconds and not live.wait(value_count, GIVE_WAY_SECONDS):
        let_requests_through()


def wait_for_result(ask: Callable[[], T]) -> T:
    """The answer to a slow call; its error is raised.

    Meanwhile another request, such as a page switch, may end this run.

    Args:
        ask: The call.
    """

    def yield_result() -> Generator[T]:
        yield ask()

    live = LatestValue(yield_result)
    await_values(live, 2)  # there is only one value: this waits for the end, or for an error
    if live.error is not None:
        raise live.error
    return cast(T, live.value)
