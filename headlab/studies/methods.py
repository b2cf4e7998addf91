"""Do the methods agree on a model's heads, and which score is the best to prune it by?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from headlab.core import Bools, OptionValue, integer_in, number_in, optional_integer_in, text_in
from headlab.results import HeadScores
from headlab.stats import (
    Estimate,
    bca,
    by_chance,
    chance_of_more,
    holm,
    left_out,
    resamples,
    spearman,
    spearman_of_counts,
)
from headlab.stats.agreement import DRAWS
from headlab.studies.agreement import (
    CORRELATION,
    Compared,
    Correlation,
    compare_languages,
    correlations,
    number_at,
)
from headlab.studies.curve_records import AreaDifference, CurveArea, CurvePoint
from headlab.studies.iterative import (
    RANDOM,
    Order,
    Pair,
    Walked,
    area_cells,
    area_records,
    asks_of,
    mean_areas,
    orders_of,
    pair_records,
    pairs_of,
    plan_of,
    point_records,
    walked,
)
from headlab.studies.result import (
    Column,
    Columns,
    Records,
    StudyResult,
    TableName,
)
from headlab.studies.table import Say

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


# Agreement between methods: rank correlations and shared heads. Pure functions of scores, without a model.

MEAN = "mean"
HIGHEST, LOWEST = "highest", "lowest"
Scores = Mapping[str, Mapping[str, HeadScores]]  # language, method


@dataclass(frozen=True)
class MethodAgreement:
    """How alike two methods rank the heads in a language, or MEAN over the languages."""

    language: Annotated[str, Column("language")]
    method: Annotated[str, Column("method")]
    other: Annotated[str, Column("other")]
    correlation: Annotated[Correlation, CORRELATION]


@dataclass(frozen=True)
class Overlap:
    """How many heads two methods share at an end of their rankings.

    Attributes:
        language: Its code.
        method: One method.
        other: Another.
        end: HIGHEST or LOWEST.
        shared: Number of heads that both choose.
        by_chance: What unrelated rankings share.
        chance_low: Lower end of the range that holds at least 95 % of them.
        chance_high: Upper end.
        p: Chance of unrelated rankings to share so many or more.
        p_holm: p adjusted over all rows.
    """

    language: Annotated[str, Column("language")]
    method: Annotated[str, Column("method")]
    other: Annotated[str, Column("other")]
    end: Annotated[str, Column("heads")]
    shared: Annotated[int, Column("shared", "d")]
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
        best: The method.
        area_percent: Its area.
        following: The method with the next largest.
        minus_next: Its area minus that of the next.
        minus_random: Its area minus the mean of random orders.
        random_orders_below: How many random orders have a smaller area.
        peers: Methods that cannot be told from it, comma-separated.
        is_settled: Whether there are none and chance is ruled out.
    """

    language: Annotated[str, Column("language")]
    best: Annotated[str, Column("best")]
    area_percent: Annotated[float, Column("area, %", ".1f")]
    following: Annotated[str, Column("next")]
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
    compared = {
        language: compare_languages(by_method, seed) for language, by_method in scores.items()
    }
    rows = [
        MethodAgreement(language, *pair)
        for language, of_language in compared.items()
        for pair in correlations(of_language)
    ]
    first = next(iter(compared.values()))
    if len(scores) > 1:
        rho = mean_rho(scores, seed)
        for one, other in combinations(range(len(first.names)), 2):
            value, low, high = (number_at(part, one, other) for part in rho)
            mean = Correlation(value, low, high)
            rows.append(MethodAgreement(MEAN, first.names[one], first.names[other], mean))
    return Records(
        f"Spearman correlation of the scores of {first.heads} heads, every pair of methods",
        tuple(rows),
        agreement_notes(scores, first),
    )


