"""Pareto front of smaller models: nested masks, the best of each size, the choice among them, and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple, Self

import numpy as np
from scipy.stats import rankdata

from headlab.core import (
    Bools,
    Floats,
    Head,
    HeadGrid,
    HeadlabError,
    Ints,
    JsonLike,
    Report,
    is_number,
    part,
)
from headlab.masks import Mask, removal_order
from headlab.results import Curve, HeadScores, counts, kept_without
from headlab.stats import group_bootstrap, resampled_means
from headlab.studies.differences import (
    NO_DIFFERENCE,
    Difference,
    Gain,
    holm_where_known,
    over_languages,
)
from headlab.studies.result import (
    Column,
    HeadCells,
    Records,
    StudyResult,
    TableName,
    typed_result,
)
from headlab.studies.savings import Costs

# Points of a front, and the choice among them: pure functions of numbers.

TOLERANCE = 1e-12  # differences are shares of whole answers: values closer than this are equal


@dataclass(frozen=True)
class Point:
    """A model without the first `removed` heads of an order, compared with the untouched one on dev.

    kept: heads left.  parameters: parameters left, None where heads cannot be removed from the weights.  Per
    language: accuracy, difference from the untouched model, low and high of its 95 % interval, and bound, its
    one-sided lower bound.  mean, mean_low, mean_high: of the difference over languages.  0.01 is one point.
    """

    order: str
    removed: int
    kept: int
    parameters: int | None
    languages: tuple[str, ...]
    accuracy: tuple[float, ...]
    difference: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    bound: tuple[float, ...]
    mean: float
    mean_low: float
    mean_high: float

    @property
    def worst(self) -> float:
        """The smallest difference over the languages."""
        return min(self.difference)

    @property
    def weakest(self) -> str:
        """The language that loses most."""
        return self.languages[self.difference.index(self.worst)]

    @property
    def worst_bound(self) -> float:
        """The smallest lower bound over the languages."""
        return min(self.bound)

    @property
    def cost(self) -> tuple[int, int]:
        """What to minimise: parameters where known, then heads."""
        return (self.kept if self.parameters is None else self.parameters), self.kept


def pareto(cost: Floats, value: Floats) -> Bools:
    """Points that no other point dominates, bool [point]. cost: to minimise.  value: to maximise."""
    order = np.lexsort((-value, cost))
    is_on_front, best_value, cost_of_best = np.zeros(len(cost), bool), -np.inf, -np.inf
    for index in order.tolist():
        if value[index] > best_value:
            is_on_front[index], best_value, cost_of_best = True, value[index], cost[index]
        elif value[index] == best_value and cost[index] == cost_of_best:
            is_on_front[index] = True  # the same point twice
    return is_on_front


def smallest_within(points: Sequence[Point], loss: float, measure: str) -> Point:
    """The smallest model that loses no more than `loss` in any language; the untouched model always qualifies.

    loss: 0.01 is one point.  by: "estimate" requires all differences to be at least -loss; "bound" requires this of
    the lower bounds, and of those of all earlier points of the order (a fixed-sequence test: it stops at the first
    count that fails, so that testing many counts needs no correction; Maurer et al. 1995).
    """
    fitting = (
        [p for p in points if p.worst >= -loss - TOLERANCE]
        if measure == "estimate"
        else _before_failure(points, loss)
    )
    return min(fitting, key=lambda p: (*p.cost, -p.worst, -p.mean))


def _before_failure(points: Sequence[Point], loss: float) -> list[Point]:
    fitting = []
    for name in dict.fromkeys(point.order for point in points):
        for point in sorted((p for p in points if p.order == name), key=lambda p: p.removed):
            if point.worst_bound < -loss - TOLERANCE:
                break
            fitting.append(point)
    return fitting


def best_with_heads(points: Sequence[Point], heads: int) -> Point:
    """Of the points with `heads` heads left, the one whose weakest language loses least; ties by the mean."""
    return max((p for p in points if p.kept == heads), key=lambda p: (p.worst, p.mean))


# Candidate removal orders, derived from the scores in every language.


class NestedOrder(NamedTuple):
    """One nested family of masks. values: float [head], lowest removed first.  order: int [head], removal order."""

    key: str
    values: Floats
    order: Ints


def candidate_orders(
    names: Sequence[str], scores: Mapping[str, HeadScores], costs: Costs
) -> tuple[list[NestedOrder], list[str]]:
    """The distinct orders of these names, and a sentence for each one left out.

    scores: of every language, by one method.
    """
    orders, sentences = list[NestedOrder](), list[str]()
    values_by_language = np.stack([one.values for one in scores.values()])
    for name in names:
        for key, values in _values_by_key(name, values_by_language, list(scores), costs).items():
            order = NestedOrder(key, values, removal_order(values))
            same_key = next(
                (one.key for one in orders if np.array_equal(one.order, order.order)), None
            )
            if same_key is None:
                orders.append(order)
            else:
                sentences.append(f"Order {key} is order {same_key} here.")
        if name == "cost" and (reason := no_order_by_cost(costs)):
            sentences.append(f"There is no order by cost: {reason}.")
    return orders, sentences


def no_order_by_cost(costs: Costs) -> str:
    """Why heads cannot be ordered by cost; empty if they can."""
    if not costs.layers:
        return costs.note.rstrip(".") or "the cost of this model's heads is unknown"
    return "all heads of this model cost alike" if costs.even else ""


def _values_by_key(
    name: str, values_by_language: Floats, languages: Sequence[str], costs: Costs
) -> dict[str, Floats]:
    """{key: float [head], lowest removed first}. every: scores [language, head]."""
    if name == "own":
        return {
            f"own {language}": row
            for language, row in zip(languages, values_by_language, strict=True)
        }
    if name == "weakest":
        return {name: weakest_first(values_by_language)}
    if name == "mean":
        return {name: values_by_language.mean(axis=0)}
    return (
        {}
        if no_order_by_cost(costs)
        else {name: per_parameter(values_by_language.mean(axis=0), costs)}
    )


def weakest_first(values_by_language: Floats) -> Floats:
    """A head's value by its best rank in any language, ties broken by its mean rank, float [head].

    every: scores [language, head].  Ranks rise with the score, from 1; a head that any language needs is removed late.
    """
    ranks = np.stack([rankdata(row) for row in values_by_language])
    return np.asarray(
        ranks.max(axis=0) + ranks.mean(axis=0) / (4 * ranks.shape[1]), dtype=np.float64
    )


def per_parameter(values: Floats, costs: Costs) -> Floats:
    """A head's score per parameter removed with it, float [head]; heads removable only together share one value."""
    values_per_parameter = np.empty_like(values)
    for layer in costs.layers:
        if layer.heads:
            layer_heads = slice(layer.first, layer.first + layer.heads)
            groups = values[layer_heads].reshape(-1, layer.together)
            values_per_parameter[layer_heads] = np.repeat(
                groups.sum(axis=1) / layer.parameters, layer.together
            )
    return values_per_parameter


