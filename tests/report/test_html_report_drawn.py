"""The report's drawings: colours, ticks, places, and the figures of `headlab.plots` as SVG."""

from __future__ import annotations

import dataclasses
import math
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
from errors import raises
from hypothesis import example, given
from hypothesis import strategies as st
from made_fronts import ORDERS, POINTS, made_front, point
from made_roles import GRID, OWN, made_roles, two_roles

from headlab import pictures
from headlab.core import HeadGrid, Report, Stack
from headlab.pictures import named, role_map_of
from headlab.plots.heads import share_map
from headlab.plots.lines import Dots, dots, orderings_figure
from headlab.plots.lines import Line as Curve
from headlab.plots.matrices import agreement, transfer_matrix
from headlab.report import figures, svg
from headlab.report.figures import translated
from headlab.report.maps import brief, mask_cells, scale_key, stack_maps
from headlab.report.svg import Box, Chart, Dot, Line, Words, draw
from headlab.roles import read

ONE = HeadGrid((Stack("encoder", (1,)),))
SVG = "{http://www.w3.org/2000/svg}"


def parsed(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)


def words_of(drawing: str) -> list[str]:
    return [str(e.text) for e in parsed(drawing).iter(f"{SVG}text")]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 9))
@example(879609.9999999999, 1e-06, 7)
def test_ticks_are_round_evenly_spaced_and_inside(low, span, most):
    found = svg.rounded(low, low + span, most)
    assert len(found) <= most
    rounding = 10 * np.spacing(abs(low) + span)  # far from 0 a small step has few digits
    room = 1e-6 * span + rounding
    assert all(low - room <= place <= low + span + room for place in found)
    for step in np.diff(found):
        lead = step / 10 ** math.floor(math.log10(step * (1 + 1e-9)))
        assert min(abs(lead - round_) for round_ in svg.STEPS) < 1e-3 + rounding / step


def test_an_axis_has_room_for_all_that_is_finite():
    low, high = svg.widened([3.0, math.nan, 5.0])
    assert low < 3 < 5 < high
    assert svg.widened([math.nan]) == (0, 1)
    assert svg.widened([2.0, 4.0], zero=True)[0] == 0
    assert svg.widened([2.0])[0] < 2


def test_texts_are_escaped_in_elements_and_attributes():
    drawing = svg.picture(10, 10, '"><script>', svg.words(0, 0, "<b>&"), svg.hint("</title>"))
    assert parsed(drawing).get("aria-label") == '"><script>'
    assert words_of(drawing) == ["<b>&"]


def test_a_label_that_is_too_long_is_cut():
    assert svg.shortened("short", 12, 100) == "short"
    cut = svg.shortened("x" * 200, 12, 100)
    assert cut.endswith("…")
    assert svg.width_of(cut, 12) <= 100
    assert svg.width_of("漢字", 12) > svg.width_of("ab", 12)


def test_a_map_has_a_cell_a_head_also_where_layers_differ_or_are_empty():
    grid = HeadGrid((Stack("encoder", (3, 0, 2)), Stack("cross", (20,))))
    one, other = stack_maps(grid, mask_cells(grid, np.arange(25) % 2 == 0), "mask")
    hints = [str(e.text) for e in parsed(one).iter(f"{SVG}title")]
    assert len(hints) == 5
    assert hints[:2] == ["layer 0, head 0: kept", "layer 0, head 1: removed"]
    assert hints[3] == "layer 2, head 0: removed"
    assert len(list(parsed(other).iter(f"{SVG}rect"))) == 20
    rows = sorted({float(str(e.get("y"))) for e in parsed(one).iter(f"{SVG}rect")})
    assert rows[1] - rows[0] == pytest.approx(2 * 28, abs=0.1)  # the empty layer keeps its place


@pytest.mark.parametrize(
    ("value", "limit", "words"),
    [(0.0, 8, "0"), (-0.04, 8, "0"), (1.26, 8, "1.3"), (-12.3, 20, "-12"), (0.48, 1, ".48"), (-0.004, 1, "0"),
     (-0.35, 0.5, "-.35"), (123456.0, 1e6, "1e+05")],
)  # fmt: skip
def test_a_cell_says_its_value_in_few_letters(value, limit, words):
    assert brief(value, limit) == words


