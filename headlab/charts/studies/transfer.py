"""Transfer of masks: languages that chose by languages tested, and the source language's mask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.charts.chart import Chart
from headlab.charts.dots import Dot, dots_chart, side_by_side
from headlab.charts.matrices import transfer_chart
from headlab.studies.transfer import MaskEffect, SourceMaskEffect, TransferResult


def figures(result: TransferResult) -> dict[str, Chart]:
    """The matrix, and the source language's mask where that is among the languages."""
    charts: dict[str, Chart] = {"transfer": _matrix(result.effects.rows)}
    if result.zero_shot is not None:
        charts["zero-shot"] = _zero_shot(result.zero_shot.rows)
    return charts


def _matrix(effects: Sequence[MaskEffect]) -> Chart:
    chosen_on = list(dict.fromkeys(effect.chosen_on for effect in effects))
    tested_languages = list(dict.fromkeys(effect.language for effect in effects))
    values = np.full((len(chosen_on), len(tested_languages)), np.nan)
    is_sure = np.zeros(values.shape, bool)
    for effect in effects:
        cell = chosen_on.index(effect.chosen_on), tested_languages.index(effect.language)
        values[cell] = effect.difference.value
        is_sure[cell] = effect.difference.is_significant
    title = "masks chosen on one language, tested on every language"
    return transfer_chart(title, values, is_sure, chosen_on, tested_languages)


def _zero_shot(effects: Sequence[SourceMaskEffect]) -> Chart:
    differences = [
        ("against the untouched model", [effect.difference for effect in effects]),
        ("against its own mask", [effect.minus_own for effect in effects]),
    ]
    languages, series = side_by_side(
        [
            Dot(effect.language, name, gain.value, gain.low, gain.high, gain.is_significant)
            for name, gains in differences
            for effect, gain in zip(effects, gains, strict=True)
        ]
    )
    title = "the source language's mask in every language"
    return dots_chart(title, languages, series, "difference in accuracy, points")