def counts_of(size: int, points: int | None, heads: int | None) -> list[int]:
    """Number of heads removed at each point: evenly spaced counts, and the one that leaves `heads` heads."""
    return sorted({*counts(size, None if points is None or points > size else points),
                   *([] if heads is None else [size - heads])})  # fmt: skip


# Points of a front, from the answers along each order paired with those of the untouched model.

DRAWS, ALPHA, DIGITS = 10_000, 0.05, 12
MADE_UP = (1.0, -1.0)
Groups = tuple[str, ...]


@dataclass(frozen=True)
class PointTest:
    """How points are tested.

    groups: per language, the group label [answer] of the examples that are resampled together.  orders: number of
    orders tested, among which the chance of a wrong bound is divided.  aligned: whether groups of the same name are
    the same texts in every language.
    """

    groups: Mapping[str, Groups]
    orders: int
    seed: int
    aligned: bool

    @property
    def tail(self) -> float:
        """Chance that a lower bound of one order lies above the true value."""
        return ALPHA / self.orders


def points_of(key: str, curves: Mapping[str, Curve], test: PointTest, costs: Costs) -> list[Point]:
    """One point per count of removed heads. curves: of every language along one order, at the same counts."""
    languages = tuple(curves)
    # what each answer gains at every point, float [point, answer]: -1, 0 or 1
    gains = {
        name: curve.correct.astype(np.float64) - curve.correct[0] for name, curve in curves.items()
    }
    bounds = np.array([_bounds(gains[name], test.groups[name], test) for name in languages])
    any_curve, points = next(iter(curves.values())), []
    for index, removed in enumerate(any_curve.removed.tolist()):
        mean = NO_DIFFERENCE
        if removed:
            gains_at_point = {
                name: Gain(gains[name][index], test.groups[name]) for name in languages
            }
            mean = over_languages(gains_at_point, test.seed, are_aligned=test.aligned)
        kept_heads = kept_without(any_curve.order[:removed], any_curve.grid.size)
        accuracy, difference, low, high = (
            tuple(float(getattr(curves[name], part)[index]) for name in languages)
            for part in ("accuracy", "difference", "low", "high")
        )
        parameters = costs.shrunk(kept_heads).parameters if costs.layers else None
        interval = [mean.mean if end is None else end for end in (mean.low, mean.high)]
        points.append(
            Point(
                key, removed, int(kept_heads.sum()), parameters, languages, accuracy, difference, low, high,
                tuple(bounds[:, index].tolist()), mean.mean, *interval,
            )
        )  # fmt: skip
    return points


