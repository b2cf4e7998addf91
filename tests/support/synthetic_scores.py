"""Scores of a few heads with values, intervals and halves that a test chooses."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.results import HeadScores


def scores_of(language: str, points: Any, width: float | None = 1.0, **fields: Any) -> HeadScores:
    """Scores of a language, in two layers.

    Args:
        language: The language.
        points: Values in percentage points, one for each head.
        width: Half-width of the intervals, in points; None for scores without intervals.
        fields: Other fields of `HeadScores`.
    """
    values = np.asarray(points, float) / 100
    bounds = {} if width is None else {"low": values - width / 100, "high": values + width / 100}
    first_layer = len(values) // 2
    grid = HeadGrid((Stack("encoder", (first_layer, len(values) - first_layer)),))
    return HeadScores(
        grid, language, "shapley", values, "made up", "accuracy", 1, 1.0, **{**bounds, **fields}
    )
