"""Figure 3 of Held & Yang (EACL 2023): accuracy on test as heads are removed.

There are several orderings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from headlab.core import (
    Floats,
    OptionValue,
    integer_in,
    number_in,
    optional_integer_in,
    options_in,
    text_in,
)
from headlab.methods import ORDERINGS
from headlab.results import Curve, areas_by_answer, band, group_labels
from headlab.stats import Bootstrap, holm, stratified_bootstrap
from headlab.studies.curve_records import AreaDifference, CurveArea, CurvePoint
from headlab.studies.differences import Gain, Groups, pool_gains
from headlab.studies.result import Records, StudyResult, TableName
from headlab.studies.table import METHOD_OPTIONS, SaySentence

if TYPE_CHECKING:
    from headlab.results import HeadScores
    from headlab.studies.run import Ask, Pieces


# Pruning curves by ordering: points, areas, paired differences. Pure functions, without a model.

RANDOM = "random"
Curves = Mapping[str, Sequence[Curve]]  # ordering: its curves; random has several


class GroupedCurves(NamedTuple):
    """Curves of one language by ordering, and the group label of each answer, [answer]."""

    curves: Curves
    groups: Groups


class AreaPair(NamedTuple):
    """The area under one ordering's curve minus that under another's.

    Attributes:
        ordering: The one.
        other: The other.
        difference: In points.
        low: Lower end of its interval.
        high: Upper end.
        p: Two-sided.
        random_orders_below: How many random orders have the smaller area; None if the other
            ordering is not random.
    """

    ordering: str
    other: str
    difference: float
    low: float
    high: float
    p: float
    random_orders_below: int | None


@dataclass(frozen=True, kw_only=True)
class IterativeResult(StudyResult):
    """How accuracy falls as heads leave, in several orderings.

    Attributes:
        points: Of every ordering's curve.
        areas: Under the curves.
        differences: Between the areas.
    """

    points: Annotated[Records[CurvePoint], TableName("iterative")]
    areas: Annotated[Records[CurveArea], TableName("iterative-summary")]
    differences: Annotated[Records[AreaDifference], TableName("iterative-differences")]


def grouped_by_number(curves: Curves) -> GroupedCurves:
    """Curves of one language, with their groups' numbers as labels."""
    (first_curve, *_), *_ = curves.values()
    return GroupedCurves(curves, group_labels(first_curve.groups))


def mean_areas(curves: Sequence[Curve]) -> Floats:
    """`areas`, as the mean over several curves."""
    return np.asarray(np.mean([areas_by_answer(curve) for curve in curves], axis=0))


def point_records(curves_by_language: Mapping[str, Curves]) -> Records[CurvePoint]:
    """Accuracy in each language, ordering and count of heads removed."""
    rows: list[CurvePoint] = []
    for language, curves_by_ordering in curves_by_language.items():
        for ordering, curves in curves_by_ordering.items():
            removed_counts = curves[0].removed.tolist()
            accuracy, low, high = _band_of(ordering, curves)
            rows += [
                CurvePoint(
                    language=language,
                    ordering=ordering,
                    heads_removed=removed_counts[index],
                    accuracy_percent=100 * float(accuracy[index]),
                    low_percent=100 * float(low[index]),
                    high_percent=100 * float(high[index]),
                )
                for index in range(len(removed_counts))
            ]
    return Records(
        "Accuracy on test while heads leave",
        tuple(rows),
        (
            "low, high: 95 % interval of the difference to the untouched model, around it; of "
            "random, the lowest and the highest of its orders.",
        ),
    )


def _band_of(ordering: str, curves: Sequence[Curve]) -> tuple[Floats, Floats, Floats]:
    """Accuracy and the ends of the band around it, float [point] each."""
    if ordering == RANDOM:
        random_band = band(curves)
        return random_band.median, random_band.low, random_band.high
    (curve,) = curves
    low, high = np.clip(curve.accuracy[0] + np.stack([curve.low, curve.high]), 0, 1)
    return curve.accuracy, low, high


def area_records(
    curves_by_language: Mapping[str, Curves], seed: int, loss: float
) -> Records[CurveArea]:
    """Area in each language and ordering with its interval, and removable heads.

    They are removable at a loss of `loss` points.
    """
    rows = [
        CurveArea(
            language,
            ordering,
            *area_cells([grouped_by_number(curves_by_ordering)], ordering, seed),
            *_removable_heads(curves, loss),
        )
        for language, curves_by_ordering in curves_by_language.items()
        for ordering, curves in curves_by_ordering.items()
    ]
    return Records(
        f"Area under the curves, and how many heads can go before more than {loss:g} points are "
        "lost",
        tuple(rows),
        (
            "Area: mean accuracy from no head gone to all of them.  Heads: the most that can go "
            f"before more than {loss:g} points are lost, by the estimate and by its interval (a "
            "larger loss is ruled out), of the counts measured; of random, the median of its "
            "orders.",
        ),
    )