def _bounds(gains: Floats, groups: Groups, test: PointTest) -> Floats:
    """One-sided lower bounds of the mean gains, float [point]; 0 where no head is removed."""
    rng = np.random.default_rng(test.seed)
    low = group_bootstrap(gains, groups, rng, draws=DRAWS, level=1 - 2 * test.tail).low
    low[0] = 0.0
    return low


@dataclass(frozen=True)
class LanguageVerdict:
    """One language on test: the paired difference with its 95 % interval, and whether a loss is ruled out.

    bound: 95 % lower bound, one-sided.  p: two-sided, of "the difference is 0".  p_loss: of "more than `loss` is
    lost", one-sided; None if no loss was given.  If no head is removed, the difference is 0 by definition, and all
    of these are None.
    """

    language: str
    n: int
    untouched: float
    accuracy: float
    difference: float
    low: float | None
    high: float | None
    bound: float | None
    p: float | None
    p_loss: float | None


def untouched_verdict(language: str, correct: Bools) -> LanguageVerdict:
    """The verdict on a mask that removes nothing. correct: bool [answer]."""
    share = float(correct.mean())
    return LanguageVerdict(language, len(correct), share, share, 0.0, None, None, None, None, None)


def language_verdict(
    language: str,
    baseline_correct: Bools,
    correct: Bools,
    groups: Groups,
    loss: float | None,
    seed: int,
) -> LanguageVerdict:
    """The verdict on a mask in one language. before, after: bool [answer].  loss: 0.01 is one point."""
    gain = correct.astype(np.float64) - baseline_correct
    means = np.round(
        resampled_means(
            gain[None], groups, np.random.default_rng(seed), made_up=MADE_UP, draws=DRAWS
        )[0],
        DIGITS,
    )
    low, bound, high = np.quantile(means, [ALPHA / 2, ALPHA, 1 - ALPHA / 2])
    p = min(1.0, 2 * _tail(min((means <= 0).sum(), (means >= 0).sum()), len(means)))
    return LanguageVerdict(
        language, len(gain), float(baseline_correct.mean()), float(correct.mean()), float(gain.mean()), float(low), float(high),
        float(bound), p, None if loss is None else p_loss(means, loss),
    )  # fmt: skip


def p_loss(means: Floats, loss: float) -> float:
    """One-sided p of "more than `loss` is lost". means: resampled mean gains, float [draw]."""
    return _tail(int((means <= -loss).sum()), len(means))


def _tail(count: int, draws: int) -> float:
    return float((1 + count) / (draws + 1))


def losing_languages(verdicts: Sequence[LanguageVerdict]) -> list[str]:
    """Languages that lose, by Holm-adjusted p-values, since naming each of several languages is a separate claim."""
    adjusted_p_values = holm_where_known([verdict.p for verdict in verdicts])
    return [
        verdict.language
        for verdict, p in zip(verdicts, adjusted_p_values, strict=True)
        if p is not None and p < ALPHA and verdict.difference < 0
    ]


def p_of_any_loss(verdicts: Sequence[LanguageVerdict]) -> float:
    """The p of "more than the loss is lost in some language": the largest p_loss of all languages.

    That all languages are within the loss is a single claim, made only if every language passes, so no adjustment
    is needed (an intersection-union test; Berger 1982, Technometrics 24).
    """
    return max(verdict.p_loss for verdict in verdicts if verdict.p_loss is not None)


