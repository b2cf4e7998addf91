"""Scores of a few heads with values, intervals and halves that a test chooses."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.results import HeadScores


def scores_of(language: str, points: Any, width: float | None = 1.0, **more: Any) -> HeadScores:
    """Values in points, with an interval of `width` points to each side unless it is None."""
    values = np.asarray(points, float) / 100
    ends = {} if width is None else {"low": values - width / 100, "high": values + width / 100}
    grid = HeadGrid((Stack("encoder", (len(values) // 2, len(values) - len(values) // 2)),))
    return HeadScores(
        grid, language, "shapley", values, "made up", "accuracy", 1, 1.0, **{**ends, **more}
    )
