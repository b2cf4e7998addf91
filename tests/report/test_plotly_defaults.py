"""Figures of packages in a file: what they leave to Plotly is as Plotly has it."""

from __future__ import annotations

import re

import plotly.graph_objects as go
import pytest
from errors import raises

from headlab.pictures import LINES, SEQUENTIAL
from headlab.report.figures import translated


def drawing(*traces: object, **layout: object) -> str:
    return translated(go.Figure(list(traces), layout), "toy")[0]


def strokes(svg: str) -> list[str]:
    """The colours of the lines of a plot, in their order."""
    return re.findall(r'fill="none" stroke="(#\w+)"', svg)


def test_lines_without_a_colour_differ():
    svg = drawing(*(go.Scatter(x=[0, 1], y=[0, n], name=str(n)) for n in range(3)))
    assert set(LINES[:3]) <= set(strokes(svg))


def test_colours_are_those_that_the_figure_names():
    named = go.Scatter(x=[0, 1], y=[0, 1], line={"color": "#111111"})
    marked = go.Scatter(x=[0, 1], y=[1, 0], marker={"color": "#222222"})
    plain = go.Scatter(x=[0, 1], y=[1, 1])
    svg = drawing(named, marked, plain, colorway=["#333333", "#444444", "#555555"])
    assert {"#111111", "#222222", "#555555"} <= set(strokes(svg))
    assert not {"#333333", "#444444"} & set(strokes(svg))


@pytest.mark.parametrize(("points", "markers"), [(1, 1), (19, 19), (20, 0)])
def test_short_lines_have_markers(points: int, markers: int):
    svg = drawing(go.Scatter(x=list(range(points)), y=list(range(points))))
    assert svg.count("<circle") == markers


def test_a_line_without_x_counts_its_points_and_a_gap_is_no_point():
    svg = drawing(go.Scatter(y=[1.0, None, 3.0], mode="markers"))
    assert svg.count("<circle") == 2


def test_names_stand_on_the_axis_in_their_order():
    de, th = (
        go.Scatter(x=["de", "en"], y=[1, 2], mode="markers"),
        go.Scatter(x=["th", "de"], y=[3, 4], mode="markers"),
    )
    svg = drawing(de, th)
    words = re.findall(r"<text[^>]*>(\w+)</text>", svg)
    assert [word for word in words if word in ("de", "en", "th")] == ["de", "en", "th"]
    assert svg.count("<circle") == 4


def test_a_map_without_colours_has_those_of_headlab():
    svg = drawing(go.Heatmap(z=[[0.0, 1.0]]))
    assert SEQUENTIAL[0][1] in svg
    assert SEQUENTIAL[-1][1] in svg


def test_a_map_has_the_colours_that_plotly_knows_by_name():
    svg = drawing(go.Heatmap(z=[[0.0, 1.0]], colorscale="Viridis"))
    assert "#440154" in svg
    assert "#fde725" in svg
    svg = drawing(go.Heatmap(z=[[0.0, 1.0]], colorscale="Blues"))
    assert "#08306b" in svg  # Plotly gives it as rgb(8,48,107)


def test_a_map_has_the_colours_of_its_axis():
    axis = {"colorscale": [[0, "#000000"], [1, "#ffffff"]]}
    svg = drawing(go.Heatmap(z=[[0.0, 1.0]], coloraxis="coloraxis"), coloraxis=axis)
    assert "#000000" in svg
    assert "#ffffff" in svg


def test_a_figure_that_cannot_be_drawn_is_named_with_the_reason():
    with raises("figure.part_unknown", "toy", "TypeError"):
        drawing(go.Scatter(x=[0, 1], y=[[0], [1]]))
    with raises("figure.part_unknown", "toy", "ValueError"):
        drawing(go.Heatmap(z=[[0.0, 1.0]], colorscale=[[0, "red"], [1, "blue"]]))
