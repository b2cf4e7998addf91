"""Which heads the scores suggest switching off: of one language or of their mean, by a rule.

No streamlit here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from headlab.core import HEADS, Bools, Floats, HeadGrid, percent_text
from headlab.masks import RISKY_SHARE, Mask
from headlab.results import UNCORRECTED, HeadScores, why_holm_rejects_none

MEAN_OF_LANGUAGES = "mean"


class RuleWords(NamedTuple):
    """A rule in words.

    Attributes:
        title: What one wants.
        meaning: Which heads that are.
    """

    title: str
    meaning: str


SUGGESTION_RULES = {
    "harmful": RuleWords("Harmful", "heads whose interval lies below 0"),
    "bottom": RuleWords("The k lowest", "exactly k heads, those of the lowest scores"),
    "threshold": RuleWords("Below a value", "heads that score less than it"),
}


def rule_meaning(rule: str, grid: HeadGrid) -> str:
    """Which heads, or other players, a rule chooses.

    Args:
        rule: A key of `SUGGESTION_RULES`.
        grid: Of the scores.
    """
    return SUGGESTION_RULES[rule].meaning.replace("heads", grid.noun)


# The corrections of `HeadScores.mask` in words.
CORRECTION_WORDS = {
    UNCORRECTED: "each head's own interval",
    "holm": "Holm: any false one is unlikely",
    "bh": "Benjamini–Hochberg: few of them are false",
}


def correction_words(correction: str, grid: HeadGrid) -> str:
    """A correction in words.

    Args:
        correction: A key of `CORRECTION_WORDS`.
        grid: Of the scores.
    """
    words = CORRECTION_WORDS[correction]
    return words if grid.has_only_heads else words.replace("each head's", "each one's")


@dataclass(frozen=True)
class Suggestion:
    """A rule and its one option.

    Attributes:
        rule: A key of `SUGGESTION_RULES`.
        k: How many heads rule `bottom` removes.
        threshold: Of rule `threshold`, in the unit of the scores.
        correction: Of rule `harmful`, a key of `CORRECTION_WORDS`.
    """

    rule: str
    k: int | None = None
    threshold: float | None = None
    correction: str = UNCORRECTED

    def mask(self, scores: HeadScores) -> Mask:
        """The mask that it makes of scores; errors as of `HeadScores.mask`."""
        return scores.mask(
            self.rule, k=self.k, threshold=self.threshold, correction=self.correction
        )


def false_heads_words(scores: HeadScores, suggestion: Suggestion, removed_count: int) -> str:
    """How many of the heads that rule `harmful` names may do no harm, in words.

    Empty for another rule, for intervals of level 1, and where no head is named (unless Holm's
    correction tells why).

    Args:
        scores: That the rule was applied to.
        suggestion: The rule.
        removed_count: How many heads the rule names.
    """
    error_rate = 1 - scores.level
    head_count = scores.grid.size
    noun = scores.grid.noun
    if suggestion.rule != "harmful" or error_rate <= 0:
        return ""
    if suggestion.correction == UNCORRECTED:
        if scores.language == MEAN_OF_LANGUAGES:
            return (
                f"Bounds of the mean are conservative, so fewer {noun} are named falsely than intervals of "
                f"{percent_text(scores.level)} allow."
            )
        count_by_chance = head_count * error_rate / 2
        return (
            f"If none of the {head_count} {noun} had any effect, at most about {count_by_chance:.2g} would "
            f"still be named, by chance: each is judged by its own "
            f"{percent_text(scores.level)} interval."
        )
    if not removed_count:
        if suggestion.correction == "holm":
            return why_holm_rejects_none([scores])
        return ""
    if suggestion.correction == "bh":
        false_count_words = f"{removed_count * error_rate:.2g} of {removed_count}"
        return (
            f"Of those named, at most {percent_text(error_rate)} are false on average: "
            f"{false_count_words}."
        )
    return f"The probability that any of them is false is at most {percent_text(error_rate)}."


def pooled_scores(scores: Mapping[str, HeadScores], source: str) -> HeadScores | None:
    """The scores used for colours and suggestions: one language's, or the mean over all of them.

    The mean's bounds are the means of the languages' bounds, and so is its sampling error: wider
    than they need to be, never tighter. None if there are no scores.
    """
    if source in scores:
        return scores[source]
    if not scores:
        return None
    all_scores = list(scores.values())
    if len(all_scores) == 1:
        return all_scores[0]
    return replace(
        all_scores[0],
        language=MEAN_OF_LANGUAGES,
        values=np.mean([one_language.values for one_language in all_scores], axis=0),
        low=_mean_bound([one_language.low for one_language in all_scores]),
        high=_mean_bound([one_language.high for one_language in all_scores]),
        sampling_error=_mean_bound([one_language.sampling_error for one_language in all_scores]),
        sample_means=_mean_of_samples(all_scores),
        average_error=None,
        slopes=None,
        samples=None,
        p_values=None,
    )


def _mean_of_samples(all_scores: list[HeadScores]) -> Floats | None:
    """The mean of the languages' means of samples, [head].

    NaN where a language did not sample the head; None where no value has slopes and all were sampled.
    """
    are_means = all(one_language.sample_means is None for one_language in all_scores)
    if are_means and all(one_language.tested.all() for one_language in all_scores):
        return None
    means: Floats = np.mean([one_language.tested_values for one_language in all_scores], axis=0)
    return means


def _mean_bound(bounds: list[Floats | None]) -> Floats | None:
    """The mean of the languages' bounds, [head]; None if a language has none."""
    known_bounds = [bound for bound in bounds if bound is not None]
    if len(known_bounds) < len(bounds):
        return None
    mean_bounds: Floats = np.mean(known_bounds, axis=0)
    return mean_bounds


def usable_rules(scores: HeadScores) -> list[str]:
    """The rules that these scores support: `harmful` needs signs with intervals.

    None where the scores are for looking only.
    """
    if not scores.chooses_heads:
        return []
    return [
        rule
        for rule in SUGGESTION_RULES
        if rule != "harmful" or (scores.signed and scores.high is not None)
    ]


def suggested_heads(scores: HeadScores, suggestion: Suggestion) -> Bools:
    """Heads kept (bool [head]) by a rule; errors as in `headlab.masks.heads_kept_by_rule`."""
    return suggestion.mask(scores).kept


def origin_of_mask(
    scores: HeadScores, suggestion: Suggestion, languages: list[str]
) -> dict[str, Any]:
    """The mask file's record of an applied suggestion."""
    origin = dict(suggestion.mask(scores).chosen)
    if scores.language == MEAN_OF_LANGUAGES:
        origin |= {
            "languages": languages,
            "pooled": "mean over languages; bounds are the means of their bounds",
        }
        origin.pop("score", None)
        origin["ablation"] = str(scores.spec.get("ablation", "zero"))
    return origin


def removal_warning(kept_heads: Bools, grid: HeadGrid | None = None) -> str | None:
    """A warning if a mask removes more heads than models usually tolerate, else None.

    Args:
        kept_heads: Bool [head].
        grid: The players, if these are not heads.
    """
    removed_count = int((~kept_heads).sum())
    noun = HEADS if grid is None else grid.noun
    if removed_count == kept_heads.size:
        if noun != HEADS:
            return f"This switches off all {removed_count} {noun}."
        return f"This switches off all {removed_count} heads: no attention is left."
    if removed_count > RISKY_SHARE * kept_heads.size:
        heads_off = f"{removed_count} of {kept_heads.size} {noun}"
        return f"This switches off {heads_off}; few models keep their accuracy beyond half."
    return None
