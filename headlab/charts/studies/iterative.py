"""Iterative pruning: curves by language, and the differences between their areas."""

from __future__ import annotations

from headlab.charts.chart import Chart
from headlab.charts.dots import Dot, dots_chart, side_by_side
from headlab.charts.studies.curves import curve_charts
from headlab.studies.curve_records import AreaDifference
from headlab.studies.differences import ALPHA
from headlab.studies.iterative import IterativeResult


def figures(result: IterativeResult) -> dict[str, Chart]:
    """The curves of each language, and what each ordering gains over those it is compared with."""
    charts = curve_charts(result.points.rows, "iterative")
    differences_by_other: dict[str, list[AreaDifference]] = {}
    for row in result.differences.rows:
        differences_by_other.setdefault(row.other_ordering, []).append(row)
    for ordering, rows in differences_by_other.items():
        languages, series = side_by_side(
            [
                Dot(row.language, row.ordering, row.difference, row.low, row.high, row.p < ALPHA)
                for row in rows
            ]
        )
        unit = f"area minus that of {ordering}, points"
        title = f"areas under the curves against {ordering}"
        charts[f"iterative-minus-{ordering}"] = dots_chart(title, languages, series, unit)
    return charts
