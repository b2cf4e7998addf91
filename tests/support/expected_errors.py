"""Checks of errors by their code and the values that they name, not by their wording."""

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
    """Expect an error of exactly this code, whose message names each of the values."""
    with pytest.raises(kind) as caught:
        yield caught
    expect_error(caught.value, code, *values)


def expect_error(error: BaseException | None, code: str, *values: object) -> None:
    """Check an error that was caught by other means, as `raises` does."""
    assert isinstance(error, HeadlabError)
    assert error.code == code, f"{error.code}, not {code}: {error}"
    missing_values = [value for value in values if not names_value(value, str(error))]
    assert missing_values == [], f"not named: {error}"


def names_value(value: object, message: str) -> bool:
    """Whether a message names a value.

    A number has to stand alone: 1 is named by none of "12", "1.5" and "run-1".
    """
    if isinstance(value, int | float):
        number_alone = rf"(?<![\w/.-]){re.escape(str(value))}(?![\w/-]|\.\d)"
        return re.search(number_alone, message) is not None
    end = r"(?!\d)" if str(value)[-1:].isdigit() else ""  # "line 1" is not named by "line 12"
    return re.search(re.escape(str(value)) + end, message) is not None
