"""Attention to separators: a map of the heads, and kinds of heads by language."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from headlab.core import Head
from headlab.plots.heads import share_map
from headlab.plots.lines import Dot, dots, side_by_side
from headlab.studies.separators_result import SeparatorsResult


def figures(result: SeparatorsResult) -> dict[str, go.Figure]:
    """The mean over languages of every head, and every kind of heads in each language."""
    percentages: dict[Head, list[float]] = {}
    for row in result.heads.rows:
        percentages.setdefault(row.head, []).append(row.sentences_percent)
    means: dict[tuple[str, int, int], float] = {}
    for head, values in percentages.items():
        means[head] = float(np.mean(values))
    languages, series = side_by_side(
        [
            Dot(
                row.language,
                row.kind,
                row.sentences_percent,
                row.low_percent,
                row.high_percent,
                True,
            )
            for row in result.kinds.rows
        ]
    )
    unit = "sentences that look at separators only, %"
    return {
        "separators": share_map(means, "sentences, %"),
        "separator-kinds": dots(languages, series, unit, zero=False),
    }
