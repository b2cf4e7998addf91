"""The figure of a stored front, whose costs and best models are those of its table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.synthetic_fronts import GRID, ORDERS, front_result

from headlab.charts.studies.front import figures
from headlab.plots.drawing import plotly_figure
from headlab.studies.pareto import Point


@pytest.mark.parametrize(
    ("has_parameters", "expected_front"),
    [(True, {(900, -2.0), (1000, 0.0)}), (False, {(6, -1.0), (8, 0.0)})],
)
def test_the_figure_of_a_stored_front_joins_the_best_models_of_its_table_where_costs_differ(
    has_parameters, expected_front
):
    rows = [("mean", 0, 8, 1000, 0.0), ("mean", 2, 6, 1000, -0.01), ("cost", 2, 6, 900, -0.02)]
    points = []
    for order, removed_count, kept_count, parameters, difference in rows:
        point = Point(
            order,
            removed_count,
            kept_count,
            parameters if has_parameters else None,
            ("de",),
            (0.8,),
            (difference,),
            (difference,),
            (difference,),
            (difference,),
            difference,
            difference,
            difference,
        )
        points.append(point)
    result = front_result({"smallest": points[2]}, points, ORDERS, GRID)
    (chart,) = figures(replace(result, loss=2.0)).values()
    figure = plotly_figure(chart)
    line = figure.data[0]
    ring = figure.data[-1]
    scale = 1e6 if has_parameters else 1
    assert {(round(x * scale), y) for x, y in zip(line.x, line.y, strict=True)} == expected_front
    assert round(ring.x[0] * scale) == (900 if has_parameters else 6)
    assert ring.y[0] == -2.0
    assert ("parameters" in figure.layout.xaxis.title.text) is has_parameters
