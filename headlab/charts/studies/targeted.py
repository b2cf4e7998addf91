"""Targeted pruning: differences in accuracy by language and choice of heads."""

from __future__ import annotations

from collections.abc import Sequence

from headlab.charts.chart import Chart
from headlab.charts.dots import Dot, dots_chart, side_by_side
from headlab.studies.targeted import AgainstMethod, ChoiceEffect, TargetedResult


def figures(result: TargetedResult) -> dict[str, Chart]:
    """Every choice against the untouched model, and against the method's own heads."""
    return {
        "targeted": _differences(result.effects.rows, "the untouched model"),
        "targeted-against": _differences(result.against.rows, "the method's heads"),
    }


def _differences(effects: Sequence[ChoiceEffect | AgainstMethod], other: str) -> Chart:
    gains = [(effect, effect.difference) for effect in effects]
    languages, series = side_by_side(
        [
            Dot(
                effect.language,
                effect.choice,
                gain.value,
                gain.low,
                gain.high,
                gain.is_significant,
            )
            for effect, gain in gains
        ]
    )
    title = f"accuracy without chosen heads, against {other}"
    return dots_chart(title, languages, series, f"accuracy against {other}, points")
