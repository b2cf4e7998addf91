"""Section 5 of Held & Yang (EACL 2023): heads that matter in every language, and heads whose sign differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headlab.experiments.ask import Ask, ask_scores
from headlab.experiments.heads_tables import heads_tables
from headlab.tables import Table

if TYPE_CHECKING:
    from headlab.experiments.pieces import Pieces

FEW = 3
Report = Callable[[str], None]


def run(pieces: Pieces, options: Mapping[str, Any], report: Report) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Counts of language-agnostic and language-specific heads, and which they are.

    options: method, method_options, top (the paper's 20), few (languages that a head may be positive in).
    """
    scores = {}
    for number, language in enumerate(pieces.languages, 1):
        report(f"heads, {language} ({number} of {len(pieces.languages)})")
        scores[language] = pieces.scores(language, options["method"], **options["method_options"])
    most = max(1, len(scores) - 1)
    top = min(int(options["top"]), next(iter(scores.values())).grid.size)
    tables = heads_tables(scores, top, min(int(options.get("few", FEW)), most))
    return tables, tables[0].notes


def cost(pieces: Pieces, options: Mapping[str, Any]) -> list[Ask]:
    """The scores of every language."""
    return [
        ask_scores(pieces, language, options["method"], options=options["method_options"])
        for language in pieces.languages
    ]