# What a front found: its models, the orders, the answer and its confirmation, as records that are shown as tables.

FRONT = "front"
LANGUAGES = "front-languages"
ORDERS_TABLE = "front-orders"
CHOICE = "front-choice"
CONFIRMED = "front-confirmed"
MEAN = "mean"
PERCENT, POINTS = ".1f", "+.2f"
P_VALUE = ".4f"


@dataclass(frozen=True)
class FrontAnswer:
    """The model that answers a question on dev.

    Attributes:
        question: In words.
        order: Key of the order along which its heads left.
        removed: Heads removed.
        kept: Heads left.
        parameters: Parameters left; None where heads cannot be removed from the weights.
        weakest_language: Code of the language that loses most.
        weakest: Its difference from the untouched model, in points.
        lower_bound: The smallest lower bound over the languages, in points.
        mean: Mean difference over the languages, in points.
    """

    question: Annotated[str, Column("question")]
    order: Annotated[str, Column("order")]
    removed: Annotated[int, Column("heads removed", "d")]
    kept: Annotated[int, Column("heads kept", "d")]
    parameters: Annotated[int | None, Column("parameters", ",d")]
    weakest_language: Annotated[str, Column("weakest language")]
    weakest: Annotated[float, Column("weakest, points", POINTS)]
    lower_bound: Annotated[float, Column("lower bound, points", POINTS)]
    mean: Annotated[float, Column("mean, points", POINTS)]


@dataclass(frozen=True)
class TestedLanguage:
    """The chosen model on test in one language, or on average (`MEAN`).

    Where no head is removed the difference is 0 by definition, and what a test would give is None. Of the mean
    there are the difference, its interval and p alone.

    Attributes:
        language: Its code, or `MEAN`.
        answers: Number of answers.
        untouched: Accuracy of the untouched model, in percent.
        accuracy: Accuracy of the chosen model, in percent.
        difference: Between them, in points.
        low: Lower end of its 95 % interval.
        high: Upper end.
        bound: Its one-sided lower bound, at 95 %.
        p: Two-sided, of no difference.
        p_holm: The same, adjusted over the languages.
        p_loss: One-sided, of more being lost than was allowed; None if no loss was given.
        p_loss_holm: The same, adjusted over the languages.
    """

    language: Annotated[str, Column("language")]
    answers: Annotated[int | None, Column("answers", "d")]
    untouched: Annotated[float | None, Column("untouched, %", PERCENT)]
    accuracy: Annotated[float | None, Column("accuracy, %", PERCENT)]
    difference: Annotated[float | None, Column("difference, points", POINTS)]
    low: Annotated[float | None, Column("low, points", POINTS)]
    high: Annotated[float | None, Column("high, points", POINTS)]
    bound: Annotated[float | None, Column("bound, points", POINTS)]
    p: Annotated[float | None, Column("p", P_VALUE)]
    p_holm: Annotated[float | None, Column("p (Holm)", P_VALUE)]
    p_loss: Annotated[float | None, Column("p of the loss", P_VALUE)]
    p_loss_holm: Annotated[float | None, Column("p of the loss (Holm)", P_VALUE)]

    __test__ = False  # pytest would take it for a test


@dataclass(frozen=True)
class SmallerModel:
    """A model of the front on dev, against the untouched one. Differences are in points.

    Attributes:
        order: Key of the order along which its heads left.
        removed: Heads removed.
        kept: Heads left.
        parameters: Parameters left; None where heads cannot be removed from the weights.
        weakest_language: Code of the language that loses most.
        weakest: Its difference.
        lower_bound: The smallest lower bound over the languages.
        mean: Mean difference over the languages.
        mean_low: Lower end of its 95 % interval.
        mean_high: Upper end.
        is_best: Whether no other model here is as small and loses less in its weakest language.
        is_best_on_average: Whether none is as small and loses less on average.
    """

    order: Annotated[str, Column("order")]
    removed: Annotated[int, Column("heads removed", "d")]
    kept: Annotated[int, Column("heads kept", "d")]
    parameters: Annotated[int | None, Column("parameters", ",d")]
    weakest_language: Annotated[str, Column("weakest language")]
    weakest: Annotated[float, Column("weakest, points", POINTS)]
    lower_bound: Annotated[float, Column("lower bound, points", POINTS)]
    mean: Annotated[float, Column("mean, points", POINTS)]
    mean_low: Annotated[float, Column("mean low, points", POINTS)]
    mean_high: Annotated[float, Column("mean high, points", POINTS)]
    is_best: Annotated[bool, Column("best for its size")]
    is_best_on_average: Annotated[bool, Column("best on average")]


