"""The tables of a front, and what is read back from them: points, orders, the chosen mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.front.choose import Point, pareto
from headlab.front.estimate import Verdict, corrected
from headlab.front.orders import Order
from headlab.masks import Mask
from headlab.records import Floats, Head, HeadGrid, Ints
from headlab.scores import kept_without
from headlab.tables import Cell, Report, Table

FRONT, LANGUAGES, ORDERS, CHOICE, CONFIRMED = (
    "front", "front-languages", "front-orders", "front-choice", "front-confirmed",
)  # fmt: skip
POINTS = ("difference, points", "low, points", "high, points")
MEANS = ("mean, points", "mean low, points", "mean high, points")
MEAN = "mean"


def cost_of(points: Sequence[Point]) -> Floats:
    """Parameters left, or heads where parameters are not known; float [point]."""
    return np.array([point.cost[0] for point in points], dtype=np.float64)


def front_table(points: Sequence[Point]) -> Table:
    """A row a point: what is left, what the weakest language and the mean lose, and whether another beats it."""
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
         "shared out among the orders. best for its size: no other model here is as small and loses less in its "
         "weakest language. All on the examples that chose the heads, which flatters them.",),
    )  # fmt: skip


def languages_table(points: Sequence[Point]) -> Table:
    """A row a point and language."""
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
    """A row a head of every order, in the order they leave: the masks are its beginnings."""
    heads = grid.heads
    rows = [(one.key, place, *heads[i]) for one in orders for place, i in enumerate(one.order.tolist(), 1)]
    columns, forms = ("order", "place", "stack", "layer", "head"), ("", "d", "", "d", "d")
    return Table(ORDERS, "The orders in which heads leave", columns, forms, tuple(rows))


def choice_table(rules: Mapping[str, Point]) -> Table:
    """A row a rule; the first is the one that was asked for. rules: {the question in words: the answer}."""
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


def confirmed_table(verdicts: Sequence[Verdict], mean: tuple[float, float | None, float | None, float | None]) -> Table:
    """A row a language on test, and one for their mean. mean: difference, its 95 % interval and p; 0.01 = one point."""
    adjusted, losses = corrected([one.p for one in verdicts]), corrected([one.p_loss for one in verdicts])
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
         "Where no head goes the difference is 0 by definition, and there is nothing to test.",),
    )  # fmt: skip


def _percent(shares: Sequence[float | None]) -> list[float | None]:
    return [None if share is None else 100 * share for share in shares]


def read_points(report: Report) -> list[Point]:
    """The points of a report, in its order. Raises HeadlabError for a report that is none of a front."""
    table, by = report.table(FRONT), _by_point(report.table(LANGUAGES))
    names = ("order", "heads removed", "heads kept", "parameters", *MEANS)
    out = []
    for order, removed, kept, parameters, *mean in zip(*(table.column(name) for name in names), strict=True):
        rows = by.get((order, removed))
        if not rows:
            raise HeadlabError(
                f"the front has no languages at {removed} heads of order {order}; make it again",
                code="front.languages_missing",
            )
        languages, *parts = zip(*rows, strict=True)
        accuracy, difference, low, high, bound = (tuple(float(v) / 100 for v in part) for part in parts)
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
    """The heads in the order they leave, int [head]. Raises HeadlabError unless it names each of the grid's once."""
    table = report.table(ORDERS)
    rows = zip(*(table.column(name) for name in ("order", "place", "stack", "layer", "head")), strict=True)
    own = sorted((place, Head(stack, layer, head)) for order, place, stack, layer, head in rows if order == key)
    found = np.array([grid.index(head) for _, head in own], dtype=np.int64)
    if not np.array_equal(np.sort(found), np.arange(grid.size)):
        raise HeadlabError(
            f"the front's order {key} does not name every head of this model once; make it again",
            code="front.order_invalid",
        )
    return found


def mask_at(report: Report, order: str, removed: int, grid: HeadGrid) -> Mask:
    """The mask without the first heads of an order, with how it was chosen. Raises HeadlabError as `read_order`."""
    spec, gone = report.spec, read_order(report, order, grid)[:removed]
    task, options = spec.get("task", {}), spec.get("options", {})
    chosen = {
        "rule": "front", "k": removed, "order": order, "method": str(options.get("method", "")),
        "task": str(task.get("name", "")), "languages": str(task.get("language", "")).split(","),
        "ablation": str(spec.get("ablation", "zero")), "front": dict(spec),
    }  # fmt: skip
    model = {name: value for name, value in spec.get("model", {}).items() if name != "dtype"}
    return Mask(grid, kept_without(gone, grid.size), model, chosen)


def chosen_mask(report: Report, grid: HeadGrid) -> Mask:
    """The mask that answers the report's question, with what it is worth on test."""
    table = report.table(CHOICE)
    order, removed = table.column("order")[0], table.column("heads removed")[0]
    mask, options = mask_at(report, order, removed, grid), report.spec.get("options", {})
    asked = {name: options[name] for name in ("within", "heads", "by") if options.get(name) is not None}
    seen = {"task": mask.chosen["task"], "ablation": mask.chosen["ablation"], "languages": _figures(report)}
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
            p = table.column("p")[at]  # like the interval not there where no head goes
            out[str(language)] = {name: value / 100 for name, value in found.items() if value is not None}
            out[str(language)] |= {"n": table.column("answers")[at], **({} if p is None else {"p": p})}
    return out
