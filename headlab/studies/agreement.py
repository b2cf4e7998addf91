"""Figures 1 and 2 of Held & Yang (EACL 2023): do two languages agree on which heads help?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, compress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from headlab.core import Floats, OptionValue
from headlab.results import HeadScores, require_all_tested
from headlab.stats import LOWEST_CEILING, Agreement, Outlier, agreement, clusters_of_tree
from headlab.studies.result import Column, Columns, Records, StudyResult, TableName
from headlab.studies.table import SaySentence

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


# Agreement between languages: pure functions of head scores, without a model.

CLEAR = ""
UNCLEAR = "too noisy"
UNKNOWN = "unknown"
RHO = ".2f"


class Correlation(NamedTuple):
    """A rank correlation of two scores, and what noise leaves of it.

    Attributes:
        rho: Spearman's; None where a score is the same for all heads.
        low: Lower end of its interval.
        high: Upper end.
        ceiling: What two scores of the same true ranking would show; None where it is not known.
        ceiling_low: Lower end of its interval.
        ceiling_high: Upper end.
        corrected_rho: rho over the ceiling; None where the ceiling is too low to say.
        corrected_low: Lower end of its interval.
        corrected_high: Upper end.
        across_halves: The same from halves of other examples.
        noise: CLEAR, UNCLEAR or UNKNOWN; None of a mean of correlations, which has no ceiling.
    """

    rho: float | None
    low: float | None
    high: float | None
    ceiling: float | None = None
    ceiling_low: float | None = None
    ceiling_high: float | None = None
    corrected_rho: float | None = None
    corrected_low: float | None = None
    corrected_high: float | None = None
    across_halves: float | None = None
    noise: str | None = None

    @property
    def interval(self) -> RhoInterval | None:
        """The correlation with its interval; None where one of them is not known."""
        if self.rho is None or self.low is None or self.high is None:
            return None
        return RhoInterval(self.rho, self.low, self.high)


class RhoInterval(NamedTuple):
    """A rank correlation with its 95 % interval."""

    rho: float
    low: float
    high: float


CORRELATION = Columns(
    (
        "rho",
        "low",
        "high",
        "ceiling",
        "ceiling, low",
        "ceiling, high",
        "corrected",
        "corrected, low",
        "corrected, high",
        "across halves",
        "noise",
    ),
    (*[RHO] * 10, ""),
)


@dataclass(frozen=True)
class PairAgreement:
    """How alike two languages rank the heads."""

    language: Annotated[str, Column("language")]
    other_language: Annotated[str, Column("other")]
    correlation: Annotated[Correlation, CORRELATION]


@dataclass(frozen=True)
class LanguageAgreement:
    """How a language agrees with the others.

    Attributes:
        language: Its code.
        place: In the order that puts similar languages side by side, from 1.
        number: Of the language in the tree of clusters, from 0.
        mean_rho: Mean correlation with the others, with its interval.
        low: Lower end of the interval.
        high: Upper end.
        reliability: What a second measurement of the same size would correlate with this one.
        reliability_low: Lower end of its interval.
        reliability_high: Upper end.
        outlier_percent: Share of resamples in which the language agrees least with the others.
        outlier_percent_across_halves: The same for correlations corrected for noise.
    """

    language: Annotated[str, Column("language")]
    place: Annotated[int, Column("place", "d")]
    number: Annotated[int, Column("number", "d")]
    mean_rho: Annotated[float | None, Column("mean rho", RHO)]
    low: Annotated[float | None, Column("low", RHO)]
    high: Annotated[float | None, Column("high", RHO)]
    reliability: Annotated[float | None, Column("reliability", RHO)]
    reliability_low: Annotated[float | None, Column("reliability, low", RHO)]
    reliability_high: Annotated[float | None, Column("reliability, high", RHO)]
    outlier_percent: Annotated[float | None, Column("outlier, %", ".0f")]
    outlier_percent_across_halves: Annotated[
        float | None, Column("outlier across halves, %", ".0f")
    ]


@dataclass(frozen=True)
class Merge:
    """Two clusters of languages that the tree joins.

    They are numbered as in `scipy.cluster.hierarchy.linkage`.

    Attributes:
        number: Of the cluster that arises.
        first_part: What is merged: the number of a language or of an earlier merge.
        second_part: The other part.
        languages: Its languages, comma-separated.
        size: Their number.
        distance: 1 − rho, mean over the pairs of the two parts.
        support_percent: Share of resamples of heads whose own tree has the same cluster.
    """

    number: Annotated[int, Column("merge", "d")]
    first_part: Annotated[int, Column("left", "d")]
    second_part: Annotated[int, Column("right", "d")]
    languages: Annotated[str, Column("languages")]
    size: Annotated[int, Column("size", "d")]
    distance: Annotated[float, Column("1 − rho", RHO)]
    support_percent: Annotated[float, Column("support, %", ".0f")]


@dataclass(frozen=True)
class OutlierRecord:
    """The language that agrees least with the others.

    Attributes:
        language: Its code.
        measure: What agreement is measured by: RHO_ITSELF or ACROSS_HALVES.
        share_percent: Share of resamples of heads in which it is the lowest.
        following: The language that agrees least but for it.
        gap: Mean correlation of that language with the others, minus that of this one.
        low: Lower end of its interval.
        high: Upper end.
    """

    language: Annotated[str, Column("language")]
    measure: Annotated[str, Column("by")]
    share_percent: Annotated[float, Column("share of resamples, %", ".0f")]
    following: Annotated[str, Column("next")]
    gap: Annotated[float | None, Column("gap", RHO)]
    low: Annotated[float | None, Column("low", RHO)]
    high: Annotated[float | None, Column("high", RHO)]


@dataclass(frozen=True, kw_only=True)
class AgreementResult(StudyResult):
    """How alike languages rank the heads.

    Attributes:
        pairs: Every pair of languages, each once.
        languages: Each language, similar ones side by side.
        merges: The tree of languages, nearest first; its leaves are numbered as `languages`.
        outliers: Which language stands apart, by each measure that can say; None for two languages.
    """

    pairs: Annotated[Records[PairAgreement], TableName("agreement")]
    languages: Annotated[Records[LanguageAgreement], TableName("agreement-languages")]
    merges: Annotated[Records[Merge], TableName("agreement-clusters")]
    outliers: Annotated[Records[OutlierRecord] | None, TableName("agreement-outlier")] = None


@dataclass(frozen=True)
class RankAgreement:
    """The rank agreement of several languages' scores.

    Attributes:
        names: Languages, in the order of the rows of `found`.
        heads: Number of heads.
        statistics: The statistics.
        sizes: Number of dev examples of each language; None where unknown.
    """

    names: tuple[str, ...]
    heads: int
    statistics: Agreement
    sizes: tuple[int | None, ...]

    @property
    def has_unequal_sizes(self) -> bool:
        """Whether the languages differ in their number of examples.

        Their halves hold different draws then.
        """
        return len(set(self.sizes)) > 1


def rank_agreement_of(scores: Mapping[str, HeadScores], seed: int = 0) -> RankAgreement:
    """Rank agreement of every pair of languages, with intervals by resampling heads.

    It is that of means of samples: slopes of two languages may agree though their heads do not.
    Raises HeadlabError if not all heads were sampled.
    """
    all_scores = list(scores.values())
    require_all_tested(all_scores, "how alike rankings are")
    values = np.stack([scores_of_language.tested_values for scores_of_language in all_scores])
    blank = np.full((2, values.shape[1]), np.nan)
    stored_halves = [scores_of_language.halves for scores_of_language in all_scores]
    halves = None
    if any(halves_of_language is not None for halves_of_language in stored_halves):
        halves = np.stack(
            [
                blank if halves_of_language is None else halves_of_language
                for halves_of_language in stored_halves
            ]
        )
    sizes = tuple(
        scores_of_language.spec.get("task", {}).get("size") for scores_of_language in all_scores
    )
    # Which half a draw falls into depends on the number of examples.
    is_same_size = np.array([[size == other_size for other_size in sizes] for size in sizes])
    statistics = agreement(
        values, halves, np.random.default_rng([seed, 5]), halves_match=is_same_size
    )
    return RankAgreement(tuple(scores), values.shape[1], statistics, sizes)


def agreement_result(rank_agreement: RankAgreement) -> AgreementResult:
    """What the agreement is: pairs, languages, the tree and the outlier.

    There is an outlier for three languages or more.
    """
    outliers = outlier_records(rank_agreement) if rank_agreement.statistics.outlier else None
    sentence = outlier_sentences(rank_agreement)
    return AgreementResult(
        pairs=pair_records(rank_agreement),
        languages=language_records(rank_agreement),
        merges=merge_records(rank_agreement),
        outliers=outliers,
        notes=(sentence,) if sentence else (),
    )


def number_at(values: Floats, *index: int) -> float | None:
    """A number at an index; None for NaN."""
    value = float(values[index])
    return None if np.isnan(value) else value


def correlation_at(rank_agreement: RankAgreement, row: int, column: int) -> Correlation:
    """The correlation of two names, by their indices."""
    rho = rank_agreement.statistics.rho
    noise = rank_agreement.statistics.noise
    value, low, high = (number_at(part, row, column) for part in rho)
    without_ceiling = Correlation(value, low, high, noise=UNKNOWN)
    if noise is None or np.isnan(noise.ceiling.value[row, column]):
        return without_ceiling
    ceiling, low, high = (number_at(part, row, column) for part in noise.ceiling)
    with_ceiling = without_ceiling._replace(
        ceiling=ceiling, ceiling_low=low, ceiling_high=high, noise=UNCLEAR
    )
    if not noise.clear[row, column]:
        return with_ceiling
    corrected_rho, low, high = (number_at(part, row, column) for part in noise.corrected)
    return with_ceiling._replace(
        corrected_rho=corrected_rho,
        corrected_low=low,
        corrected_high=high,
        across_halves=number_at(noise.across.value, row, column),
        noise=CLEAR,
    )


def correlations(rank_agreement: RankAgreement) -> list[tuple[str, str, Correlation]]:
    """Every pair of names with their correlation, each pair once."""
    return [
        (
            rank_agreement.names[row],
            rank_agreement.names[column],
            correlation_at(rank_agreement, row, column),
        )
        for row, column in combinations(range(len(rank_agreement.names)), 2)
    ]


def pair_records(rank_agreement: RankAgreement) -> Records[PairAgreement]:
    """Every pair of languages, each once."""
    return Records(
        f"Spearman correlation of the scores of {rank_agreement.heads} heads, every pair of "
        "languages",
        tuple(PairAgreement(*pair) for pair in correlations(rank_agreement)),
        pair_notes(rank_agreement),
    )


def pair_notes(rank_agreement: RankAgreement) -> tuple[str, ...]:
    """Notes that explain the correlations of pairs."""
    interval_note = "low, high: 95 % interval by resampling heads (2,000 times)."
    noise = rank_agreement.statistics.noise
    if noise is None:
        return (interval_note, no_halves_note())
    notes = [
        interval_note,
        "ceiling: the correlation that two languages of the same true ranking would show, given "
        "how well each one's halves of the examples agree. corrected: rho over ceiling, at most 1; "
        "across halves: the same from halves of other examples only, so that noise which two "
        "languages share does not count as agreement. Both are left out where the ceiling's "
        f"interval reaches below {LOWEST_CEILING}: {UNCLEAR} to say.",
    ]
    if rank_agreement.has_unequal_sizes:
        notes.append(unmatched_halves(rank_agreement))
    is_without_halves = np.isnan(noise.reliability.value)
    without_halves = list(compress(rank_agreement.names, is_without_halves))
    if without_halves:
        notes.append(no_halves_note(without_halves))
    return tuple(notes)


def unmatched_halves(rank_agreement: RankAgreement) -> str:
    """How many examples each language has, and why some pairs have no value across halves."""
    names_and_sizes = zip(rank_agreement.names, rank_agreement.sizes, strict=True)
    counts = ", ".join(f"{name} {size or 'unknown'}" for name, size in names_and_sizes)
    return (
        "across halves: no value for two languages with unequally many examples, as a draw may "
        "then be in the first half of one and in the second of the other, with its noise. Dev "
        f"examples: {counts}. Score all with a --size that each of them has."
    )


def no_halves_note(names: Sequence[str] = ()) -> str:
    """Why there is no noise ceiling, and how to get one.

    Args:
        names: The languages without one; empty means all.
    """
    owner = f"the scores of {', '.join(names)}" if names else "these scores"
    return (
        f"The noise ceiling is not known: {owner} do not store the values from each half of the "
        "examples. Newer scores by shapley, monte-carlo and leave-one-out do: delete old results "
        "and compute them again."
    )


def language_records(rank_agreement: RankAgreement) -> Records[LanguageAgreement]:
    """Each language, similar ones side by side."""
    statistics = rank_agreement.statistics
    noise = statistics.noise
    rows = []
    for place, number in enumerate(leaf_order(rank_agreement), 1):
        mean_rho, low, high = (number_at(part, number) for part in statistics.mean)
        row = LanguageAgreement(
            language=rank_agreement.names[number],
            place=place,
            number=number,
            mean_rho=mean_rho,
            low=low,
            high=high,
            reliability=number_at(noise.reliability.value, number) if noise else None,
            reliability_low=number_at(noise.reliability.low, number) if noise else None,
            reliability_high=number_at(noise.reliability.high, number) if noise else None,
            outlier_percent=_outlier_percent(statistics.outlier, number),
            outlier_percent_across_halves=_outlier_percent(
                noise.outlier if noise else None, number
            ),
        )
        rows.append(row)
    return Records(
        "Each language: how it agrees with the others, and how much of its own ranking is noise",
        tuple(rows),
        (
            "place: in the order that puts similar languages side by side; number: in the table "
            "of clusters. reliability: what a second measurement of the same size would correlate "
            "with this one (Spearman of the two halves, stepped up by Spearman–Brown). outlier: "
            "share of resamples of heads in which the language agrees least with the others; "
            "across halves: the same for correlations corrected for noise, where no ceiling is "
            "too low.",
        ),
    )


def leaf_order(rank_agreement: RankAgreement) -> list[int]:
    """Row indices in the order of the tree's leaves."""
    tree = rank_agreement.statistics.tree
    leaves_by_node: list[list[int]] = [[index] for index in range(len(rank_agreement.names))]
    for first_child, second_child, *_ in tree:
        leaves_by_node.append(leaves_by_node[int(first_child)] + leaves_by_node[int(second_child)])
    return leaves_by_node[-1]


