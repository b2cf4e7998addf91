"""What a test expects of an error: its code and the values it names, not how it is worded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headlab.errors import HeadlabError


@contextmanager
def raises(code: str, *values: object) -> Iterator[pytest.ExceptionInfo[HeadlabError]]:
    """Expect an error of just this code, whose message names each of the values."""
    with pytest.raises(HeadlabError) as caught:
        yield caught
    told(caught.value, code, *values)


def told(error: BaseException | None, code: str, *values: object) -> None:
    """Check an error that was caught otherwise."""
    assert isinstance(error, HeadlabError)
    assert error.code == code, f"{error.code}, not {code}: {error}"
    assert [value for value in map(str, values) if value not in str(error)] == [], f"not named: {error}"
