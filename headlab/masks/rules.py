"""Rules that derive a mask from scores, and the order in which heads are removed."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from types import NoneType
from typing import Literal

import numpy as np

from headlab.core import Bools, Floats, HeadGrid, HeadlabError, Ints, require_type

Rule = Literal["harmful", "bottom", "threshold"]
# Warn above this share of removed heads, where most models are near chance.
RISKY_SHARE = 0.5


def removal_order(values: Floats) -> Ints:
    """Flat indices from the least useful head up; a tie removes the higher (layer, head) first."""
    return np.argsort(-values, kind="stable")[::-1].astype(np.int64)


def choose(
    grid: HeadGrid,
    values: Floats,
    high: Floats | None,
    rule: str,
    *,
    k: int | None = None,
    threshold: float | None = None,
) -> Bools:
    """Heads kept by a rule, bool [head].

    harmful: remove heads whose upper bound `high` is below 0. bottom: remove exactly the `k` heads
    with the lowest values.

    Args:
        threshold: Remove heads with values below `threshold`.

    Raises:
        HeadlabError: For an unknown rule, a missing or invalid option, or `harmful` without upper
            bounds of signed scores; warns when more than half are removed.
    """
    kept = np.ones(grid.size, bool)
    if rule == "harmful":
        _only(rule, k=k, threshold=threshold)
        if high is None:
            raise HeadlabError(
                "rule harmful needs signs with intervals, which this method does not give; use rule bottom with k",
                code="rule.needs_intervals",
            )
        kept = ~(high < 0)
    elif rule == "bottom":
        _only(rule, threshold=threshold)
        require_type("k", k, (Integral, NoneType), "a whole number of heads")
        if k is None or not 0 <= k <= grid.size:
            raise HeadlabError(
                f"rule bottom removes k heads; given k={k}, this model has {grid.size} heads ({grid})",
                code="rule.k_out_of_range",
            )
        kept[removal_order(values)[:k]] = False
    elif rule == "threshold":
        _only(rule, k=k)
        require_type("threshold", threshold, (Real, NoneType), "a number")
        if threshold is None or not np.isfinite(threshold):
            raise HeadlabError(
                f"rule threshold needs a finite threshold; given {threshold}",
                code="rule.threshold_not_finite",
            )
        kept = values >= threshold
    else:
        raise HeadlabError(
            f"unknown rule {rule!r}; use harmful, bottom or threshold", code="rule.unknown"
        )
    warn_if_risky(kept)
    return kept


def _only(rule: str, **unused: float | None) -> None:
    given = [name for name, value in unused.items() if value is not None]
    if given:
        raise HeadlabError(
            f"rule {rule} takes no {' or '.join(given)}; leave it out, or choose the rule that uses it",
            code="rule.option_unused",
        )


def warn_if_risky(kept: Bools) -> str | None:
    """Warn, and return the warning, when a mask removes so many heads that accuracy rarely survives; None otherwise."""
    gone = int((~kept).sum())
    if gone <= RISKY_SHARE * kept.size:
        return None
    sentence = (
        f"this mask removes {gone} of {kept.size} heads; "
        "few models keep their accuracy beyond half: check it on dev first"
    )
    warnings.warn(sentence, UserWarning, stacklevel=3)
    return sentence
