"""Do the methods agree on a model's heads, and which score is the best to prune it by?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from headlab.core import (
    Bools,
    Floats,
    Ints,
    OptionValue,
    integer_in,
    number_in,
    optional_integer_in,
    text_in,
)
from headlab.results import Curve, HeadScores, require_all_tested
from headlab.stats import (
    IntervalEstimate,
    bca_interval,
    expected_overlap,
    holm,
    jackknife_counts,
    overlap_p_value,
    resample_counts,
    spearman,
    spearman_of_counts,
)
from headlab.stats.agreement import DRAWS
from headlab.studies.agreement import (
    CORRELATION,
    Correlation,
    RankAgreement,
    correlations,
    number_at,
    rank_agreement_of,
)
from headlab.studies.curve_records import AreaDifference, CurveArea, CurvePoint
from headlab.studies.iterative import (
    RANDOM,
    AreaPair,
    GroupedCurves,
    ScoredCurve,
    area_cells,
    area_records,
    asks_of,
    grouped_by_number,
    mean_areas,
    orders_of,
    pair_records,
    pairs_of,
    plan_of,
    point_records,
)
from headlab.studies.result import (
    Column,
    Columns,
    Records,
    StudyResult,
    TableName,
)
from headlab.studies.table import SaySentence

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


# Agreement between methods: rank correlations and shared heads. Pure functions of scores, without a
# model.

MEAN = "mean"
HIGHEST = "highest"
LOWEST = "lowest"
Scores = Mapping[str, Mapping[str, HeadScores]]  # language, method


@dataclass(frozen=True)
class MethodAgreement:
    """How alike two methods rank the heads in a language, or MEAN over the languages."""

    language: Annotated[str, Column("language")]
    method: Annotated[str, Column("method")]
    other_method: Annotated[str, Column("other")]
    correlation: Annotated[Correlation, CORRELATION]


@dataclass(frozen=True)
class Overlap:
    """How many heads two methods share at an end of their rankings.

    Attributes:
        language: Its code.
        method: One method.
        other_method: Another.
        end: HIGHEST or LOWEST.
        shared_heads: Number of heads that both choose.
        by_chance: What unrelated rankings share.
        chance_low: Lower end of the range that holds at least 95 % of them.
        chance_high: Upper end.
        p: Chance of unrelated rankings to share so many or more.
        p_holm: p adjusted over all rows.
    """

    language: Annotated[str, Column("language")]
    method: Annotated[str, Column("method")]
    other_method: Annotated[str, Column("other")]
    end: Annotated[str, Column("heads")]
    shared_heads: Annotated[int, Column("shared", "d")]
    by_chance: Annotated[float, Column("by chance", ".1f")]
    chance_low: Annotated[float, Column("chance, low", "d")]
    chance_high: Annotated[float, Column("chance, high", "d")]
    p: Annotated[float, Column("p", ".2g")]
    p_holm: Annotated[float, Column("p (Holm)", ".2g")]


class AreaInterval(NamedTuple):
    """A difference in area in points, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class BestMethod:
    """The method whose curve has the largest area on test.

    Attributes:
        language: Its code, or MEAN.
        best_method: The method.
        area_percent: Its area.
        next_method: The method with the next largest.
        minus_next: Its area minus that of the next.
        minus_random: Its area minus the mean of random orders.
        random_orders_below: How many random orders have a smaller area.
        peers: Methods that cannot be told from it, comma-separated.
        is_settled: Whether there are none and chance is ruled out.
    """

    language: Annotated[str, Column("language")]
    best_method: Annotated[str, Column("best")]
    area_percent: Annotated[float, Column("area, %", ".1f")]
    next_method: Annotated[str, Column("next")]
    minus_next: Annotated[
        AreaInterval, Columns(("minus next, points", "low, points", "high, points"), ("+.1f",) * 3)
    ]
    minus_random: Annotated[
        AreaInterval,
        Columns(
            ("minus random, points", "random low, points", "random high, points"), ("+.1f",) * 3
        ),
    ]
    random_orders_below: Annotated[int, Column("random orders below", "d")]
    peers: Annotated[str, Column("not told from it")]
    is_settled: Annotated[bool, Column("settled")]


