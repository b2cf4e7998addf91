"""The one place where tests wait for something real, such as a process, a server or a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Found")

HANG_SECONDS = 600.0
"""Ends a request of a test that would hang; a request that gets an answer takes far less."""


def wait_until(
    condition: Callable[[], Value], awaited: str = "what was waited for", seconds: float = 120.0
) -> Value:
    """Wait until a condition holds.

    Args:
        condition: Called again and again until it returns something true.
        awaited: Names what is waited for, for the message of a failure.
        seconds: Ends a test that would hang; it measures nothing.

    Returns:
        What the condition returned.
    """
    value = wait_within(condition, seconds)
    assert value, f"{awaited} did not come in {seconds:g} s"
    return value


def wait_within(condition: Callable[[], Value], seconds: float) -> Value:
    """Wait until a condition holds or so many seconds have passed, as for moments drawn at random.

    Returns:
        What the condition returned last.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        seconds_left = deadline - time.monotonic()
        if value or seconds_left <= 0:
            return value
        time.sleep(min(0.005, seconds_left))
