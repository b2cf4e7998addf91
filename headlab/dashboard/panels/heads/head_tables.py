"""Head scores as tables: every head in every language, or one head across languages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from headlab.core import Floats, Head, display_unit
from headlab.dashboard.frame import Choice, scores_of
from headlab.methods import ATTENTION_METHOD, remarks
from headlab.pictures import holm_adjusted_p_values
from headlab.results import HeadScores

IN_SHOWN_UNIT = [
    "value",
    "low",
    "high",
    "half_width",
    "sample_mean",
    "sampling_error",
    "average_error",
]
"""Columns that `table_of_languages` multiplies from the scores' own unit into the one shown."""


def _floats_or_nan(
    values: np.ndarray[tuple[int], np.dtype[np.generic]] | None, size: int
) -> Floats:
    if values is None:
        return np.full(size, np.nan)
    return np.asarray(values, float)


def confidence_scores(choice: Choice) -> Mapping[str, HeadScores]:
    """How sharply each head attends, by language, where that is cached for a choice."""
    return scores_of(choice, ATTENTION_METHOD).scores


def table_of_heads(scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """One row per language and head, in the scores' own unit, as in the CSV file.

    Columns that a method does not provide (interval, samples, p) are left out.
    """
    holm_by_language = holm_adjusted_p_values(scores)
    tables = []
    for language, language_scores in scores.items():
        tables.append(_rows_of_language(language, language_scores, holm_by_language.get(language)))
    if not tables:
        return pd.DataFrame()
    return pd.concat(tables, ignore_index=True).dropna(axis="columns", how="all")


def _rows_of_language(
    language: str, head_scores: HeadScores, adjusted_p_values: Floats | None
) -> pd.DataFrame:
    """One row per head.

    Args:
        language: Its code.
        head_scores: The scores in it.
        adjusted_p_values: Float [head], by Holm; None where the method has no p values.
    """
    heads = head_scores.grid.heads
    head_count = head_scores.grid.size
    samples = head_scores.samples
    return pd.DataFrame(
        {
            "language": language,
            "stack": [head.stack for head in heads],
            "layer": [head.layer for head in heads],
            "head": [head.head for head in heads],
            "value": head_scores.values,
            "low": _floats_or_nan(head_scores.low, head_count),
            "high": _floats_or_nan(head_scores.high, head_count),
            "half_width": _floats_or_nan(head_scores.half_width, head_count),
            "sample_mean": _floats_or_nan(head_scores.sample_means, head_count),
            "sampling_error": _floats_or_nan(head_scores.sampling_error, head_count),
            "average_error": _floats_or_nan(head_scores.average_error, head_count),
            "samples": _floats_or_nan(None, head_count) if samples is None else samples,
            "rank": head_scores.ranks,
            "p": _floats_or_nan(head_scores.p_values, head_count),
            "p_holm": _floats_or_nan(adjusted_p_values, head_count),
            "method": head_scores.method,
            "estimand": head_scores.estimand,
            "unit": head_scores.unit,
            "note": "; ".join(remarks([head_scores])) or None,
        }
    )


def table_of_languages(
    scores: Mapping[str, HeadScores], head: Head, confidence: Mapping[str, HeadScores] | None = None
) -> pd.DataFrame:
    """One row per language for a head, in the unit shown (accuracies in points).

    Columns: language, value, low, high, half_width, sample_mean, sampling_error, average_error,
    rank, samples, p, p_holm, confidence; NaN where a method or language lacks it.
    """
    holm_by_language = holm_adjusted_p_values(scores)
    confidence_by_language = confidence or {}
    columns = ["language", *IN_SHOWN_UNIT, "rank", "samples", "p", "p_holm", "confidence"]
    rows = []
    for language, language_scores in scores.items():
        head_index = language_scores.grid.index(head)
        factor, _ = display_unit(language_scores.unit)
        table = _rows_of_language(language, language_scores, holm_by_language.get(language))
        row = table.iloc[[head_index]].copy()
        row[IN_SHOWN_UNIT] *= factor
        row["confidence"] = np.nan
        confidence_scores = confidence_by_language.get(language)
        if confidence_scores is not None and confidence_scores.grid == language_scores.grid:
            row["confidence"] = confidence_scores.values[head_index]
        rows.append(row[columns])
    return pd.concat(rows, ignore_index=True)
