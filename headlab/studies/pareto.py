"""Pareto front of smaller models: nested masks, the best of each size, the choice among them, and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from headlab.errors import HeadlabError
from headlab.json_types import JsonLike
from headlab.masks import Mask, removal_order
from headlab.records import HEAD, HEAD_FORMATS, Bools, Floats, Head, HeadGrid, Ints
from headlab.scores import Curve, HeadScores, counts, kept_without
from headlab.stats import group_bootstrap, resampled_means
from headlab.studies.differences import NOTHING, Gain, corrected, over_languages
from headlab.studies.savings import Costs
from headlab.tables import Cell, Report, Table

# Points of a front, and the choice among them: pure functions of numbers.

NEAR = 1e-12  # differences are shares of whole answers: values closer than this are equal


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
    out, best, at = np.zeros(len(cost), bool), -np.inf, -np.inf
    for i in order.tolist():
        if value[i] > best:
            out[i], best, at = True, value[i], cost[i]
        elif value[i] == best and cost[i] == at:
            out[i] = True  # the same point twice
    return out


def within(points: Sequence[Point], loss: float, by: str) -> Point:
    """The smallest model that loses no more than `loss` in any language; the untouched model always qualifies.

    loss: 0.01 is one point.  by: "estimate" requires all differences to be at least -loss; "bound" requires this of
    the lower bounds, and of those of all earlier points of the order (a fixed-sequence test: it stops at the first
    count that fails, so that testing many counts needs no correction; Maurer et al. 1995).
    """
    fit = (
        [p for p in points if p.worst >= -loss - NEAR]
        if by == "estimate"
        else _before_failure(points, loss)
    )
    return min(fit, key=lambda p: (*p.cost, -p.worst, -p.mean))


def _before_failure(points: Sequence[Point], loss: float) -> list[Point]:
    fit = []
    for name in dict.fromkeys(point.order for point in points):
        for point in sorted((p for p in points if p.order == name), key=lambda p: p.removed):
            if point.worst_bound < -loss - NEAR:
                break
            fit.append(point)
    return fit


def at_heads(points: Sequence[Point], heads: int) -> Point:
    """Of the points with `heads` heads left, the one whose weakest language loses least; ties by the mean."""
    return max((p for p in points if p.kept == heads), key=lambda p: (p.worst, p.mean))


# Candidate removal orders, derived from the scores in every language.


class Order(NamedTuple):
    """One nested family of masks. values: float [head], lowest removed first.  order: int [head], removal order."""

    key: str
    values: Floats
    order: Ints


def candidate_orders(
    names: Sequence[str], scores: Mapping[str, HeadScores], costs: Costs
) -> tuple[list[Order], list[str]]:
    """The distinct orders of these names, and a sentence for each one left out.

    scores: of every language, by one method.
    """
    found, told = list[Order](), list[str]()
    every = np.stack([one.values for one in scores.values()])
    for name in names:
        for key, values in _values(name, every, list(scores), costs).items():
            order = Order(key, values, removal_order(values))
            same = next((one.key for one in found if np.array_equal(one.order, order.order)), None)
            if same is None:
                found.append(order)
            else:
                told.append(f"Order {key} is order {same} here.")
        if name == "cost" and (why := no_order_by_cost(costs)):
            told.append(f"There is no order by cost: {why}.")
    return found, told


def no_order_by_cost(costs: Costs) -> str:
    """Why heads cannot be ordered by cost; empty if they can."""
    if not costs.layers:
        return costs.note.rstrip(".") or "the cost of this model's heads is unknown"
    return "all heads of this model cost alike" if costs.even else ""


def _values(name: str, every: Floats, languages: Sequence[str], costs: Costs) -> dict[str, Floats]:
    """{key: float [head], lowest removed first}. every: scores [language, head]."""
    if name == "own":
        return {f"own {language}": row for language, row in zip(languages, every, strict=True)}
    if name == "weakest":
        return {name: weakest_first(every)}
    if name == "mean":
        return {name: every.mean(axis=0)}
    return {} if no_order_by_cost(costs) else {name: per_parameter(every.mean(axis=0), costs)}


def weakest_first(every: Floats) -> Floats:
    """A head's value by its best rank in any language, ties broken by its mean rank, float [head].

    every: scores [language, head].  Ranks rise with the score, from 1; a head that any language needs is removed late.
    """
    ranks = np.stack([rankdata(row) for row in every])
    return np.asarray(
        ranks.max(axis=0) + ranks.mean(axis=0) / (4 * ranks.shape[1]), dtype=np.float64
    )


def per_parameter(values: Floats, costs: Costs) -> Floats:
    """A head's score per parameter removed with it, float [head]; heads removable only together share one value."""
    out = np.empty_like(values)
    for layer in costs.layers:
        if layer.heads:
            own = slice(layer.first, layer.first + layer.heads)
            groups = values[own].reshape(-1, layer.together)
            out[own] = np.repeat(groups.sum(axis=1) / layer.parameters, layer.together)
    return out