def area_cells(
    curves_by_stratum: Sequence[GroupedCurves],
    ordering: str,
    seed: int,
    *,
    are_aligned: bool = False,
) -> tuple[float, float, float]:
    """Mean over languages of the area, and its interval, in percent; arguments as in `pairs_of`."""
    gains = [
        Gain(mean_areas(stratum.curves[ordering]), stratum.groups, 0)
        for stratum in curves_by_stratum
    ]
    mean, (low, high, _) = _means_and_bootstrap(
        [gains], seed, are_aligned, pseudo_values=(1.0, 0.0)
    )
    return 100 * float(mean[0]), 100 * float(low[0]), 100 * float(high[0])


def _removable_heads(curves: Sequence[Curve], loss: float) -> tuple[float, float]:
    """The most heads that can go within a loss in points, by the estimate and by its interval."""
    by_estimate = [curve.heads_until(loss / 100, "estimate") for curve in curves]
    by_interval = [curve.heads_until(loss / 100, "interval") for curve in curves]
    return float(np.median(by_estimate)), float(np.median(by_interval))


def pairs_of(
    curves_by_stratum: Sequence[GroupedCurves],
    pairs: Sequence[tuple[str, str]],
    seed: int,
    *,
    are_aligned: bool = False,
    level: float = 0.95,
) -> list[AreaPair]:
    """One ordering's area minus another's, paired over the answers.

    It is the mean over languages, equally weighted.

    Args:
        curves_by_stratum: One for each language.
        pairs: The orderings, and the other ones.
        seed: Of the bootstrap.
        are_aligned: Whether groups of the same name are the same texts in every language and are
            drawn together; otherwise each language is resampled separately.
        level: Of each single interval.
    """
    if not pairs:
        return []
    gains: list[list[Gain]] = []
    for ordering, other in pairs:
        gains_of_pair = []
        for curves, groups in curves_by_stratum:
            difference = mean_areas(curves[ordering]) - mean_areas(curves[other])
            gains_of_pair.append(Gain(difference, groups, 0))
        gains.append(gains_of_pair)
    mean, (low, high, p) = _means_and_bootstrap(gains, seed, are_aligned, level=level)
    return [
        AreaPair(
            ordering=ordering,
            other=other,
            difference=float(100 * mean[index]),
            low=float(100 * low[index]),
            high=float(100 * high[index]),
            p=float(p[index]),
            random_orders_below=_random_orders_below(curves_by_stratum, ordering, other),
        )
        for index, (ordering, other) in enumerate(pairs)
    ]


def _means_and_bootstrap(
    gains: Sequence[Sequence[Gain]],
    seed: int,
    are_aligned: bool,
    *,
    pseudo_values: tuple[float, float] = (1.0, -1.0),
    level: float = 0.95,
) -> tuple[Floats, Bootstrap]:
    """Means over languages, float [row], and their bootstrap.

    Args:
        gains: [row][language].
        seed: Of the bootstrap.
        are_aligned: As in `pairs_of`.
        pseudo_values: Values of two answers that are added to each stratum.
        level: Of each single interval.
    """
    rows = [[pool_gains(row)] if are_aligned else row for row in gains]
    strata = []
    for index, gain in enumerate(rows[0]):
        values_by_row = np.stack([row[index].values for row in rows])
        strata.append((values_by_row, gain.groups))
    mean = np.mean([values.mean(axis=1) for values, _ in strata], axis=0)
    rng = np.random.default_rng(seed)
    return mean, stratified_bootstrap(strata, rng, pseudo_values=pseudo_values, level=level)


def _random_orders_below(
    curves_by_stratum: Sequence[GroupedCurves], ordering: str, other_ordering: str
) -> int | None:
    """How many random orders have a smaller area than an ordering, averaged over languages.

    Args:
        curves_by_stratum: One for each language.
        ordering: With one curve in each language.
        other_ordering: That it is compared with; None is returned if this is not random.
    """
    if other_ordering != RANDOM:
        return None
    areas_by_stratum = [
        [curve.area for curve in (*curves[ordering], *curves[RANDOM])]
        for curves, _ in curves_by_stratum
    ]
    area, *areas_of_random = (
        float(np.mean(areas_of_order)) for areas_of_order in zip(*areas_by_stratum, strict=True)
    )
    return sum(area_of_random < area for area_of_random in areas_of_random)


def pair_records(
    pairs_by_language: Mapping[str, Sequence[AreaPair]], note: str
) -> Records[AreaDifference]:
    """The difference in area in each language (or mean) and pair of orderings."""
    rows = [
        AreaDifference(
            language=language,
            ordering=pair.ordering,
            other_ordering=pair.other,
            difference=pair.difference,
            low=pair.low,
            high=pair.high,
            p=pair.p,
            p_holm=pair.p,
            random_orders_below=pair.random_orders_below,
        )
        for language, pairs in pairs_by_language.items()
        for pair in pairs
    ]
    adjusted_p_values = holm(np.array([row.p for row in rows], float)).tolist() if rows else []
    return Records(
        "Difference in area under the curve",
        tuple(replace(row, p_holm=p) for row, p in zip(rows, adjusted_p_values, strict=True)),
        (note,),
    )


# The scores that order a model's heads, and the resulting curves on test, piece by piece.

