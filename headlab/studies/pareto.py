"""Pareto front of smaller models: nested masks, the best of each size, and the choice.

Also the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple, Self

import numpy as np
import scipy

from headlab.core import (
    LAYERS,
    Bools,
    Floats,
    Head,
    HeadGrid,
    HeadlabError,
    Ints,
    JsonLike,
    Report,
    Stack,
    is_number,
    nouns_of_kinds,
    part,
    read_players,
)
from headlab.masks import Mask, removal_order
from headlab.results import Curve, HeadScores, kept_heads_without, removed_counts
from headlab.stats import group_bootstrap, resampled_means
from headlab.studies.differences import (
    NO_DIFFERENCE,
    Gain,
    MeanDifference,
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
    """A model without the first heads of an order, compared with the untouched one on dev.

    Accuracies and differences are shares: 0.01 is one point.

    Attributes:
        order: Key of the order.
        heads_removed: Heads removed.
        heads_kept: Heads left.
        parameters: Parameters left; None where heads cannot be removed from the weights.
        languages: Their codes; the values of a language stand at its place.
        accuracy: Of the model.
        difference: From the untouched model.
        low: Lower ends of the 95 % intervals of the differences.
        high: Upper ends.
        bound: One-sided lower bounds of the differences.
        mean: Mean difference over languages.
        mean_low: Lower end of its 95 % interval.
        mean_high: Upper end.
    """

    order: str
    heads_removed: int
    heads_kept: int
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
        return (self.heads_kept if self.parameters is None else self.parameters), self.heads_kept


def pareto(cost: Floats, value: Floats) -> Bools:
    """Points that no other point dominates, bool [point].

    Args:
        cost: To minimise, float [point].
        value: To maximise, float [point].
    """
    is_on_front = np.zeros(len(cost), bool)
    best_value = -np.inf
    cost_of_best = -np.inf
    for index in np.lexsort((-value, cost)).tolist():  # cheapest first, then the highest value
        if value[index] > best_value:
            is_on_front[index] = True
            best_value = value[index]
            cost_of_best = cost[index]
        elif value[index] == best_value and cost[index] == cost_of_best:
            is_on_front[index] = True  # the same point twice
    return is_on_front


def smallest_within(points: Sequence[Point], loss: float, measure: str) -> Point:
    """The smallest model that loses no more than `loss` in any language.

    The untouched model always qualifies.

    Args:
        points: Of all orders.
        loss: 0.01 is one point.
        measure: "estimate" requires all differences to be at least -loss; "bound" requires this of
            the lower bounds, and of those of all earlier points of the order (a fixed-sequence
            test: it stops at the first count that fails, so that testing many counts needs no
            correction; Maurer et al. 1995).
    """
    if measure == "estimate":
        fitting = [point for point in points if point.worst >= -loss - TOLERANCE]
    else:
        fitting = _before_failure(points, loss)
    return min(fitting, key=lambda point: (*point.cost, -point.worst, -point.mean))


def _before_failure(points: Sequence[Point], loss: float) -> list[Point]:
    """The points of each order before the first whose lower bound allows more than the loss."""
    fitting = []
    for key in dict.fromkeys(point.order for point in points):
        points_of_order = [point for point in points if point.order == key]
        for point in sorted(points_of_order, key=lambda point: point.heads_removed):
            if point.worst_bound < -loss - TOLERANCE:
                break
            fitting.append(point)
    return fitting


def best_with_heads(points: Sequence[Point], heads: int) -> Point:
    """Of the points with so many heads left, the one whose weakest language loses least.

    Ties are decided by the mean.
    """
    candidates = [point for point in points if point.heads_kept == heads]
    return max(candidates, key=lambda point: (point.worst, point.mean))


# Candidate removal orders, derived from the scores in every language.


class NestedOrder(NamedTuple):
    """One nested family of masks.

    Attributes:
        key: Names the order.
        values: float [head]; the lowest is removed first.
        order: Heads in removal order, int [head].
    """

    key: str
    values: Floats
    order: Ints


def candidate_orders(
    names: Sequence[str], scores: Mapping[str, HeadScores], costs: Costs
) -> tuple[list[NestedOrder], list[str]]:
    """The distinct orders of these names, and a sentence for each one left out.

    Args:
        names: Of kinds of orders.
        scores: Of every language, by one method.
        costs: Of the model.
    """
    orders: list[NestedOrder] = []
    sentences: list[str] = []
    values_by_language = np.stack(
        [scores_of_language.values for scores_of_language in scores.values()]
    )
    for name in names:
        for key, values in _values_by_key(name, values_by_language, list(scores), costs).items():
            order = NestedOrder(key, values, removal_order(values))
            same_orders = [
                earlier for earlier in orders if np.array_equal(earlier.order, order.order)
            ]
            if same_orders:
                sentences.append(f"Order {key} is order {same_orders[0].key} here.")
            else:
                orders.append(order)
        no_order_reason = no_order_by_cost(costs) if name == "cost" else ""
        if no_order_reason:
            sentences.append(f"There is no order by cost: {no_order_reason}.")
    return orders, sentences


def no_order_by_cost(costs: Costs) -> str:
    """Why heads cannot be ordered by cost; empty if they can."""
    if not costs.are_known:
        return costs.note.rstrip(".") or f"the cost of this model's {costs.noun} is unknown"
    if costs.are_even:
        return f"all {costs.noun} of this model cost alike"
    return ""


def _values_by_key(
    name: str, values_by_language: Floats, languages: Sequence[str], costs: Costs
) -> dict[str, Floats]:
    """The values that heads are ordered by, for each order of a kind.

    Args:
        name: Of the kind of orders.
        values_by_language: Scores, float [language, head].
        languages: Their codes.
        costs: Of the model.

    Returns:
        {key of the order: float [head], lowest removed first}; empty without an order by cost.
    """
    if name == "own":
        keys = [f"own {language}" for language in languages]
        return dict(zip(keys, values_by_language, strict=True))
    if name == "weakest":
        return {name: weakest_first(values_by_language)}
    if name == "mean":
        return {name: values_by_language.mean(axis=0)}
    if no_order_by_cost(costs):
        return {}
    return {name: per_parameter(values_by_language.mean(axis=0), costs)}


def weakest_first(values_by_language: Floats) -> Floats:
    """A head's value by its best rank in any language, ties broken by its mean rank, float [head].

    Ranks rise with the score, from 1; a head that any language needs is removed late.

    Args:
        values_by_language: Scores, float [language, head].
    """
    ranks = np.stack([scipy.stats.rankdata(values) for values in values_by_language])
    tie_break = ranks.mean(axis=0) / (4 * ranks.shape[1])  # below half a rank
    return np.asarray(ranks.max(axis=0) + tie_break, dtype=np.float64)


def per_parameter(values: Floats, costs: Costs) -> Floats:
    """A head's score per parameter removed with it, float [head].

    Heads that can only be removed together share one value.
    """
    return costs.per_parameter(values)


def counts_of(size: int, points: int | None, heads: int | None) -> list[int]:
    """Number of heads removed at each point: evenly spaced counts, and that of a size asked for.

    Args:
        size: Heads of the model.
        points: Number of counts; None for every one.
        heads: Heads left at a further point; None for none.
    """
    if points is not None and points > size:
        points = None
    counts = set(removed_counts(size, points))
    if heads is not None:
        counts.add(size - heads)
    return sorted(counts)


# Points of a front, from the answers along each order paired with those of the untouched model.

DRAWS = 10_000
ALPHA = 0.05
DIGITS = 12
MADE_UP = (1.0, -1.0)
Groups = tuple[str, ...]


@dataclass(frozen=True)
class PointTest:
    """How points are tested.

    Attributes:
        groups: Per language, the group label [answer] of the examples that are resampled together.
        orders: Number of orders tested, among which the chance of a wrong bound is divided.
        seed: Of the bootstrap.
        are_aligned: Whether groups of the same name are the same texts in every language.
    """

    groups: Mapping[str, Groups]
    orders: int
    seed: int
    are_aligned: bool

    @property
    def tail(self) -> float:
        """Chance that a lower bound of one order lies above the true value."""
        return ALPHA / self.orders


def points_of(key: str, curves: Mapping[str, Curve], test: PointTest, costs: Costs) -> list[Point]:
    """One point per count of removed heads.

    Args:
        key: Of the order.
        curves: Of every language along the order, at the same counts.
        test: How the points are tested.
        costs: Of the model.
    """
    languages = tuple(curves)
    # what each answer gains at every point, float [point, answer]: -1, 0 or 1
    gains = {
        language: curve.correct.astype(np.float64) - curve.correct[0]
        for language, curve in curves.items()
    }
    bounds = np.array(
        [_bounds(gains[language], test.groups[language], test) for language in languages]
    )
    any_curve = next(iter(curves.values()))
    points = []
    for index, removed in enumerate(any_curve.removed.tolist()):
        mean = NO_DIFFERENCE
        if removed:
            gains_at_point = {
                language: Gain(gains[language][index], test.groups[language])
                for language in languages
            }
            mean = over_languages(gains_at_point, test.seed, are_aligned=test.are_aligned)
        kept_heads = kept_heads_without(any_curve.order[:removed], any_curve.grid.size)
        point = Point(
            order=key,
            heads_removed=removed,
            heads_kept=int(kept_heads.sum()),
            parameters=costs.shrunk(kept_heads).parameters if costs.are_known else None,
            languages=languages,
            accuracy=tuple(float(curve.accuracy[index]) for curve in curves.values()),
            difference=tuple(float(curve.difference[index]) for curve in curves.values()),
            low=tuple(float(curve.low[index]) for curve in curves.values()),
            high=tuple(float(curve.high[index]) for curve in curves.values()),
            bound=tuple(bounds[:, index].tolist()),
            mean=mean.mean,
            mean_low=mean.mean if mean.low is None else mean.low,
            mean_high=mean.mean if mean.high is None else mean.high,
        )
        points.append(point)
    return points


def _bounds(gains: Floats, groups: Groups, test: PointTest) -> Floats:
    """One-sided lower bounds of the mean gains, float [point]; 0 where no head is removed."""
    rng = np.random.default_rng(test.seed)
    low = group_bootstrap(gains, groups, rng, draws=DRAWS, level=1 - 2 * test.tail).low
    low[0] = 0.0
    return low


@dataclass(frozen=True)
class LanguageVerdict:
    """One language on test: the paired difference, and whether a loss is ruled out.

    If no head is removed, the difference is 0 by definition, and what a test would give is None.

    Attributes:
        language: Its code.
        n: Number of answers.
        untouched: Accuracy of the untouched model.
        accuracy: Accuracy under the mask.
        difference: The second minus the first.
        low: Lower end of its 95 % interval.
        high: Upper end.
        bound: Its 95 % lower bound, one-sided.
        p: Two-sided, of "the difference is 0".
        p_loss: One-sided, of "more than the loss is lost"; None if no loss was given.
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
    """The verdict on a mask that removes nothing.

    Args:
        language: Its code.
        correct: Whether each answer is right, bool [answer].
    """
    accuracy = float(correct.mean())
    return LanguageVerdict(
        language=language,
        n=len(correct),
        untouched=accuracy,
        accuracy=accuracy,
        difference=0.0,
        low=None,
        high=None,
        bound=None,
        p=None,
        p_loss=None,
    )


