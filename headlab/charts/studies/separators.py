"""Attention to separators: a map of the heads, and kinds of heads by language."""

from __future__ import annotations

import numpy as np

from headlab.charts.chart import Chart
from headlab.charts.dots import Dot, dots_chart, side_by_side
from headlab.charts.matrices import shares_chart
from headlab.records import Head
from headlab.studies.separators_result import SeparatorsResult


def figures(result: SeparatorsResult) -> dict[str, Chart]:
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
    title = "attention to separators, by kind of heads"
    unit = "sentences that look at separators only, %"
    return {
        "separators": shares_chart(
            "sentences in which a head looks at separators only", means, "sentences, %"
        ),
        "separator-kinds": dots_chart(title, languages, series, unit, has_zero_line=False),
    }