def agreement_notes(scores: Scores, first: Compared) -> tuple[str, ...]:
    """Notes that explain the columns, and name the methods without halves or without a sign."""
    halved = {name for of in scores.values() for name, one in of.items() if one.halves is not None}
    bare = [name for name in first.names if name not in halved]
    out = [
        f"low, high: 95 % interval by resampling heads ({DRAWS:,} times), the same heads for every language."
    ]
    if len(scores) > 1:
        out[0] += f" {MEAN}: of the languages' correlations."
    if halved:
        out.append(
            "ceiling: the correlation that two methods of the same true ranking would show, given how well the two "
            "halves of the dev examples agree by each. corrected: rho over ceiling; across halves: the same from "
            "halves of other examples, since the methods share examples and their noise. Left out where the ceiling "
            "is too low to say."
        )
    if bare:
        out.append(
            f"No ceiling where one is {' or '.join(bare)}: these scores have none by halves of the examples."
        )
    unsigned = [name for name in first.names if not next(iter(scores.values()))[name].signed]
    if unsigned:
        out.append(
            f"{', '.join(unsigned)}: without a sign, so these rank how much a head does, not whether it helps."
        )
    return tuple(out)


def mean_rho(scores: Scores, seed: int, draws: int = DRAWS) -> Estimate:
    """Mean over languages of the methods' rank correlations, [method, method]; all languages share the resamples."""
    values = [np.stack([one.values for one in of.values()]) for of in scores.values()]
    items, rng = values[0].shape[1], np.random.default_rng([seed, 5])
    point = np.mean([spearman(value) for value in values], axis=0)
    drawn, without = (
        np.mean([spearman_of_counts(value, counts) for value in values], axis=0)
        for counts in (resamples(items, rng, draws), left_out(items))
    )
    return Estimate(point, *bca(point, drawn, without))


def overlap_records(scores: Scores, k: int) -> Records[Overlap]:
    """Every language, pair of methods and end of the ranking: how many of the k heads both choose."""
    rows = []
    for language, scores_by_method in scores.items():
        size = next(iter(scores_by_method.values())).grid.size
        count = min(k, size)
        chance = by_chance(size, count, count)
        for (method, first), (other, second) in combinations(scores_by_method.items(), 2):
            for end in (HIGHEST, LOWEST):
                shared = int((_chosen(first, k, end) & _chosen(second, k, end)).sum())
                p = chance_of_more(size, count, count, shared)
                rows.append(Overlap(language, method, other, end, shared, *chance, p, p_holm=p))
    adjusted = holm(np.array([row.p for row in rows], float)).tolist()
    return Records(
        f"How many of the {k} highest and of the {k} lowest heads two methods share",
        tuple(replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)),
        (
            "by chance: what unrelated rankings share, with the range that holds at least 95 % of "
            "them; p: their chance to share so many or more, p (Holm) adjusted for all rows. The "
            "lowest heads are those that leave first.",
        ),
    )


def _chosen(scores: HeadScores, k: int, end: str) -> Bools:
    """The k heads at an end of the ranking, bool [head]."""
    ranks = scores.ranks
    return np.asarray(ranks <= k if end == HIGHEST else ranks > len(ranks) - k)


