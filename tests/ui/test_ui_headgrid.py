"""The head grid's Python side: what it sends, and which events it believes. Clicks are tests/browser's."""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest

from headlab.core import HeadGrid, Stack
from headlab.pictures import DIVERGING

GRID = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (4,))))


def sent(app):
    """What the page sends to the browser, component by component."""
    return [json.loads(node.proto.json) for node in app.main if node.type == "bidi_component"]


def page():
    import numpy as np
    import streamlit as st

    from headlab.core import HeadGrid, Stack
    from headlab.dashboard.widgets import draw_head_switches, draw_map
    from headlab.pictures import head_map

    grid = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (4,))))
    values = np.array([0.1, -0.2, np.nan, 0, 0, 0, 0, 0, 0.05])
    told = st.session_state.setdefault("told", [])
    marks = np.array([2, -1, 0, 0, 0, 0, 0, 0, 0])
    shown = head_map(values, grid, marks=marks)
    draw_map(shown, key="map", title="<b>", selected_head=grid.heads[8], on_click=told.append)
    named = ((0.1, "on"), (0, "off"), (np.nan, "gone"))
    draw_map(
        head_map(values, grid, limit=0.1, signed=False, named=named),
        key="plain",
        title="plain",
        compact=True,
    )
    draw_head_switches(
        shown,
        values == 0,
        key="switches",
        on_switch=lambda *of: told.append(of),
        group_sizes=(1, 2, 2),
    )


def test_the_grid_draws_any_shape_with_its_marks_gaps_and_selection():
    app = AppTest.from_function(page).run()
    assert not app.exception
    first, plain, switches = sent(app)
    alone = [
        {"name": "encoder", "heads": [3, 2], "together": []},
        {"name": "cross", "heads": [4], "together": []},
    ]
    assert first["stacks"] == plain["stacks"] == alone
    assert [stack["together"] for stack in switches["stacks"]] == [[1, 2], [2]]
    assert first["shares"] == [0.5, -1, None, 0, 0, 0, 0, 0, 0.25]
    assert (first["ends"], first["scale"]) == (
        ["−0.2", "0", "+0.2"],
        [colour for _, colour in DIVERGING],
    )
    assert first["marks"] == [2, -1, 0, 0, 0, 0, 0, 0, 0]
    assert first["meanings"] == {"1": "the head's own interval excludes 0"}
    assert (first["mode"], first["selected"], first["clickable"]) == ("map", 8, True)
    assert (plain["compact"], plain["selected"], plain["clickable"]) == (True, -1, False)
    assert plain["shares"] == [1, 0, None, 0, 0, 0, 0, 0, 0.5]
    assert (plain["ends"], plain["scale"]) == (
        ["0", "0.1"],
        [colour for _, colour in DIVERGING[2:]],
    )
    assert (first["named"], plain["named"]) == ([], [[1, "on"], [0, "off"], [None, "gone"]])
    assert (switches["mode"], switches["off"], switches["key"]) == (
        "switch",
        [0, 1, 2, 8],
        "switches",
    )
    assert switches["taken"] == {}


def press(app, key, value):
    """What the page is told of one press in the browser."""
    log = app.session_state["_presses"]
    told = app.session_state["told"]
    told.clear()
    log.take({"tab": "x", "presses": [[log.last_number_by_tab.get("x", 0) + 1, key, value]]})
    return told


def test_a_press_switches_the_heads_that_it_names():
    app = AppTest.from_function(page).run()
    [(heads, on)] = press(app, "switches", {"heads": [0, 4], "on": False})
    assert heads == [0, 4]
    assert on is False
    assert press(app, "map", 4) == [GRID.heads[4]]
    assert sent(app.run())[2]["taken"] == {"x": 2}


def test_heads_that_do_not_exist_are_ignored():
    app = AppTest.from_function(page).run()
    strange = [-1, 9, 10**9, "3", 2.5, None]
    [(heads, _)] = press(app, "switches", {"heads": [*strange, 4], "on": True})
    assert heads == [4]
    assert [press(app, "map", value) for value in strange] == [[]] * 6