def language_verdict(
    language: str,
    baseline_correct: Bools,
    correct: Bools,
    groups: Groups,
    loss: float | None,
    seed: int,
) -> LanguageVerdict:
    """The verdict on a mask in one language.

    Args:
        language: Its code.
        baseline_correct: Whether each answer of the untouched model is right, bool [answer].
        correct: The same under the mask.
        groups: The group label of each answer, [answer].
        loss: That is tested; 0.01 is one point.
        seed: Of the bootstrap.
    """
    gains = correct.astype(np.float64) - baseline_correct
    rng = np.random.default_rng(seed)
    (means,) = resampled_means(gains[None], groups, rng, pseudo_values=MADE_UP, draws=DRAWS)
    means = np.round(means, DIGITS)
    low, bound, high = np.quantile(means, [ALPHA / 2, ALPHA, 1 - ALPHA / 2])
    smaller_tail = min((means <= 0).sum(), (means >= 0).sum())
    return LanguageVerdict(
        language=language,
        n=len(gains),
        untouched=float(baseline_correct.mean()),
        accuracy=float(correct.mean()),
        difference=float(gains.mean()),
        low=float(low),
        high=float(high),
        bound=float(bound),
        p=min(1.0, 2 * _tail(smaller_tail, len(means))),
        p_loss=None if loss is None else p_loss(means, loss),
    )


