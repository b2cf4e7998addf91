"""Made-up scores of heads, put into a store as if a method had computed them."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlab.methods import method as method_of
from headlab.results import HeadScores
from headlab.studies.run import Pieces


def plant_scores(
    pieces: Pieces,
    language: str,
    values: Any,
    harmful: tuple[int, ...] = (),
    method: str = "shapley",
    **fields: Any,
) -> HeadScores:
    """Store made-up scores for a language.

    Args:
        pieces: Whose store and model the scores are for.
        language: The language.
        values: A value for each head.
        harmful: Indices of the heads whose intervals lie below 0; those of all others do not.
        method: The method that the scores claim to be from.
        fields: Other fields of `HeadScores`.
    """
    values = np.asarray(values, float)
    size = pieces.model.grid.size
    high = np.abs(values) + 0.1
    high[list(harmful)] = -0.001
    spec = pieces.score_spec(language, method, None, {})
    scores = HeadScores(
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
        fields.pop("p_values", np.full(size, 0.5)),
        0.95,
        spec,
        **fields,
    )
    assert pieces.store is not None
    pieces.store.run(spec).finish(scores, {})
    return scores