def counts_of(size: int, points: int | None, heads: int | None) -> list[int]:
    """Number of heads removed at each point: evenly spaced counts, and the one that leaves `heads` heads."""
    return sorted({*counts(size, None if points is None or points > size else points),
                   *([] if heads is None else [size - heads])})  # fmt: skip


# Points of a front, from the answers along each order paired with those of the untouched model.

DRAWS, ALPHA, DIGITS = 10_000, 0.05, 12
MADE_UP = (1.0, -1.0)
Groups = tuple[str, ...]


@dataclass(frozen=True)
class Judge:
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


def points_of(key: str, curves: Mapping[str, Curve], judge: Judge, costs: Costs) -> list[Point]:
    """One point per count of removed heads. curves: of every language along one order, at the same counts."""
    languages = tuple(curves)
    # what each answer gains at every point, float [point, answer]: -1, 0 or 1
    gains = {
        name: curve.correct.astype(np.float64) - curve.correct[0] for name, curve in curves.items()
    }
    bounds = np.array([_bounds(gains[name], judge.groups[name], judge) for name in languages])
    first, out = next(iter(curves.values())), []
    for at, gone in enumerate(first.removed.tolist()):
        mean = NOTHING
        if gone:
            told = {name: Gain(gains[name][at], judge.groups[name]) for name in languages}
            mean = over_languages(told, judge.seed, aligned=judge.aligned)
        kept = kept_without(first.order[:gone], first.grid.size)
        accuracy, difference, low, high = (
            tuple(float(getattr(curves[name], part)[at]) for name in languages)
            for part in ("accuracy", "difference", "low", "high")
        )
        parameters = costs.shrunk(kept).parameters if costs.layers else None
        ends = [mean.mean if end is None else end for end in (mean.low, mean.high)]
        out.append(
            Point(
                key, gone, int(kept.sum()), parameters, languages, accuracy, difference, low, high,
                tuple(bounds[:, at].tolist()), mean.mean, *ends,
            )
        )  # fmt: skip
    return out


def _bounds(gains: Floats, groups: Groups, judge: Judge) -> Floats:
    """One-sided lower bounds of the mean gains, float [point]; 0 where no head is removed."""
    rng = np.random.default_rng(judge.seed)
    low = group_bootstrap(gains, groups, rng, draws=DRAWS, level=1 - 2 * judge.tail).low
    low[0] = 0.0
    return low


@dataclass(frozen=True)
class Verdict:
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


def untouched(language: str, correct: Bools) -> Verdict:
    """The verdict on a mask that removes nothing. correct: bool [answer]."""
    share = float(correct.mean())
    return Verdict(language, len(correct), share, share, 0.0, None, None, None, None, None)