def p_loss(means: Floats, loss: float) -> float:
    """One-sided p of "more than `loss` is lost".

    Args:
        means: Resampled mean gains, float [draw].
        loss: 0.01 is one point.
    """
    return _tail(int((means <= -loss).sum()), len(means))


def _tail(count: int, draws: int) -> float:
    """The p of a bootstrap in which so many draws are at least as extreme; never 0."""
    return float((1 + count) / (draws + 1))


def losing_languages(verdicts: Sequence[LanguageVerdict]) -> list[str]:
    """Languages that lose, by Holm-adjusted p-values.

    Naming each of several languages is a separate claim.
    """
    adjusted_p_values = holm_where_known([verdict.p for verdict in verdicts])
    return [
        verdict.language
        for verdict, p in zip(verdicts, adjusted_p_values, strict=True)
        if p is not None and p < ALPHA and verdict.difference < 0
    ]


def p_of_any_loss(verdicts: Sequence[LanguageVerdict]) -> float:
    """The p of "more than the loss is lost in some language": the largest p_loss of all languages.

    That all languages are within the loss is a single claim, made only if every language passes, so
    no adjustment is needed (an intersection-union test; Berger 1982, Technometrics 24).
    """
    return max(verdict.p_loss for verdict in verdicts if verdict.p_loss is not None)


