"""Which heads go: those that harm, or as many of the lowest."""

from __future__ import annotations

from headlab.errors import HeadlabError
from headlab.masks import RISKY_SHARE, removal_order
from headlab.records import Bools
from headlab.scores import HeadScores, kept_without


def without_harmful(scores: HeadScores) -> Bools:
    """Heads kept, bool [head], when those leave whose interval lies below 0."""
    return ~scores.harmful


def without_lowest(scores: HeadScores, k: int) -> Bools:
    """Heads kept, bool [head], when the k lowest scores leave. Raises HeadlabError if there are not so many."""
    if not 0 <= k <= scores.grid.size:
        raise HeadlabError(
            f"k is {k}; the model has {scores.grid.size} heads ({scores.grid})", code="head.count_out_of_range"
        )
    return kept_without(removal_order(scores.values)[:k], scores.grid.size)


def chosen(scores: HeadScores, k: int | None) -> Bools:
    """Heads kept: without the harmful ones (k None), or without the k lowest."""
    return without_harmful(scores) if k is None else without_lowest(scores, k)


def removed(kept: Bools) -> int:
    """Heads that are gone."""
    return int((~kept).sum())


def caution(kept: Bools) -> str:
    """What to know before believing a mask, or empty."""
    if removed(kept) <= RISKY_SHARE * kept.size:
        return ""
    return f"{removed(kept)} of {kept.size} heads go; few models keep their accuracy beyond half"
