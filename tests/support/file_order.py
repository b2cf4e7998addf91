"""The order of the files: those that take long begin first, so that two processes end together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SECONDS = Path(__file__).parents[2] / "docs" / "contributing.md"


def longest_first(items: list[pytest.Item], seconds: dict[str, float]) -> None:
    """Sort by the seconds of their files; a file's tests stay in their order, and files without seconds too."""
    items.sort(key=lambda item: -seconds.get(item.nodeid.split("::", 1)[0], 0.0))


def seconds_of_files(page: str) -> dict[str, float]:
    """{file: seconds} of a page's table: the last number of a row that begins with a test file."""
    found = re.findall(r"^\| `(tests/\S+\.py)` \|.*?([\d.]+) \|$", page, re.MULTILINE)
    return {name: float(number) for name, number in found}
