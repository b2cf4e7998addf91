"""Equality of records that hold arrays: the same content, element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


class ComparedByContent:
    """A dataclass with `eq=False` whose instances are equal if all of their fields are.

    The equality that a dataclass writes itself asks an array whether it is true, which NumPy
    refuses. Such records have no hash.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether the other is of the same class and has the same content."""
        if type(other) is not type(self):
            return NotImplemented
        return has_same_content(self, other)


def has_same_content(one: Any, other: Any) -> bool:
    """Whether two values are equal, also where they hold arrays; NaN in arrays equals NaN.

    Args:
        one: A dataclass, mapping, sequence, array or plain value.
        other: Any value.
    """
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return _are_same_arrays(one, other)
    if is_dataclass(one) and not isinstance(one, type):
        return type(one) is type(other) and all(
            has_same_content(getattr(one, field.name), getattr(other, field.name))
            for field in fields(one)
            if field.compare
        )
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            has_same_content(value, other[key]) for key, value in one.items()
        )
    is_plain = isinstance(one, str | bytes)
    if not is_plain and isinstance(one, Sequence) and isinstance(other, Sequence):
        return len(one) == len(other) and all(map(has_same_content, one, other))
    return bool(one == other)


def _are_same_arrays(one: Any, other: Any) -> bool:
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return False
    may_have_nan = one.dtype.kind in "fc" and other.dtype.kind in "fc"
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=may_have_nan)
