"""Dev against test: what a mask gains on either, and which heads stay harmful.

Heads stay harmful if they are so after correction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import numpy as np

from headlab.core import Bools, OptionValue, optional_integer_in, text_in
from headlab.methods.costs import tested_remark
from headlab.results import HeadScores, adjusted_p_values
from headlab.stats import benjamini_hochberg, holm
from headlab.studies.differences import (
    NO_DIFFERENCE,
    Gain,
    MeanDifference,
    caution,
    difference,
    difference_between,
    gain_of,
    over_languages,
    removed_count,
    without_harmful,
    without_lowest,
)
from headlab.studies.result import Column, Columns, Records, StudyResult, TableName
from headlab.studies.table import METHOD, SaySentence
from headlab.tasks import Split

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces

HARMFUL = "harmful"
LOWEST = "K lowest"
SPLITS: tuple[Split, ...] = ("dev", "test")
MEAN = "mean"
ALL_LANGUAGES = "all"


class PointGain(NamedTuple):
    """A gain in percentage points with its 95 % interval.

    The ends are None where nothing was changed.
    """

    value: float
    low: float | None
    high: float | None

    @classmethod
    def from_difference(cls, gain: MeanDifference) -> Self:
        """The same in points."""
        return cls(*gain.cells[:3])

    @property
    def is_clear(self) -> bool:
        """Whether the interval lies on one side of 0."""
        if self.low is None or self.high is None:
            return False
        return self.low > 0 or self.high < 0


DEV_POINTS = Columns(("dev, points", "dev low, points", "dev high, points"), ("+.2f",) * 3)
TEST_POINTS = Columns(("test, points", "test low, points", "test high, points"), ("+.2f",) * 3)
DIFFERENCE_POINTS = Columns(
    ("dev minus test, points", "low, points", "high, points"), ("+.2f",) * 3
)


@dataclass(frozen=True)
class MaskGains:
    """What a mask chosen on dev gains there and on test.

    Attributes:
        language: Its code, or MEAN.
        rule: HARMFUL or LOWEST.
        heads_removed: Their number; None of the mean.
        dev: Gain on dev.
        test: Gain on test.
        dev_minus_test: The first minus the second.
    """

    language: Annotated[str, Column("language")]
    rule: Annotated[str, Column("rule")]
    heads_removed: Annotated[int | None, Column("heads removed", "d")]
    dev: Annotated[PointGain, DEV_POINTS]
    test: Annotated[PointGain, TEST_POINTS]
    dev_minus_test: Annotated[PointGain, DIFFERENCE_POINTS]

    @classmethod
    def from_differences(
        cls,
        language: str,
        rule: str,
        heads_removed: int | None,
        dev: MeanDifference,
        test: MeanDifference,
    ) -> Self:
        """The record of the gains on both splits."""
        return cls(
            language=language,
            rule=rule,
            heads_removed=heads_removed,
            dev=PointGain.from_difference(dev),
            test=PointGain.from_difference(test),
            dev_minus_test=PointGain.from_difference(difference_between(dev, test)),
        )


@dataclass(frozen=True)
class HarmfulHeads:
    """Heads that harm on dev, each judged alone, and all together.

    Attributes:
        language: Its code, or ALL.
        heads: All that there are.
        judged_alone: Those whose own interval lies below 0.
        after_benjamini_hochberg: Those that stay; None without p-values.
        after_holm: The same.
    """

    language: Annotated[str, Column("language")]
    heads: Annotated[int, Column("heads", "d")]
    judged_alone: Annotated[int, Column("interval below 0", "d")]
    after_benjamini_hochberg: Annotated[int | None, Column("Benjamini–Hochberg", "d")]
    after_holm: Annotated[int | None, Column("Holm", "d")]


@dataclass(frozen=True, kw_only=True)
class GapResult(StudyResult):
    """Dev against test.

    Attributes:
        masks: What each mask gains.
        heads: How many heads stay harmful after correction.
    """

    masks: Annotated[Records[MaskGains], TableName("gap")]
    heads: Annotated[Records[HarmfulHeads], TableName("gap-heads")]


class MeasuredMask(NamedTuple):
    """One mask of a language, and what it gains on each answer of either split."""

    language: str
    rule: str
    kept_heads: Bools
    gains: Mapping[Split, Gain]

    @property
    def heads(self) -> int:
        """Number of heads removed."""
        return removed_count(self.kept_heads)


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence) -> GapResult:
    """Gains on dev and on test, and the heads that stay harmful when all are tested together."""
    scores: dict[str, HeadScores] = {}
    measured_masks: list[MeasuredMask] = []
    for language in pieces.languages_in_turn("gap", report):
        scores[language] = pieces.study_scores(language, options)
        masks = masks_of(scores[language], optional_integer_in(options, "k"))
        gains: dict[str, dict[Split, Gain]] = {rule: {} for rule in masks}
        for split in SPLITS:
            baseline, *evaluations = pieces.all_answers(language, [None, *masks.values()], split)
            for rule, evaluation in zip(masks, evaluations, strict=True):
                gains[rule][split] = gain_of(baseline, [evaluation])
        measured_masks += [
            MeasuredMask(language, rule, kept_heads, gains[rule])
            for rule, kept_heads in masks.items()
        ]
    return GapResult(
        masks=mask_records(measured_masks, pieces),
        heads=head_records(scores),
        notes=notes(measured_masks, scores, options),
    )


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """Scores, and the answers of both splits under two masks."""
    asks = pieces.ask_study_scores(options)
    for language, scores in pieces.available_study_scores(options).items():
        masks: list[Bools | None] = [None]
        unknown_masks = 2
        if scores is not None:
            masks += masks_of(scores, optional_integer_in(options, "k")).values()
            unknown_masks = 0
        for split in SPLITS:
            asks.append(
                pieces.ask_answers(language, masks, unknown_masks=unknown_masks, split=split)
            )
    return asks


def masks_of(scores: HeadScores, k: int | None) -> dict[str, Bools]:
    """Kept heads by rule: without the harmful ones, and without as many (or k) of the lowest."""
    kept_heads = without_harmful(scores)
    if k is None:
        k = removed_count(kept_heads)
    return {HARMFUL: kept_heads, LOWEST: without_lowest(scores, k)}


def mask_records(measured_masks: Sequence[MeasuredMask], pieces: Pieces) -> Records[MaskGains]:
    """Gain on dev, gain on test, and their difference, of each language and rule."""
    rows: list[MaskGains] = []
    for rule in (HARMFUL, LOWEST):
        masks = [mask for mask in measured_masks if mask.rule == rule]
        for mask in masks:
            dev, test = (
                difference(mask.gains[split], pieces.seed) if mask.heads else NO_DIFFERENCE
                for split in SPLITS
            )
            rows.append(MaskGains.from_differences(mask.language, rule, mask.heads, dev, test))
        if len(masks) > 1:
            dev, test = (_mean_over_languages(masks, split, pieces) for split in SPLITS)
            rows.append(MaskGains.from_differences(MEAN, rule, None, dev, test))
    return Records(
        "What a mask chosen on dev gains there and on test",
        tuple(rows),
        (
            "dev minus test: the winner's curse, since the examples that chose a mask give an "
            "optimistic estimate of its gain; its interval is made of those of the two gains, "
            "which share no example.",
        ),
    )


def _mean_over_languages(
    masks: Sequence[MeasuredMask], split: Split, pieces: Pieces
) -> MeanDifference:
    """The mean gain of a rule's masks on a split."""
    if not any(mask.heads for mask in masks):
        return NO_DIFFERENCE
    gains = {mask.language: mask.gains[split] for mask in masks}
    return over_languages(gains, pieces.seed, are_aligned=pieces.task.aligned)