def listed(names: Sequence[str]) -> str:
    """Names joined as in a sentence: a, b and c."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


# Which score to trust for a model: the one whose pruning order keeps the most accuracy, and how sure that is.

LEVEL = 0.95
Ends = tuple[float, float, float]  # a difference in points, and its interval


class Verdict(NamedTuple):
    """The method whose curve has the largest area, against the next one and against random orders.

    areas: in percent, by method.  peers: methods indistinguishable from the best.  below: how many of the
    `orders` random orders have a smaller area.  worse: methods that are significantly below random orders.
    """

    best: str
    following: str
    areas: Mapping[str, float]
    ahead: Ends
    above: Ends
    below: int
    orders: int
    peers: tuple[str, ...]
    worse: tuple[str, ...] = ()

    @property
    def beats_chance(self) -> bool:
        """Whether the interval against random orders lies above 0."""
        return self.above[1] > 0

    @property
    def settled(self) -> bool:
        """Whether its intervals against chance and against every other method lie above 0."""
        return self.beats_chance and not self.peers


def named_pairs(methods: Sequence[str]) -> list[tuple[str, str]]:
    """Every pair once: each method with random, then each method with those before it."""
    return [(name, RANDOM) for name in methods] + [(b, a) for a, b in combinations(methods, 2)]


def level_of(methods: Sequence[str]) -> float:
    """Level of a single interval such that all pairs hold jointly at 95 % (Bonferroni; Dunn 1961)."""
    return 1 - (1 - LEVEL) / len(named_pairs(methods))


def compare(
    found: Sequence[Walked], methods: Sequence[str], seed: int, *, aligned: bool = False
) -> list[Pair]:
    """All differences in area, with intervals that hold jointly; arguments as in `pairs_of`."""
    return pairs_of(found, named_pairs(methods), seed, aligned=aligned, level=level_of(methods))


def verdict(found: Sequence[Walked], methods: Sequence[str], pairs: Sequence[Pair]) -> Verdict:
    """The best method and how sure that is. pairs: as `compare` returns them."""
    areas = {
        name: 100 * float(np.mean([mean_areas(of.curves[name]).mean() for of in found]))
        for name in methods
    }
    best, following, *_ = sorted(methods, key=lambda name: -areas[name])
    between = {(pair.ordering, pair.other): pair for pair in pairs}
    against = {name: _ends(between, best, name) for name in (RANDOM, *methods) if name != best}
    below = between[best, RANDOM].below
    return Verdict(
        best, following, areas, against[following], against[RANDOM], below or 0, len(found[0].curves[RANDOM]),
        tuple(name for name in methods if name != best and against[name][1] <= 0),
        tuple(name for name in methods if between[name, RANDOM].high < 0),
    )  # fmt: skip


def _ends(between: Mapping[tuple[str, str], Pair], one: str, other: str) -> Ends:
    """One area minus another with its interval, whichever way round the pair was compared."""
    if (one, other) in between:
        pair = between[one, other]
        return pair.difference, pair.low, pair.high
    pair = between[other, one]
    return 0.0 - pair.difference, 0.0 - pair.high, 0.0 - pair.low  # no -0.0


def verdict_records(verdicts: Mapping[str, Verdict], level: float) -> Records[BestMethod]:
    """Every language (and their mean): the best method against the next and against random orders."""
    rows = [
        BestMethod(
            language=language,
            best=verdict.best,
            area_percent=verdict.areas[verdict.best],
            following=verdict.following,
            minus_next=AreaInterval(*verdict.ahead),
            minus_random=AreaInterval(*verdict.above),
            random_orders_below=verdict.below,
            peers=", ".join(verdict.peers),
            is_settled=verdict.settled,
        )
        for language, verdict in verdicts.items()
    ]
    return Records(
        "The score whose pruning curve has the largest area on test",
        tuple(rows),
        (
            f"Intervals: {100 * level:.4g} % each, so that those of all pairs of a language hold "
            "together with 95 %: which method is the best and which the next was seen on the same "
            "examples. not told from it: methods whose interval of the difference holds 0. settled: "
            "there is none, and the interval against random lies above 0.",
        ),
    )


def trust_words(found: Mapping[str, Verdict]) -> str:
    """Which score to trust for this model, and how sure that is, by the mean over languages if there are several."""
    where, v = list(found.items())[-1]
    alone = [one.best == v.best and one.settled for name, one in found.items() if name != MEAN]
    place = f"over {len(alone)} languages" if where == MEAN else f"in {where}"
    largest = f"{place} {v.best} has the largest area under its pruning curve on test"
    ahead = f"{_said(v.ahead)} against the next, {v.following}"
    above = f"{_said(v.above)} against random orders ({v.below} of {v.orders} lie below it)"
    if v.settled:
        words = f"For this model, trust {v.best}: {largest}, {ahead}, and {above}."
    else:
        words = f"The data do not show which score to trust for this model: {largest}, "
        words += (
            f"{ahead}, and {above}, but the interval of the difference to {listed(v.peers)} holds 0."
            if v.beats_chance
            else f"{above}, so not even chance is ruled out."
        )
    if v.worse:
        words += f" Significantly worse than random orders: {listed(v.worse)}."
    if where == MEAN:
        words += f" In {sum(alone)} of {len(alone)} languages, each tested alone, {v.best} is significantly the best."
    return words


def _said(ends: Ends) -> str:
    value, low, high = ends
    return f"{value:+.1f} points [{low:+.1f}, {high:+.1f}]"


Orders = Mapping[str, Mapping[str, Sequence[Order]]]  # language, ordering


def methods_of(options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """The methods asked for."""
    return tuple(text_in(options, "methods").split(","))


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> MethodsResult:
    """How the methods' rankings agree, each method's curve against random orders, and which keeps most accuracy.

    options: methods, top, points, runs, loss, method_options (of shapley), monte_carlo_options.
    """
    names = methods_of(options)
    plan = plan_of((RANDOM, *names), options, pieces.seed)
    orders = {
        language: orders_of(
            pieces, language, plan, optional_integer_in(options, "points"), report, "methods"
        )
        for language in pieces.languages
    }
    report("methods: resampling heads and examples")
    scores = {
        language: {name: of[name][0].scores for name in names} for language, of in orders.items()
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
    plan = plan_of((RANDOM, *methods_of(options)), options, pieces.seed)
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
    seed, aligned = pieces.seed, pieces.task.aligned
    curves = {
        language: {name: [one.curve for one in of] for name, of in by.items()}
        for language, by in orders.items()
    }
    places = {language: [walked(of)] for language, of in curves.items()}
    if len(curves) > 1:
        places[MEAN] = [
            Walked(of, pieces.group_names(language, of[RANDOM][0].groups, "test"))
            for language, of in curves.items()
        ]
    pairs: dict[str, list[Pair]] = {}
    found = {}
    for place, of in places.items():
        pairs[place] = compare(of, names, seed, aligned=aligned and place == MEAN)
        found[place] = verdict(of, names, pairs[place])
    areas = area_records(curves, seed, loss)
    return Judgement(
        best=verdict_records(found, level_of(names)),
        areas=with_means(areas, places.get(MEAN), seed, aligned),
        differences=pair_records(pairs, difference_note(names)),
        curves=point_records(curves),
        sentences=trust_words(found),
    )


def with_means(
    areas: Records[CurveArea], found: Sequence[Walked] | None, seed: int, aligned: bool
) -> Records[CurveArea]:
    """Areas, with the means over languages appended if there are several."""
    if found is None:
        return areas
    means = [
        CurveArea(
            MEAN,
            name,
            *area_cells(found, name, seed, aligned=aligned),
            heads=None,
            heads_by_interval=None,
        )
        for name in found[0].curves
    ]
    return replace(areas, rows=(*areas.rows, *means))


def difference_note(names: Sequence[str]) -> str:
    """A note that explains the columns of the differences."""
    return (
        f"Minus random: minus the mean over its orders. low, high: {100 * level_of(names):.4g} % each, so that all of "
        "a language hold together with 95 % (Bonferroni). p (Holm) is adjusted for all rows."
    )


def notes(options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Caveats about the tables."""
    return (
        "Heads are scored on dev and leave lowest score first; accuracy is of test. The area is the mean accuracy from "
        "no head gone to all of them, so it says which order is good on the whole, not at one size: see the curves.",
        f"random: {options['runs']} orders; its curve is their median, its area their mean.",
        "Intervals of areas are by resampling groups of test examples. They hold for these orders: they do not cover "
        "how another dev sample would change an order, or other models.",
    )
