"""Table 3 of Held & Yang (EACL 2023), for all pairs of languages.

A mask chosen on one language is tested on every other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from headlab.core import Bools, OptionValue, optional_integer_in, text_in
from headlab.studies.differences import (
    COLUMNS,
    FORMATS,
    NO_DIFFERENCE,
    POINTS,
    Gain,
    MeanDifference,
    PointDifference,
    caution,
    difference,
    gain_of,
    gain_over,
    holm_of_differences,
    kept_heads_of,
    over_languages,
    removed_count,
)
from headlab.studies.result import Column, Columns, Records, StudyResult, TableName
from headlab.studies.table import SaySentence

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


@dataclass(frozen=True)
class MaskElsewhere:
    """What a language's mask does to every language, and on average to the others.

    Attributes:
        chosen_on: The language that the mask was chosen on.
        heads_removed: By the mask.
        differences: In points, by language tested.
        elsewhere: Mean over all other languages.
    """

    chosen_on: Annotated[str, Column("chosen on")]
    heads_removed: Annotated[int, Column("heads removed", "d")]
    differences: Annotated[Mapping[str, float], Column("{language}, points", "+.2f")]
    elsewhere: Annotated[
        PointDifference, Columns(("mean of the others, points", *COLUMNS[1:]), FORMATS)
    ]


@dataclass(frozen=True)
class MaskEffect:
    """What the mask chosen on one language does to another.

    Attributes:
        chosen_on: The language that the mask was chosen on.
        language: The one tested.
        heads_removed: By the mask.
        untouched_percent: Accuracy of the untouched model.
        accuracy_percent: Accuracy under the mask.
        difference: The second minus the first, paired.
        p_holm: p adjusted over the languages tested.
        mark: Its direction where p is below 0.05.
    """

    chosen_on: Annotated[str, Column("chosen on")]
    language: Annotated[str, Column("language")]
    heads_removed: Annotated[int, Column("heads removed", "d")]
    untouched_percent: Annotated[float, Column("untouched, %", ".1f")]
    accuracy_percent: Annotated[float, Column("accuracy, %", ".1f")]
    difference: Annotated[PointDifference, POINTS]
    p_holm: Annotated[float | None, Column("p (Holm)", ".4f")] = None
    mark: Annotated[str, Column("P < 0.05")] = ""


@dataclass(frozen=True)
class SourceMaskEffect:
    """What the source language's mask does to a language, beside the language's own mask.

    Attributes:
        language: The one tested.
        untouched_percent: Accuracy of the untouched model.
        accuracy_percent: Accuracy under the source language's mask.
        difference: The second minus the first, paired.
        p_holm: p adjusted over the languages.
        mark: Its direction where p is below 0.05.
        own_heads_removed: By the language's own mask.
        own_difference: What its own mask does, in points.
        minus_own: Accuracy under the source's mask minus that under its own.
    """

    language: Annotated[str, Column("language")]
    untouched_percent: Annotated[float, Column("untouched, %", ".1f")]
    accuracy_percent: Annotated[float, Column("mask of {source}, %", ".1f")]
    difference: Annotated[PointDifference, POINTS]
    p_holm: Annotated[float | None, Column("p (Holm)", ".4f")]
    mark: Annotated[str, Column("P < 0.05")]
    own_heads_removed: Annotated[int, Column("own heads removed", "d")]
    own_difference: Annotated[float, Column("own mask, points", "+.2f")]
    minus_own: Annotated[
        PointDifference,
        Columns(
            (
                "minus own, points",
                "minus own low, points",
                "minus own high, points",
                "minus own p",
            ),
            FORMATS,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class TransferResult(StudyResult):
    """What masks chosen on one language do to the others.

    Attributes:
        masks: A row for each mask.
        effects: Of every mask on every language.
        zero_shot: Of the source language's mask; None where it is not among the languages.
    """

    masks: Annotated[Records[MaskElsewhere], TableName("transfer-matrix")]
    effects: Annotated[Records[MaskEffect], TableName("transfer")]
    zero_shot: Annotated[Records[SourceMaskEffect] | None, TableName("zero-shot")] = None


class Transfer(NamedTuple):
    """Masks by the language they were chosen on, and their gains by (chosen on, tested on).

    Attributes:
        masks: Kept heads, bool [head].
        gains: What each answer gains, by (chosen on, tested on).
        baseline_accuracy: Accuracy of the untouched model by language.
        accuracy: Accuracy under a mask, by (chosen on, tested on).
    """

    masks: Mapping[str, Bools]
    gains: Mapping[tuple[str, str], Gain]
    baseline_accuracy: Mapping[str, float]
    accuracy: Mapping[tuple[str, str], float]

    def heads(self, language: str) -> int:
        """Number of heads that a language's mask removes."""
        return removed_count(self.masks[language])

    def difference(self, chosen_on: str, language: str, seed: int) -> MeanDifference:
        """What the mask chosen on one language does to another."""
        if not self.heads(chosen_on):
            return NO_DIFFERENCE
        return difference(self.gains[chosen_on, language], seed)


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence) -> TransferResult:
    """Every mask on every language: the matrix, its means, and the row of the source language."""
    transfer = measured_transfer(pieces, options, report)
    source = text_in(options, "source")
    has_source = source in transfer.masks
    return TransferResult(
        masks=mask_records(transfer, pieces),
        effects=effect_records(transfer, pieces),
        zero_shot=source_records(transfer, source, pieces) if has_source else None,
        notes=notes(transfer, options),
    )


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """Scores of every language, then each language's answers under all masks."""
    k = optional_integer_in(options, "k")
    masks: list[Bools | None] = [None]
    unknown_masks = 0
    for scores in pieces.available_study_scores(options).values():
        if scores is None:
            unknown_masks += 1
        else:
            masks.append(kept_heads_of(scores, k))
    answers = [
        pieces.ask_answers(language, masks, unknown_masks=unknown_masks)
        for language in pieces.languages
    ]
    return [*pieces.ask_study_scores(options), *answers]