@dataclass(frozen=True, kw_only=True)
class MethodsResult(StudyResult):
    """Whether the methods agree, and which score is to be trusted.

    Attributes:
        best: The best method in each language.
        agreement: Rank correlations of every pair of methods.
        overlap: Heads that two methods share.
        areas: Of every method's curve.
        differences: Between the areas.
        curves: Their points.
    """

    best: Annotated[Records[BestMethod], TableName("methods-verdict")]
    agreement: Annotated[Records[MethodAgreement], TableName("methods-agreement")]
    overlap: Annotated[Records[Overlap], TableName("methods-overlap")]
    areas: Annotated[Records[CurveArea], TableName("methods-areas")]
    differences: Annotated[Records[AreaDifference], TableName("methods-differences")]
    curves: Annotated[Records[CurvePoint], TableName("methods-curves")]


def agreement_records(scores: Scores, seed: int) -> Records[MethodAgreement]:
    """Every pair of methods in each language, and its mean over the languages."""
    agreement_by_language = {
        language: rank_agreement_of(scores_by_method, seed)
        for language, scores_by_method in scores.items()
    }
    rows = [
        MethodAgreement(language, *pair)
        for language, language_agreement in agreement_by_language.items()
        for pair in correlations(language_agreement)
    ]
    any_agreement = next(iter(agreement_by_language.values()))
    if len(scores) > 1:
        rho = mean_rho(scores, seed)
        for row, column in combinations(range(len(any_agreement.names)), 2):
            value, low, high = (number_at(part, row, column) for part in rho)
            mean = Correlation(value, low, high)
            rows.append(
                MethodAgreement(MEAN, any_agreement.names[row], any_agreement.names[column], mean)
            )
    return Records(
        f"Spearman correlation of the scores of {any_agreement.heads} heads, every pair of methods",
        tuple(rows),
        agreement_notes(scores, any_agreement),
    )


def agreement_notes(scores: Scores, any_agreement: RankAgreement) -> tuple[str, ...]:
    """Notes that explain the columns, and name the methods without halves or without a sign."""
    methods_with_halves = set()
    for scores_by_method in scores.values():
        for name, method_scores in scores_by_method.items():
            if method_scores.halves is not None:
                methods_with_halves.add(name)
    methods_without_halves = [
        name for name in any_agreement.names if name not in methods_with_halves
    ]
    sentences = [
        f"low, high: 95 % interval by resampling heads ({DRAWS:,} times), the same heads for every "
        "language."
    ]
    if len(scores) > 1:
        sentences[0] += f" {MEAN}: of the languages' correlations."
    if methods_with_halves:
        sentences.append(
            "ceiling: the correlation that two methods of the same true ranking would show, given "
            "how well the two halves of the dev examples agree by each. corrected: rho over "
            "ceiling; across halves: the same from halves of other examples, since the methods "
            "share examples and their noise. Left out where the ceiling is too low to say."
        )
    if methods_without_halves:
        names = " or ".join(methods_without_halves)
        sentences.append(
            f"No ceiling where one is {names}: these scores have none by halves of the examples."
        )
    any_scores = next(iter(scores.values()))
    methods_without_sign = [name for name in any_agreement.names if not any_scores[name].signed]
    if methods_without_sign:
        names = ", ".join(methods_without_sign)
        sentences.append(
            f"{names}: without a sign, so these rank how much a head does, not whether it helps."
        )
    return tuple(sentences)


def mean_rho(scores: Scores, seed: int, draws: int = DRAWS) -> IntervalEstimate:
    """Mean over languages of the methods' rank correlations, [method, method].

    All languages share the resamples of heads.
    """
    values_by_language = [
        np.stack([method_scores.tested_values for method_scores in scores_by_method.values()])
        for scores_by_method in scores.values()
    ]
    head_count = values_by_language[0].shape[1]
    rng = np.random.default_rng([seed, 5])

    def mean_over_languages(counts: Ints) -> Floats:
        """Mean of the correlations of heads that are drawn so often, int [draw, head]."""
        correlations = [spearman_of_counts(values, counts) for values in values_by_language]
        return np.asarray(np.mean(correlations, axis=0))

    estimate = np.mean([spearman(values) for values in values_by_language], axis=0)
    resampled = mean_over_languages(resample_counts(head_count, rng, draws))
    jackknifed = mean_over_languages(jackknife_counts(head_count))
    return IntervalEstimate(estimate, *bca_interval(estimate, resampled, jackknifed))


