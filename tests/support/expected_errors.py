"""What a test expects of an error: its code and the values it names, not how it is worded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headlab.core import HeadlabError


@contextmanager
def raises(
    code: str, *values: object, kind: type[HeadlabError] = HeadlabError
) -> Iterator[pytest.ExceptionInfo[HeadlabError]]:
    """Expect an error of just this code, whose message names each of the values."""
    with pytest.raises(kind) as caught:
        yield caught
    expect(caught.value, code, *values)


def expect(error: BaseException | None, code: str, *values: object) -> None:
    """Check an error that was caught otherwise, as `raises` does."""
    assert isinstance(error, HeadlabError)
    assert error.code == code, f"{error.code}, not {code}: {error}"
    assert [value for value in values if not named(value, str(error))] == [], f"not named: {error}"


def named(value: object, message: str) -> bool:
    """Whether a message names a value; a number has to stand alone, as 1 does in neither 12 nor 1.5 nor run-1."""
    if isinstance(value, int | float):
        return (
            re.search(rf"(?<![\w/.-]){re.escape(str(value))}(?![\w/-]|\.\d)", message) is not None
        )
    end = r"(?!\d)" if str(value)[-1:].isdigit() else ""  # "line 1" is not named by "line 12"
    return re.search(re.escape(str(value)) + end, message) is not None