def measured_transfer(
    pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence
) -> Transfer:
    """All masks on all languages, one tested language at a time."""
    masks: dict[str, Bools] = {}
    k = optional_integer_in(options, "k")
    for language in pieces.languages:
        report(f"transfer, scores of {language}")
        masks[language] = kept_heads_of(pieces.study_scores(language, options), k)
    gains: dict[tuple[str, str], Gain] = {}
    baseline_accuracy: dict[str, float] = {}
    accuracy: dict[tuple[str, str], float] = {}
    for number, tested_language in enumerate(pieces.languages, 1):
        report(f"transfer, all masks on {tested_language} ({number} of {len(pieces.languages)})")
        baseline, *evaluations = pieces.all_answers(tested_language, [None, *masks.values()])
        baseline_accuracy[tested_language] = baseline.accuracy
        for chosen_on, evaluation in zip(masks, evaluations, strict=True):
            gains[chosen_on, tested_language] = gain_of(baseline, [evaluation])
            accuracy[chosen_on, tested_language] = evaluation.accuracy
    return Transfer(masks, gains, baseline_accuracy, accuracy)


def mean_elsewhere(transfer: Transfer, chosen_on: str, pieces: Pieces) -> MeanDifference:
    """Mean effect of a language's mask over all other languages."""
    if not transfer.heads(chosen_on):
        return NO_DIFFERENCE
    gains = {
        language: transfer.gains[chosen_on, language]
        for language in transfer.masks
        if language != chosen_on
    }
    return over_languages(gains, pieces.seed, are_aligned=pieces.task.aligned)