def verdict(
    language: str, before: Bools, after: Bools, groups: Groups, loss: float | None, seed: int
) -> Verdict:
    """The verdict on a mask in one language. before, after: bool [answer].  loss: 0.01 is one point."""
    gain = after.astype(np.float64) - before
    means = np.round(
        resampled_means(
            gain[None], groups, np.random.default_rng(seed), made_up=MADE_UP, draws=DRAWS
        )[0],
        DIGITS,
    )
    low, bound, high = np.quantile(means, [ALPHA / 2, ALPHA, 1 - ALPHA / 2])
    p = min(1.0, 2 * _tail(min((means <= 0).sum(), (means >= 0).sum()), len(means)))
    return Verdict(
        language, len(gain), float(before.mean()), float(after.mean()), float(gain.mean()), float(low), float(high),
        float(bound), p, None if loss is None else p_loss(means, loss),
    )  # fmt: skip


def p_loss(means: Floats, loss: float) -> float:
    """One-sided p of "more than `loss` is lost". means: resampled mean gains, float [draw]."""
    return _tail(int((means <= -loss).sum()), len(means))


def _tail(count: int, draws: int) -> float:
    return float((1 + count) / (draws + 1))


def losing(verdicts: Sequence[Verdict]) -> list[str]:
    """Languages that lose, by Holm-adjusted p-values, since naming each of several languages is a separate claim."""
    adjusted = corrected([one.p for one in verdicts])
    return [
        one.language
        for one, p in zip(verdicts, adjusted, strict=True)
        if p is not None and p < ALPHA and one.difference < 0
    ]


def all_within(verdicts: Sequence[Verdict]) -> float:
    """The p of "more than the loss is lost in some language": the largest p_loss of all languages.

    That all languages are within the loss is a single claim, made only if every language passes, so no adjustment
    is needed (an intersection-union test; Berger 1982, Technometrics 24).
    """
    return max(one.p_loss for one in verdicts if one.p_loss is not None)


# The tables of a front, and the points, orders and chosen mask read back from them.

FRONT, LANGUAGES, ORDERS_TABLE, CHOICE, CONFIRMED = (
    "front", "front-languages", "front-orders", "front-choice", "front-confirmed",
)  # fmt: skip
POINTS = ("difference, points", "low, points", "high, points")
MEANS = ("mean, points", "mean low, points", "mean high, points")
MEAN = "mean"


def cost_of(points: Sequence[Point]) -> Floats:
    """Parameters left, or heads left where parameters are unknown, float [point]."""
    return np.array([point.cost[0] for point in points], dtype=np.float64)


def front_table(points: Sequence[Point]) -> Table:
    """One row per point: what is left, what the weakest language and the mean lose, and whether it is on the front."""
    cost = cost_of(points)
    worst = pareto(cost, np.array([p.worst for p in points]))
    mean = pareto(cost, np.array([p.mean for p in points]))
    rows: list[tuple[Cell, ...]] = []
    for at, p in enumerate(points):
        rows.append(
            (p.order, p.removed, p.kept, p.parameters, p.weakest, 100 * p.worst, 100 * p.worst_bound, 100 * p.mean,
             100 * p.mean_low, 100 * p.mean_high, bool(worst[at]), bool(mean[at]))
        )  # fmt: skip
    return Table(
        FRONT,
        "Smaller models on dev, against the untouched one",
        ("order", "heads removed", "heads kept", "parameters", "weakest language", "weakest, points",
         "lower bound, points", *MEANS, "best for its size", "best on average"),
        ("", "d", "d", ",d", "", "+.2f", "+.2f", "+.2f", "+.2f", "+.2f", "", ""),
        tuple(rows),
        ("weakest: the smallest difference over the languages; lower bound: the smallest of theirs, one-sided, at 95 % "
         "divided among the orders. best for its size: no other model here is as small and loses less in its "
         "weakest language. All on the examples that chose the heads, so these are optimistic estimates.",),
    )  # fmt: skip


