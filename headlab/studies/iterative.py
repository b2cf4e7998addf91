"""Figure 3 of Held & Yang (EACL 2023): accuracy on test as heads are removed, for several orderings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from headlab.results import Curve, areas, band, labels
from headlab.stats import Bootstrap, holm, stratified_bootstrap
from headlab.studies.curve_records import AreaDifference, CurveArea, CurvePoint
from headlab.studies.differences import Gain, Groups, pool_gains
from headlab.studies.result import Records, StudyResult, TableName
from headlab.studies.table import METHOD_OPTIONS, Say

if TYPE_CHECKING:
    from headlab.results import HeadScores
    from headlab.studies.run import Ask, Pieces


# Pruning curves by ordering: points, areas, paired differences. Pure functions, without a model.

RANDOM = "random"
Curves = Mapping[str, Sequence[Curve]]  # ordering: its curves; random has several


class Walked(NamedTuple):
    """Curves of one language by ordering, and the group label of each answer, [answer]."""

    curves: Curves
    groups: Groups


class Pair(NamedTuple):
    """One ordering minus another: difference in area and its interval, in points, and p.

    below: how many random orders have the smaller area; None if the other ordering is not random.
    """

    ordering: str
    other: str
    difference: float
    low: float
    high: float
    p: float
    below: int | None


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


def walked(curves: Curves) -> Walked:
    """Curves of one language, with their groups' numbers as labels."""
    (first, *_), *_ = curves.values()
    return Walked(curves, labels(first.groups))


def mean_areas(curves: Sequence[Curve]) -> Floats:
    """`areas`, as the mean over several curves."""
    return np.asarray(np.mean([areas(curve) for curve in curves], axis=0))


def point_records(curves_by_language: Mapping[str, Curves]) -> Records[CurvePoint]:
    """Accuracy in each language, ordering and count of heads removed."""
    rows: list[CurvePoint] = []
    for language, curves_by_ordering in curves_by_language.items():
        for ordering, curves in curves_by_ordering.items():
            removed = curves[0].removed.tolist()
            accuracy, low, high = _line(ordering, curves)
            rows += [
                CurvePoint(
                    language=language,
                    ordering=ordering,
                    removed=removed[index],
                    accuracy_percent=100 * float(accuracy[index]),
                    low_percent=100 * float(low[index]),
                    high_percent=100 * float(high[index]),
                )
                for index in range(len(removed))
            ]
    return Records(
        "Accuracy on test while heads leave",
        tuple(rows),
        (
            "low, high: 95 % interval of the difference to the untouched model, around it; of random, the lowest and "
            "the highest of its orders.",
        ),
    )


def _line(ordering: str, curves: Sequence[Curve]) -> tuple[Floats, Floats, Floats]:
    """Accuracy and the ends of the band around it, float [point] each."""
    if ordering == RANDOM:
        spread = band(curves)
        return spread.median, spread.low, spread.high
    (curve,) = curves
    low, high = np.clip(curve.accuracy[0] + np.stack([curve.low, curve.high]), 0, 1)
    return curve.accuracy, low, high


def area_records(
    curves_by_language: Mapping[str, Curves], seed: int, loss: float
) -> Records[CurveArea]:
    """Area in each language and ordering with its interval, and heads removable at a loss of `loss` points."""
    rows = [
        CurveArea(
            language,
            ordering,
            *area_cells([walked(curves_by_ordering)], ordering, seed),
            *_heads(curves, loss),
        )
        for language, curves_by_ordering in curves_by_language.items()
        for ordering, curves in curves_by_ordering.items()
    ]
    return Records(
        f"Area under the curves, and how many heads can go before more than {loss:g} points are lost",
        tuple(rows),
        (
            "Area: mean accuracy from no head gone to all of them.  Heads: the most that can go before more than "
            f"{loss:g} points are lost, by the estimate and by its interval (a larger loss is ruled out), of the counts "
            "measured; of random, the median of its orders.",
        ),
    )