def mask_records(transfer: Transfer, pieces: Pieces) -> Records[MaskElsewhere]:
    """Every mask: the difference in points on every language, and the mean of the others."""
    languages = tuple(transfer.masks)
    rows = []
    for chosen_on in languages:
        differences = {
            language: 100 * float(transfer.gains[chosen_on, language].values.mean())
            for language in languages
        }
        mean = mean_elsewhere(transfer, chosen_on, pieces)
        rows.append(MaskElsewhere(chosen_on, transfer.heads(chosen_on), differences, mean.points))
    return Records(
        "Accuracy on test minus the untouched model's, in points: the language that chose the "
        "heads by the one tested",
        tuple(rows),
        ("The diagonal is targeted pruning.  low, high and p are of the mean of the others.",),
        {"language": languages},
    )


def effect_records(transfer: Transfer, pieces: Pieces) -> Records[MaskEffect]:
    """Every pair of languages, with intervals and tests."""
    rows = []
    for chosen_on in transfer.masks:
        differences = [
            transfer.difference(chosen_on, language, pieces.seed) for language in transfer.masks
        ]
        for language, gain, p_holm in zip(
            transfer.masks, differences, holm_of_differences(differences), strict=True
        ):
            row = MaskEffect(
                chosen_on=chosen_on,
                language=language,
                heads_removed=transfer.heads(chosen_on),
                untouched_percent=100 * transfer.baseline_accuracy[language],
                accuracy_percent=100 * transfer.accuracy[chosen_on, language],
                difference=gain.points,
                p_holm=p_holm,
                mark=gain.mark,
            )
            rows.append(row)
    return Records(
        "Accuracy on test without the heads chosen on one language",
        tuple(rows),
        ("p (Holm): adjusted over the languages tested, for each language that chose.",),
    )


def source_records(transfer: Transfer, source: str, pieces: Pieces) -> Records[SourceMaskEffect]:
    """The source language's mask on every language, beside each language's own."""
    languages = list(transfer.masks)
    seed = pieces.seed
    differences = [transfer.difference(source, language, seed) for language in languages]
    rows = []
    for language, gain, p_holm in zip(
        languages, differences, holm_of_differences(differences), strict=True
    ):
        heads = transfer.heads(source) + transfer.heads(language)
        minus_own = NO_DIFFERENCE
        if language != source and heads > 0:
            own_gain = transfer.gains[language, language]
            minus_own = difference(gain_over(transfer.gains[source, language], own_gain), seed)
        row = SourceMaskEffect(
            language=language,
            untouched_percent=100 * transfer.baseline_accuracy[language],
            accuracy_percent=100 * transfer.accuracy[source, language],
            difference=gain.points,
            p_holm=p_holm,
            mark=gain.mark,
            own_heads_removed=transfer.heads(language),
            own_difference=100 * transfer.difference(language, language, seed).mean,
            minus_own=minus_own.points,
        )
        rows.append(row)
    return Records(
        f"Accuracy on test without the {transfer.heads(source)} heads chosen on {source}, and "
        "without each language's own",
        tuple(rows),
        (f"minus own: accuracy under the mask of {source} minus that under the language's own.",),
        {"source": (source,)},
    )


def notes(transfer: Transfer, options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Caveats about the tables."""
    unharmed_languages = [language for language in transfer.masks if not transfer.heads(language)]
    removed_heads = f"the {options['k']} lowest"
    if options["k"] is None:
        removed_heads = "those whose interval lies below 0"
    sentences = [
        f"Heads removed: {removed_heads} by {options['method']} on dev. Intervals (95 %) and p are "
        "of the paired bootstrap with 10,000 resamples of groups of examples; means weigh "
        "languages alike."
    ]
    if unharmed_languages:
        names = ", ".join(unharmed_languages)
        sentences.append(
            f"No head has an interval below 0 in {names}: that row is 0 by definition."
        )
    if options["source"] not in transfer.masks:
        sentences.append(
            f"{options['source']} is not among the languages, so there is no zero-shot table."
        )
    cautions = {language: caution(mask) for language, mask in transfer.masks.items()}
    sentences += [f"{language}: {text}." for language, text in cautions.items() if text]
    return tuple(sentences)
