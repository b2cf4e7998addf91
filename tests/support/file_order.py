"""The order of the test files: the slowest begin first, so that two processes end together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SECONDS = Path(__file__).parents[2] / "docs" / "contributing.md"


def longest_first(items: list[pytest.Item], seconds: dict[str, float]) -> None:
    """Sort tests by the seconds of their files, the slowest first.

    The tests of a file stay in their order, and so do files without seconds, which come last.
    """
    items.sort(key=lambda item: -seconds.get(item.nodeid.split("::", 1)[0], 0.0))


def seconds_of_files(page: str) -> dict[str, float]:
    """Seconds by test file: the last number of each row of a table that begins with a file."""
    rows = re.findall(r"^\| `(tests/\S+\.py)` \|.*?([\d.]+) \|$", page, re.MULTILINE)
    return {name: float(number) for name, number in rows}
