"""The one place where tests wait for something real: a process, a server, a file that another process writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(
    condition: Callable[[], Found], what: str = "what was waited for", seconds: float = 120.0
) -> Found:
    """What `condition` says once it is true. `seconds` is no measure: it only ends a test that would hang."""
    found = within(condition, seconds)
    assert found, f"{what} did not come in {seconds:g} s"
    return found


def within(condition: Callable[[], Found], seconds: float) -> Found:
    """What `condition` says once it is true, or after so many seconds: for moments that are drawn by lot."""
    limit = time.monotonic() + seconds
    while not (found := condition()) and (left := limit - time.monotonic()) > 0:
        time.sleep(min(0.005, left))
    return found
