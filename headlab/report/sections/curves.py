"""Pruning curves as a section: the curves, a summary, the order of the heads, every point."""

from __future__ import annotations

from collections.abc import Sequence

from headlab.charts.curves import curves_chart
from headlab.methods import order_renewal_of
from headlab.report.again import joined
from headlab.report.commands import Known
from headlab.report.figures import inline
from headlab.report.maps import order_cells, stack_maps
from headlab.report.parts import Folded, Item, ReportFigure, Section, model_of
from headlab.report.sections.shared import equal_texts_notes, origin_of
from headlab.results import Curve, curve_names, curve_points, curve_summary

MAX_NAMED = 6  # curves that the section's title names
CAPTION = "Shaded: 95 % intervals of the difference to the model with all {}, on the same examples."


def curves_section(items: Sequence[Item[Curve]], known: Known) -> Section:
    """The section of one group of curves.

    Args:
        items: At least one curve; all of one model, task, split and ablation.
        known: What the store of the report knows.
    """
    curves = [item.record for item in items]
    first = curves[0]
    names = curve_names(curves)
    chart = curves_chart(curves, has_labels=False)
    caption = CAPTION.format(first.grid.noun)
    figures = [ReportFigure((inline(chart),), caption, wide=True)]
    tables = [curve_summary(curves)]
    folded_tables = []
    for curve, name in zip(curves, names, strict=True):
        figures.append(_order_figure(curve, name))
        folded_tables.append(Folded(curve_points(curve, name)))
    renewals = dict.fromkeys(order_renewal_of(curve.spec) for curve in curves)
    notes = [f"Ordered by {order}." for order in renewals if order]
    names_text = ", ".join(names) if len(names) <= MAX_NAMED else f"{len(names)} curves"
    return Section(
        f"Accuracy on {first.spec['task']['name']} ({first.split}) as {first.grid.noun} leave: {names_text}",
        "pruning curves",
        model_of(first.spec),
        figures,
        [*tables, *folded_tables],
        [*notes, *equal_texts_notes(items)],
        list(map(origin_of, items, names)),
        joined([known.again("curve", curve.spec) for curve in curves]),
    )


def _order_figure(curve: Curve, name: str) -> ReportFigure:
    """The map of when each head is removed."""
    cells = order_cells(curve.grid, curve.order.tolist())
    maps = stack_maps(curve.grid, cells, f"order of removal, {name}")
    return ReportFigure(maps, f"{name}: when each head is removed (1 is the first)")
