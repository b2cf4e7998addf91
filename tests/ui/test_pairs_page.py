"""The Pairs page with made-up results, its form, and the pairs on the page of one head."""

from __future__ import annotations

import json

import pytest
import streamlit as st
from support.app_pages import app_on, page_text, run_page
from support.cached_reports import keep_report
from support.cached_scores import fill_cache
from support.fake_client import FakeClient, FakeWorker
from support.page_actions import press
from support.submitted_jobs import submitted_jobs
from support.synthetic_pairs import made_pairs

from headlab.charts.studies.interactions import OPEN_DRAWN
from headlab.dashboard.frame import Choice, worker_supervisor
from headlab.dashboard.pages.pairs.form import FORM, PLACE, WAY, PairsForm
from headlab.dashboard.pages.pairs.page import left_out_words
from headlab.studies.interactions import PairInteraction

pytestmark = pytest.mark.usefixtures("native_buttons")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """An app without a worker, with made-up scores and two reports of pairs."""
    root = fill_cache(tmp_path_factory.mktemp("cache"))
    keep_report(root, made_pairs(), 20)
    keep_report(root, made_pairs(("de",), seed=1), 21)
    with app_on(root):
        yield root


@pytest.fixture
def empty_cache(tmp_path):
    """An app with scores and without pairs, for one test."""
    root = fill_cache(tmp_path)
    with app_on(root):
        yield root


def pairs(**query):
    return run_page("pairs", **{"langs": ["de", "th"], **query})


def figures_of(app):
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


@pytest.mark.usefixtures("cache")
def test_the_newest_result_is_drawn_and_said_in_words():
    app = pairs()
    text = page_text(app)
    assert "Of 3 pairs, 2 decided." in text
    assert "stand in for each other: 9.3 and 9.4: −2.50 [−4.00, −1.00] points." in text
    assert "These need each other: 9.4 and 10.6: +1.25 [+0.10, +2.50] points." in text
    assert "1 of them with all pairs tested together." in text
    graph, sets = figures_of(app)
    names = [trace["name"] for trace in graph["data"]]
    assert names.count("open") == 1
    dashes = {
        trace["name"]: trace["line"].get("dash") for trace in graph["data"] if "line" in trace
    }
    assert dashes["open"] == "dot"
    assert dashes["stand in for each other"] in (None, "solid")
    assert {"with pairs", "sum of each alone"} <= {trace["name"] for trace in sets["data"]}


@pytest.mark.usefixtures("cache")
def test_another_result_and_language_are_chosen_and_linked():
    app = pairs()
    box = app.selectbox(key="pairs")
    assert len(box.options) == 2
    older = next(option for option in box.options if "Thai" in option)
    app.selectbox(key="pairs").select(older).run()
    assert not app.exception
    assert app.query_params["pairs"]
    app.selectbox(key="focus").select("th").run()
    assert "−2.60" in page_text(app)
    again = pairs(pairs=app.query_params["pairs"], focus="th")
    assert "−2.60" in page_text(again)


@pytest.mark.usefixtures("cache")
def test_a_link_to_a_result_that_is_gone_says_so():
    app = pairs(pairs="000000000000")
    assert not app.exception
    assert any("report" in warning.value for warning in app.warning)


@pytest.mark.usefixtures("empty_cache")
def test_without_a_result_the_page_offers_to_measure_one():
    app = pairs()
    assert any("No pairs" in info.value for info in app.info)


@pytest.mark.usefixtures("cache")
def test_one_head_lists_its_pairs():
    app = run_page("head", langs=["de", "th"], head="9.4", focus="de")
    assert not app.exception
    text = page_text(app)
    assert "Which heads does it work with?" in text
    assert "2 of 2 decided" in text
    other = run_page("head", langs=["de", "th"], head="0.0", focus="de")
    assert "Which heads does it work with?" not in page_text(other)


def test_pairs_of_other_weights_are_no_heads_pairs(tmp_path):
    root = fill_cache(tmp_path)
    keep_report(root, made_pairs(weights="1" * 64), 22)
    with app_on(root):
        app = run_page("head", langs=["de", "th"], head="9.4", focus="de")
        assert not app.exception
        assert "Which heads does it work with?" not in page_text(app)


def test_open_pairs_that_are_left_out_are_counted():
    pair = PairInteraction("de", "9.3", "9.4", 0.2, -1.0, 1.4, 0.7, 0.7, 512)
    assert left_out_words([pair] * OPEN_DRAWN) == ""
    assert left_out_words([pair] * 190) == " The 40 largest of 190 open pairs are drawn."


@pytest.mark.usefixtures("cache")
def test_the_fields_have_words_of_a_page():
    app = pairs()
    labels = {field.label for field in (*app.number_input, *app.text_input, *app.selectbox)}
    assert {
        "Number of heads",
        "Half-width to reach",
        "Only pairs with head",
        "Samples a pair, at most",
        "Value of an answer",
    } <= labels


@pytest.mark.usefixtures("cache")
def test_scores_of_other_settings_choose_no_heads():
    app = pairs(langs=["de"])
    assert "The stored scores of" not in page_text(app)
    app.number_input(key="pairs-seed").set_value(1).run()
    assert "The stored scores of German (de) are made with seed 0." in page_text(app)
    app.number_input(key="pairs-seed").set_value(0)
    app.number_input(key="pairs-dev_size").set_value(64).run()
    assert "made with 512 examples of dev." in page_text(app)


def test_ray_is_offered_where_the_worker_has_one(tmp_path, monkeypatch):
    root = fill_cache(tmp_path)
    client = FakeClient()
    monkeypatch.setattr(worker_supervisor, "FRESH_SECONDS", 0.0)
    with app_on(root, lambda: FakeWorker(client)):
        app = pairs(langs=["de"])
        assert not [radio for radio in app.radio if radio.label == "Where it runs"]
        client.ray = "local"
        app = pairs(langs=["de"])
        assert app.radio(key=FORM.key(PLACE)).value == "here"
        press(app, "pairs-start")
        app.radio(key=FORM.key(PLACE)).set_value("ray").run()
        assert "Ray workers share it" in page_text(app)
        press(app, "pairs-start")
    assert [job.place for job in submitted_jobs(client)] == ["here", "ray"]


def choice(**fields):
    return Choice(
        **{"model": "m", "task": "intents", "languages": ("de",), "method": "shapley", **fields}
    )


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setattr(st, "session_state", {})


@pytest.mark.usefixtures("session")
def test_the_form_makes_the_job_of_its_way():
    form = PairsForm(choice())
    values = {FORM.key(WAY): "heads", FORM.key("heads"): "9.3,9.4", FORM.key("samples"): 64}
    job = form.job(values)
    assert job.options == {
        "of": None,
        "samples": 64,
        "target": 0.01,
        "value": "accuracy",
        "heads": "9.3,9.4",
    }
    layer = form.job({FORM.key(WAY): "layer", FORM.key("layer"): "9"})
    assert layer.options["layer"] == "9"
    assert "heads" not in layer.options
