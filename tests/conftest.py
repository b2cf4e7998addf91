"""What several test files share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`: a file's tests in one process, for what they share; those in a browser one after another."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return "browser" if file.startswith("tests/browser/") else file

    return Files(config, log)


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