def _outlier_percent(outlier: Outlier | None, row: int) -> float | None:
    """Share of resamples in which a language is the outlier, in percent.

    None without an outlier.
    """
    if outlier is None:
        return None
    return 100 * float(outlier.share[row])


def merge_records(rank_agreement: RankAgreement) -> Records[Merge]:
    """The merges of the tree, nearest first."""
    tree = rank_agreement.statistics.tree
    names = rank_agreement.names
    order = leaf_order(rank_agreement)
    merges = zip(tree, clusters_of_tree(tree), rank_agreement.statistics.support, strict=True)
    rows = []
    for number, (merge, members, share) in enumerate(merges, len(names)):
        first_child, second_child, height, _ = merge
        languages = [names[index] for index in order if index in members]
        row = Merge(
            number=number,
            first_part=int(first_child),
            second_part=int(second_child),
            languages=", ".join(languages),
            size=len(members),
            distance=float(height),
            support_percent=100 * float(share),
        )
        rows.append(row)
    return Records(
        "Clusters of languages: average linkage on 1 − rho",
        tuple(rows),
        (
            "left, right: what is merged, languages by their number or earlier merges. support: "
            "share of resamples of heads whose own tree has the same cluster.",
        ),
    )


RHO_ITSELF = "rho"
ACROSS_HALVES = "across halves"


