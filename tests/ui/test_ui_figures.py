"""Figures on a page: what their charts and save buttons receive.

Clicks in a browser are tested in tests/browser/test_heads.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from support.versioned_scores import keep_scores, versioned_scores

from headlab.dashboard.frame import Choice
from headlab.dashboard.panels.stored.page_report import page_report_name
from headlab.dashboard.widgets import file_stem_of
from headlab.results import Store


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


FORBIDDEN_ON_WINDOWS = set('<>:"/\\|?*')
TASKS_OF_ODD_NAMES = ("needle:40", "needle:400", 'a/b\\c*"?', "xnli")


@pytest.mark.parametrize("task", TASKS_OF_ODD_NAMES)
def test_files_of_a_page_have_names_that_any_system_takes(task: str) -> None:
    choice = Choice("owner/model", task, ("en",), "shapley")
    names = [
        f"{file_stem_of('heads', (choice.model, choice.task, choice.method))}.csv",
        page_report_name(choice, {}),
    ]
    for name in names:
        assert not set(name) & FORBIDDEN_ON_WINDOWS
    assert ("needle-40" in names[0]) == task.startswith("needle:40")


def test_pages_name_their_files_in_one_way() -> None:
    """Names that are put together by hand let a task's colon through."""
    by_hand = re.compile(
        r"""["'][^"'\n]*\{choice\.(task|model)\}[^"'\n]*\.(csv|json|html|png|svg)"""
    )
    folder = Path(str(resources.files("headlab.dashboard")))
    found = [
        path.name
        for path in sorted(folder.rglob("*.py"))
        if by_hand.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("task", ["needle:40", "needle:400"])
def test_the_cache_has_no_task_in_its_names(task: str, tmp_path: Path) -> None:
    scores = versioned_scores(3)
    spec = replace(scores.spec, task=replace(scores.spec.task, name=task))
    key = keep_scores(tmp_path, replace(scores, spec=spec))
    assert {path.name for path in tmp_path.rglob("*")} >= {key}
    for path in tmp_path.rglob("*"):
        assert not set(path.name) & FORBIDDEN_ON_WINDOWS
    (result,) = Store(tmp_path).scan().results
    assert result.record.spec.task.name == task