@dataclass(frozen=True)
class ModelInLanguage:
    """A model of the front in one language, on dev.

    Attributes:
        order: Key of the order along which its heads left.
        removed: Heads removed.
        language: Its code.
        accuracy: In percent.
        difference: From the untouched model, in points.
        low: Lower end of its 95 % interval.
        high: Upper end.
        bound: Its one-sided lower bound.
    """

    order: Annotated[str, Column("order")]
    removed: Annotated[int, Column("heads removed", "d")]
    language: Annotated[str, Column("language")]
    accuracy: Annotated[float, Column("accuracy, %", PERCENT)]
    difference: Annotated[float, Column("difference, points", POINTS)]
    low: Annotated[float, Column("low, points", POINTS)]
    high: Annotated[float, Column("high, points", POINTS)]
    bound: Annotated[float, Column("bound, points", POINTS)]


@dataclass(frozen=True)
class OrderedHead:
    """A head in an order: a mask removes those at the first places.

    Attributes:
        order: Key of the order.
        place: From 1.
        head: The head.
    """

    order: Annotated[str, Column("order")]
    place: Annotated[int, Column("place", "d")]
    head: HeadCells


@dataclass(frozen=True, kw_only=True)
class FrontResult(StudyResult):
    """The models of a front, and the one that answers its question.

    Attributes:
        answers: To the question first, then by the other rule.
        confirmed: The first answer on test, a record a language and one for their mean.
        models: Each model.
        languages: Each model in each language.
        orders: The heads of each order, in removal order.
        loss: Points that may be lost; None if the question was another.
    """

    answers: Annotated[Records[FrontAnswer], TableName(CHOICE)]
    confirmed: Annotated[Records[TestedLanguage], TableName(CONFIRMED)]
    models: Annotated[Records[SmallerModel], TableName(FRONT)]
    languages: Annotated[Records[ModelInLanguage], TableName(LANGUAGES)]
    orders: Annotated[Records[OrderedHead], TableName(ORDERS_TABLE)]
    loss: float | None = None

    @property
    def answer(self) -> FrontAnswer:
        """The model that answers the question."""
        return self.answers.rows[0]

    @classmethod
    def from_report(cls, report: Report) -> Self:
        """The front that a report shows.

        Raises:
            HeadlabError: The report is not of a front, or a table holds something else.
        """
        try:
            records = cls.records_in(report)
        except HeadlabError as error:
            if error.code != "table.column_unreadable":
                raise
            raise unreadable(str(error)) from error
        if not records["answers"].rows:
            raise unreadable(f"table {CHOICE} is empty")
        loss = part(report.spec, "options", "within")
        return cls(notes=report.notes, loss=loss if is_number(loss) else None, **records)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The models as points of the front, in their order.

        Raises:
            HeadlabError: A model has no languages.
        """
        languages: dict[tuple[str, int], list[ModelInLanguage]] = {}
        for row in self.languages.rows:
            languages.setdefault((row.order, row.removed), []).append(row)
        points = []
        for model in self.models.rows:
            rows = languages.get((model.order, model.removed))
            if not rows:
                raise HeadlabError(
                    f"the front has no languages at {model.removed} heads of order {model.order}; make it again",
                    code="front.languages_missing",
                )
            points.append(_point(model, rows))
        return tuple(points)

    @cached_property
    def _heads_by_order(self) -> Mapping[str, Sequence[Head]]:
        """The heads of each order by its key, in removal order."""
        rows_by_order: dict[str, list[OrderedHead]] = {}
        for row in self.orders.rows:
            rows_by_order.setdefault(row.order, []).append(row)
        return {
            order: [row.head for row in sorted(rows, key=lambda row: (row.place, row.head))]
            for order, rows in rows_by_order.items()
        }

    def removal_order(self, key: str, grid: HeadGrid) -> Ints:
        """The heads in removal order, int [head].

        Args:
            key: Of the order.
            grid: Of the front's model.

        Raises:
            HeadlabError: The order does not name each head of the grid once.
        """
        heads = self._heads_by_order.get(key, ())
        indices = np.array([grid.index(head) for head in heads], dtype=np.int64)
        if not np.array_equal(np.sort(indices), np.arange(grid.size)):
            raise HeadlabError(
                f"the front's order {key} does not name every head of this model once; make it again",
                code="front.order_invalid",
            )
        return indices


def unreadable(problem: str) -> HeadlabError:
    """The error of a stored front that cannot be read. problem: what is wrong."""
    return HeadlabError(
        f"the tables of the front cannot be read ({problem}); make it again",
        code="front.unreadable",
    )


def _point(model: SmallerModel, languages: Sequence[ModelInLanguage]) -> Point:
    """A model as a point of the front. languages: the model in each language."""
    return Point(
        order=model.order,
        removed=model.removed,
        kept=model.kept,
        parameters=model.parameters,
        languages=tuple(row.language for row in languages),
        accuracy=tuple(row.accuracy / 100 for row in languages),
        difference=tuple(row.difference / 100 for row in languages),
        low=tuple(row.low / 100 for row in languages),
        high=tuple(row.high / 100 for row in languages),
        bound=tuple(row.bound / 100 for row in languages),
        mean=model.mean / 100,
        mean_low=model.mean_low / 100,
        mean_high=model.mean_high / 100,
    )


def cost_of(points: Sequence[Point]) -> Floats:
    """Parameters left, or heads left where parameters are unknown, float [point]."""
    return np.array([point.cost[0] for point in points], dtype=np.float64)


def model_records(points: Sequence[Point]) -> Records[SmallerModel]:
    """What is left of each point, what its weakest language and the mean lose, and whether it is on the front."""
    cost = cost_of(points)
    is_best = pareto(cost, np.array([point.worst for point in points]))
    is_best_on_average = pareto(cost, np.array([point.mean for point in points]))
    rows = [
        SmallerModel(
            order=point.order,
            removed=point.removed,
            kept=point.kept,
            parameters=point.parameters,
            weakest_language=point.weakest,
            weakest=100 * point.worst,
            lower_bound=100 * point.worst_bound,
            mean=100 * point.mean,
            mean_low=100 * point.mean_low,
            mean_high=100 * point.mean_high,
            is_best=bool(is_best[index]),
            is_best_on_average=bool(is_best_on_average[index]),
        )
        for index, point in enumerate(points)
    ]
    return Records(
        "Smaller models on dev, against the untouched one",
        tuple(rows),
        ("weakest: the smallest difference over the languages; lower bound: the smallest of theirs, one-sided, at 95 % "
         "divided among the orders. best for its size: no other model here is as small and loses less in its "
         "weakest language. All on the examples that chose the heads, so these are optimistic estimates.",),
    )  # fmt: skip


def language_records(points: Sequence[Point]) -> Records[ModelInLanguage]:
    """Each point in each language."""
    rows = [
        ModelInLanguage(
            order=point.order,
            removed=point.removed,
            language=language,
            accuracy=100 * point.accuracy[index],
            difference=100 * point.difference[index],
            low=100 * point.low[index],
            high=100 * point.high[index],
            bound=100 * point.bound[index],
        )
        for point in points
        for index, language in enumerate(point.languages)
    ]
    return Records("The same, language by language", tuple(rows))


def order_records(orders: Sequence[NestedOrder], grid: HeadGrid) -> Records[OrderedHead]:
    """Each order's heads, in removal order: each mask removes the first heads of an order."""
    heads = grid.heads
    rows = [
        OrderedHead(order.key, place, heads[index])
        for order in orders
        for place, index in enumerate(order.order.tolist(), 1)
    ]
    return Records("The orders in which heads leave", tuple(rows))