def area_cells(
    found: Sequence[Walked], ordering: str, seed: int, *, aligned: bool = False
) -> tuple[float, float, float]:
    """Mean over languages of the area, and its interval, in percent; arguments as in `pairs_of`."""
    gains = [[Gain(mean_areas(of.curves[ordering]), of.groups, 0) for of in found]]
    mean, (low, high, _) = _resampled(gains, seed, aligned, made_up=(1.0, 0.0))
    return 100 * float(mean[0]), 100 * float(low[0]), 100 * float(high[0])


def _heads(curves: Sequence[Curve], loss: float) -> tuple[float, float]:
    estimate, interval = (
        [curve.heads_until(loss / 100, by) for curve in curves] for by in ("estimate", "interval")
    )
    return float(np.median(estimate)), float(np.median(interval))


def pairs_of(
    found: Sequence[Walked],
    pairs: Sequence[tuple[str, str]],
    seed: int,
    *,
    aligned: bool = False,
    level: float = 0.95,
) -> list[Pair]:
    """One ordering's area minus another's, paired over the answers: the mean over languages, equally weighted.

    found: one per language.  aligned: groups of the same name are the same texts in every language and are drawn
    together; otherwise each language is resampled separately.  level: of each single interval.
    """
    if not pairs:
        return []
    gains = [[Gain(mean_areas(of.curves[a]) - mean_areas(of.curves[b]), of.groups, 0) for of in found]
             for a, b in pairs]  # fmt: skip
    mean, (low, high, p) = _resampled(gains, seed, aligned, level=level)
    points = zip(*(100 * ends for ends in (mean, low, high)), p, strict=True)
    return [
        Pair(a, b, float(value), float(least), float(most), float(one), _beaten(found, a, b))
        for (a, b), (value, least, most, one) in zip(pairs, points, strict=True)
    ]


def _resampled(
    gains: Sequence[Sequence[Gain]],
    seed: int,
    aligned: bool,
    *,
    made_up: tuple[float, float] = (1.0, -1.0),
    level: float = 0.95,
) -> tuple[Floats, Bootstrap]:
    """Means over languages, float [row], and their bootstrap. gains: [row][language]."""
    rows = [[pool_gains(row)] if aligned else row for row in gains]
    strata = [
        (np.stack([row[at].values for row in rows]), one.groups) for at, one in enumerate(rows[0])
    ]
    mean = np.mean([values.mean(axis=1) for values, _ in strata], axis=0)
    return mean, stratified_bootstrap(
        strata, np.random.default_rng(seed), made_up=made_up, level=level
    )


def _beaten(found: Sequence[Walked], ordering: str, other: str) -> int | None:
    """How many random orders have a smaller area, averaged over languages; None if `other` is not random."""
    if other != RANDOM:
        return None
    own, *chance = (
        np.mean(list(each), axis=0)
        for each in zip(
            *([c.area for c in (*of.curves[ordering], *of.curves[RANDOM])] for of in found),
            strict=True,
        )
    )
    return sum(bool(area < own) for area in chance)


def pair_records(
    pairs_by_language: Mapping[str, Sequence[Pair]], note: str
) -> Records[AreaDifference]:
    """The difference in area in each language (or mean) and pair of orderings."""
    rows = [
        AreaDifference(
            language=language,
            ordering=pair.ordering,
            minus=pair.other,
            difference=pair.difference,
            low=pair.low,
            high=pair.high,
            p=pair.p,
            p_holm=pair.p,
            random_orders_below=pair.below,
        )
        for language, pairs in pairs_by_language.items()
        for pair in pairs
    ]
    adjusted = holm(np.array([row.p for row in rows], float)).tolist() if rows else []
    return Records(
        "Difference in area under the curve",
        tuple(replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)),
        (note,),
    )


# The scores that order a model's heads, and the resulting curves on test, piece by piece.

