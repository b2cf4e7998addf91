"""Records as figures: the figures hold the records' numbers, and nothing global changes."""

from __future__ import annotations

import json

import numpy as np
import plotly.io
import pytest
from cached_scores import GRID, HARMFUL, HELPFUL, made_up

from headlab import plots
from headlab.records import HeadGrid, Stack
from headlab.scores import HeadScores


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


@pytest.mark.parametrize("template", [None, "plotly_dark"])
def test_figures_are_transparent_valid_json_and_change_no_default(template):
    before = plotly.io.templates.default
    scores = made_up("de", "shapley")
    figure = plots.head_map(scores, template=template)
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert json.loads(figure.to_json())["data"]
    assert plotly.io.templates.default == before
    assert scores.values[HARMFUL] < 0 < scores.values[HELPFUL]
