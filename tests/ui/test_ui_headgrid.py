"""The head grid's Python side: what it sends, and which events it believes. Clicks are tests/browser's."""

from __future__ import annotations

import json

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from headlab.records import HeadGrid, Stack
from headlab.scores import HeadScores
from headlab.ui.headgrid import score_marks, score_tips, symmetric_limit

GRID = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (4,))))


def scores(unit="accuracy", **more):
    values = np.linspace(-0.04, 0.04, GRID.size)
    return HeadScores(GRID, "de", "shapley", values, "shapley-top50", unit, 1, 1.0, **more)


def sent(app):
    """What the page sends to the browser, component by component."""
    return [json.loads(node.proto.json) for node in app.main if node.type == "bidi_component"]


def page():
    import numpy as np
    import streamlit as st

    from headlab.records import HeadGrid, Stack
    from headlab.ui.headgrid import head_map, head_switches

    grid = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (4,))))
    values = np.array([0.1, -0.2, np.nan, 0, 0, 0, 0, 0, 0.05])
    told = st.session_state.setdefault("told", [])
    marks = np.abs(np.nan_to_num(values)) > 0.06
    head_map(values, grid, key="map", title="<b>", marks=marks, selected=grid.heads[8], on_click=told.append)
    head_map(values, grid, key="plain", title="plain", limit=2.0, compact=True)
    head_switches(values, grid, values == 0, key="switches", on_switch=lambda *of: told.append(of))


def test_the_grid_draws_any_shape_with_its_marks_gaps_and_selection():
    app = AppTest.from_function(page).run()
    assert not app.exception
    first, plain, switches = sent(app)
    assert first["stacks"] == [{"name": "encoder", "heads": [3, 2]}, {"name": "cross", "heads": [4]}]
    assert first["values"] == [0.1, -0.2, None, 0, 0, 0, 0, 0, 0.05]
    assert first["limit"] == 0.2
    assert first["marks"] == [1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert (first["mode"], first["selected"], first["clickable"]) == ("map", 8, True)
    assert (plain["limit"], plain["compact"], plain["selected"], plain["clickable"]) == (2.0, True, -1, False)
    assert (switches["mode"], switches["off"], switches["key"]) == ("switch", [0, 1, 2, 8], "switches")
    assert switches["taken"] == {}


def press(app, key, value):
    """What the page is told of one press in the browser."""
    log, told = app.session_state["_presses"], app.session_state["told"]
    told.clear()
    log.take({"tab": "x", "presses": [[log.taken.get("x", 0) + 1, key, value]]})
    return told


def test_a_press_switches_the_heads_that_it_names():
    app = AppTest.from_function(page).run()
    [(heads, on)] = press(app, "switches", {"heads": [0, 4], "on": False})
    assert np.flatnonzero(heads).tolist() == [0, 4]
    assert on is False
    assert press(app, "map", 4) == [GRID.heads[4]]
    assert sent(app.run())[2]["taken"] == {"x": 2}


def test_heads_that_do_not_exist_are_ignored():
    app = AppTest.from_function(page).run()
    strange = [-1, 9, 10**9, "3", 2.5, None]
    [(heads, _)] = press(app, "switches", {"heads": [*strange, 4], "on": True})
    assert np.flatnonzero(heads).tolist() == [4]
    assert [press(app, "map", value) for value in strange] == [[]] * 6


def test_tips_say_value_half_width_and_samples_in_points():
    values = np.linspace(-0.04, 0.04, GRID.size)
    tips = score_tips(scores(low=values - 0.005, high=values + 0.005, samples=np.full(GRID.size, 1024)))
    assert tips[0] == "-4.00 points\n95% interval -4.50 to -3.50, half-width 0.50\n1,024 samples"
    assert tips[-1] == "+4.00 points\n95% interval +3.50 to +4.50, half-width 0.50\n1,024 samples"


def test_tips_of_a_method_without_intervals_name_its_unit():
    assert score_tips(scores(unit="loss"))[0] == "-0.04 (loss)"


def test_marks_are_the_heads_whose_interval_excludes_zero():
    values = np.linspace(-0.04, 0.04, GRID.size)
    marked = score_marks(scores(low=values - 0.015, high=values + 0.015))
    assert marked.tolist() == [True, True, True, False, False, False, True, True, True]
    assert not score_marks(scores()).any()


def test_one_outlier_does_not_set_the_scale_of_all_maps():
    maps = [np.full(144, 0.01), np.r_[np.full(143, 0.01), 5.0]]
    assert symmetric_limit(maps) == pytest.approx(0.01)


@pytest.mark.parametrize("maps", [[], [np.zeros(4)], [np.full(3, np.nan)]])
def test_a_map_without_any_value_still_has_a_scale(maps):
    assert symmetric_limit(maps) > 0
