"""What the scores suggest to switch off: one language's scores or their mean, and a rule. No streamlit here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headlab.masks import RISKY_SHARE
from headlab.records import Bools, Floats
from headlab.scores import HeadScores

MEAN = "mean"
RULES = {
    "harmful": "heads whose interval lies below 0",
    "bottom": "exactly k heads, the lowest scores",
    "threshold": "heads that score below a threshold",
}


@dataclass(frozen=True)
class Suggestion:
    """A rule and its one option: k for `bottom`, threshold (in the score's unit) for `threshold`."""

    rule: str
    k: int | None = None
    threshold: float | None = None


def pooled(scores: Mapping[str, HeadScores], source: str) -> HeadScores | None:
    """The scores to colour and to choose by: one language's, or the mean over all of them.

    The mean's bounds are the means of the languages' bounds: wider than they need to be, never tighter.
    None if there are no scores.
    """
    if source in scores:
        return scores[source]
    if not scores:
        return None
    every = list(scores.values())
    if len(every) == 1:
        return every[0]
    return replace(
        every[0],
        language=MEAN,
        values=np.mean([s.values for s in every], axis=0),
        low=_mean([s.low for s in every]),
        high=_mean([s.high for s in every]),
        samples=None,
        p_values=None,
    )


def _mean(bounds: list[Floats | None]) -> Floats | None:
    given = [b for b in bounds if b is not None]
    return np.mean(given, axis=0) if len(given) == len(bounds) else None


def rules_for(scores: HeadScores) -> list[str]:
    """The rules that these scores can answer: `harmful` needs intervals."""
    return [rule for rule in RULES if rule != "harmful" or scores.high is not None]


def suggest(scores: HeadScores, wanted: Suggestion) -> Bools:
    """Heads kept (bool [head]) by a rule; errors as in `headlab.masks.choose`."""
    return scores.mask(wanted.rule, k=wanted.k, threshold=wanted.threshold).kept


def how_chosen(scores: HeadScores, wanted: Suggestion, languages: list[str]) -> dict[str, Any]:
    """What the mask file says about a suggestion that was taken."""
    chosen = dict(scores.mask(wanted.rule, k=wanted.k, threshold=wanted.threshold).chosen)
    if scores.language == MEAN:
        chosen |= {"languages": languages, "pooled": "mean over languages; bounds are the means of their bounds"}
        chosen.pop("score", None)
    return chosen


def risk(kept: Bools) -> str | None:
    """A sentence where a mask takes more than the model can be expected to lose."""
    gone = int((~kept).sum())
    if gone == kept.size:
        return f"This switches off all {gone} heads: nothing is left that attends to anything."
    if gone > RISKY_SHARE * kept.size:
        return f"This switches off {gone} of {kept.size} heads; few models keep their accuracy beyond half."
    return None