def overlap_records(scores: Scores, k: int) -> Records[Overlap]:
    """How many of the k heads two methods both choose.

    By language, pair of methods and end of the ranking. Raises HeadlabError if not all heads were
    sampled.
    """
    for scores_by_method in scores.values():
        require_all_tested(scores_by_method.values(), "how alike rankings are")
    rows = []
    for language, scores_by_method in scores.items():
        head_count = next(iter(scores_by_method.values())).grid.size
        count = min(k, head_count)
        chance = expected_overlap(head_count, count, count)
        for method, other_method in combinations(scores_by_method, 2):
            for end in (HIGHEST, LOWEST):
                heads = _heads_at_end(scores_by_method[method], k, end)
                other_heads = _heads_at_end(scores_by_method[other_method], k, end)
                shared = int((heads & other_heads).sum())
                p = overlap_p_value(head_count, count, count, shared)
                overlap = Overlap(language, method, other_method, end, shared, *chance, p, p_holm=p)
                rows.append(overlap)
    adjusted_p_values = holm(np.array([row.p for row in rows], float)).tolist()
    return Records(
        f"How many of the {k} highest and of the {k} lowest heads two methods share",
        tuple(replace(row, p_holm=p) for row, p in zip(rows, adjusted_p_values, strict=True)),
        (
            "by chance: what unrelated rankings share, with the range that holds at least 95 % of "
            "them; p: their chance to share so many or more, p (Holm) adjusted for all rows. The "
            "lowest heads are those that leave first.",
        ),
    )


def _heads_at_end(scores: HeadScores, k: int, end: str) -> Bools:
    """The k heads at an end of the ranking, bool [head]."""
    ranks = scores.tested_ranks
    if end == HIGHEST:
        return np.asarray(ranks <= k)
    return np.asarray(ranks > len(ranks) - k)


def joined_names(names: Sequence[str]) -> str:
    """Names joined as in a sentence: a, b and c."""
    parts = [", ".join(names[:-1]), *names[-1:]]
    return " and ".join(filter(None, parts))


# Which score to trust for a model: the one whose pruning order keeps the most accuracy, and how
# sure that is.

LEVEL = 0.95
PointsWithInterval = tuple[float, float, float]  # a difference in points, and its interval


class MethodVerdict(NamedTuple):
    """The method whose curve has the largest area, against the next one and against random orders.

    Attributes:
        best: The method.
        following: The method with the next largest area.
        areas: In percent, by method.
        minus_next: Area of the best minus that of the next, in points.
        minus_random: Area of the best minus the mean of random orders, in points.
        random_orders_below: How many random orders have a smaller area.
        orders: Number of random orders.
        peers: Methods indistinguishable from the best.
        worse_than_random: Methods that are significantly below random orders.
    """

    best: str
    following: str
    areas: Mapping[str, float]
    minus_next: PointsWithInterval
    minus_random: PointsWithInterval
    random_orders_below: int
    orders: int
    peers: tuple[str, ...]
    worse_than_random: tuple[str, ...] = ()

    @property
    def beats_chance(self) -> bool:
        """Whether the interval against random orders lies above 0."""
        return self.minus_random[1] > 0

    @property
    def is_settled(self) -> bool:
        """Whether its intervals against chance and against every other method lie above 0."""
        return self.beats_chance and not self.peers


def named_pairs(methods: Sequence[str]) -> list[tuple[str, str]]:
    """Every pair once: each method with random, then each method with those before it."""
    pairs = [(name, RANDOM) for name in methods]
    pairs += [(later, earlier) for earlier, later in combinations(methods, 2)]
    return pairs


def level_of(methods: Sequence[str]) -> float:
    """Level of a single interval such that all pairs hold jointly at 95 %.

    By Bonferroni; Dunn 1961.
    """
    return 1 - (1 - LEVEL) / len(named_pairs(methods))


def area_differences(
    curves_by_stratum: Sequence[GroupedCurves],
    methods: Sequence[str],
    seed: int,
    *,
    are_aligned: bool = False,
) -> list[AreaPair]:
    """All differences in area, with intervals that hold jointly; arguments as in `pairs_of`."""
    return pairs_of(
        curves_by_stratum,
        named_pairs(methods),
        seed,
        are_aligned=are_aligned,
        level=level_of(methods),
    )


def best_method(
    curves_by_stratum: Sequence[GroupedCurves], methods: Sequence[str], pairs: Sequence[AreaPair]
) -> MethodVerdict:
    """The best method and how sure that is.

    Args:
        curves_by_stratum: One for each language.
        methods: Keys of the methods.
        pairs: As `area_differences` returns them.
    """
    areas: dict[str, float] = {}
    for name in methods:
        areas_by_stratum = [
            mean_areas(grouped.curves[name]).mean() for grouped in curves_by_stratum
        ]
        areas[name] = 100 * float(np.mean(areas_by_stratum))
    best, following, *_ = sorted(methods, key=lambda name: -areas[name])
    pairs_by_names = {(pair.ordering, pair.other): pair for pair in pairs}
    differences_to_best = {
        name: _difference_of(pairs_by_names, best, name)
        for name in (RANDOM, *methods)
        if name != best
    }
    peers = []
    for name in methods:
        if name != best:
            _, low, _ = differences_to_best[name]
            if low <= 0:
                peers.append(name)
    return MethodVerdict(
        best=best,
        following=following,
        areas=areas,
        minus_next=differences_to_best[following],
        minus_random=differences_to_best[RANDOM],
        random_orders_below=pairs_by_names[best, RANDOM].random_orders_below or 0,
        orders=len(curves_by_stratum[0].curves[RANDOM]),
        peers=tuple(peers),
        worse_than_random=tuple(name for name in methods if pairs_by_names[name, RANDOM].high < 0),
    )


