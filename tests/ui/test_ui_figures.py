"""Figures on a page: what their charts and save buttons receive.

Clicks in a browser are tested in tests/browser/test_heads.py.
"""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest


def page() -> None:
    import plotly.graph_objects as go

    from headlab.dashboard.widgets import draw_figure

    with_height = go.Figure(go.Scatter(y=[1, 2]), {"height": 300})
    without_height = go.Figure(go.Scatter(y=[3]))
    draw_figure(with_height, "gain", alt="What is gained")
    draw_figure(without_height, "two", key="my key")


def test_a_figure_has_a_camera_and_buttons_that_name_its_chart() -> None:
    app = AppTest.from_function(page).run()
    assert not app.exception
    charts = [element.proto for element in app.get("plotly_chart")]
    configs = [json.loads(chart.config) for chart in charts]
    assert [config["modeBarButtons"] for config in configs] == [[["toImage"]]] * 2
    assert [config["toImageButtonOptions"]["filename"] for config in configs] == ["gain", "two"]
    assert charts[0].alt == "What is gained"
    buttons = [json.loads(element.proto.json) for element in app.get("bidi_component")]
    assert [data["chart"] for data in buttons] == ["figure-gain", "my-key"]
    for data, chart in zip(buttons, charts, strict=True):
        # streamlit names the chart's place on the page by its key
        assert f"-{data['chart']}" in chart.id
    saved_figure = json.loads(buttons[0]["figure"])
    layout = saved_figure["layout"]
    assert layout["paper_bgcolor"] == "white"
    title_height = layout["margin"]["t"]  # two lines of title
    assert layout["height"] == buttons[0]["height"] == 300 + title_height
    assert buttons[1]["height"] == 420  # the default, as the figure has no height


def page_of_a_choice() -> None:
    import plotly.graph_objects as go
    import streamlit as st

    from headlab.dashboard.frame import Choice
    from headlab.dashboard.widgets import draw_figure

    st.session_state["_choice"] = Choice("owner/model", "xnli", ("de",), "shapley")
    figure = go.Figure(go.Scatter(y=[1, 2]))
    draw_figure(figure, "gain", alt="What is gained; the table has the same")
    draw_figure(figure, "loss", alt="What is lost", subject_details="999 examples of test")


def test_a_saved_figure_says_what_it_is_of_in_its_name_and_above_it() -> None:
    app = AppTest.from_function(page_of_a_choice).run()
    assert not app.exception
    gain, loss = (json.loads(element.proto.json) for element in app.get("bidi_component"))
    assert gain["name"] == "gain-owner-model-xnli"
    assert loss["name"] == "loss-owner-model-xnli"
    gain_layout = json.loads(gain["figure"])["layout"]
    loss_layout = json.loads(loss["figure"])["layout"]
    assert gain_layout["title"]["text"].startswith("What is gained<br>")
    assert "owner/model, xnli<" in gain_layout["title"]["text"]
    assert "999 examples of test" in loss_layout["title"]["text"]
    assert gain["height"] == gain_layout["height"]