# What a front found: its models, the orders, the answer and its confirmation, as records that are
# shown as tables.

FRONT_TABLE = "front"
LANGUAGES_TABLE = "front-languages"
ORDERS_TABLE = "front-orders"
CHOICE_TABLE = "front-choice"
CONFIRMED_TABLE = "front-confirmed"
MEAN = "mean"
# Titles of columns: what is switched is named in them.
NOUN = "players"
REMOVED = f"{{{NOUN}}} removed"
KEPT = f"{{{NOUN}}} kept"
HEADS = "heads"
HEAD_NOUNS = ("head", "heads")
PERCENT = ".1f"
POINTS = "+.2f"
P_VALUE = ".4f"


@dataclass(frozen=True)
class FrontAnswer:
    """The model that answers a question on dev.

    Attributes:
        question: In words.
        order: Key of the order along which its heads left.
        heads_removed: Heads removed.
        heads_kept: Heads left.
        parameters: Parameters left; None where heads cannot be removed from the weights.
        weakest_language: Code of the language that loses most.
        weakest: Its difference from the untouched model, in points.
        lower_bound: The smallest lower bound over the languages, in points.
        mean: Mean difference over the languages, in points.
    """

    question: Annotated[str, Column("question")]
    order: Annotated[str, Column("order")]
    heads_removed: Annotated[int, Column(REMOVED, "d")]
    heads_kept: Annotated[int, Column(KEPT, "d")]
    parameters: Annotated[int | None, Column("parameters", ",d")]
    weakest_language: Annotated[str, Column("weakest language")]
    weakest: Annotated[float, Column("weakest, points", POINTS)]
    lower_bound: Annotated[float, Column("lower bound, points", POINTS)]
    mean: Annotated[float, Column("mean, points", POINTS)]