def languages_table(points: Sequence[Point]) -> Table:
    """One row per point and language."""
    rows: list[tuple[Cell, ...]] = []
    for p in points:
        for at, language in enumerate(p.languages):
            parts = (100 * part[at] for part in (p.accuracy, p.difference, p.low, p.high, p.bound))
            rows.append((p.order, p.removed, language, *parts))
    return Table(
        LANGUAGES,
        "The same, language by language",
        ("order", "heads removed", "language", "accuracy, %", *POINTS, "bound, points"),
        ("", "d", "", ".1f", "+.2f", "+.2f", "+.2f", "+.2f"),
        tuple(rows),
    )


def orders_table(orders: Sequence[Order], grid: HeadGrid) -> Table:
    """One row per order and head, in removal order: each mask removes the first heads of an order."""
    heads = grid.heads
    rows = [
        (one.key, place, *heads[i])
        for one in orders
        for place, i in enumerate(one.order.tolist(), 1)
    ]
    columns, forms = ("order", "place", *HEAD), ("", "d", *HEAD_FORMATS)
    return Table(ORDERS_TABLE, "The orders in which heads leave", columns, forms, tuple(rows))


def choice_table(rules: Mapping[str, Point]) -> Table:
    """One row per rule, the one asked for first. rules: {question in words: answer}."""
    rows: list[tuple[Cell, ...]] = []
    for rule, p in rules.items():
        rows.append((rule, p.order, p.removed, p.kept, p.parameters, p.weakest, 100 * p.worst, 100 * p.worst_bound,
                     100 * p.mean))  # fmt: skip
    return Table(
        CHOICE,
        "What is chosen on dev",
        ("question", "order", "heads removed", "heads kept", "parameters", "weakest language", "weakest, points",
         "lower bound, points", "mean, points"),
        ("", "", "d", "d", ",d", "", "+.2f", "+.2f", "+.2f"),
        tuple(rows),
    )  # fmt: skip


def confirmed_table(
    verdicts: Sequence[Verdict], mean: tuple[float, float | None, float | None, float | None]
) -> Table:
    """One row per language on test, and one for their mean. mean: difference, 95 % interval, p; 0.01 is one point."""
    adjusted, losses = (
        corrected([one.p for one in verdicts]),
        corrected([one.p_loss for one in verdicts]),
    )
    rows: list[tuple[Cell, ...]] = []
    for one, p, loss in zip(verdicts, adjusted, losses, strict=True):
        shares = (one.untouched, one.accuracy, one.difference, one.low, one.high, one.bound)
        rows.append((one.language, one.n, *_percent(shares), one.p, p, one.p_loss, loss))
    rows.append((MEAN, None, None, None, *_percent(mean[:3]), None, mean[3], None, None, None))
    return Table(
        CONFIRMED,
        "The chosen mask on test, against the untouched model",
        ("language", "answers", "untouched, %", "accuracy, %", *POINTS, "bound, points", "p", "p (Holm)",
         "p of the loss", "p of the loss (Holm)"),
        ("", "d", ".1f", ".1f", "+.2f", "+.2f", "+.2f", "+.2f", ".4f", ".4f", ".4f", ".4f"),
        tuple(rows),
        ("low, high: 95 % interval of the paired bootstrap, by groups of examples. bound: 95 % lower bound, one-sided. "
         "p: of no difference. p of the loss: of more being lost than was allowed; Holm: for naming single ones. "
         "Where no head is removed the difference is 0 by definition, and there is nothing to test.",),
    )  # fmt: skip


def _percent(shares: Sequence[float | None]) -> list[float | None]:
    return [None if share is None else 100 * share for share in shares]


def read_points(report: Report) -> list[Point]:
    """The points of a report, in its order. Raises HeadlabError for a report that is not of a front."""
    try:
        return _points(report)
    except (TypeError, ValueError) as error:  # a cell holds no number, as headlab writes none
        raise HeadlabError(
            f"the tables of the front cannot be read ({error}); make it again",
            code="front.unreadable",
        ) from error


