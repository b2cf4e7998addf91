"""Table 2 of Held & Yang (EACL 2023): remove the heads that harm a language.

The effect is measured on test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import numpy as np

from headlab.core import (
    Bools,
    Evaluation,
    OptionValue,
    Table,
    integer_in,
    optional_integer_in,
    options_in,
    text_in,
)
from headlab.methods import RIVALS
from headlab.results import HeadScores
from headlab.studies.differences import (
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
    over_languages,
    removed_count,
    without_harmful,
    without_lowest,
)
from headlab.studies.result import Column, Records, StudyResult, TableName, table_of
from headlab.studies.table import METHOD, METHOD_OPTIONS, SaySentence

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces

ScoreLookup = Callable[..., HeadScores | None]
HARMFUL = "harmful"
RANDOM = "random"
MEAN = "mean"


@dataclass(frozen=True)
class ChoiceEffect:
    """What removing a choice of heads does to accuracy on test in one language.

    Or in several, as their MEAN.

    Attributes:
        language: Its code, or MEAN.
        choice: What the heads were removed by: HARMFUL, a method, or RANDOM.
        heads_removed: Their number; None of the mean.
        untouched_percent: Accuracy of the untouched model.
        accuracy_percent: Accuracy without the heads.
        difference: The second minus the first, paired.
        p_holm: p adjusted over the languages.
        mark: Its direction where p is below 0.05.
        lowest_run_percent: Of several runs, the lowest accuracy.
        highest_run_percent: The highest.
    """

    language: Annotated[str, Column("language")]
    choice: Annotated[str, Column("removed by")]
    heads_removed: Annotated[int | None, Column("heads removed", "d")]
    untouched_percent: Annotated[float, Column("untouched, %", ".1f")]
    accuracy_percent: Annotated[float, Column("accuracy, %", ".1f")]
    difference: Annotated[PointDifference, POINTS]
    p_holm: Annotated[float | None, Column("p (Holm)", ".4f")] = None
    mark: Annotated[str, Column("P < 0.05")] = ""
    lowest_run_percent: Annotated[float | None, Column("lowest run, %", ".1f")] = None
    highest_run_percent: Annotated[float | None, Column("highest run, %", ".1f")] = None


@dataclass(frozen=True)
class AgainstMethod:
    """The accuracy under another choice minus that without the method's own K lowest heads."""

    language: Annotated[str, Column("language")]
    choice: Annotated[str, Column("removed by")]
    difference: Annotated[PointDifference, POINTS]
    p_holm: Annotated[float | None, Column("p (Holm)", ".4f")] = None
    mark: Annotated[str, Column("P < 0.05")] = ""


@dataclass(frozen=True)
class AccuracyByChoice:
    """Accuracy untouched and under every choice, as the paper shows it.

    Numbers of heads are means in the last row.
    """

    language: Annotated[str, Column("language")]
    harmful_heads: Annotated[float, Column("harmful heads", ".4g")]
    lowest_heads: Annotated[float, Column("K", ".4g")]
    untouched_percent: Annotated[float, Column("untouched, %", ".1f")]
    accuracy_percent: Annotated[Mapping[str, float], Column("{choice}, %", ".1f")]


@dataclass(frozen=True, kw_only=True)
class TargetedResult(StudyResult):
    """What removing the heads that harm a language does, beside other choices of heads.

    Attributes:
        effects: Of every choice in every language, against the untouched model.
        against: Every other choice against the method's K lowest heads.
    """

    effects: Annotated[Records[ChoiceEffect], TableName("targeted")]
    against: Annotated[Records[AgainstMethod], TableName("targeted-against")]

    def tables(self) -> tuple[Table, ...]:
        """Accuracies as in the paper, then the tables of the records."""
        accuracy = table_of(self.accuracy(), AccuracyByChoice, "targeted-accuracy")
        return (accuracy, *super().tables())

    def accuracy(self) -> Records[AccuracyByChoice]:
        """The accuracies alone, a row a language."""
        choices = tuple(dict.fromkeys(effect.choice for effect in self.effects.rows))
        effects_by_language: dict[str, dict[str, ChoiceEffect]] = {}
        for effect in self.effects.rows:
            if effect.language != MEAN:
                effects_by_language.setdefault(effect.language, {})[effect.choice] = effect
        rows = [
            AccuracyByChoice(
                language,
                effects[HARMFUL].heads_removed or 0,
                effects[RANDOM].heads_removed or 0,
                effects[HARMFUL].untouched_percent,
                {choice: effects[choice].accuracy_percent for choice in choices},
            )
            for language, effects in effects_by_language.items()
        ]
        mean = AccuracyByChoice(
            MEAN,
            float(np.mean([row.harmful_heads for row in rows])),
            float(np.mean([row.lowest_heads for row in rows])),
            float(np.mean([row.untouched_percent for row in rows])),
            {
                choice: float(np.mean([row.accuracy_percent[choice] for row in rows]))
                for choice in choices
            },
        )
        return Records(
            "Accuracy on test with heads removed",
            (*rows, mean),
            (
                "harmful: all heads whose interval on dev lies below 0.  The others: the K lowest "
                "heads of each method; random is the mean over its runs.",
            ),
            {"choice": choices},
        )