def test_a_dot_stands_where_its_axes_say_and_its_interval_beside():
    x, y = svg.axis(0, 10), svg.axis(0, 100)
    chart = Chart(
        x,
        y,
        [Dot(5, 50, "#123456", low=40, high=60, along="y"), Line([0, 10], [0, 100], "#654321")],
        200,
        "c",
    )
    root = parsed(draw(chart))
    (circle,) = root.iter(f"{SVG}circle")
    path = next(str(e.get("d")) for e in root.iter(f"{SVG}path") if e.get("stroke") == "#654321")
    (x0, y0), (x1, y1) = (
        [float(n) for n in point.split()] for point in path.removeprefix("M").split("L")
    )
    assert float(str(circle.get("cx"))) == pytest.approx((x0 + x1) / 2, abs=0.1)
    assert float(str(circle.get("cy"))) == pytest.approx((y0 + y1) / 2, abs=0.1)
    span = next(
        str(e.get("d"))
        for e in root.iter(f"{SVG}path")
        if e.get("stroke") == "#123456" and "V" in str(e.get("d"))
    )
    ends = [float(part) for part in span.split(" ")[1].split("V")]
    assert ends == pytest.approx([y0 + 0.4 * (y1 - y0), y0 + 0.6 * (y1 - y0)], abs=0.1)


def test_a_line_is_broken_where_a_point_lacks_and_a_dot_without_a_place_is_left_out():
    chart = Chart(
        svg.axis(0, 3), svg.axis(0, 3),
        [Line([0, 1, 2, 3], [0, 1, math.nan, 3], "#111111"), Dot(math.nan, 1, "#222222")], 100, "c",
    )  # fmt: skip
    root = parsed(draw(chart))
    path = next(str(e.get("d")) for e in root.iter(f"{SVG}path") if e.get("stroke") == "#111111")
    assert path.count("M") == 2
    assert not list(root.iter(f"{SVG}circle"))


def test_names_that_are_too_wide_for_their_place_are_turned():
    few = Chart(
        svg.named(["a", "b"]), svg.named(["r"]), [Box(0, 0, "#ffffff"), Words(0, 0, "w")], 40, "c"
    )
    many = Chart(svg.named([f"language {n}" for n in range(20)]), svg.named(["r"]), [], 40, "c")
    assert "rotate" not in draw(few)
    assert "rotate" in draw(many)


# Plotly's figures.


def test_a_heat_map_has_a_cell_for_every_number_with_its_words_and_its_colour():
    values = np.array([[1.0, -2.0], [np.nan, 0.5]])
    chart, key = translated(
        transfer_matrix(values, values > 0, ["r1", "r2"], ["c1", "c2"]), "transfer"
    )
    root = parsed(chart)
    rects = list(root.iter(f"{SVG}rect"))
    assert [r.get("fill") for r in rects] == [
        pictures.on_scale(pictures.DIVERGING, 0.5 + v / 4) for v in (1.0, -2.0, 0.5)
    ]
    assert [str(e.text) for e in root.iter(f"{SVG}title")] == [
        "r1, c1: 1",
        "r1, c2: -2",
        "r2, c2: 0.5",
    ]
    told = words_of(chart)
    for word in ("+1.0●", "-2.0", "+0.5●", "r1", "c2", "chosen on", "tested on"):
        assert word in told, word
    assert {"-2", "0", "2", "points"} == set(words_of(key))
    assert {"−8.2", "0", "+8.2"} < set(
        words_of(scale_key([pictures.head_map(np.array([8.2]), ONE, unit="points")]))
    )


def test_a_map_without_names_counts_its_columns():
    (chart, _) = translated(share_map({("encoder", 0, 0): 10.0, ("encoder", 0, 2): 30.0}, "%"), "m")
    assert {"0", "1", "2", "10", "30"} <= set(words_of(chart))


def test_dots_keep_their_intervals_their_symbols_and_their_legend():
    of = Dots(
        np.array([1.0, 2.0]),
        np.array([0.5, np.nan]),
        np.array([1.5, np.nan]),
        np.array([True, False]),
    )
    (chart,) = translated(dots(["de", "th"], {"ours": of, "random": of}, "points"), "d")
    root = parsed(chart)
    assert {"de", "th", "points", "ours", "random"} <= set(words_of(chart))
    spans = [e for e in root.iter(f"{SVG}path") if "H" in str(e.get("d"))]
    assert len(spans) == 2
    fills = [str(e.get("fill")) for e in root.iter(f"{SVG}circle")]
    assert fills.count("none") == 1  # the unsure one is open


