"""Heads of all languages and of one: ranks of shared heads, and signs of the others by language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from headlab.plots.lines import Dots, dots
from headlab.plots.matrices import sign_matrix
from headlab.studies.heads import FewHead, HeadsResult, SharedHead, SpecificHead


def figures(result: HeadsResult) -> dict[str, go.Figure]:
    """A figure for each kind of heads of which there are any."""
    drawn = {}
    if result.shared.rows:
        drawn["heads-agnostic"] = _ranks(result.shared.rows)
    if result.specific.rows:
        drawn["heads-specific"] = _signs(result.specific.rows, result.languages)
    if result.few.rows:
        drawn["heads-few"] = _signs(result.few.rows, result.languages)
    return drawn


def _ranks(heads: Sequence[SharedHead]) -> go.Figure:
    best = np.array([head.best_rank for head in heads], np.float64)
    worst = np.array([head.worst_rank for head in heads], np.float64)
    ranks = Dots(worst, best, worst, np.ones(len(heads), bool))
    unit = "rank in the languages, from best to worst (dot)"
    return dots([str(head.head) for head in heads], {"ranks": ranks}, unit, zero=False)


def _signs(heads: Sequence[SpecificHead | FewHead], compared: Sequence[str]) -> go.Figure:
    """In which languages each head helps and harms, the languages in the order in which they were compared."""
    positive = [_languages(head.positive_languages) for head in heads]
    negative = [_languages(head.negative_languages) for head in heads]
    named = {language for languages in (*positive, *negative) for language in languages}
    languages = [language for language in compared if language in named]
    languages += sorted(named - set(compared))
    return sign_matrix(positive, negative, [str(head.head) for head in heads], languages)


def _languages(text: str) -> list[str]:
    return [language for language in text.split(", ") if language]
