"""Heads of all languages and of one: ranks of shared heads, and signs of the others by language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.charts.chart import Chart
from headlab.charts.dots import Dots, dots_chart
from headlab.charts.matrices import signs_chart
from headlab.studies.heads import HeadPositiveInFew, HeadsResult, SharedHead, SpecificHead


def figures(result: HeadsResult) -> dict[str, Chart]:
    """A figure for each kind of heads of which there are any."""
    charts: dict[str, Chart] = {}
    if result.shared.rows:
        charts["heads-agnostic"] = _ranks(result.shared.rows)
    if result.specific.rows:
        title = "languages that heads help and harm"
        charts["heads-specific"] = _signs(title, result.specific.rows, result.languages)
    if result.few_positive.rows:
        title = "heads that matter in few languages"
        charts["heads-few"] = _signs(title, result.few_positive.rows, result.languages)
    return charts


def _ranks(heads: Sequence[SharedHead]) -> Chart:
    best = np.array([head.best_rank for head in heads], np.float64)
    worst = np.array([head.worst_rank for head in heads], np.float64)
    ranks = Dots(worst, best, worst, np.ones(len(heads), bool))
    unit = "rank in the languages, from best to worst (dot)"
    names = [str(head.head) for head in heads]
    title = "ranks of shared heads in the languages"
    return dots_chart(title, names, {"ranks": ranks}, unit, has_zero_line=False)


def _signs(
    title: str, heads: Sequence[SpecificHead | HeadPositiveInFew], all_languages: Sequence[str]
) -> Chart:
    """In which languages each head helps and harms, in the order in which these were compared."""
    positive = [_languages(head.positive_languages) for head in heads]
    negative = [_languages(head.negative_languages) for head in heads]
    languages_of_heads = {
        language for languages in (*positive, *negative) for language in languages
    }
    languages = [language for language in all_languages if language in languages_of_heads]
    languages += sorted(languages_of_heads - set(all_languages))
    return signs_chart(title, positive, negative, [str(head.head) for head in heads], languages)


def _languages(text: str) -> list[str]:
    return [language for language in text.split(", ") if language]