def answer_records(rules: Mapping[str, Point]) -> Records[FrontAnswer]:
    """The answer by each rule, the one asked for first. rules: {question in words: answer}."""
    rows = [
        FrontAnswer(
            question=question,
            order=point.order,
            removed=point.removed,
            kept=point.kept,
            parameters=point.parameters,
            weakest_language=point.weakest,
            weakest=100 * point.worst,
            lower_bound=100 * point.worst_bound,
            mean=100 * point.mean,
        )
        for question, point in rules.items()
    ]
    return Records("What is chosen on dev", tuple(rows))


def confirmed_records(
    verdicts: Sequence[LanguageVerdict], mean: Difference
) -> Records[TestedLanguage]:
    """The chosen model on test.

    Args:
        verdicts: On each language.
        mean: Over the languages.
    """
    p_holm = holm_where_known([verdict.p for verdict in verdicts])
    p_loss_holm = holm_where_known([verdict.p_loss for verdict in verdicts])
    rows = [
        TestedLanguage(
            language=verdict.language,
            answers=verdict.n,
            untouched=_percent(verdict.untouched),
            accuracy=_percent(verdict.accuracy),
            difference=_percent(verdict.difference),
            low=_percent(verdict.low),
            high=_percent(verdict.high),
            bound=_percent(verdict.bound),
            p=verdict.p,
            p_holm=p_holm[index],
            p_loss=verdict.p_loss,
            p_loss_holm=p_loss_holm[index],
        )
        for index, verdict in enumerate(verdicts)
    ]
    rows.append(
        TestedLanguage(
            language=MEAN,
            answers=None,
            untouched=None,
            accuracy=None,
            difference=_percent(mean.mean),
            low=_percent(mean.low),
            high=_percent(mean.high),
            bound=None,
            p=mean.p,
            p_holm=None,
            p_loss=None,
            p_loss_holm=None,
        )
    )
    return Records(
        "The chosen mask on test, against the untouched model",
        tuple(rows),
        ("low, high: 95 % interval of the paired bootstrap, by groups of examples. bound: 95 % lower bound, one-sided. "
         "p: of no difference. p of the loss: of more being lost than was allowed; Holm: for naming single ones. "
         "Where no head is removed the difference is 0 by definition, and there is nothing to test.",),
    )  # fmt: skip


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


