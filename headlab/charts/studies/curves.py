"""Accuracy as heads are removed, in several orderings: a figure for each language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.charts.chart import Chart
from headlab.charts.curves import OrderingLine, orderings_chart
from headlab.studies.curve_records import CurvePoint


def curve_charts(points: Sequence[CurvePoint], prefix: str) -> dict[str, Chart]:
    """{prefix and language: its curves}."""
    points_by_language: dict[str, dict[str, list[CurvePoint]]] = {}
    for point in points:
        orderings = points_by_language.setdefault(point.language, {})
        orderings.setdefault(point.ordering, []).append(point)
    charts = {}
    for language, orderings in points_by_language.items():
        lines = {ordering: _line(curve) for ordering, curve in orderings.items()}
        charts[f"{prefix}-{language}"] = orderings_chart(lines, language)
    return charts


def _line(points: Sequence[CurvePoint]) -> OrderingLine:
    return OrderingLine(
        np.array([point.heads_removed for point in points], np.int64),
        np.array([point.accuracy_percent for point in points], np.float64),
        np.array([point.low_percent for point in points], np.float64),
        np.array([point.high_percent for point in points], np.float64),
    )