def test_lines_keep_their_areas_dashes_and_axes():
    line = Curve(
        np.array([0, 2, 4]), *(np.array([90.0, 80.0, 60.0]) + shift for shift in (0, -2, 2))
    )
    (chart,) = translated(orderings_figure({"shapley": line, "random": line}, "de"), "c")
    root = parsed(chart)
    areas = [e for e in root.iter(f"{SVG}path") if e.get("fill-opacity")]
    assert [e.get("fill") for e in areas] == [pictures.UNSURE, pictures.HELPS]
    assert {"heads removed", "accuracy in de, %", "0", "shapley"} <= set(words_of(chart))
    assert any(e.get("stroke-dasharray") == "2 3" for e in root.iter(f"{SVG}path"))


def test_the_front_of_a_report_has_a_dot_a_model_its_steps_and_its_answer():
    points = [*POINTS, point(ORDERS[0], 3, -0.2, -0.1)]  # the last is beaten
    (drawings,) = figures.drawn(made_front(points=points)).values()
    root = parsed(drawings[0])
    hints = [str(e.text) for e in root.iter(f"{SVG}title")]
    assert sum("heads kept, " in hint for hint in hints) == len(points)
    told = words_of(drawings[0])
    assert {
        "mean",
        "weakest",
        "the answer",
        "best for its size",
        "parameters kept, millions",
    } <= set(told)
    lines = [str(e.get("d")) for e in root.iter(f"{SVG}path") if e.get("stroke") == pictures.UNSURE]
    stairs = next(line for line in lines if line.count("L") > 1)
    corners = [tuple(map(float, corner.split())) for corner in stairs.removeprefix("M").split("L")]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
    assert any(e.get("opacity") for e in root.iter(f"{SVG}g"))  # those that another beats are faint


def test_a_figure_that_is_not_known_is_refused_and_not_drawn_in_part():
    with raises("figure.part_unknown", "bar"):
        translated(go.Figure(go.Bar(x=[1], y=[2])), "f")
    with raises("figure.template_unknown"):
        translated(
            go.Figure(go.Heatmap(z=[[1]], texttemplate="%{x}", colorscale=pictures.SEQUENTIAL)), "f"
        )


def test_a_heat_map_of_nothing_is_drawn():
    chart, _ = translated(agreement(np.full((2, 2), np.nan), ["a", "b"]), "f")
    assert not list(parsed(chart).iter(f"{SVG}rect"))


def test_without_plotly_the_reason_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "headlab.plots", None)
    with raises("package.plotly_missing", "pip install"):
        figures.drawn(Report("heads", ()))


def test_the_roles_of_a_report_are_the_map_of_the_page():
    report = made_roles()
    shown = role_map_of(read(report))
    (drawings,) = figures.drawn(report).values()
    hints = [str(e.text) for e in parsed(drawings[0]).iter(f"{SVG}title")]
    assert hints == [
        f"{named(h)}: {tip.replace(chr(10), ', ')}"
        for h, tip in zip(GRID.heads, shown.tips, strict=True)
    ]
    two = hints[GRID.heads.index(two_roles())]
    assert two.index("amod: dependent to governor") < two.index("first token")
    assert hints[-1] == "layer 2, head 2: no role"
    assert [text for text in words_of(drawings[0]) if text in shown.marks] == [
        mark for mark in shown.marks if mark
    ]
    legend = [text.split("  ")[-1] for text in words_of(drawings[1])]
    assert legend[:-1] == [f"{name}: {count}" for name, count in shown.counts.items()]
    assert legend[-1] == f"no role: {GRID.size - len(OWN) - 1}"


def test_a_damaged_report_of_roles_is_not_drawn():
    report = made_roles()
    roles = report.table("roles")
    broken = dataclasses.replace(
        roles, rows=((*roles.rows[0][:2], "x", *roles.rows[0][3:]), *roles.rows[1:])
    )
    with raises("roles.head_malformed"):
        figures.drawn(dataclasses.replace(report, tables=(report.tables[0], broken)))