@dataclass(frozen=True)
class MeasuredLanguage:
    """One language under every choice of heads.

    Attributes:
        language: Its code.
        masks: Kept heads by choice, several for random.
        baseline: Answers of the untouched model.
        evaluations: Answers by choice, in the order of the masks.
    """

    language: str
    masks: Mapping[str, Sequence[Bools]]
    baseline: Evaluation
    evaluations: Mapping[str, Sequence[Evaluation]]

    def heads(self, choice: str) -> int:
        """Number of heads removed."""
        return removed_count(self.masks[choice][0])

    def gain(self, choice: str) -> Gain:
        """What each answer gains; the mean over the runs of a choice."""
        return gain_of(self.baseline, self.evaluations[choice])

    def accuracies(self, choice: str) -> list[float]:
        """Accuracy of each run."""
        return [evaluation.accuracy for evaluation in self.evaluations[choice]]


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence) -> TargetedResult:
    """Accuracy on test under every choice of heads.

    Each choice is compared with the method's own.
    """
    rows: list[MeasuredLanguage] = []
    for language in pieces.languages_in_turn("targeted", report):
        masks = masks_of(pieces, language, options, pieces.scores)
        masks_in_order = [None, *chain.from_iterable(masks.values())]
        baseline, *answers = pieces.all_answers(language, masks_in_order)
        remaining_answers = iter(answers)
        evaluations = {
            choice: list(islice(remaining_answers, len(runs))) for choice, runs in masks.items()
        }
        rows.append(MeasuredLanguage(language, masks, baseline, evaluations))
    method = text_in(options, METHOD)
    choices = list(rows[0].masks)
    return TargetedResult(
        effects=effect_records(rows, choices, pieces),
        against=against_records(rows, choices, method, pieces),
        notes=notes(rows, options, method),
    )


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """Scores of every method, then the answers under their masks."""
    asks = []
    for language in pieces.languages:
        methods = _methods_by_choice(options).values()
        different_methods = {
            (method, tuple(method_options.items())): (method, method_options)
            for method, method_options in methods
        }
        for method, method_options in different_methods.values():
            asks.append(pieces.ask_scores(language, method, options=method_options))
        masks = masks_of(pieces, language, options, pieces.available_scores)
        known_masks = list(chain.from_iterable(masks.values()))
        all_masks = len(methods) + 1 + integer_in(options, "runs")
        unknown_masks = all_masks - len(known_masks)
        asks.append(pieces.ask_answers(language, [None, *known_masks], unknown_masks=unknown_masks))
    return asks


def _methods_by_choice(
    options: Mapping[str, OptionValue],
) -> dict[str, tuple[str, Mapping[str, OptionValue]]]:
    """{choice: (method whose lowest heads are removed, its options)}, that of the study first."""
    method = text_in(options, METHOD)
    left_out = {method} if options["leave_one_out"] else {method, "leave-one-out"}
    rivals = {name: rival for name, rival in RIVALS.items() if name not in left_out}
    return {method: (method, options_in(options, METHOD_OPTIONS)), **rivals}


def masks_of(
    pieces: Pieces, language: str, options: Mapping[str, OptionValue], lookup: ScoreLookup
) -> dict[str, list[Bools]]:
    """Kept heads, bool [head], by choice.

    They are without the harmful heads, or without as many of the lowest by each method.

    Args:
        pieces: What random scores are looked up in.
        language: That the heads are chosen on.
        options: Of the study.
        lookup: `pieces.scores`, or `pieces.available_scores` to omit what depends on scores not
            computed yet.
    """
    study_method = text_in(options, METHOD)
    study_scores = lookup(language, study_method, **options_in(options, METHOD_OPTIONS))
    if study_scores is None:
        return {}
    masks = {HARMFUL: [without_harmful(study_scores)]}
    k = optional_integer_in(options, "k")
    if k is None:
        k = removed_count(masks[HARMFUL][0])
    for choice, (method, method_options) in _methods_by_choice(options).items():
        scores = lookup(language, method, **method_options)
        if scores is not None:
            masks[choice] = [without_lowest(scores, k)]
    seeds = range(pieces.seed, pieces.seed + integer_in(options, "runs"))
    random_scores = [pieces.scores(language, RANDOM, seed=seed) for seed in seeds]
    return masks | {RANDOM: [without_lowest(scores, k) for scores in random_scores]}


def _difference(row: MeasuredLanguage, choice: str, seed: int) -> MeanDifference:
    """What a choice changes in a language; none where it removes no head."""
    if row.heads(choice):
        return difference(row.gain(choice), seed)
    return NO_DIFFERENCE


