"""The figure of a stored front: costs, and which models no other beats, are its table's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.synthetic_fronts import GRID, ORDERS, front_result

from headlab.charts.studies.front import figures
from headlab.plots.drawing import plotly_figure
from headlab.studies.pareto import Point


@pytest.mark.parametrize(
    ("counted", "best"), [(True, {(900, -2.0), (1000, 0.0)}), (False, {(6, -1.0), (8, 0.0)})]
)
def test_the_figure_of_a_stored_front_joins_what_its_table_calls_best_where_heads_cost_differently(
    counted, best
):
    rows = [("mean", 0, 8, 1000, 0.0), ("mean", 2, 6, 1000, -0.01), ("cost", 2, 6, 900, -0.02)]
    points = [
        Point(
            order,
            gone,
            kept,
            cost if counted else None,
            ("de",),
            (0.8,),
            (d,),
            (d,),
            (d,),
            (d,),
            d,
            d,
            d,
        )
        for order, gone, kept, cost, d in rows
    ]
    result = front_result({"smallest": points[2]}, points, ORDERS, GRID)
    (chart,) = figures(replace(result, loss=2.0)).values()
    figure = plotly_figure(chart)
    line = figure.data[0]
    ring = figure.data[-1]
    scale = 1e6 if counted else 1
    assert {(round(x * scale), y) for x, y in zip(line.x, line.y, strict=True)} == best
    assert (round(ring.x[0] * scale), ring.y[0]) == (900 if counted else 6, -2.0)
    assert ("parameters" in figure.layout.xaxis.title.text) is counted
