"""The commands that make a stored result again."""

from __future__ import annotations

from headlab.core import Report
from headlab.report.again import Again
from headlab.report.build import known_in
from headlab.results import LearnedGates, Result, Store


def commands_again(kind: str, result: Result[Report] | Result[LearnedGates]) -> Again:
    """The commands that make a stored result again, with paths of its files where they are noted.

    Args:
        kind: Of the result, as its spec names it.
        result: A report, or learned gates.
    """
    return known_in(Store()).again(kind, result.record.spec)