@dataclass(frozen=True)
class TestedLanguage:
    """The chosen model on test in one language, or on average (`MEAN`).

    Where no head is removed the difference is 0 by definition, and what a test would give is None.
    Of the mean there are the difference, its interval and p alone.

    Attributes:
        language: Its code, or `MEAN`.
        answers: Number of answers.
        baseline_accuracy: Accuracy of the untouched model, in percent.
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
    baseline_accuracy: Annotated[float | None, Column("untouched, %", PERCENT)]
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
        heads_removed: Heads removed.
        heads_kept: Heads left.
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
    heads_removed: Annotated[int, Column(REMOVED, "d")]
    heads_kept: Annotated[int, Column(KEPT, "d")]
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
        heads_removed: Heads removed.
        language: Its code.
        accuracy: In percent.
        difference: From the untouched model, in points.
        low: Lower end of its 95 % interval.
        high: Upper end.
        bound: Its one-sided lower bound.
    """

    order: Annotated[str, Column("order")]
    heads_removed: Annotated[int, Column(REMOVED, "d")]
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
        tested_languages: The first answer on test, a record a language and one for their mean.
        models: Each model.
        languages: Each model in each language.
        orders: The heads of each order, in removal order.
        loss: Points that may be lost; None if the question was another.
    """

    answers: Annotated[Records[FrontAnswer], TableName(CHOICE_TABLE)]
    tested_languages: Annotated[Records[TestedLanguage], TableName(CONFIRMED_TABLE)]
    models: Annotated[Records[SmallerModel], TableName(FRONT_TABLE)]
    languages: Annotated[Records[ModelInLanguage], TableName(LANGUAGES_TABLE)]
    orders: Annotated[Records[OrderedHead], TableName(ORDERS_TABLE)]
    loss: float | None = None

    @property
    def noun(self) -> str:
        """What is removed, in a word, as its tables say it."""
        return self.models.names.get(NOUN, (HEADS,))[0]

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
            raise unreadable(f"table {CHOICE_TABLE} is empty")
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
            languages.setdefault((row.order, row.heads_removed), []).append(row)
        points = []
        for model in self.models.rows:
            rows = languages.get((model.order, model.heads_removed))
            if not rows:
                raise HeadlabError(
                    f"the front has no languages at {model.heads_removed} {self.noun} of order {model.order}; "
                    "make it again",
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
                f"the front's order {key} does not name all {grid.noun} of this model, each once; make it again",
                code="front.order_invalid",
            )
        return indices


def unreadable(problem: str) -> HeadlabError:
    """The error of a stored front that cannot be read.

    Args:
        problem: What is wrong.
    """
    return HeadlabError(
        f"the tables of the front cannot be read ({problem}); make it again",
        code="front.unreadable",
    )


def _point(model: SmallerModel, languages: Sequence[ModelInLanguage]) -> Point:
    """A model as a point of the front.

    Args:
        languages: The model in each language.
    """
    return Point(
        order=model.order,
        heads_removed=model.heads_removed,
        heads_kept=model.heads_kept,
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


def model_records(points: Sequence[Point], noun: str = HEADS) -> Records[SmallerModel]:
    """What is left of each point and lost by it, and whether it is on the front.

    Losses are those of its weakest language and of the mean.

    Args:
        points: Of all orders.
        noun: What is removed, in a word.
    """
    cost = cost_of(points)
    is_best = pareto(cost, np.array([point.worst for point in points]))
    is_best_on_average = pareto(cost, np.array([point.mean for point in points]))
    rows = [
        SmallerModel(
            order=point.order,
            heads_removed=point.heads_removed,
            heads_kept=point.heads_kept,
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
        (
            "weakest: the smallest difference over the languages; lower bound: the smallest of "
            "theirs, one-sided, at 95 % divided among the orders. best for its size: no other "
            "model here is as small and loses less in its weakest language. All on the examples "
            f"that chose the {noun}, so these are optimistic estimates.",
        ),
        {NOUN: (noun,)},
    )


def language_records(points: Sequence[Point], noun: str = HEADS) -> Records[ModelInLanguage]:
    """Each point in each language.

    Args:
        points: Of all orders.
        noun: What is removed, in a word.
    """
    rows = [
        ModelInLanguage(
            order=point.order,
            heads_removed=point.heads_removed,
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
    return Records("The same, language by language", tuple(rows), names={NOUN: (noun,)})


def order_records(orders: Sequence[NestedOrder], grid: HeadGrid) -> Records[OrderedHead]:
    """Each order's heads, in removal order: each mask removes the first heads of an order.

    Args:
        orders: The orders.
        grid: Of the model; its players, where these are not heads.
    """
    heads = grid.heads
    rows = [
        OrderedHead(order.key, place, heads[index])
        for order in orders
        for place, index in enumerate(order.order.tolist(), 1)
    ]
    return Records(f"The orders in which {grid.noun} leave", tuple(rows))


def answer_records(rules: Mapping[str, Point], noun: str = HEADS) -> Records[FrontAnswer]:
    """The answer by each rule, the one asked for first.

    Args:
        rules: {question in words: answer}.
        noun: What is removed, in a word.
    """
    rows = [
        FrontAnswer(
            question=question,
            order=point.order,
            heads_removed=point.heads_removed,
            heads_kept=point.heads_kept,
            parameters=point.parameters,
            weakest_language=point.weakest,
            weakest=100 * point.worst,
            lower_bound=100 * point.worst_bound,
            mean=100 * point.mean,
        )
        for question, point in rules.items()
    ]
    return Records("What is chosen on dev", tuple(rows), names={NOUN: (noun,)})


def confirmed_records(
    verdicts: Sequence[LanguageVerdict],
    mean: MeanDifference,
    nouns: tuple[str, str] = HEAD_NOUNS,
) -> Records[TestedLanguage]:
    """The chosen model on test.

    Args:
        verdicts: On each language.
        mean: Over the languages.
        nouns: What one of those that are removed is called, and what several are.
    """
    one, _ = nouns
    p_holm = holm_where_known([verdict.p for verdict in verdicts])
    p_loss_holm = holm_where_known([verdict.p_loss for verdict in verdicts])
    rows = [
        TestedLanguage(
            language=verdict.language,
            answers=verdict.n,
            baseline_accuracy=_percent(verdict.untouched),
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
            baseline_accuracy=None,
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
        (
            "low, high: 95 % interval of the paired bootstrap, by groups of examples. bound: 95 % "
            "lower bound, one-sided. p: of no difference. p of the loss: of more being lost than "
            f"was allowed; Holm: for naming single ones. Where no {one} is "
            "removed the difference is 0 by definition, and there is nothing to test.",
        ),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


# What is said of a model of which nothing of a kind is left.

WITHOUT_ANY = {
    HEADS: "no token sees another any more",
    "kv-groups": "no token sees another any more",
    "attention": "no token sees another any more",
    "feed-forward": "layers are attention alone",
    "neurons": "layers are attention alone",
    LAYERS: "answers come from the embeddings of tokens alone",
}
"""What becomes of a model of one stack that loses all players of a kind."""
WITHOUT_ANY_OF_ENCODER = {
    HEADS: "no token of the text sees another",
    "kv-groups": "no token of the text sees another",
    "attention": "no token of the text sees another",
    "feed-forward": "layers of the encoder are attention alone",
    "neurons": "layers of the encoder are attention alone",
    LAYERS: "the decoder is given the embeddings of the text's tokens",
}
"""The same of the encoder of a model that has a decoder, too."""
WITHOUT_ANY_OF_DECODER = {
    HEADS: "no token of the answer sees another",
    "kv-groups": "no token of the answer sees another",
    "attention": "no token of the answer sees another",
    "feed-forward": "layers of the decoder are attention alone",
    "neurons": "layers of the decoder are attention alone",
    LAYERS: "answers come from the embeddings of their own tokens alone",
}
WITHOUT_CROSS = "the decoder sees nothing of the text that it answers"
LIKE_ANY_OTHER = (
    "Such a model is chosen like any other: where it loses little, the task needs none of them."
)
WITHOUT_LAYERS = "It is not chosen: no model can be written without a layer."
WITHOUT_LAYERS_OF_STACK = (
    "It is not chosen: no model can be written without a layer of each of its stacks."
)
CHOSEN_WITHOUT_LAYERS = (
    "An earlier version of headlab chose it, but no such model can be written: compute the front "
    "again."
)


def emptied_stacks(grid: HeadGrid, kept: Bools) -> list[Stack]:
    """The kinds of players of which nothing is left.

    Args:
        grid: Of the players.
        kept: Which are kept, bool [player].
    """
    emptied = []
    first_player = 0
    for stack in grid.stacks:
        is_kept = kept[first_player : first_player + stack.size]
        first_player += stack.size
        if stack.size and not is_kept.any():
            emptied.append(stack)
    return emptied


def can_be_chosen(grid: HeadGrid, kept: Bools) -> bool:
    """Whether a front may choose a model: it keeps a layer of each stack, or layers are no players.

    Args:
        grid: Of the players.
        kept: Which are kept, bool [player].
    """
    return all(stack.kind != LAYERS for stack in emptied_stacks(grid, kept))


def emptied_sentences(grid: HeadGrid, kept: Bools, *, is_chosen: bool = False) -> list[str]:
    """A sentence for each kind of players of which nothing is left, and whether that is chosen.

    Args:
        grid: Of the players.
        kept: Which are kept, bool [player].
        is_chosen: Whether a stored front has chosen it, as earlier versions chose models without a
            layer.

    Returns:
        The sentences; none where some players of each kind are left.
    """
    sentences = []
    for stack in emptied_stacks(grid, kept):
        one, several = _nouns_of_stack(stack, grid)
        what_goes = f"All {stack.size} {several} are" if stack.size > 1 else f"The only {one} is"
        sentences.append(f"{what_goes} removed: {_consequence(stack, grid)}.")
    if sentences and can_be_chosen(grid, kept):
        sentences.append(LIKE_ANY_OTHER)
    elif sentences and is_chosen:
        sentences.append(CHOSEN_WITHOUT_LAYERS)
    elif sentences:
        sentences.append(WITHOUT_LAYERS_OF_STACK if has_several_stacks(grid) else WITHOUT_LAYERS)
    return sentences


def has_several_stacks(grid: HeadGrid) -> bool:
    """Whether players are in more than one stack of the model: an encoder and a decoder."""
    return len({stack.base for stack in grid.stacks}) > 1


def _nouns_of_stack(stack: Stack, grid: HeadGrid) -> tuple[str, str]:
    """What one, and several, of a stack's players are called, with the stack if there are more."""
    one, several = nouns_of_kinds([stack.kind])
    if not has_several_stacks(grid):
        return one, several
    prefix = f"{stack.base} "
    if stack.base == "cross":
        prefix = "cross-" if stack.kind == "attention" else "cross-attention "
    return f"{prefix}{one}", f"{prefix}{several}"


