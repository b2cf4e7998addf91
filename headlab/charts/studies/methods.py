"""Agreement of the methods: correlations, the best of them, and the curves."""

from __future__ import annotations

from collections.abc import Sequence

from headlab.charts.chart import Chart
from headlab.charts.dots import Dot, dots_chart, side_by_side
from headlab.charts.studies.agreement import correlation_matrix, names_of
from headlab.charts.studies.curves import curve_charts
from headlab.studies.agreement import Correlation
from headlab.studies.methods import MEAN, BestMethod, MethodAgreement, MethodsResult


def figures(result: MethodsResult) -> dict[str, Chart]:
    """A matrix of correlations for each language, the mean first; then best methods and curves."""
    charts = _matrices(result.agreement.rows)
    charts["methods-verdict"] = _best(result.best.rows)
    return charts | curve_charts(result.curves.rows, "methods-curves")


def _matrices(agreement: Sequence[MethodAgreement]) -> dict[str, Chart]:
    pairs_by_language: dict[str, list[tuple[str, str, Correlation]]] = {}
    for row in agreement:
        pairs = pairs_by_language.setdefault(row.language, [])
        pairs.append((row.method, row.other_method, row.correlation))
    names = names_of([(row.method, row.other_method, row.correlation) for row in agreement])
    return {
        f"methods-agreement-{language}": correlation_matrix(
            f"rank correlations of the heads' scores between methods, {language}",
            pairs_by_language[language],
            names,
            "the same method",
        )
        for language in sorted(pairs_by_language, key=lambda language: language != MEAN)
    }


def _best(rows: Sequence[BestMethod]) -> Chart:
    """The area of the best method minus those of the next one and of random orders."""
    series = {
        "the next method": [row.minus_next for row in rows],
        "random": [row.minus_random for row in rows],
    }
    names, dots_by_series = side_by_side(
        [
            Dot(
                f"{row.language}: {row.best_method} (next: {row.next_method})",
                name,
                interval.value,
                interval.low,
                interval.high,
                interval.low > 0,
            )
            for name, intervals in series.items()
            for row, interval in zip(rows, intervals, strict=True)
        ]
    )
    unit = "area of the best method minus that of another, points"
    return dots_chart("the best method against others", names, dots_by_series, unit)
