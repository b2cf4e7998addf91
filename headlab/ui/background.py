"""An iterator read in a thread of its own, so that a click need not wait for its next value."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
POLL_SECONDS = 0.04


@dataclass(frozen=True)
class _End:
    """The last thing the thread sends. error: what ended it, if anything did."""

    error: Exception | None = None


def polled(make: Callable[[], Generator[T]], touch: Callable[[], object], every: float = POLL_SECONDS) -> Iterator[T]:
    """Yield what `make()` gives, calling `touch` every `every` seconds while waiting.

    Streamlit ends a run for a newer one only where the script touches it; `touch` is that place.  When
    the reader stops early, the thread ends at the next value.  An error of the iterator is raised here.
    """
    answers: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_read, args=(make, answers, stop), name="figures", daemon=True).start()
    try:
        while True:
            try:
                answer = answers.get(timeout=every)
            except queue.Empty:
                touch()
                continue
            if isinstance(answer, _End):
                if answer.error is not None:
                    raise answer.error
                return
            yield answer
    finally:
        stop.set()


def _read(make: Callable[[], Generator[T]], answers: queue.SimpleQueue[T | _End], stop: threading.Event) -> None:
    try:
        with closing(make()) as values:
            for value in values:
                answers.put(value)
                if stop.is_set():
                    break
    except Exception as error:  # it belongs to the reader, not to this thread
        answers.put(_End(error))
    else:
        answers.put(_End())