def effect_records(
    rows: Sequence[MeasuredLanguage], choices: Sequence[str], pieces: Pieces
) -> Records[ChoiceEffect]:
    """Every language and choice: paired difference from the untouched model.

    It has an interval and tests.
    """
    effects = []
    for choice in choices:
        differences = [_difference(row, choice, pieces.seed) for row in rows]
        for row, gain, p_holm in zip(
            rows, differences, holm_of_differences(differences), strict=True
        ):
            accuracies = row.accuracies(choice)
            is_random = choice == RANDOM
            effect = ChoiceEffect(
                language=row.language,
                choice=choice,
                heads_removed=row.heads(choice),
                untouched_percent=100 * row.baseline.accuracy,
                accuracy_percent=100 * float(np.mean(accuracies)),
                difference=gain.points,
                p_holm=p_holm,
                mark=gain.mark,
                lowest_run_percent=100 * min(accuracies) if is_random else None,
                highest_run_percent=100 * max(accuracies) if is_random else None,
            )
            effects.append(effect)
        if len(rows) > 1:
            untouched_percent, accuracy_percent = _mean_accuracies(rows, choice)
            mean = _mean_difference(rows, choice, pieces)
            effect = ChoiceEffect(
                language=MEAN,
                choice=choice,
                heads_removed=None,
                untouched_percent=untouched_percent,
                accuracy_percent=accuracy_percent,
                difference=mean.points,
                mark=mean.mark,
            )
            effects.append(effect)
    return Records(
        "Accuracy on test with heads removed, against the untouched model",
        tuple(effects),
        ("p (Holm): adjusted over the languages, for each choice.",),
    )


def _mean_accuracies(rows: Sequence[MeasuredLanguage], choice: str) -> tuple[float, float]:
    """Mean accuracy over the languages, untouched and under a choice, in percent."""
    baseline_accuracies = [row.baseline.accuracy for row in rows]
    accuracies = [float(np.mean(row.accuracies(choice))) for row in rows]
    return 100 * float(np.mean(baseline_accuracies)), 100 * float(np.mean(accuracies))


def _mean_difference(
    rows: Sequence[MeasuredLanguage], choice: str, pieces: Pieces
) -> MeanDifference:
    """The mean difference over languages; a language without heads to remove counts as 0."""
    if not any(row.heads(choice) for row in rows):
        return NO_DIFFERENCE
    gains = {row.language: row.gain(choice) for row in rows}
    return over_languages(gains, pieces.seed, are_aligned=pieces.task.aligned)


def against_records(
    rows: Sequence[MeasuredLanguage], choices: Sequence[str], method: str, pieces: Pieces
) -> Records[AgainstMethod]:
    """Every language and other choice: its accuracy minus that of the method's choice, paired.

    The method's choice is the model without the K heads of lowest score.
    """
    records = []
    for choice in choices:
        if choice == method:
            continue
        gains = {row.language: gain_over(row.gain(choice), row.gain(method)) for row in rows}
        are_other_heads = {row.language: _are_other_heads(row, choice, method) for row in rows}
        differences = [
            difference(gain, pieces.seed) if are_other_heads[language] else NO_DIFFERENCE
            for language, gain in gains.items()
        ]
        for language, advantage, p_holm in zip(
            gains, differences, holm_of_differences(differences), strict=True
        ):
            records.append(
                AgainstMethod(language, choice, advantage.points, p_holm, advantage.mark)
            )
        if len(rows) > 1 and any(are_other_heads.values()):
            mean = over_languages(gains, pieces.seed, are_aligned=pieces.task.aligned)
            records.append(AgainstMethod(MEAN, choice, mean.points, None, mean.mark))
    return Records(
        f"Accuracy on test minus that without the K lowest heads by {method}",
        tuple(records),
        ("p (Holm): adjusted over the languages, for each choice.",),
    )


def _are_other_heads(row: MeasuredLanguage, choice: str, other_choice: str) -> bool:
    """Whether a choice keeps other heads than another choice, which has one mask."""
    (other_mask, *_) = row.masks[other_choice]
    return any(not np.array_equal(mask, other_mask) for mask in row.masks[choice])


def notes(
    rows: Sequence[MeasuredLanguage], options: Mapping[str, OptionValue], method: str
) -> tuple[str, ...]:
    """Caveats about the tables."""
    languages_without_harmful = [row.language for row in rows if not row.heads(HARMFUL)]
    sentences = [
        f"Heads are chosen on dev by {method} and judged on test. Intervals (95 %) and p are of "
        "the paired bootstrap with 10,000 resamples of groups of examples; mean rows weigh "
        "languages alike.",
        f"random: the mean over {options['runs']} runs, averaged answer by answer before it is "
        "tested.",
    ]
    if languages_without_harmful:
        names = ", ".join(languages_without_harmful)
        consequence = f"; the other rows show the {options['k']} lowest."
        if options["k"] is None:
            consequence = (
                ", so the accuracy there is the untouched one and counts as 0 in the means."
            )
        sentences.append(
            f"No head has an interval below 0 in {names}: nothing to remove{consequence}"
        )
    cautions = {row.language: caution(row.masks[RANDOM][0]) for row in rows}
    sentences += [f"{language}: {text}." for language, text in cautions.items() if text]
    return tuple(sentences)
