"""Scores of heads that are made up and put into a store, as if a method had found them."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlab.methods import method as method_of
from headlab.results import HeadScores
from headlab.studies.run import Pieces


def plant(
    pieces: Pieces,
    language: str,
    values: Any,
    harmful: tuple[int, ...] = (),
    method: str = "shapley",
    **more: Any,
) -> HeadScores:
    """Store scores for a language; the intervals of the harmful heads, and only theirs, lie below 0."""
    values = np.asarray(values, float)
    size = pieces.model.grid.size
    high = np.abs(values) + 0.1
    high[list(harmful)] = -0.001
    spec = pieces.score_spec(language, method, None, {})
    made = HeadScores(
        pieces.model.grid,
        language,
        method_of(method).key,
        values,
        "made up",
        "accuracy",
        100,
        1.0,
        np.minimum(values, high) - 0.1,
        high,
        np.full(size, 10, np.int64),
        more.pop("p_values", np.full(size, 0.5)),
        0.95,
        spec,
        **more,
    )
    assert pieces.store is not None
    pieces.store.run(spec).finish(made, {})
    return made
