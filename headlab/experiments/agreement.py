"""Figures 1 and 2 of Held & Yang (EACL 2023): do two languages agree on which heads help?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headlab.experiments.agreement_tables import agreement_tables, compare_languages, outlier_words
from headlab.experiments.ask import Ask, ask_scores
from headlab.tables import Table

if TYPE_CHECKING:
    from headlab.experiments.pieces import Pieces

Report = Callable[[str], None]


def run(pieces: Pieces, options: Mapping[str, Any], report: Report) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Rank correlations of every pair of languages beside what noise allows, the clusters and the outlier.

    options: method, method_options.
    """
    scores = {}
    for number, language in enumerate(pieces.languages, 1):
        report(f"agreement, {language} ({number} of {len(pieces.languages)})")
        scores[language] = pieces.scores(language, options["method"], **options["method_options"])
    report("agreement: resampling heads")
    compared = compare_languages(scores, pieces.seed)
    sentence = outlier_words(compared)
    return agreement_tables(compared), (sentence,) if sentence else ()


def cost(pieces: Pieces, options: Mapping[str, Any]) -> list[Ask]:
    """The scores of every language."""
    return [
        ask_scores(pieces, language, options["method"], options=options["method_options"])
        for language in pieces.languages
    ]