def _difference_of(
    pairs_by_names: Mapping[tuple[str, str], AreaPair], name: str, other_name: str
) -> PointsWithInterval:
    """One area minus another with its interval, whichever way round the pair was compared."""
    if (name, other_name) in pairs_by_names:
        pair = pairs_by_names[name, other_name]
        return pair.difference, pair.low, pair.high
    pair = pairs_by_names[other_name, name]
    return 0.0 - pair.difference, 0.0 - pair.high, 0.0 - pair.low  # no -0.0


def verdict_records(verdicts: Mapping[str, MethodVerdict], level: float) -> Records[BestMethod]:
    """Every language, and their mean: the best method against the next and random orders."""
    rows = [
        BestMethod(
            language=language,
            best_method=verdict.best,
            area_percent=verdict.areas[verdict.best],
            next_method=verdict.following,
            minus_next=AreaInterval(*verdict.minus_next),
            minus_random=AreaInterval(*verdict.minus_random),
            random_orders_below=verdict.random_orders_below,
            peers=", ".join(verdict.peers),
            is_settled=verdict.is_settled,
        )
        for language, verdict in verdicts.items()
    ]
    return Records(
        "The score whose pruning curve has the largest area on test",
        tuple(rows),
        (
            f"Intervals: {100 * level:.4g} % each, so that those of all pairs of a language hold "
            "together with 95 %: which method is the best and which the next was seen on the same "
            "examples. not told from it: methods whose interval of the difference holds 0. "
            "settled: there is none, and the interval against random lies above 0.",
        ),
    )


def trust_words(verdicts: Mapping[str, MethodVerdict]) -> str:
    """Which score to trust for this model, and how sure that is.

    Args:
        verdicts: By language; that of their mean comes last, if there are several, and decides.
    """
    last_place, verdict = list(verdicts.items())[-1]
    verdicts_of_languages = [verdicts[name] for name in verdicts if name != MEAN]
    languages = len(verdicts_of_languages)
    place = f"over {languages} languages" if last_place == MEAN else f"in {last_place}"
    largest = f"{place} {verdict.best} has the largest area under its pruning curve on test"
    against_next = f"{_points_text(verdict.minus_next)} against the next, {verdict.following}"
    against_random = (
        f"{_points_text(verdict.minus_random)} against random orders "
        f"({verdict.random_orders_below} of {verdict.orders} lie below it)"
    )
    unsettled = "The data do not show which score to trust for this model"
    if verdict.is_settled:
        text = f"For this model, trust {verdict.best}: {largest}, {against_next}, and {against_random}."
    elif verdict.beats_chance:
        text = (
            f"{unsettled}: {largest}, {against_next}, and {against_random}, but the interval of "
            f"the difference to {joined_names(verdict.peers)} holds 0."
        )
    else:
        text = f"{unsettled}: {largest}, {against_random}, so not even chance is ruled out."
    if verdict.worse_than_random:
        names = joined_names(verdict.worse_than_random)
        text += f" Significantly worse than random orders: {names}."
    if last_place == MEAN:
        best_in = sum(
            of_language.best == verdict.best and of_language.is_settled
            for of_language in verdicts_of_languages
        )
        text += (
            f" In {best_in} of {languages} languages, each tested alone, {verdict.best} is "
            "significantly the best."
        )
    return text


def _points_text(points: PointsWithInterval) -> str:
    """A difference in points with its interval, as a text."""
    value, low, high = points
    return f"{value:+.1f} points [{low:+.1f}, {high:+.1f}]"


Orders = Mapping[str, Mapping[str, Sequence[ScoredCurve]]]  # language, ordering


