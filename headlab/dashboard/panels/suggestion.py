"""Which heads the scores suggest switching off: of one language or of their mean, by a rule. No streamlit here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headlab.core import Bools, Floats
from headlab.masks import RISKY_SHARE, Mask
from headlab.results import RAW, HeadScores, coarse

# Which heads the scores suggest switching off: one language's scores or their mean, and a rule. No streamlit here.

MEAN_OF_LANGUAGES = "mean"

RULES = {
    "harmful": "heads whose interval lies below 0",
    "bottom": "exactly k heads, the lowest scores",
    "threshold": "heads that score below a threshold",
}

# The corrections of `HeadScores.mask` in words.
CORRECTIONS = {
    RAW: "each head's own interval",
    "holm": "Holm: any false one is unlikely",
    "bh": "Benjamini–Hochberg: few of them are false",
}


@dataclass(frozen=True)
class Suggestion:
    """A rule and its one option: k for `bottom`, threshold (in the score's unit), correction for `harmful`."""

    rule: str
    k: int | None = None
    threshold: float | None = None
    correction: str = RAW

    def mask(self, scores: HeadScores) -> Mask:
        """The mask that it makes of scores; errors as of `HeadScores.mask`."""
        return scores.mask(
            self.rule, k=self.k, threshold=self.threshold, correction=self.correction
        )


def expected_false(scores: HeadScores, wanted: Suggestion, off: int) -> str:
    """How many of the heads that rule harmful names may do no harm, in words; empty where there is nothing to say.

    off: how many it names.
    """
    miss, heads = 1 - scores.level, scores.grid.size
    if wanted.rule != "harmful" or miss <= 0:
        return ""
    if wanted.correction == RAW:
        if scores.language == MEAN_OF_LANGUAGES:
            return (
                "Bounds of the mean are conservative, so fewer heads are named falsely than intervals of "
                f"{scores.level:.0%} allow."
            )
        return (
            f"If none of the {heads} heads had any effect, at most about {heads * miss / 2:.2g} would still be named, "
            f"by chance: each is judged by its own {scores.level:.0%} interval."
        )
    if not off:
        return coarse([scores]) if wanted.correction == "holm" else ""
    if wanted.correction == "bh":
        return (
            f"Of those named, at most {miss:.0%} are false on average: {off * miss:.2g} of {off}."
        )
    return f"The probability that any of them is false is at most {miss:.0%}."


def pooled_scores(scores: Mapping[str, HeadScores], source: str) -> HeadScores | None:
    """The scores used for colours and suggestions: one language's, or the mean over all of them.

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
        language=MEAN_OF_LANGUAGES,
        values=np.mean([s.values for s in every], axis=0),
        low=_mean_bound([s.low for s in every]),
        high=_mean_bound([s.high for s in every]),
        samples=None,
        p_values=None,
    )


def _mean_bound(bounds: list[Floats | None]) -> Floats | None:
    given = [b for b in bounds if b is not None]
    return np.mean(given, axis=0) if len(given) == len(bounds) else None


def usable_rules(scores: HeadScores) -> list[str]:
    """The rules that these scores support: `harmful` needs signs with intervals."""
    return [
        rule for rule in RULES if rule != "harmful" or (scores.signed and scores.high is not None)
    ]


def suggested_heads(scores: HeadScores, wanted: Suggestion) -> Bools:
    """Heads kept (bool [head]) by a rule; errors as in `headlab.masks.choose`."""
    return wanted.mask(scores).kept


def origin_of_mask(scores: HeadScores, wanted: Suggestion, languages: list[str]) -> dict[str, Any]:
    """The mask file's record of an applied suggestion."""
    chosen = dict(wanted.mask(scores).chosen)
    if scores.language == MEAN_OF_LANGUAGES:
        chosen |= {
            "languages": languages,
            "pooled": "mean over languages; bounds are the means of their bounds",
        }
        chosen.pop("score", None)
    return chosen


def removal_warning(kept: Bools) -> str | None:
    """A warning if a mask removes more heads than a model can be expected to tolerate, else None."""
    gone = int((~kept).sum())
    if gone == kept.size:
        return f"This switches off all {gone} heads: no attention is left."
    if gone > RISKY_SHARE * kept.size:
        return f"This switches off {gone} of {kept.size} heads; few models keep their accuracy beyond half."
    return None