def _consequence(stack: Stack, grid: HeadGrid) -> str:
    """What becomes of a model that has nothing left of a stack's players."""
    if stack.base == "cross":
        return WITHOUT_CROSS
    if not has_several_stacks(grid):
        return WITHOUT_ANY[stack.kind]
    if stack.base == "encoder":
        return WITHOUT_ANY_OF_ENCODER[stack.kind]
    return WITHOUT_ANY_OF_DECODER[stack.kind]


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
    """As `mask_at`, with the report's result."""
    require_players_of_front(report, grid)
    removed_heads = result.removal_order(order, grid)[:removed]
    spec = report.spec
    task = spec.get("task", {})
    options = spec.get("options", {})
    how_chosen: dict[str, JsonLike] = {
        "rule": "front",
        "k": removed,
        "order": order,
        "method": str(options.get("method", "")),
        "task": str(task.get("name", "")),
        "languages": str(task.get("language", "")).split(","),
        "ablation": str(spec.get("ablation", "zero")),
        "front": dict(spec),
    }
    model = {name: value for name, value in spec.get("model", {}).items() if name != "dtype"}
    return Mask(grid, kept_heads_without(removed_heads, grid.size), model, how_chosen)


def require_players_of_front(report: Report, grid: HeadGrid) -> None:
    """Raise HeadlabError for a front that removes other things than a grid's.

    Groups of neurons are others where they have other members.

    Args:
        report: A front.
        grid: Of the players.
    """
    spec = report.spec
    kinds = read_players(spec.players).kinds if spec.players else (HEADS,)
    if grid.has_only_heads and not spec.players:
        return
    if kinds != grid.kinds or spec.groups != grid.members_sha256:
        given = ", ".join(grid.kinds) or HEADS
        raise HeadlabError(
            f"the front removes {spec.players or HEADS}, so its masks are of the same players in the "
            f"same groups, and given are {given}; take the model with --players "
            f"{spec.players or HEADS}, on the same task",
            code="front.other_players",
        )


def chosen_mask(report: Report, grid: HeadGrid) -> Mask:
    """The mask that answers the report's question, with its measured accuracies on test."""
    result = typed_result(report, FrontResult)
    answer = result.answer
    mask = _mask_of(result, report, answer.order, answer.heads_removed, grid)
    options = report.spec.get("options", {})
    question = {
        name: options[name] for name in ("within", "heads", "by") if options.get(name) is not None
    }
    evaluation = {
        "task": mask.chosen["task"],
        "ablation": mask.chosen["ablation"],
        "languages": _figures(result.tested_languages.rows),
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
            "baseline": row.baseline_accuracy,
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
