"""Figures on a page: what the chart and its save buttons are given; clicks are in tests/browser/test_heads.py."""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest


def page() -> None:
    import plotly.graph_objects as go

    from headlab.dashboard.widgets import draw_figure

    draw_figure(go.Figure(go.Scatter(y=[1, 2]), {"height": 300}), "gain", alt="What is gained")
    draw_figure(go.Figure(go.Scatter(y=[3])), "two", key="my key")


def test_a_figure_has_a_camera_and_buttons_that_know_it() -> None:
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
    printed = json.loads(buttons[0]["figure"])
    assert printed["layout"]["paper_bgcolor"] == "white"
    above = printed["layout"]["margin"]["t"]  # two lines of title
    assert printed["layout"]["height"] == buttons[0]["height"] == 300 + above
    assert buttons[1]["height"] == 420  # where a figure names no height


def of_a_choice() -> None:
    import plotly.graph_objects as go
    import streamlit as st

    from headlab.dashboard.frame import Choice
    from headlab.dashboard.widgets import draw_figure

    st.session_state["_choice"] = Choice("owner/model", "xnli", ("de",), "shapley")
    draw_figure(
        go.Figure(go.Scatter(y=[1, 2])), "gain", alt="What is gained; the table has the same"
    )
    draw_figure(
        go.Figure(go.Scatter(y=[1, 2])),
        "loss",
        alt="What is lost",
        subject_details="999 examples of test",
    )


def test_a_saved_figure_says_what_it_is_of_in_its_name_and_above_it() -> None:
    app = AppTest.from_function(of_a_choice).run()
    assert not app.exception
    first, second = (json.loads(element.proto.json) for element in app.get("bidi_component"))
    assert (first["name"], second["name"]) == ("gain-owner-model-xnli", "loss-owner-model-xnli")
    titles = [json.loads(data["figure"])["layout"]["title"]["text"] for data in (first, second)]
    assert titles[0].startswith("What is gained<br>")
    assert "owner/model, xnli<" in titles[0]
    assert "999 examples of test" in titles[1]
    assert first["height"] == json.loads(first["figure"])["layout"]["height"]
