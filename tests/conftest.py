"""What several test files share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of its own for each test, always from the same seed."""
    return np.random.default_rng(0)
