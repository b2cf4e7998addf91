"""Accuracy as heads are removed, in several orderings: a figure for each language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from headlab.plots.lines import Line, orderings_figure
from headlab.studies.curve_records import CurvePoint


def curve_figures(points: Sequence[CurvePoint], prefix: str) -> dict[str, go.Figure]:
    """{prefix and language: its curves}."""
    points_by_language: dict[str, dict[str, list[CurvePoint]]] = {}
    for point in points:
        orderings = points_by_language.setdefault(point.language, {})
        orderings.setdefault(point.ordering, []).append(point)
    drawn = {}
    for language, orderings in points_by_language.items():
        lines = {ordering: _line(curve) for ordering, curve in orderings.items()}
        drawn[f"{prefix}-{language}"] = orderings_figure(lines, language)
    return drawn


def _line(points: Sequence[CurvePoint]) -> Line:
    return Line(
        np.array([point.removed for point in points], np.int64),
        np.array([point.accuracy_percent for point in points], np.float64),
        np.array([point.low_percent for point in points], np.float64),
        np.array([point.high_percent for point in points], np.float64),
    )
