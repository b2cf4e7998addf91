"""JSON values that are spoiled: their parts, as bytes, and in words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any


def value_paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a JSON value.

    Args:
        value: The JSON value.
        path: Its own path, which those of its parts begin with.
    """
    parts: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    for key, part in parts:
        yield (*path, key)
        yield from value_paths(part, (*path, key))


def json_bytes(value: Any) -> bytes:
    """A value as JSON, also with half of a surrogate pair in its texts."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


def value_text(value: Any) -> str:
    """A value in a line that says what is wrong with an input."""
    if not isinstance(value, float) or math.isfinite(value):
        return f"{value!r:.60}"
    return str(value)
