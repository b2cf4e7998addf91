"""The real data of `../shared/data`, which the project does not contain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("HEADLAB_DATA") or Path(__file__).parents[3] / "shared" / "data")


def data_with(folder: str) -> Path:
    """The data's root, if that folder is in it; else the test is skipped."""
    if not (ROOT / folder).is_dir():
        pytest.skip(f"no {folder}/ in $HEADLAB_DATA or ../shared/data")
    return ROOT
