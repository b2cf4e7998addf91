"""Figures of packages in a file: what they leave to Plotly looks as Plotly draws it."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import pytest
from support.expected_errors import raises

from headlab.charts.chart import Cells, Chart, Line, Points
from headlab.pictures import LINE_COLOURS, SEQUENTIAL
from headlab.plots.reading import chart_of
from headlab.report.figures import inline

MAP_VALUES = [[0.0, 1.0]]


def chart(*traces: object, **layout: object) -> Chart:
    """The chart of a figure, which a file has too."""
    chart_read = chart_of(go.Figure(list(traces), layout), "toy")
    assert "<svg" in inline(chart_read)
    return chart_read


def colours(chart_read: Chart) -> list[str]:
    """The colours of the lines, in their order."""
    return [series.colour for series in chart_read.series if isinstance(series, Line)]


def dots(chart_read: Chart) -> int:
    """How many dots are drawn."""
    count = 0
    for series in chart_read.series:
        if not isinstance(series, Points):
            continue
        for x, y in zip(series.x, series.y, strict=True):
            count += math.isfinite(x) and math.isfinite(y)
    return count


def scale(chart_read: Chart) -> tuple[str, str]:
    """The first and the last colour of the map."""
    (cells,) = (series for series in chart_read.series if isinstance(series, Cells))
    return cells.scale[0][1], cells.scale[-1][1]


def test_lines_without_a_colour_differ():
    chart_read = chart(
        *(go.Scatter(x=[0, 1], y=[0, number], name=str(number)) for number in range(3))
    )
    assert colours(chart_read) == list(LINE_COLOURS[:3])


def test_colours_are_those_that_the_figure_names():
    coloured_line = go.Scatter(x=[0, 1], y=[0, 1], line={"color": "#111111"})
    line_with_markers = go.Scatter(x=[0, 1], y=[1, 0], marker={"color": "#222222"})
    plain_line = go.Scatter(x=[0, 1], y=[1, 1])
    chart_read = chart(
        coloured_line, line_with_markers, plain_line, colorway=["#333333", "#444444", "#555555"]
    )
    assert colours(chart_read) == ["#111111", "#222222", "#555555"]


@pytest.mark.parametrize(("points", "markers"), [(1, 1), (19, 19), (20, 0)])
def test_short_lines_have_markers(points: int, markers: int):
    values = list(range(points))
    assert dots(chart(go.Scatter(x=values, y=values))) == markers


def test_a_line_without_x_counts_its_points_and_a_gap_is_no_point():
    assert dots(chart(go.Scatter(y=[1.0, None, 3.0], mode="markers"))) == 2


def test_names_stand_on_the_axis_in_their_order():
    de = go.Scatter(x=["de", "en"], y=[1, 2], mode="markers")
    th = go.Scatter(x=["th", "de"], y=[3, 4], mode="markers")
    chart_read = chart(de, th)
    assert chart_read.x.ticks == ((0.0, "de"), (1.0, "en"), (2.0, "th"))
    assert dots(chart_read) == 4


def test_a_map_without_colours_has_those_of_headlab():
    chart_read = chart(go.Heatmap(z=MAP_VALUES))
    assert scale(chart_read) == (SEQUENTIAL[0][1], SEQUENTIAL[-1][1])


def test_a_map_has_the_colours_that_plotly_knows_by_name():
    chart_read = chart(go.Heatmap(z=MAP_VALUES, colorscale="Viridis"))
    assert scale(chart_read) == ("#440154", "#fde725")
    chart_read = chart(go.Heatmap(z=MAP_VALUES, colorscale="Blues"))
    assert scale(chart_read)[1] == "#08306b"  # Plotly gives it as rgb(8,48,107)


def test_a_map_has_the_colours_of_its_axis():
    axis = {"colorscale": [[0, "#000000"], [1, "#ffffff"]]}
    heatmap = go.Heatmap(z=MAP_VALUES, coloraxis="coloraxis")
    chart_read = chart(heatmap, coloraxis=axis)
    assert scale(chart_read) == ("#000000", "#ffffff")


def test_a_figure_that_cannot_be_drawn_is_named_with_the_reason():
    with raises("figure.part_unknown", "toy", "TypeError"):
        chart(go.Scatter(x=[0, 1], y=[[0], [1]]))
    with raises("figure.part_unknown", "toy", "ValueError"):
        chart(go.Heatmap(z=MAP_VALUES, colorscale=[[0, "red"], [1, "blue"]]))