SHAPLEY, MONTE_CARLO = "shapley", "monte-carlo"
Run = tuple[str, int, dict[str, OptionValue]]  # method, seed, options of the method
Plan = Mapping[str, list[Run]]


class Order(NamedTuple):
    """Scores that order the heads, and the curve of removing them in that order."""

    scores: HeadScores
    curve: Curve


def plan_of(
    names: Iterable[str], options: Mapping[str, OptionValue], seed: int
) -> dict[str, list[Run]]:
    """{ordering: (method, seed, options of the method) of every run}; random has several runs, one per seed.

    options: runs, method_options (of shapley), monte_carlo_options.
    """
    extra = {
        SHAPLEY: options_in(options, METHOD_OPTIONS),
        MONTE_CARLO: options_in(options, "monte_carlo_options"),
    }
    out = {}
    for name in names:
        method, own = ORDERINGS[name]
        runs = integer_in(options, "runs") if name == RANDOM else 1
        out[name] = [(method, seed + run, {**own, **extra.get(name, {})}) for run in range(runs)]
    return out


def orders_of(
    pieces: Pieces, language: str, plan: Plan, points: int | None, report: Say, title: str
) -> dict[str, list[Order]]:
    """Every run's scores and curve in one language, by ordering. title: prefix of what `report` is called with."""
    out: dict[str, list[Order]] = {}
    for name, runs in plan.items():
        out[name] = []
        for number, (method, seed, own) in enumerate(runs, 1):
            report(
                f"{title}, {language}: {name}"
                + f", order {number} of {len(runs)}" * (len(runs) > 1)
            )
            scores = pieces.scores(language, method, seed=seed, **own)
            out[name].append(Order(scores, pieces.curve(language, scores, points)))
    return out


def asks_of(pieces: Pieces, plan: Plan, points: int | None) -> list[Ask]:
    """The scores and curves of every ordering in every language."""
    asks = []
    for language in pieces.languages:
        for method, seed, own in (run for runs in plan.values() for run in runs):
            asks.append(pieces.ask_scores(language, method, seed=seed, options=own))
            asks.append(pieces.ask_curve(language, method, seed=seed, options=own, points=points))
    return asks


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> IterativeResult:
    """Every ordering's curve in every language: points, areas and the number of heads that can be removed.

    options: orderings, runs, points, loss, method_options (of shapley), monte_carlo_options.
    """
    plan = plan_of(text_in(options, "orderings").split(","), options, pieces.seed)
    points = optional_integer_in(options, "points")
    found: dict[str, Curves] = {}
    for language in pieces.languages:
        orders = orders_of(pieces, language, plan, points, report, "iterative")
        found[language] = {name: [order.curve for order in of] for name, of in orders.items()}
    random_note = "No random orders were asked for."
    if RANDOM in plan:
        random_note = (
            f"random: {len(plan[RANDOM])} orders; accuracy is their median, low and high the lowest and highest of "
            "them. Its area is the mean over them, whose interval is about examples, not about other random orders."
        )
    return IterativeResult(
        points=point_records(found),
        areas=area_records(found, pieces.seed, number_in(options, "loss")),
        differences=difference_records(found, pieces.seed),
        notes=(
            "Heads leave lowest dev score first; accuracy is of test.",
            random_note,
            "Intervals: 95 %, by resampling groups of examples, paired where two orderings are compared.",
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
        language: [
            (name, other)
            for other in (RANDOM, SHAPLEY)
            for name in curves
            if other in curves and name != other and (name, other) != (RANDOM, SHAPLEY)
        ]
        for language, curves in curves_by_language.items()
    }
    return pair_records(
        {
            language: pairs_of([walked(curves_by_language[language])], pairs, seed)
            for language, pairs in pairs_by_language.items()
        },
        "Minus random: minus the mean over its orders.  p (Holm) is adjusted for all rows.",
    )