def _points(report: Report) -> list[Point]:
    table, by = report.table(FRONT), _by_point(report.table(LANGUAGES))
    names = ("order", "heads removed", "heads kept", "parameters", *MEANS)
    out = []
    for order, removed, kept, parameters, *mean in zip(
        *(table.column(name) for name in names), strict=True
    ):
        rows = by.get((order, removed))
        if not rows:
            raise HeadlabError(
                f"the front has no languages at {removed} heads of order {order}; make it again",
                code="front.languages_missing",
            )
        languages, *parts = zip(*rows, strict=True)
        accuracy, difference, low, high, bound = (
            tuple(float(v) / 100 for v in part) for part in parts
        )
        ends = [float(v) / 100 for v in mean]
        out.append(
            Point(
                str(order),
                int(removed),
                int(kept),
                parameters,
                tuple(languages),
                accuracy,
                difference,
                low,
                high,
                bound,
                *ends,
            )
        )
    return out


def _by_point(table: Table) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    names = ("order", "heads removed", "language", "accuracy, %", *POINTS, "bound, points")
    out: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for order, removed, *rest in zip(*(table.column(name) for name in names), strict=True):
        out.setdefault((order, removed), []).append(tuple(rest))
    return out


def read_order(report: Report, key: str, grid: HeadGrid) -> Ints:
    """The heads in removal order, int [head]. Raises HeadlabError unless it names each head of the grid once."""
    table = report.table(ORDERS_TABLE)
    rows = zip(*(table.column(name) for name in ("order", "place", *HEAD)), strict=True)
    own = sorted(
        (place, Head(stack, layer, head))
        for order, place, stack, layer, head in rows
        if order == key
    )
    found = np.array([grid.index(head) for _, head in own], dtype=np.int64)
    if not np.array_equal(np.sort(found), np.arange(grid.size)):
        raise HeadlabError(
            f"the front's order {key} does not name every head of this model once; make it again",
            code="front.order_invalid",
        )
    return found


def mask_at(report: Report, order: str, removed: int, grid: HeadGrid) -> Mask:
    """The mask without the first `removed` heads of an order, and how it was chosen. Raises as `read_order`."""
    spec, gone = report.spec, read_order(report, order, grid)[:removed]
    task, options = spec.get("task", {}), spec.get("options", {})
    chosen: dict[str, JsonLike] = {
        "rule": "front", "k": removed, "order": order, "method": str(options.get("method", "")),
        "task": str(task.get("name", "")), "languages": str(task.get("language", "")).split(","),
        "ablation": str(spec.get("ablation", "zero")), "front": dict(spec),
    }  # fmt: skip
    model = {name: value for name, value in spec.get("model", {}).items() if name != "dtype"}
    return Mask(grid, kept_without(gone, grid.size), model, chosen)


def chosen_mask(report: Report, grid: HeadGrid) -> Mask:
    """The mask that answers the report's question, with its measured accuracies on test."""
    table = report.table(CHOICE)
    order, removed = table.column("order")[0], table.column("heads removed")[0]
    mask, options = mask_at(report, order, removed, grid), report.spec.get("options", {})
    asked = {
        name: options[name] for name in ("within", "heads", "by") if options.get(name) is not None
    }
    seen = {
        "task": mask.chosen["task"],
        "ablation": mask.chosen["ablation"],
        "languages": _figures(report),
    }
    chosen = {**mask.chosen, **asked, "evaluated": {"test": seen}}
    return Mask(grid, mask.kept, mask.model, chosen)


def _figures(report: Report) -> dict[str, dict[str, float]]:
    table = report.table(CONFIRMED)
    shares = {"baseline": "untouched, %", "accuracy": "accuracy, %"} | dict(
        zip(("difference", "low", "high"), POINTS, strict=True)
    )
    out = {}
    for at, language in enumerate(table.column("language")):
        if language != MEAN:
            found = {name: table.column(column)[at] for name, column in shares.items()}
            p = table.column("p")[at]  # missing, like the interval, where no head is removed
            out[str(language)] = {
                name: value / 100 for name, value in found.items() if value is not None
            }
            out[str(language)] |= {
                "n": table.column("answers")[at],
                **({} if p is None else {"p": p}),
            }
    return out