def requested_methods(options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """The methods asked for."""
    return tuple(text_in(options, "methods").split(","))


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence) -> MethodsResult:
    """How the methods' rankings agree, and which keeps most accuracy.

    Each method's curve is compared with random orders.

    Args:
        options: methods, top, points, runs, loss, method_options (of shapley), monte_carlo_options.
    """
    names = requested_methods(options)
    plan = plan_of((RANDOM, *names), options, pieces.seed)
    points = optional_integer_in(options, "points")
    orders = {
        language: orders_of(pieces, language, plan, points, report, "methods")
        for language in pieces.languages
    }
    report("methods: resampling heads and examples")
    scores = {
        language: {name: orders_of_language[name][0].scores for name in names}
        for language, orders_of_language in orders.items()
    }
    judgement = judge(pieces, orders, names, number_in(options, "loss"))
    return MethodsResult(
        best=judgement.best,
        agreement=agreement_records(scores, pieces.seed),
        overlap=overlap_records(scores, integer_in(options, "top")),
        areas=judgement.areas,
        differences=judgement.differences,
        curves=judgement.curves,
        notes=(judgement.sentences, *notes(options)),
    )


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The scores and curves of every method and of the random orders, in every language."""
    plan = plan_of((RANDOM, *requested_methods(options)), options, pieces.seed)
    return asks_of(pieces, plan, optional_integer_in(options, "points"))


class Judgement(NamedTuple):
    """What the curves say of the methods, and in sentences which score to trust."""

    best: Records[BestMethod]
    areas: Records[CurveArea]
    differences: Records[AreaDifference]
    curves: Records[CurvePoint]
    sentences: str


def judge(pieces: Pieces, orders: Orders, names: Sequence[str], loss: float) -> Judgement:
    """What the curves say of the methods."""
    seed = pieces.seed
    are_aligned = pieces.task.aligned
    curves: dict[str, dict[str, list[Curve]]] = {}
    for language, orders_by_ordering in orders.items():
        curves[language] = {
            name: [order.curve for order in scored_curves]
            for name, scored_curves in orders_by_ordering.items()
        }
    # a language alone is one stratum; their mean has a stratum for each of them
    strata_by_place = {
        language: [grouped_by_number(curves_by_ordering)]
        for language, curves_by_ordering in curves.items()
    }
    if len(curves) > 1:
        strata_by_place[MEAN] = []
        for language, curves_by_ordering in curves.items():
            group_numbers = curves_by_ordering[RANDOM][0].groups
            groups = pieces.group_names(language, group_numbers, "test")
            strata_by_place[MEAN].append(GroupedCurves(curves_by_ordering, groups))
    pairs: dict[str, list[AreaPair]] = {}
    verdicts: dict[str, MethodVerdict] = {}
    for place, strata in strata_by_place.items():
        are_drawn_together = are_aligned and place == MEAN
        pairs[place] = area_differences(strata, names, seed, are_aligned=are_drawn_together)
        verdicts[place] = best_method(strata, names, pairs[place])
    areas = area_records(curves, seed, loss)
    return Judgement(
        best=verdict_records(verdicts, level_of(names)),
        areas=with_means(areas, strata_by_place.get(MEAN), seed, are_aligned),
        differences=pair_records(pairs, difference_note(names)),
        curves=point_records(curves),
        sentences=trust_words(verdicts),
    )


def with_means(
    areas: Records[CurveArea],
    curves_by_stratum: Sequence[GroupedCurves] | None,
    seed: int,
    are_aligned: bool,
) -> Records[CurveArea]:
    """Areas, with the means over languages appended if there are several."""
    if curves_by_stratum is None:
        return areas
    means = [
        CurveArea(
            MEAN,
            name,
            *area_cells(curves_by_stratum, name, seed, are_aligned=are_aligned),
            heads=None,
            heads_by_interval=None,
        )
        for name in curves_by_stratum[0].curves
    ]
    return replace(areas, rows=(*areas.rows, *means))


def difference_note(names: Sequence[str]) -> str:
    """A note that explains the columns of the differences."""
    return (
        f"Minus random: minus the mean over its orders. low, high: {100 * level_of(names):.4g} % "
        "each, so that all of a language hold together with 95 % (Bonferroni). p (Holm) is "
        "adjusted for all rows."
    )


def notes(options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Caveats about the tables."""
    return (
        "Heads are scored on dev and leave lowest score first; accuracy is of test. The area is "
        "the mean accuracy from no head gone to all of them, so it says which order is good on "
        "the whole, not at one size: see the curves.",
        f"random: {options['runs']} orders; its curve is their median, its area their mean.",
        "Intervals of areas are by resampling groups of test examples. They hold for these "
        "orders: they do not cover how another dev sample would change an order, or other models.",
    )
