"""What several test files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

BROWSER = Path(__file__).parent / "browser"


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n`: a file's tests in one process, for what they share; those in a browser one after another."""
    for item in items:
        group = BROWSER.name if BROWSER in item.path.parents else item.path.name
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of its own for each test, always from the same seed."""
    return np.random.default_rng(0)


@pytest.fixture
def one_lane() -> Iterator[None]:
    """One thread, so that what happens between batches happens the same number of times in every run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