SHAPLEY = "shapley"
MONTE_CARLO = "monte-carlo"
ScoringRun = tuple[str, int, dict[str, OptionValue]]  # method, seed, options of the method
OrderingPlan = Mapping[str, list[ScoringRun]]


class ScoredCurve(NamedTuple):
    """Scores that order the heads, and the curve of removing them in that order."""

    scores: HeadScores
    curve: Curve


def plan_of(
    names: Iterable[str], options: Mapping[str, OptionValue], seed: int
) -> dict[str, list[ScoringRun]]:
    """{ordering: (method, seed, options of the method) of every run}.

    Random has several runs, one per seed.

    Args:
        options: runs, method_options (of shapley), monte_carlo_options.
    """
    given_options = {
        SHAPLEY: options_in(options, METHOD_OPTIONS),
        MONTE_CARLO: options_in(options, "monte_carlo_options"),
    }
    runs_by_ordering = {}
    for name in names:
        method, method_options = ORDERINGS[name]
        run_count = integer_in(options, "runs") if name == RANDOM else 1
        runs_by_ordering[name] = [
            (method, seed + run_number, {**method_options, **given_options.get(name, {})})
            for run_number in range(run_count)
        ]
    return runs_by_ordering


def orders_of(
    pieces: Pieces,
    language: str,
    plan: OrderingPlan,
    points: int | None,
    report: SaySentence,
    title: str,
) -> dict[str, list[ScoredCurve]]:
    """Every run's scores and curve in one language, by ordering.

    Args:
        pieces: What they are looked up in.
        language: Of the examples.
        plan: The runs of each ordering.
        points: Counts of removed heads to measure; None for every one.
        report: Called with a sentence before each run.
        title: What the sentence begins with.
    """
    orders_by_ordering: dict[str, list[ScoredCurve]] = {}
    for name, runs in plan.items():
        orders_by_ordering[name] = []
        for number, (method, seed, method_options) in enumerate(runs, 1):
            sentence = f"{title}, {language}: {name}"
            if len(runs) > 1:
                sentence += f", order {number} of {len(runs)}"
            report(sentence)
            scores = pieces.scores(language, method, seed=seed, **method_options)
            curve = pieces.curve(language, scores, points)
            orders_by_ordering[name].append(ScoredCurve(scores, curve))
    return orders_by_ordering


def asks_of(pieces: Pieces, plan: OrderingPlan, points: int | None) -> list[Ask]:
    """The scores and curves of every ordering in every language."""
    asks = []
    for language in pieces.languages:
        for method, seed, given in chain.from_iterable(plan.values()):
            asks.append(pieces.ask_scores(language, method, seed=seed, options=given))
            asks.append(pieces.ask_curve(language, method, seed=seed, options=given, points=points))
    return asks


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence) -> IterativeResult:
    """Every ordering's curve in every language: points, areas and removable heads.

    Args:
        options: orderings, runs, points, loss, method_options (of shapley), monte_carlo_options.
    """
    plan = plan_of(text_in(options, "orderings").split(","), options, pieces.seed)
    points = optional_integer_in(options, "points")
    curves_by_language: dict[str, Curves] = {}
    for language in pieces.languages:
        orders = orders_of(pieces, language, plan, points, report, "iterative")
        curves_by_language[language] = {
            name: [order.curve for order in scored_curves] for name, scored_curves in orders.items()
        }
    random_note = "No random orders were asked for."
    if RANDOM in plan:
        random_note = (
            f"random: {len(plan[RANDOM])} orders; accuracy is their median, low and high the "
            "lowest and highest of them. Its area is the mean over them, whose interval is about "
            "examples, not about other random orders."
        )
    return IterativeResult(
        points=point_records(curves_by_language),
        areas=area_records(curves_by_language, pieces.seed, number_in(options, "loss")),
        differences=difference_records(curves_by_language, pieces.seed),
        notes=(
            "Heads leave lowest dev score first; accuracy is of test.",
            random_note,
            "Intervals: 95 %, by resampling groups of examples, paired where two orderings are "
            "compared.",
        ),
    )


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The scores and curves of every ordering in every language."""
    plan = plan_of(text_in(options, "orderings").split(","), options, pieces.seed)
    return asks_of(pieces, plan, optional_integer_in(options, "points"))


def difference_records(
    curves_by_language: Mapping[str, Curves], seed: int
) -> Records[AreaDifference]:
    """The difference in area in each language and pair of orderings, paired over the answers."""
    pairs_by_language = {
        language: pairs_of([grouped_by_number(curves)], _compared_orderings(curves), seed)
        for language, curves in curves_by_language.items()
    }
    return pair_records(
        pairs_by_language,
        "Minus random: minus the mean over its orders.  p (Holm) is adjusted for all rows.",
    )


def _compared_orderings(names: Collection[str]) -> list[tuple[str, str]]:
    """The pairs of orderings that are compared.

    Each with random, then each but random with shapley.

    Args:
        names: Of the orderings.
    """
    pairs = []
    for other in (RANDOM, SHAPLEY):
        if other not in names:
            continue
        for name in names:
            if name != other and (name, other) != (RANDOM, SHAPLEY):
                pairs.append((name, other))
    return pairs
