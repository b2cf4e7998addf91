"""Rules that derive a mask from scores, and the order in which heads are removed."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from types import NoneType
from typing import Literal

import numpy as np

from headlab.core import HEADS, Bools, Floats, HeadGrid, HeadlabError, Ints, require_type

Rule = Literal["harmful", "bottom", "threshold"]
# Warn above this share of removed heads, where most models are near chance.
RISKY_SHARE = 0.5


def removal_order(values: Floats) -> Ints:
    """Flat indices from the least useful head up; a tie removes the higher (layer, head) first."""
    return np.argsort(-values, kind="stable")[::-1].astype(np.int64)


def heads_kept_by_rule(
    grid: HeadGrid,
    values: Floats,
    high: Floats | None,
    rule: str,
    *,
    k: int | None = None,
    threshold: float | None = None,
) -> Bools:
    """Heads kept by a rule, bool [head].

    Warns when more than half of the heads are removed.

    Args:
        grid: The heads of the model.
        values: float [head], the scores.
        high: float [head], upper bounds of the scores; None where the method gives none.
        rule: "harmful" removes the heads whose upper bound is below 0, "bottom" exactly the `k`
            heads with the lowest values, "threshold" the heads with values below `threshold`.
        k: Number of heads that "bottom" removes.
        threshold: Lowest value that "threshold" keeps.

    Raises:
        HeadlabError: For an unknown rule, a missing or invalid option, or `harmful` without upper
            bounds of signed scores.
    """
    check_rule(rule, has_intervals=high is not None, k=k, threshold=threshold)
    kept_heads = np.ones(grid.size, bool)
    if high is not None and rule == "harmful":
        kept_heads = ~(high < 0)
    elif rule == "bottom":
        if k is None or not 0 <= k <= grid.size:
            raise HeadlabError(
                f"rule bottom removes k {grid.noun}; given k={k}, this model has {grid.size} "
                f"{grid.noun} ({grid})",
                code="rule.k_out_of_range",
            )
        kept_heads[removal_order(values)[:k]] = False
    else:
        assert threshold is not None
        kept_heads = values >= threshold
    warn_if_risky(kept_heads, grid.noun)
    return kept_heads


def check_rule(
    rule: str,
    *,
    has_intervals: bool,
    k: int | None = None,
    threshold: float | None = None,
) -> None:
    """Check what can be told of a rule without scores.

    Args:
        rule: As in `heads_kept_by_rule`.
        has_intervals: Whether the scores have upper bounds and signs, or may have them.
        k: As in `heads_kept_by_rule`, where a k that the model is too small for is refused.
        threshold: As in `heads_kept_by_rule`.

    Raises:
        HeadlabError: For an unknown rule, a missing or invalid option, or `harmful` without upper
            bounds of signed scores.
    """
    if rule == "harmful":
        _refuse_options(rule, k=k, threshold=threshold)
        if not has_intervals:
            raise HeadlabError(
                "rule harmful needs signs with intervals, which this method does not give; use "
                "rule bottom with k",
                code="rule.needs_intervals",
            )
    elif rule == "bottom":
        _refuse_options(rule, threshold=threshold)
        require_type("k", k, (Integral, NoneType), "a whole number of heads")
    elif rule == "threshold":
        _refuse_options(rule, k=k)
        require_type("threshold", threshold, (Real, NoneType), "a number")
        if threshold is None or not np.isfinite(threshold):
            raise HeadlabError(
                f"rule threshold needs a finite threshold; given {threshold}",
                code="rule.threshold_not_finite",
            )
    else:
        raise HeadlabError(
            f"unknown rule {rule!r}; use harmful, bottom or threshold", code="rule.unknown"
        )


def _refuse_options(rule: str, **unused_options: float | None) -> None:
    """Raise HeadlabError for options that a rule does not use."""
    given_names = [name for name, value in unused_options.items() if value is not None]
    if given_names:
        raise HeadlabError(
            f"rule {rule} takes no {' or '.join(given_names)}; leave it out, or choose the rule "
            "that uses it",
            code="rule.option_unused",
        )


def warn_if_risky(kept_heads: Bools, noun: str = HEADS) -> str | None:
    """Warn, and return the warning, when a mask removes more heads than accuracy usually survives.

    Args:
        kept_heads: bool [head].
        noun: What is removed, in a word.

    Returns:
        The warning, or None where few heads are removed.
    """
    removed_count = int((~kept_heads).sum())
    if removed_count <= RISKY_SHARE * kept_heads.size:
        return None
    sentence = (
        f"this mask removes {removed_count} of {kept_heads.size} {noun}; "
        "few models keep their accuracy beyond half: check it on dev first"
    )
    warnings.warn(sentence, UserWarning, stacklevel=3)
    return sentence
