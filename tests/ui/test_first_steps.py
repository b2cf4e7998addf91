"""The Overview where nothing is computed yet: three steps, and a first map that starts by itself."""

from __future__ import annotations

import dataclasses

import pytest
from support.app_pages import page_text, run_page
from support.cached_scores import fill_cache, made_scores
from support.fake_client import loaded_model
from support.page_actions import press
from support.submitted_jobs import submitted_jobs

from headlab.core import HeadlabError
from headlab.methods import DEFAULT_METHOD, FIRST_MAP_METHOD
from headlab.results import Store
from headlab.worker.schemas import Finding

pytestmark = pytest.mark.usefixtures("native_buttons")


def overview(**query):
    """The Overview after its second run: what starts by itself waits until the browser has drawn."""
    return run_page("overview", **query).run()


def first_map_jobs(worker):
    return [job for job in submitted_jobs(worker) if job.params["method"] == FIRST_MAP_METHOD]


def keep_first_map(cache, *languages):
    """Store made-up scores of a first map."""
    for language in languages:
        scores = made_scores(language, "gradient")
        method = {"name": FIRST_MAP_METHOD, "options": {}, "version": 1}
        first_map = dataclasses.replace(
            scores,
            method=FIRST_MAP_METHOD,
            low=None,
            high=None,
            samples=None,
            p_values=None,
            sampling_error=abs(scores.values) / 10,
            spec={**scores.spec, "method": method},
        )
        keep(cache, first_map)


def keep(cache, scores):
    """Store made-up scores."""
    meta = {"created": "2026-11-21T05:00:00+00:00", "versions": {}}
    Store(cache).run(scores.spec).finish(scores, meta)


def test_on_an_empty_cache_a_first_map_is_started_once_and_the_sidebar_says_so(worker):
    app = overview(langs=["de", "th"])
    words = page_text(app)
    assert "Three steps to a map" in words
    assert "**1. Your model:** e5-small-intents" in words
    assert "**2. Your data:** intents, 2 languages" in words
    (job,) = submitted_jobs(worker)
    assert job.params["method"] == FIRST_MAP_METHOD
    assert job.params["languages"] == ["de", "th"]
    assert app.selectbox(key="method").value == FIRST_MAP_METHOD
    # Who then chooses another method, or comes back, is left alone.
    app.selectbox(key="method").set_value(DEFAULT_METHOD).run()
    app.run()
    assert app.selectbox(key="method").value == DEFAULT_METHOD
    assert len(submitted_jobs(worker)) == 1
    app.selectbox(key="task").set_value("slots").run().run()  # another subject has its own
    assert len(first_map_jobs(worker)) == 2


def test_a_first_map_that_is_there_is_shown_and_not_computed_again(worker, cache):
    keep_first_map(cache, "de", "th")
    app = overview(langs=["de", "th"])
    assert app.selectbox(key="method").value == FIRST_MAP_METHOD
    assert not submitted_jobs(worker)
    words = page_text(app)
    assert "First map:** by `smoothed`, shown here." in words
    assert "They can be stopped at any time; finished work is kept." in words
    press(app, "compute-shapley")
    (job,) = submitted_jobs(worker)
    assert job.params["method"] == DEFAULT_METHOD
    assert job.params["languages"] == ["de", "th"]


def test_shapley_values_that_are_there_are_one_press_away(worker, cache):
    keep_first_map(cache, "de", "th")
    fill_cache(cache)
    app = overview(langs=["de", "th"], method=FIRST_MAP_METHOD)
    assert "Three steps" not in page_text(app)
    press(app, "show-shapley")
    assert app.selectbox(key="method").value == DEFAULT_METHOD
    assert not submitted_jobs(worker)


@pytest.mark.parametrize(
    "linked", [{"method": DEFAULT_METHOD}, {"model": "e5-small-intents"}, {"task": "intents"}]
)
def test_a_link_to_something_starts_nothing_without_a_click(worker, linked):
    app = overview(langs=["de"], **linked)
    assert app.selectbox(key="method").value == DEFAULT_METHOD
    assert not submitted_jobs(worker)
    press(app, "first-map")
    (job,) = submitted_jobs(worker)
    assert job.params["method"] == FIRST_MAP_METHOD
    assert app.selectbox(key="method").value == FIRST_MAP_METHOD


def test_what_is_chosen_after_a_link_has_its_first_map(worker):
    app = overview(langs=["de"], model="e5-small-intents", task="intents")
    assert not submitted_jobs(worker)
    app.selectbox(key="task").set_value("slots").run().run()
    assert len(first_map_jobs(worker)) == 1


def test_a_model_that_is_brought_after_a_link_has_its_first_map(worker):
    app = overview(langs=["de"], task="intents")
    assert not submitted_jobs(worker)
    app.text_input(key="_named").set_value("owner/name").run().run()
    (job,) = first_map_jobs(worker)
    assert job.params["model"] == "owner/name"


