"""The head grid's Python side: what it sends to the browser, and which events it accepts.

Clicks in a browser are tested in tests/browser.
"""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest

from headlab.core import HeadGrid, Stack
from headlab.pictures import DIVERGING

GRID = HeadGrid(
    (
        Stack("encoder", (3, 2)),
        Stack("cross", (4,)),
    )
)


def component_data(app):
    """What the page sends to the browser, component by component."""
    components = [node for node in app.main if node.type == "bidi_component"]
    return [json.loads(component.proto.json) for component in components]


def page():
    import numpy as np
    import streamlit as st

    from headlab.core import HeadGrid, Stack
    from headlab.dashboard.widgets import draw_head_switches, draw_map
    from headlab.pictures import head_map

    grid = HeadGrid(
        (
            Stack("encoder", (3, 2)),
            Stack("cross", (4,)),
        )
    )
    values = np.array([0.1, -0.2, np.nan, 0, 0, 0, 0, 0, 0.05])
    events = st.session_state.setdefault("events", [])
    marks = np.array([2, -1, 0, 0, 0, 0, 0, 0, 0])
    score_map = head_map(values, grid, marks=marks)
    draw_map(score_map, key="map", title="<b>", selected_head=grid.heads[8], on_click=events.append)
    named_values = (
        (0.1, "on"),
        (0, "off"),
        (np.nan, "gone"),
    )
    draw_map(
        head_map(values, grid, limit=0.1, signed=False, named=named_values),
        key="plain",
        title="plain",
        compact=True,
    )
    draw_head_switches(
        score_map,
        values == 0,
        key="switches",
        title="Heads",
        on_switch=lambda *event: events.append(event),
        group_sizes=(1, 2, 2),
    )


def test_the_grid_draws_any_shape_with_its_marks_gaps_and_selection():
    app = AppTest.from_function(page).run()
    assert not app.exception
    signed_map, compact_map, switches = component_data(app)
    separate_stacks = [
        {"name": "encoder", "heads": [3, 2], "together": []},
        {"name": "cross", "heads": [4], "together": []},
    ]
    assert signed_map["stacks"] == compact_map["stacks"] == separate_stacks
    assert [stack["together"] for stack in switches["stacks"]] == [[1, 2], [2]]
    assert signed_map["shares"] == [0.5, -1, None, 0, 0, 0, 0, 0, 0.25]
    assert signed_map["ends"] == ["−0.2", "0", "+0.2"]
    assert signed_map["scale"] == [colour for _, colour in DIVERGING]
    assert signed_map["marks"] == [2, -1, 0, 0, 0, 0, 0, 0, 0]
    assert signed_map["meanings"] == {"1": "the head's own interval excludes 0"}
    assert signed_map["mode"] == "map"
    assert signed_map["selected"] == 8
    assert signed_map["clickable"] is True
    assert compact_map["compact"] is True
    assert compact_map["selected"] == -1
    assert compact_map["clickable"] is False
    assert compact_map["shares"] == [1, 0, None, 0, 0, 0, 0, 0, 0.5]
    assert compact_map["ends"] == ["0", "0.1"]
    assert compact_map["scale"] == [colour for _, colour in DIVERGING[2:]]
    assert signed_map["named"] == []
    assert compact_map["named"] == [
        [1, "on"],
        [0, "off"],
        [None, "gone"],
    ]
    assert switches["mode"] == "switch"
    assert switches["off"] == [0, 1, 2, 8]
    assert switches["key"] == "switches"
    assert switches["taken"] == {}


def press(app, key, value):
    """The events that the page receives for one press in the browser."""
    log = app.session_state["_presses"]
    events = app.session_state["events"]
    events.clear()
    next_number = log.last_number_by_tab.get("x", 0) + 1
    log.take({"tab": "x", "presses": [[next_number, key, value]]})
    return events


def test_a_press_switches_the_heads_that_it_names():
    app = AppTest.from_function(page).run()
    [(heads, is_on)] = press(app, "switches", {"heads": [0, 4], "on": False})
    assert heads == [0, 4]
    assert is_on is False
    assert press(app, "map", 4) == [GRID.heads[4]]
    assert component_data(app.run())[2]["taken"] == {"x": 2}


def test_heads_that_do_not_exist_are_ignored():
    app = AppTest.from_function(page).run()
    no_heads = [-1, 9, 10**9, "3", 2.5, None]
    [(heads, _)] = press(app, "switches", {"heads": [*no_heads, 4], "on": True})
    assert heads == [4]
    assert [press(app, "map", value) for value in no_heads] == [[]] * 6