def outlier_records(rank_agreement: RankAgreement) -> Records[OutlierRecord]:
    """The language that agrees least with the others, by rho and by rho corrected for noise."""
    noise = rank_agreement.statistics.noise
    outliers = {
        RHO_ITSELF: rank_agreement.statistics.outlier,
        ACROSS_HALVES: noise.outlier if noise else None,
    }
    rows = []
    for measure, outlier in outliers.items():
        if outlier is None:
            continue
        gap, low, high = (number_at(part) for part in outlier.gap)
        row = OutlierRecord(
            language=rank_agreement.names[outlier.row],
            measure=measure,
            share_percent=100 * float(outlier.share[outlier.row]),
            following=rank_agreement.names[outlier.next],
            gap=gap,
            low=low,
            high=high,
        )
        rows.append(row)
    return Records(
        "The language that agrees least with the others",
        tuple(rows),
        (
            "gap: mean correlation with the others of the next language, minus that of this one, "
            "95 % interval.",
        ),
    )


def outlier_sentences(rank_agreement: RankAgreement) -> str:
    """One or two sentences on which language stands apart, and how sure that is.

    Empty for fewer than three languages.
    """
    if not rank_agreement.statistics.outlier:
        return ""
    noise = rank_agreement.statistics.noise
    sentences = []
    for outlier in outlier_records(rank_agreement).rows:
        measure = "mean ρ"
        if outlier.measure == ACROSS_HALVES:
            measure = "mean ρ corrected for noise (across halves)"
        interval = f"[{outlier.low:.2f}, {outlier.high:.2f}]".replace("-", "\N{MINUS SIGN}")
        is_sure = outlier.low is not None and outlier.low > 0
        ending = "." if is_sure else ", so which language is the outlier is not settled."
        sentences.append(
            f"By {measure}, {outlier.language} agrees least with the others: it is the lowest in "
            f"{outlier.share_percent:.0f} % of resamples of heads, {outlier.gap:.2f} {interval} "
            f"below {outlier.following}{ending}"
        )
    if noise and not noise.outlier:
        reason = "the noise ceiling is too low, or unknown"
        if rank_agreement.has_unequal_sizes:
            reason += ", or the languages have unequally many examples"
        sentences.append(f"Whether that is noise cannot be said: for some pairs {reason}.")
    return " ".join(sentences)


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence) -> AgreementResult:
    """Rank correlations of pairs of languages with noise ceilings, the clusters and the outlier.

    Args:
        options: method, method_options.
    """
    scores = {
        language: pieces.study_scores(language, options)
        for language in pieces.languages_in_turn("agreement", report)
    }
    report("agreement: resampling heads")
    return agreement_result(rank_agreement_of(scores, pieces.seed))


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The scores of every language."""
    return pieces.ask_study_scores(options)
