"""Records as data frames of pandas, in the units of the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.api import Report
from headlab.core import Comparison, Evaluation, HeadGrid, needs_extra
from headlab.evaluation import accuracy_interval
from headlab.masks import Mask
from headlab.results import Curve, HeadScores

if TYPE_CHECKING:
    from headlab.notebooks.figures import ShownRecord

COLUMN_OF_ARRAY = {
    "values": "value",
    "low": "low",
    "high": "high",
    "samples": "samples",
    "p_values": "p",
    "sample_means": "sample_mean",
    "sampling_error": "sampling_error",
    "average_error": "average_error",
}
"""Columns of scores by the arrays of `HeadScores`; those that a method does not give are left out."""


def frame_of(record: ShownRecord) -> Any:
    """A record as a data frame, a row for each head, language or point.

    Args:
        record: Scores, a mask, a curve, evaluations, or those of one language.

    Returns:
        A new `pandas.DataFrame`; that of scores names their unit in `attrs["unit"]`.

    Raises:
        HeadlabError: pandas is not installed.
    """
    with needs_extra("app"):
        import pandas as pd

    match record:
        case HeadScores():
            frame = pd.DataFrame(_columns_of_scores(record))
            frame.attrs["unit"] = record.unit
            return frame
        case Mask():
            return pd.DataFrame({**_columns_of_heads(record.grid), "kept": record.kept})
        case Curve():
            return pd.DataFrame(_columns_of_curve(record))
        case Report():
            return pd.DataFrame(_rows_of_evaluations(record.values()))
        case Comparison() | Evaluation():
            return pd.DataFrame(_rows_of_evaluations([record]))
    raise TypeError(f"headlab does not show a {type(record).__name__}")


def _columns_of_heads(grid: HeadGrid) -> dict[str, list[Any]]:
    heads = grid.heads
    return {
        "stack": [head.stack for head in heads],
        "layer": [head.layer for head in heads],
        "head": [head.head for head in heads],
    }


def _columns_of_scores(scores: HeadScores) -> dict[str, Any]:
    columns: dict[str, Any] = dict(_columns_of_heads(scores.grid))
    for name, column in COLUMN_OF_ARRAY.items():
        array = getattr(scores, name)
        if array is not None:
            columns[column] = np.array(array)
    return columns


def _columns_of_curve(curve: Curve) -> dict[str, Any]:
    return {
        "removed": np.array(curve.removed),
        "accuracy": curve.accuracy,
        "difference": curve.difference,
        "low": np.array(curve.low),
        "high": np.array(curve.high),
        "p": np.array(curve.p_values),
    }


def _rows_of_evaluations(rows: Iterable[Comparison | Evaluation]) -> list[Mapping[str, Any]]:
    """A row per language: a comparison's fields, or accuracy, its interval and the counts."""
    numbers: list[Mapping[str, Any]] = []
    for row in rows:
        if isinstance(row, Comparison):
            names = [field.name for field in fields(row) if field.name != "omissions"]
            numbers.append({name: getattr(row, name) for name in names})
            continue
        low, high = accuracy_interval(row)
        numbers.append(
            {
                "language": row.language,
                "n": row.n,
                "total": row.total,
                "accuracy": row.accuracy,
                "low": low,
                "high": high,
            }
        )
    return numbers