def head_records(scores: Mapping[str, HeadScores]) -> Records[HarmfulHeads]:
    """Heads of each language whose interval lies below 0, and those that stay under corrections."""
    rows = [
        _harmful_heads(language, [scores_of_language])
        for language, scores_of_language in scores.items()
    ]
    if len(scores) > 1:
        rows.append(_harmful_heads(ALL_LANGUAGES, list(scores.values())))
    return Records(
        "Heads that harm on dev, each judged alone, and all together",
        tuple(rows),
        (
            "Adjusted over the heads of the language; in the last row over those of all "
            "languages. Holm bounds the chance of any false claim, Benjamini–Hochberg the share "
            "of false ones, at 1 minus the intervals' level.",
        ),
    )


def _harmful_heads(language: str, scores: Sequence[HeadScores]) -> HarmfulHeads:
    """The harmful heads of one language, or of all together."""
    heads = sum(scores_of_language.grid.size for scores_of_language in scores)
    judged_alone = sum(
        removed_count(without_harmful(scores_of_language)) for scores_of_language in scores
    )
    return HarmfulHeads(language, heads, judged_alone, *_significant_counts(scores))


def _significant_counts(scores: Sequence[HeadScores]) -> tuple[int | None, int | None]:
    """Number of significantly negative heads by Benjamini–Hochberg and by Holm.

    None without p-values.
    """
    if any(scores_of_language.p_values is None for scores_of_language in scores):
        return None, None
    values = np.concatenate([scores_of_language.tested_values for scores_of_language in scores])
    is_negative = values < 0
    alpha = 1 - scores[0].level
    adjusted_by_bh = adjusted_p_values(scores, benjamini_hochberg, claims_harm=True)
    by_benjamini_hochberg = np.concatenate(adjusted_by_bh) <= alpha
    by_holm = np.concatenate(adjusted_p_values(scores, holm)) <= alpha
    return int((is_negative & by_benjamini_hochberg).sum()), int((is_negative & by_holm).sum())


def notes(
    measured_masks: Sequence[MeasuredMask],
    scores: Mapping[str, HeadScores],
    options: Mapping[str, OptionValue],
) -> tuple[str, ...]:
    """Caveats about the tables."""
    method = text_in(options, METHOD)
    unharmed_languages = [
        mask.language for mask in measured_masks if mask.rule == HARMFUL and not mask.heads
    ]
    sentences = [
        f"Heads are chosen on dev by {method}. Gains are differences to the untouched model, with "
        "95 % intervals of the paired bootstrap (10,000 resamples of groups of examples); mean "
        "rows weigh languages alike."
    ]
    if unharmed_languages:
        names = ", ".join(unharmed_languages)
        sentences.append(
            f"No head has an interval below 0 in {names}: nothing to remove, gains there are 0."
        )
    if any(scores_of_language.p_values is None for scores_of_language in scores.values()):
        sentences.append(
            f"{method} gives no p-values, so nothing can be said about all heads together."
        )
    remark = tested_remark(scores.values())
    if remark:
        sentences.append(f"{remark[:1].upper()}{remark[1:]}.")
    cautions = {(mask.language, mask.rule): caution(mask.kept_heads) for mask in measured_masks}
    sentences += [
        f"{language}, {rule}: {text}." for (language, rule), text in cautions.items() if text
    ]
    return tuple(sentences)
