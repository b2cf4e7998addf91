"""Records as figures: the figures hold the records' numbers, and nothing global changes."""

from __future__ import annotations

import json

import numpy as np
import plotly.io
import pytest
from cached_scores import GRID, HARMFUL, HELPFUL, made_up

from headlab import plots
from headlab.records import HeadGrid, Stack
from headlab.scores import Curve, HeadScores, band


def test_a_head_map_shows_every_value_on_a_symmetric_scale_around_0():
    scores = made_up("de", "shapley")
    (heat,) = plots.head_map(scores).data
    np.testing.assert_allclose(np.array(heat.z, float), scores.values.reshape(12, 12))
    assert (heat.zmin, heat.zmax) == (-0.08, 0.08)
    assert heat.text[3][7] == "●"
    assert np.sum(np.array(heat.text) == "●") == int((scores.helpful | scores.harmful).sum())


def test_an_unsigned_method_gets_a_scale_from_0():
    (heat,) = plots.head_map(made_up("de", "gradient"), limit=0.2).data
    assert (heat.zmin, heat.zmax) == (0, 0.2)


def test_a_head_map_has_one_map_a_stack_and_rows_of_any_length():
    grid = HeadGrid((Stack("encoder", (2, 3)), Stack("cross", (1,))))
    values = np.arange(6.0)
    figure = plots.head_map(HeadScores(grid, "de", "gradient", values, "gradient", "loss", 0, 0.0))
    assert [trace.name for trace in figure.data] == ["encoder", "cross"]
    assert [list(row) for row in figure.data[0].z] == [[0, 1], [2, 3, 4]]


def test_agreement_writes_every_correlation_and_admits_what_is_undefined():
    rho = np.array([[1.0, -0.25], [-0.25, 1.0]])
    (heat,) = plots.agreement(rho, ["de", "th"]).data
    assert [list(row) for row in heat.text] == [["1.00", "-0.25"], ["-0.25", "1.00"]]
    assert (heat.zmin, heat.zmax) == (-1, 1)
    (undefined,) = plots.agreement(np.array([[1.0, np.nan], [np.nan, 1.0]]), ["de", "th"]).data
    assert undefined.text[0][1] == "–"


def test_across_languages_colours_by_what_the_interval_says():
    values = np.array([1.0, -1.0, 0.5, 2.0])
    low, high = np.array([0.5, -2.0, -0.5, np.nan]), np.array([1.5, -0.5, 1.5, np.nan])
    figure = plots.across_languages(["de", "th", "fi", "hu"], values, low, high, "points")
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert [dot.marker.color for dot in dots] == [plots.HELPS, plots.HARMS, plots.UNSURE, plots.UNSURE]
    assert [dot.x[0] for dot in dots] == values.tolist()
    assert "[" not in dots[3].hovertemplate.removesuffix("<extra></extra>")


def test_a_distribution_has_every_head():
    scores = {code: made_up(code, "shapley").values for code in ("de", "th")}
    figure = plots.distribution(scores, "accuracy")
    assert [(box.name, len(box.x)) for box in figure.data] == [("de", GRID.size), ("th", GRID.size)]


def test_one_limit_for_all_maps():
    assert plots.symmetric_limit([np.array([0.1, -0.4]), np.array([0.2])]) == pytest.approx(0.4)
    assert plots.symmetric_limit([np.zeros(3)]) == 1.0
    assert plots.symmetric_limit([]) == 1.0


def curve(right: list[int], ordering: str = "shapley", language: str = "de") -> Curve:
    """Of 8 heads, at evenly spaced counts, with so many of 100 answers right; intervals two points wide."""
    correct = np.arange(100)[None, :] < np.array(right)[:, None]
    difference = (np.array(right) - right[0]) / 100
    removed = np.arange(len(right)) * 8 // (len(right) - 1)
    return Curve(
        HeadGrid((Stack("encoder", (4, 4)),)), language, "test", ordering, np.arange(8), removed, correct,
        np.arange(100), difference - 0.01, difference + 0.01, np.ones(len(right)), 0, 0.0,
    )  # fmt: skip


def test_a_curve_figure_has_a_line_an_interval_and_a_name_for_every_curve():
    one, other = curve([80, 82, 70, 50, 10]), curve([80, 60, 40, 30, 10], "random")
    shade, line, *_ = (figure := plots.curve_figure([one, other])).data
    assert (list(line.x), list(line.y)) == ([0, 2, 4, 6, 8], one.accuracy.tolist())
    np.testing.assert_allclose(shade.y[:5], 0.8 + one.high)
    np.testing.assert_allclose(shade.y[5:], (0.8 + one.low)[::-1])
    assert list(shade.x) == [0, 2, 4, 6, 8, 8, 6, 4, 2, 0]
    np.testing.assert_allclose(line.customdata[2], [-10, -11, -9])
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert [trace.name for trace in lines] == ["shapley", "random"]
    assert [trace.line.color for trace in lines] == list(plots.LINES[:2])
    assert len(set(plots.LINES)) == len(plots.LINES)
    assert not figure.layout.showlegend


def test_a_curve_is_named_where_it_is_farthest_from_the_others():
    figure = plots.curve_figure([curve([80, 82, 70, 50, 10]), curve([80, 60, 60, 48, 10], "random")])
    upper, lower = figure.layout.annotations
    assert (upper.text, upper.x, upper.y, upper.yshift) == ("shapley", 2, 0.82, 12)
    assert (lower.text, lower.x, lower.y, lower.yshift) == ("random", 2, 0.6, -12)
    three = [[80, 80, 80, 80, 10], [80, 70, 60, 70, 10], [80, 68, 10, 40, 10]]
    shifts = [
        a.yshift
        for a in plots.curve_figure([curve(y, n) for y, n in zip(three, "abc", strict=True)]).layout.annotations
    ]
    assert shifts == [12, -12, -12]  # away from the nearest line
    (alone,) = plots.curve_figure([curve([80, 10])]).layout.annotations
    assert (alone.text, alone.yshift) == ("shapley", 12)


def test_curves_are_named_by_what_tells_them_apart():
    def names(*curves: Curve) -> list[str]:
        return [trace.name for trace in plots.curve_figure(curves).data if trace.mode == "lines"]

    points = [80, 40, 10]
    assert names(curve(points), curve(points, language="th")) == ["de", "th"]
    assert names(curve(points), curve(points, "random", "th")) == ["de shapley", "th random"]
    assert names(curve(points)) == ["shapley"]
    assert names() == []


def test_a_band_lies_behind_the_curves_in_grey():
    runs = [curve([80, low, 10], "random") for low in (30, 50, 40)]
    shade, median, *rest = plots.curve_figure([curve([80, 70, 60, 20, 10])], band(runs)).data
    np.testing.assert_allclose(shade.y, [0.8, 0.5, 0.1, 0.1, 0.3, 0.8])
    assert list(median.y) == [0.8, 0.4, 0.1]
    assert list(median.x) == [0, 4, 8]
    assert (median.name, median.line.color) == ("random, median of 3", plots.UNSURE)
    assert len(rest) == 2


@pytest.mark.parametrize("template", [None, "plotly_dark"])
def test_figures_are_transparent_valid_json_and_change_no_default(template):
    before = plotly.io.templates.default
    scores = made_up("de", "shapley")
    for figure in (plots.head_map(scores, template=template), plots.curve_figure([curve([80, 10])], template=template)):
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
        assert json.loads(figure.to_json())["data"]
    assert plotly.io.templates.default == before
    assert scores.values[HARMFUL] < 0 < scores.values[HELPFUL]
