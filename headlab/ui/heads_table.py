"""Head scores as tables: every head of every language, or one head across languages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from headlab.records import Floats, Head
from headlab.scores import HeadScores
from headlab.stats import holm
from headlab.value_functions import shown_unit


def adjusted(scores: Mapping[str, HeadScores]) -> dict[str, Floats]:
    """Holm-adjusted p-values over all heads of all languages shown; {} where there are none."""
    tested = {name: s.p_values for name, s in scores.items() if s.p_values is not None}
    if not tested:
        return {}
    cuts = np.cumsum([len(p) for p in tested.values()])[:-1]
    return dict(zip(tested, np.split(holm(np.concatenate(list(tested.values()))), cuts), strict=True))


def _column(values: np.ndarray[tuple[int], np.dtype[np.generic]] | None, size: int) -> Floats:
    return np.full(size, np.nan) if values is None else np.asarray(values, float)


def every_head(scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """One row per language and head, in the record's own unit: what the CSV holds.

    Columns that a method does not give (interval, samples, p) are left out.
    """
    holms = adjusted(scores)
    parts = [_one_language(name, s, holms.get(name)) for name, s in scores.items()]
    return pd.concat(parts, ignore_index=True).dropna(axis="columns", how="all") if parts else pd.DataFrame()


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
        }
    )


def one_head(
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
        at = {"low": s.low, "high": s.high, "half_width": s.half_width}
        sure = confidence.get(name)
        rows.append(
            {"language": name, "value": factor * s.values[i]}
            | {key: np.nan if column is None else factor * column[i] for key, column in at.items()}
            | {"rank": int(s.ranks[i]), "samples": np.nan if s.samples is None else int(s.samples[i])}
            | {
                "p": np.nan if s.p_values is None else s.p_values[i],
                "p_holm": holms[name][i] if name in holms else np.nan,
            }
            | {"confidence": np.nan if sure is None or sure.grid != s.grid else sure.values[i]}
        )
    return pd.DataFrame(rows)


def verdict(s: HeadScores, head: Head) -> str:
    """What the interval lets one say about a head, in a few words."""
    i = s.grid.index(head)
    if s.low is None or s.high is None:
        return "no interval: this method says nothing about its uncertainty"
    if s.low[i] > 0:
        return "helps: its interval lies above 0"
    return "harms: its interval lies below 0" if s.high[i] < 0 else "undecided: its interval holds 0"