def test_a_model_chosen_after_a_first_map_that_failed_has_its_own_and_no_error_of_the_other(worker):
    app = overview(langs=["de"])
    (failed_job,) = first_map_jobs(worker)
    worker.change(1, state="failed", error="e5-small-intents distinguishes 17 classes")
    app.run()
    assert "e5-small-intents distinguishes 17 classes" in page_text(app)
    assert app.selectbox(key="method").value == FIRST_MAP_METHOD
    app.text_input(key="_named").set_value("owner/name").run().run()
    assert [job.params["model"] for job in first_map_jobs(worker)] == [
        failed_job.params["model"],
        "owner/name",
    ]
    assert "distinguishes 17 classes" not in page_text(app)
    app.selectbox(key="model").set_value("e5-small-intents").run().run()
    assert len(first_map_jobs(worker)) == 2  # what failed is not tried again without a click


NO_CLASSIFIER = Finding(what="Labels", ok=False, words="LlamaForCausalLM is no classifier.")


def test_a_model_that_cannot_do_the_task_is_said_with_ways_on_and_nothing_is_offered(worker, cache):
    fill_cache(cache)  # so that another model can do the task
    scores = made_scores("de", "shapley", "1" * 64, "talker")
    of_repeats = {**scores.spec, "task": {**scores.spec["task"], "name": "repeats"}}
    keep(cache, dataclasses.replace(scores, spec=of_repeats))
    worker.findings_by_subject["talker", "intents"] = [NO_CLASSIFIER]
    app = overview(langs=["de", "th"], model="talker", task="intents")
    words = page_text(app)
    assert "talker is no classifier, so it cannot do the task intents, which has labels." in words
    assert "Three steps" not in words
    assert not submitted_jobs(worker)
    keys = {button.key for button in app.button}
    assert {"compute", "first-map"}.isdisjoint(keys)
    press(app, "fitting-task")
    app.run()
    assert app.selectbox(key="task").value == "repeats"
    assert app.selectbox(key="model").value == "talker"
    assert "cannot do the task" not in page_text(app)
    app.selectbox(key="task").set_value("intents").run()
    press(app, "fitting-model")
    assert app.selectbox(key="model").value == "e5-small-intents"
    assert "cannot do the task" not in page_text(app)
    assert not submitted_jobs(worker)


def test_no_first_map_is_started_that_must_fail_and_heads_says_so_too(worker):
    classes = Finding(what="Found", ok=True, words="It is here.", classes=["alarm", "music"])
    mismatch = Finding(what="Labels", ok=False, words="The names do not match.")
    worker.findings_by_subject["e5-small-intents", "intents"] = [classes, mismatch]
    app = overview(langs=["de"])
    app.run()
    assert not submitted_jobs(worker)
    assert "its 2 classes (alarm, music) do not have the names of the task's 17" in page_text(app)
    heads_page = run_page("heads", langs=["de"])
    assert "its 2 classes (alarm, music)" in page_text(heads_page)
    assert "compute" not in {button.key for button in heads_page.button}


def test_a_first_map_that_would_be_refused_is_not_queued_but_said(worker, monkeypatch):
    """On an empty cache nothing tells that the model is a decoder; loading it does."""
    monkeypatch.setattr(
        worker, "load_model", lambda name: loaded_model(name, grid={"decoder": [12] * 12})
    )
    app = overview(langs=["de"]).run()
    assert not submitted_jobs(worker)
    assert app.selectbox(key="method").value == DEFAULT_METHOD
    words = page_text(app)
    assert "smoothed is for encoders" in words
    assert "use shapley" in words
    press(app, "compute")
    (job,) = submitted_jobs(worker)
    assert job.params["method"] == DEFAULT_METHOD


def test_a_model_that_does_not_load_is_said_and_nothing_is_queued(worker, monkeypatch):
    def refuse(name):
        raise HeadlabError(f"{name} has no heads", code="model.no_heads")

    monkeypatch.setattr(worker, "load_model", refuse)
    app = overview(langs=["de"])
    assert not submitted_jobs(worker)
    assert "has no heads" in page_text(app)


def test_while_another_model_is_busy_the_first_map_waits_in_the_queue(worker, monkeypatch):
    def refuse(name):
        raise HeadlabError("another model is in use", code="worker.other_model_in_use")

    monkeypatch.setattr(worker, "load_model", refuse)
    overview(langs=["de"])
    assert len(first_map_jobs(worker)) == 1


@pytest.mark.parametrize("method", ["gradient", "leave-one-out"])
def test_a_method_that_was_chosen_stays(worker, method):
    app = overview(langs=["de"], method=method)
    assert app.selectbox(key="method").value == method
    assert not submitted_jobs(worker)
    assert "Three steps to a map" in page_text(app)


def test_with_scores_there_are_no_steps(worker, cache):
    fill_cache(cache)
    app = overview(langs=["de", "th"])
    assert "Three steps" not in page_text(app)
    assert app.selectbox(key="method").value == DEFAULT_METHOD
    assert not submitted_jobs(worker)


def test_without_a_worker_nothing_is_started(cache):
    from support.app_pages import app_on

    with app_on(cache):
        app = overview(langs=["de"])
        assert "Three steps to a map" in page_text(app)
        assert app.selectbox(key="method").value == DEFAULT_METHOD
