"""The one place where tests wait for something real: a process, a server, a file that another process writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(condition: Callable[[], Found], what: str = "what was waited for", seconds: float = 120.0) -> Found:
    """What `condition` says once it is true. `seconds` is no measure: it only ends a test that would hang."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, f"{what} did not come in {seconds:g} s"
        time.sleep(0.01)
    return found
