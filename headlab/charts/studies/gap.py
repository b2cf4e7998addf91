"""Dev against test: what the masks of each rule gain on either."""

from __future__ import annotations

from headlab.charts.chart import Chart
from headlab.charts.dots import Dot, dots_chart, side_by_side
from headlab.studies.gap import GapResult, MaskGains


def figures(result: GapResult) -> dict[str, Chart]:
    """A figure for each rule, with the languages in which it removes heads."""
    gains_by_rule: dict[str, list[MaskGains]] = {}
    for row in result.masks.rows:
        if row.heads_removed:
            gains_by_rule.setdefault(row.rule, []).append(row)
    charts = {}
    for rule, rows in gains_by_rule.items():
        splits = {"on dev": [row.dev for row in rows], "on test": [row.test for row in rows]}
        languages, series = side_by_side(
            [
                Dot(row.language, split, gain.value, gain.low, gain.high, gain.is_clear)
                for split, gains in splits.items()
                for row, gain in zip(rows, gains, strict=True)
            ]
        )
        title = f"gains of masks on dev and on test, {rule}"
        name = f"gap-{rule.lower().replace(' ', '-')}"
        charts[name] = dots_chart(title, languages, series, "gain, points")
    return charts
