"""Pruning curves as a section: the curves, what they come to, the order of the heads, every point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headlab.htmlreport.commands import again, joined, part
from headlab.htmlreport.curves import curves_drawn, names_of
from headlab.htmlreport.facts import facts_of, model_of, spent
from headlab.htmlreport.maps import order_cells, stack_maps
from headlab.htmlreport.parts import Figure, Folded, Item, Made, Section
from headlab.scores import Curve
from headlab.tables import Table

POINT, MANY = 0.01, 6
Curves = Sequence[tuple[Item, Curve]]


def group_of(curve: Curve) -> tuple[object, ...]:
    """Curves of one group share a chart: model, task, split and ablation are the same."""
    return (*model_of(curve.spec), curve.spec["task"]["name"], curve.split, curve.spec["ablation"])


def section(items: Curves, dev_size: Callable[[str], int | None]) -> Section:
    """The section of one group of curves. dev_size: how many examples ordered the heads, by the key of their scores."""
    curves = [curve for _, curve in items]
    first, names = curves[0], names_of(curves)
    enclosed = "Shaded: 95 % intervals of the difference to the model with all heads, on the same examples."
    orders = [
        Figure(stack_maps(c.grid, order_cells(c.grid, c.order.tolist()), f"order of removal, {name}"),
               f"{name}: as which each head leaves (1 is the first)")
        for c, name in zip(curves, names, strict=True)
    ]  # fmt: skip
    points = [Folded(_points(c, name)) for c, name in zip(curves, names, strict=True)]
    told = [again("curve", c.spec, dev_size=dev_size(str(part(c.spec, "order", "run")))) for c in curves]
    made = [
        Made(item.key, name, facts_of(c.spec, item.meta, _took(c)))
        for (item, c), name in zip(items, names, strict=True)
    ]
    listed = ", ".join(names) if len(names) <= MANY else f"{len(names)} curves"
    title = f"Accuracy on {first.spec['task']['name']} ({first.split}) as heads leave: {listed}"
    figures = [Figure((curves_drawn(curves),), enclosed, wide=True), *orders]
    return Section(
        title, "pruning curves", model_of(first.spec), figures, [_summary(curves, names), *points],
        list(_notes(curves)), made, joined(told),
    )  # fmt: skip


def _took(curve: Curve) -> tuple[tuple[str, str], ...]:
    return (*spent(curve.example_forwards, curve.seconds), ("values (sha256)", curve.values_sha256()))


def _summary(curves: Sequence[Curve], names: Sequence[str]) -> Table:
    columns = (
        "curve", "ordered by", "answers", "all heads, %", "mean over the curve, %", "heads gone for 1 point, estimate",
        "heads gone for 1 point, interval", "heads",
    )  # fmt: skip
    rows = tuple(
        (name, c.ordering, c.n, 100 * float(c.accuracy[0]), 100 * c.area, c.heads_until(POINT),
         c.heads_until(POINT, "interval"), c.grid.size)
        for c, name in zip(curves, names, strict=True)
    )  # fmt: skip
    notes = (
        "Heads gone for 1 point: the most that can go before more than 1 point is lost; by the interval, a larger loss "
        "is ruled out at every count up to there.",
    )
    return Table(
        "curve-summary", "What the curves come to", columns, ("", "", ",d", ".1f", ".1f", "d", "d", "d"), rows, notes
    )


def _points(curve: Curve, name: str) -> Table:
    columns = ("heads removed", "accuracy, %", "difference, points", "low, points", "high, points", "p")
    rows = tuple(
        (int(gone), *(100 * float(v) for v in (accuracy, difference, low, high)), float(p))
        for gone, accuracy, difference, low, high, p in zip(
            curve.removed, curve.accuracy, curve.difference, curve.low, curve.high, curve.p_values, strict=True
        )
    )
    return Table("curve-points", f"Every point, {name}", columns, ("d", ".1f", "+.1f", "+.1f", "+.1f", ".4f"), rows)


def _notes(curves: Sequence[Curve]) -> Iterator[str]:
    yield from dict.fromkeys(curve.caution for curve in curves if curve.caution)
    yield "Each interval is for its own count of heads: among many counts some are off by chance."
