"""The report's drawings: colours, ticks, positions, and the figures of `headlab.plots` as SVG."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
from support.expected_errors import raises
from support.synthetic_fronts import ORDERS, POINTS, made_front, made_point
from support.synthetic_roles import GRID, HEAD_ROLES, head_with_two_roles, made_roles

from headlab import pictures
from headlab.core import HeadGrid, Stack
from headlab.pictures import head_in_words, role_map_of
from headlab.plots.reading import chart_of
from headlab.report import figures, svg
from headlab.report.maps import brief, mask_cells, scale_key, stack_maps
from headlab.roles import read_roles

ONE_HEAD = HeadGrid((Stack("encoder", (1,)),))
SVG = "{http://www.w3.org/2000/svg}"


def root_of(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)


def style_of(element: ET.Element) -> str:
    return str(element.get("style"))


def texts_of_kind(drawing: str, kind: str) -> list[str]:
    """What stands in the drawing's elements of a kind."""
    elements = root_of(drawing).iter(f"{SVG}{kind}")
    return [str(element.text) for element in elements]


def texts_of(drawing: str) -> list[str]:
    return texts_of_kind(drawing, "text")


def test_texts_are_escaped_in_elements_and_attributes():
    drawing = svg.picture(
        10,
        10,
        '"><script>',
        svg.words(0, 0, "<b>&"),
        svg.hint("</title>"),
    )
    assert root_of(drawing).get("aria-label") == '"><script>'
    assert texts_of(drawing) == ["<b>&"]


def test_a_map_has_a_cell_a_head_also_where_layers_differ_or_are_empty():
    encoder = Stack("encoder", (3, 0, 2))
    cross = Stack("cross", (20,))
    grid = HeadGrid((encoder, cross))
    cells = mask_cells(grid, np.arange(25) % 2 == 0)
    encoder_map, cross_map = stack_maps(grid, cells, "mask")
    hints = texts_of_kind(encoder_map, "title")
    assert len(hints) == 5
    assert hints[:2] == ["layer 0, head 0: kept", "layer 0, head 1: removed"]
    assert hints[3] == "layer 2, head 0: removed"
    cross_cells = list(root_of(cross_map).iter(f"{SVG}rect"))
    assert len(cross_cells) == 20
    encoder_cells = root_of(encoder_map).iter(f"{SVG}rect")
    row_positions = {float(str(cell.get("y"))) for cell in encoder_cells}
    first_row, second_row, *_ = sorted(row_positions)
    # the empty layer keeps its place
    assert second_row - first_row == pytest.approx(2 * 28, abs=0.1)


@pytest.mark.parametrize(
    ("value", "limit", "words"),
    [
        (0.0, 8, "0"),
        (-0.04, 8, "0"),
        (1.26, 8, "1.3"),
        (-12.3, 20, "-12"),
        (0.48, 1, ".48"),
        (-0.004, 1, "0"),
        (-0.35, 0.5, "-.35"),
        (123456.0, 1e6, "1e+05"),
    ],
)
def test_a_cell_says_its_value_in_few_letters(value, limit, words):
    assert brief(value, limit) == words


def test_the_key_of_maps_on_one_scale_has_its_ends_and_unit():
    head_map = pictures.head_map(np.array([8.2]), ONE_HEAD, unit="points")
    key_texts = texts_of(scale_key([head_map]))
    assert {"−8.2", "0", "+8.2", "points"} == set(key_texts)


def test_the_front_of_a_report_has_a_dot_a_model_its_steps_and_its_answer():
    beaten_point = made_point(ORDERS[0], 3, -0.08, -0.05)
    points = [*POINTS, beaten_point]
    (drawings,) = figures.drawn(made_front(points=points)).values()
    root = root_of(drawings[0])
    hints = texts_of_kind(drawings[0], "title")
    hints_of_models = [hint for hint in hints if "heads kept, " in hint]
    assert len(hints_of_models) == len(points)
    texts = set(texts_of(drawings[0]))
    assert {"mean", "weakest", "the answer", "best for its size"} <= texts
    assert "parameters kept, millions" in texts
    lines = []
    for path in root.iter(f"{SVG}path"):
        if pictures.UNSURE in style_of(path):
            lines.append(str(path.get("d")))
    stairs = next(line for line in lines if line.count("L") > 1)
    corners = []
    for pair in re.split("[ML]", stairs):
        if pair:
            corners.append(tuple(map(float, pair.split())))
    for (x, y), (next_x, next_y) in pairwise(corners):
        assert x == next_x or y == next_y
    # Models that another beats are faint.
    styles = [style_of(element) for element in root.iter()]
    assert any("opacity: 0.4" in style for style in styles)


def test_a_plotly_figure_that_is_not_known_is_refused_and_not_drawn_in_part():
    bars = go.Figure(go.Bar(x=[1], y=[2]))
    with raises("figure.part_unknown", "bar"):
        chart_of(bars, "f")
    heat_of_other_texts = go.Figure(
        go.Heatmap(
            z=[[1]],
            texttemplate="%{x}",
            colorscale=pictures.SEQUENTIAL,
        )
    )
    with raises("figure.template_unknown"):
        chart_of(heat_of_other_texts, "f")


def test_the_roles_of_a_report_are_the_map_of_the_page():
    report = made_roles()
    role_map = role_map_of(read_roles(report))
    (drawings,) = figures.drawn(report).values()
    hints = texts_of_kind(drawings[0], "title")
    expected_hints = []
    for head, tip in zip(GRID.heads, role_map.tips, strict=True):
        tip_on_one_line = tip.replace("\n", ", ")
        expected_hints.append(f"{head_in_words(head)}: {tip_on_one_line}")
    assert hints == expected_hints
    hint_of_two_roles = hints[GRID.heads.index(head_with_two_roles())]
    place_of_first_role = hint_of_two_roles.index("amod: dependent to governor")
    place_of_second_role = hint_of_two_roles.index("first token")
    assert place_of_first_role < place_of_second_role
    assert hints[-1] == "layer 2, head 2: no role"
    drawn_marks = [text for text in texts_of(drawings[0]) if text in role_map.marks]
    assert drawn_marks == [mark for mark in role_map.marks if mark]
    legend = [text.split("  ")[-1] for text in texts_of(drawings[1])]
    role_counts = role_map.counts.items()
    assert legend[:-1] == [f"{name}: {count}" for name, count in role_counts]
    heads_without_role = GRID.size - len(HEAD_ROLES) - 1
    assert legend[-1] == f"no role: {heads_without_role}"


def test_a_damaged_report_of_roles_is_not_drawn():
    report = made_roles()
    roles = report.table("roles")
    first_row, *other_rows = roles.rows
    broken_row = (*first_row[:2], "x", *first_row[3:])
    broken = dataclasses.replace(roles, rows=(broken_row, *other_rows))
    broken_report = dataclasses.replace(report, tables=(report.tables[0], broken))
    with raises("roles.head_malformed"):
        figures.drawn(broken_report)