# Masks of a stored front.


def mask_at(report: Report, order: str, removed: int, grid: HeadGrid) -> Mask:
    """The mask without the first `removed` heads of an order, and how it was chosen.

    Args:
        report: A front.
        order: Key of the order.
        removed: Number of heads.
        grid: Of the front's model.

    Raises:
        HeadlabError: The report is not of a front of such a model.
    """
    return _mask_of(typed_result(report, FrontResult), report, order, removed, grid)


def _mask_of(result: FrontResult, report: Report, order: str, removed: int, grid: HeadGrid) -> Mask:
    """As `mask_at`. result: what the report found."""
    spec, removed_heads = report.spec, result.removal_order(order, grid)[:removed]
    task, options = spec.get("task", {}), spec.get("options", {})
    how_chosen: dict[str, JsonLike] = {
        "rule": "front", "k": removed, "order": order, "method": str(options.get("method", "")),
        "task": str(task.get("name", "")), "languages": str(task.get("language", "")).split(","),
        "ablation": str(spec.get("ablation", "zero")), "front": dict(spec),
    }  # fmt: skip
    model = {name: value for name, value in spec.get("model", {}).items() if name != "dtype"}
    return Mask(grid, kept_without(removed_heads, grid.size), model, how_chosen)


def chosen_mask(report: Report, grid: HeadGrid) -> Mask:
    """The mask that answers the report's question, with its measured accuracies on test."""
    result = typed_result(report, FrontResult)
    answer = result.answer
    mask = _mask_of(result, report, answer.order, answer.removed, grid)
    options = report.spec.get("options", {})
    question = {
        name: options[name] for name in ("within", "heads", "by") if options.get(name) is not None
    }
    evaluation = {
        "task": mask.chosen["task"],
        "ablation": mask.chosen["ablation"],
        "languages": _figures(result.confirmed.rows),
    }
    how_chosen = {**mask.chosen, **question, "evaluated": {"test": evaluation}}
    return Mask(grid, mask.kept, mask.model, how_chosen)


def _figures(tested_languages: Sequence[TestedLanguage]) -> dict[str, dict[str, float]]:
    """The figures on test that a mask file carries, by language; shares instead of percent."""
    figures: dict[str, dict[str, float]] = {}
    for row in tested_languages:
        if row.language == MEAN:
            continue
        percents = {
            "baseline": row.untouched,
            "accuracy": row.accuracy,
            "difference": row.difference,
            "low": row.low,
            "high": row.high,
        }
        shares = {name: value / 100 for name, value in percents.items() if value is not None}
        if row.answers is not None:
            shares["n"] = row.answers
        if row.p is not None:  # missing, like the interval, where no head is removed
            shares["p"] = row.p
        figures[row.language] = shares
    return figures
