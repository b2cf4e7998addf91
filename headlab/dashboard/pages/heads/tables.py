"""Head scores as tables: every head in every language, or one head across languages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from headlab.core import Floats, Head, shown_unit
from headlab.methods import remarks
from headlab.pictures import adjusted
from headlab.results import HeadScores


def _column(values: np.ndarray[tuple[int], np.dtype[np.generic]] | None, size: int) -> Floats:
    return np.full(size, np.nan) if values is None else np.asarray(values, float)


def table_of_heads(scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """One row per language and head, in the scores' own unit, as in the CSV file.

    Columns that a method does not provide (interval, samples, p) are left out.
    """
    holms = adjusted(scores)
    parts = [_one_language(name, s, holms.get(name)) for name, s in scores.items()]
    return (
        pd.concat(parts, ignore_index=True).dropna(axis="columns", how="all")
        if parts
        else pd.DataFrame()
    )


def _one_language(name: str, s: HeadScores, holms: Floats | None) -> pd.DataFrame:
    heads, n = s.grid.heads, s.grid.size
    return pd.DataFrame(
        {
            "language": name,
            "stack": [h.stack for h in heads],
            "layer": [h.layer for h in heads],
            "head": [h.head for h in heads],
            "value": s.values,
            "low": _column(s.low, n),
            "high": _column(s.high, n),
            "half_width": _column(s.half_width, n),
            "samples": s.samples if s.samples is not None else _column(None, n),
            "rank": s.ranks,
            "p": _column(s.p_values, n),
            "p_holm": _column(holms, n),
            "method": s.method,
            "estimand": s.estimand,
            "unit": s.unit,
            "note": "; ".join(remarks([s])) or None,
        }
    )


def table_of_languages(
    scores: Mapping[str, HeadScores], head: Head, confidence: Mapping[str, HeadScores] | None = None
) -> pd.DataFrame:
    """One row per language for a head, in the unit shown (accuracies in points).

    Columns: language, value, low, high, half_width, rank, samples, p, p_holm, confidence; NaN where
    a method or language lacks it.
    """
    holms, confidence = adjusted(scores), confidence or {}
    rows = []
    for name, s in scores.items():
        i, (factor, _) = s.grid.index(head), shown_unit(s.unit)
        row, sure = _one_language(name, s, holms.get(name)).iloc[[i]].copy(), confidence.get(name)
        row[SCALED] *= factor
        row["confidence"] = np.nan if sure is None or sure.grid != s.grid else sure.values[i]
        rows.append(row[["language", *SCALED, "rank", "samples", "p", "p_holm", "confidence"]])
    return pd.concat(rows, ignore_index=True)


SCALED = ["value", "low", "high", "half_width"]  # columns in the scores' own unit
