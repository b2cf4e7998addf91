"""The Jobs page and the jobs that other pages offer, with a worker that is only a list of jobs."""

from __future__ import annotations

import dataclasses
import threading
from datetime import UTC, datetime

import numpy as np
import pytest
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, no_worker, page_text, run_page, shown_text
from support.cached_scores import GRID, fill_cache, made_scores
from support.checked_jobs import checked_fields
from support.fake_client import SPEC, FakeClient, FakeWorker, job_row
from support.page_actions import choose, press
from support.submitted_jobs import submitted_jobs
from support.waiting import wait_until

from headlab.core import HeadlabError
from headlab.dashboard import frame
from headlab.dashboard.frame import draw_sidebar, supervisor, worker_supervisor
from headlab.dashboard.pages.jobs import form
from headlab.dashboard.pages.jobs.details import command_lines
from headlab.dashboard.panels.jobs import job_actions, job_format, job_offer
from headlab.jobs.score import CurveJob, ScoreJob
from headlab.jobs.table import JOBS
from headlab.methods import METHODS, Forecast
from headlab.tasks.intents.classes import LANGUAGES

pytestmark = pytest.mark.usefixtures("native_buttons")


FORM = form.JobForm("e5-small-intents", "intents", ("de", "th"), "shapley")


@pytest.fixture
def cache(tmp_path):
    return fill_cache(tmp_path / "cache")


def run(path: str = "jobs", **query) -> AppTest:
    return run_page(path, **query)


def buttons(app: AppTest) -> dict[str, str]:
    return {str(button.key): button.label for button in app.button}


def form_key(name: str, *parts: str) -> str:
    """Key of a widget of the form when the sidebar has all languages."""
    return form.JobForm("e5-small-intents", "intents", tuple(LANGUAGES), "shapley").key(
        name, *parts
    )


# The queue.


def test_an_empty_queue_says_what_to_do(worker):
    assert "No job is running or waiting. Create one under **New job**" in page_text(run())


def test_running_jobs_come_first_then_waiting_ones_then_the_last_to_end(worker):
    worker.rows = [
        job_row(1, "done"),
        job_row(2, "failed", error="it broke"),
        job_row(3, "running"),
        job_row(4),
    ]
    worker.rows.append(job_row(5))
    worker.change(2, ended=worker.job(1).ended + 10)
    app = run()
    job_titles = [
        button.label.split(":")[0] for button in app.button if str(button.key).startswith("open-")
    ]
    assert job_titles == [f"Job {number}" for number in (3, 4, 5, 2, 1)]
    assert "next in line" in page_text(app)
    assert "number 2 in line" in page_text(app)
    assert [error.value for error in app.error] == ["it broke"]


def test_each_state_has_its_buttons(worker):
    worker.rows = [
        job_row(1, "done"),
        job_row(2, "failed"),
        job_row(3, "cancelled"),
        job_row(4, "running"),
        job_row(5),
    ]
    keys = {key for key in buttons(run()) if key[0] in "crd"}
    assert keys == {
        "cancel-4",
        "cancel-5",
        "resume-2",
        "resume-3",
        "delete-1",
        "delete-2",
        "delete-3",
    }


def test_a_job_is_cancelled_and_resumed(worker):
    worker.rows = [job_row(1, "running")]
    app = press(run(), "cancel-1")
    press(app, "resume-1")
    assert worker.calls == [("cancel", 1), ("resume", 1)]


def test_deleting_asks_first(worker):
    worker.rows = [
        job_row(1, "cancelled"),
        job_row(2, "done"),
    ]
    app = press(run(), "delete-1")
    assert (
        "Delete job 1 with its log and its unfinished results? Finished results stay."
        in page_text(app)
    )
    press(app, "delete-no-1")
    assert "delete-yes-1" not in buttons(app)
    press(app, "delete-2")
    assert "Delete job 2 with its log? Finished results stay." in page_text(app)
    press(app, "delete-yes-2")
    assert worker.calls == [("delete", 2)]
    assert [row.id for row in worker.rows] == [1]


def test_what_the_worker_refuses_is_a_sentence_until_the_next_click(worker):
    worker.rows = [
        job_row(1, "failed"),
        job_row(2, "failed"),
    ]
    app = run()
    worker.rows = [worker.rows[1]]  # someone else deleted it meanwhile
    press(app, "resume-1")
    assert "there is no job 1" in shown_text(app.error[0])
    press(app, "resume-2")
    assert "there is no job 1" not in page_text(app)


def test_of_ended_jobs_only_the_newest_are_shown_at_first(worker):
    worker.rows = [job_row(i, "done") for i in range(1, 14)]
    app = run()
    assert "open-13" in buttons(app)
    assert "delete-1" not in buttons(app)
    assert buttons(app)["jobs-more"] == "Show more (5)"
    assert "delete-1" in buttons(press(app, "jobs-more"))


@pytest.mark.parametrize("query", [{}, {"job": "1"}])
def test_a_worker_that_cannot_be_reached_is_a_sentence(worker, query):
    worker.connection_error = "the worker is not running; it starts again by itself"
    app = run(**query)
    assert worker.connection_error in page_text(app)
    if not query:
        press(app, "new-start")
        assert worker.connection_error in shown_text(app.error[0])


@pytest.mark.parametrize("query", [{}, {"job": "1"}])
def test_without_a_worker_the_page_says_so_and_stays_usable(cache, query):
    with app_on(cache):
        app = run(**query)
    assert (
        "no worker in this test; start one The list of jobs is kept in the cache folder"
        in page_text(app)
    )
    assert query or "not known, as no worker could be asked" in page_text(app)


# The form.


def test_the_form_starts_from_the_sidebars_choice_and_says_what_it_will_take(worker):
    app = run()
    assert (
        "What it will take: **About 2 min**, 147,456 forwards: measured here: 1 ms a forward."
        in page_text(app)
    )
    press(app, "new-start")
    (score_job,) = submitted_jobs(worker)
    spec = score_job.params
    assert score_job.kind == "score"
    assert score_job.place == "here"
    assert spec["method"] == "shapley"
    assert len(spec["languages"]) == 15
    assert spec["options"] == METHODS["shapley"].recorded(METHODS["shapley"].resolve({}))
    assert "Job 1 is in the queue." in page_text(app)


def test_a_forecast_that_knows_nothing_says_so(worker):
    worker.forecast_of_all_jobs = Forecast(
        forwards=None, seconds=None, basis="how many heads the model has is not known yet"
    )
    assert (
        "How long it takes is not known: how many heads the model has is not known yet."
        in page_text(run())
    )


def test_the_same_work_twice_is_pointed_out(worker):
    app = press(press(run(), "new-start"), "new-start")
    assert "This is already job 1, waiting now: identical requests share one job." in page_text(app)
    assert len(worker.rows) == 1
    press(app, "new-open")
    assert "Job 1: " in app.subheader[0].value


def test_a_number_typed_just_before_the_click_counts(worker):
    """Both come in one request, before the page has run with the number."""
    app = run()
    app.number_input(key=form_key("option", "shapley", "samples")).set_value(16)
    press(app, "new-start")
    assert submitted_jobs(worker)[0].params["options"]["samples"] == 16


def test_an_option_may_be_none_and_one_out_of_range_is_a_sentence(worker):
    app = run()
    key = form_key("option", "shapley", "target")
    app.number_input(key=key).set_value(None).run()
    press(app, "new-start")
    assert submitted_jobs(worker)[0].params["options"]["target"] is None
    app.number_input(key=key).set_value(0.0).run()
    assert "target is 0.0, but must be a number above 0, or none" in page_text(app)
    assert app.button(key="new-start").disabled


def test_a_learning_rate_that_no_training_takes_holds_the_button(worker):
    app = run()
    app.radio(key=form_key("kind")).set_value("finetune").run()
    rate = app.number_input(key=form_key("learning_rate"))
    assert rate.label == "Peak learning rate"
    assert rate.step == 1e-4
    assert rate.value == 1e-3
    rate.set_value(0.0).run()
    assert "learning_rate is 0.0; choose a number between 0 and 1" in page_text(app)
    assert app.button(key="new-start").disabled


def test_no_language_and_a_method_that_cannot_be_run_hold_the_button(worker):
    app = run()
    choose(app, form_key("method"), "exact")
    assert "handles up to 16 heads, and this model has 144" in page_text(app)
    assert app.button(key="new-start").disabled
    choose(app, form_key("method"), "random")
    app.multiselect(key=form_key("languages", "intents")).set_value([]).run()
    assert "Choose at least one language." in page_text(app)


def test_ray_is_offered_only_where_the_worker_has_one(worker, monkeypatch):
    assert not [radio for radio in run().radio if radio.label == "Where it runs"]
    worker.ray = "local"
    monkeypatch.setattr(worker_supervisor, "FRESH_SECONDS", 0.0)
    app = run()
    app.radio(key=form_key("place")).set_value("ray").run()
    press(app, "new-start")
    assert submitted_jobs(worker)[0].place == "ray"


def test_curves_and_trainings_can_be_requested(worker):
    app = run()
    app.radio(key=form_key("kind")).set_value("curve").run()
    press(app, "new-start")
    app.radio(key=form_key("kind")).set_value("finetune").run()
    press(app, "new-start")
    curve_job, training_job = submitted_jobs(worker)
    assert curve_job.kind == "curve"
    assert curve_job.params["split"] == "test"
    assert curve_job.params["points"] is None
    assert "size" not in curve_job.params
    assert training_job.kind == "finetune"
    assert training_job.params == {
        "task": "intents",
        "steps": 400,
        "learning_rate": 1e-3,
        "seed": 0,
    }


@pytest.mark.parametrize("kind", ["score", "curve", "finetune"])
def test_the_worker_takes_what_the_form_makes(kind):
    spec = FORM.job({FORM.key("kind"): kind}).params()
    checked_params = checked_fields(kind, spec)
    assert {name: checked_params[name] for name in spec} == spec


def test_a_widget_starts_anew_when_the_sidebar_changes():
    gradient_form = dataclasses.replace(FORM, method="gradient")
    state = {FORM.key("method"): "exact"}
    assert FORM.job(state).field_value("method") == "exact"
    assert gradient_form.job(state).field_value("method") == "gradient"


# One job.


def test_a_job_says_what_it_computes_and_how_to_do_that_from_a_terminal(worker):
    worker.rows = [job_row(7, "failed", error="it broke")]
    app = run(job="7")
    assert app.subheader[0].value == "Job 7: Leave one out for German (de), Thai (th)"
    assert [code.value for code in app.code] == [
        worker.lines[0],
        "headlab score --model e5-small-intents --task intents --languages de,th "
        "--method leave-one-out",
    ]
    assert app.error[0].value == "it broke"
    assert {"resume-7", "delete-7"} <= set(buttons(app))


def test_reported_20_the_mask_that_a_jobs_command_names_can_be_saved(worker):
    mask = {"format": "headlab-mask", "version": 2}
    params = {
        "model": "e5-small-intents",
        "task": "intents",
        "languages": ["de"],
        "mask": mask,
        "rounds": 6,
    }
    worker.rows = [job_row(7, "failed", kind="worth", params=params)]
    app = run(job="7")
    assert any(code.value.startswith("headlab worth --mask MASK.json") for code in app.code)
    assert "Download MASK.json" in [element.label for element in app.get("download_button")]


def test_a_written_model_is_named_with_its_proof_and_its_command(worker):
    mask = {"format": "headlab-mask", "version": 2}
    params = {
        "model": "e5-small-intents",
        "task": "intents",
        "languages": ["de"],
        "mask": mask,
        "form": "small",
        "vocabulary": "cut",
    }
    result = {
        "form": "small",
        "folder": "models/e5-small-intents-small-0123456789ab",
        "parameters_before": 100_000_000,
        "parameters_after": 40_000_000,
        "bytes_before": 400_000_000,
        "bytes_after": 160_000_000,
        "examples": 128,
        "max_logit_difference": 8e-6,
        "tolerance": 0.001,
        "pieces_lost": {"de": 0.004},
        "accuracy": {"de": {"difference": -0.002, "low": -0.006, "high": 0.002}},
    }
    worker.rows = [job_row(7, "done", kind="write", params=params, result=result)]
    app = run(job="7")
    text = page_text(app)
    assert (
        "models/e5-small-intents-small-0123456789ab, below the cache folder of the worker" in text
    )
    assert "Parameters: 100.0 M → 40.0 M (−60.0 %). Weights: 400.0 MB → 160.0 MB." in text
    assert "compared on 128 examples: its logits differ from the masked model's by 8e-06" in text
    assert "Pieces of held-out texts that are gone: German (de) 0.4 %." in text
    assert "German (de) −0.2 [−0.6, +0.2]." in text
    commands = [code.value for code in app.code if code.value.startswith("headlab export")]
    assert commands == [
        "headlab export --mask MASK.json --out FOLDER --model e5-small-intents --task intents "
        "--languages de --vocabulary cut --as small"
    ]
    assert "Download MASK.json" in [element.label for element in app.get("download_button")]


def test_a_written_model_of_this_cache_is_opened(worker, cache):
    folder = cache / "models" / "mine-small-0123456789ab"
    folder.mkdir(parents=True)
    params = {"model": "mine", "task": "intents", "languages": ["de"], "form": "small"}
    result = {
        "form": "small",
        "folder": "models/mine-small-0123456789ab",
        "parameters_before": 100,
        "parameters_after": 100,
        "bytes_before": 400,
        "bytes_after": 400,
        "examples": 8,
        "max_logit_difference": 0.0,
        "tolerance": 0.001,
    }
    worker.rows = [job_row(7, "done", kind="write", params=params, result=result)]
    app = run(job="7")
    assert str(folder) in [code.value for code in app.code]
    assert "Parameters: 0.0 M, as before." in page_text(app)
    app = press(app, "open-written-7")
    assert app.title[0].value == "headlab"
    assert app.session_state["_choice"].model == str(folder)


def test_a_running_jobs_map_and_head_are_shown(worker):
    worker.rows = [
        job_row(7, "running", note="de: samples; 12 of 144 heads done", seconds_left=180.0)
    ]
    worker.scores = dataclasses.replace(
        made_scores("de", "shapley"), samples=np.full(GRID.size, 160, np.int64)
    )
    text = page_text(run(job="7"))
    assert "German (de), being computed" in text
    assert "sharpening: 160 samples a head so far, 12 of 144 heads done, about 3 min left" in text
    assert "Head 9.0, so far: **+8.00 points**" in text


def test_a_finished_job_leads_to_its_results(worker):
    worker.rows = [job_row(7, "done")]
    app = press(run(job="7", langs=["fi"]), "results-heads")
    assert app.title[0].value == "Heads"
    choice = app.session_state["_choice"]
    assert choice.method == "leave-one-out"
    assert choice.languages == ("de", "th")


def test_a_press_opens_its_job_though_another_run_puts_an_older_link_in_place(worker, monkeypatch):
    """A timer may ask for a run of the whole page just before the press.

    That run still begins, with the link of the moment before.
    """
    worker.rows = [job_row(7, "running")]
    app = run(langs=["de"])
    draw = draw_sidebar

    def meanwhile():
        with get_script_run_ctx().session_state.query_params() as link:
            link.populate_from_query_string("langs=de" + older)
        draw()

    monkeypatch.setattr(frame, "draw_sidebar", meanwhile)
    older = ""
    press(app, "open-7")
    assert app.subheader[0].value.startswith("Job 7: ")
    assert app.query_params["job"] == "7"
    older = "&job=7"
    press(app, "jobs-all")
    assert app.subheader[0].value == "Queue"
    assert "job" not in app.query_params


def test_deleting_a_job_that_is_open_leads_back_to_the_list(worker):
    worker.rows = [job_row(7, "done")]
    app = press(press(run(job="7"), "delete-7"), "delete-yes-7")
    assert "job" not in app.query_params
    assert "Queue" in page_text(app)


@pytest.mark.parametrize(
    ("text", "message_part"),
    [
        ("7", "there is no job 7"),
        ("x", "'x'"),
        ("-1", "'-1'"),
        ("٣", "not a job number"),
        ("007", "there is no job 7"),
    ],
)
def test_a_link_to_a_job_that_does_not_exist_brings_a_message(worker, text, message_part):
    assert message_part in page_text(run(job=text))


def test_a_training_shows_its_accuracy(worker):
    params = {"task": "intents", "steps": 40, "learning_rate": 1e-3, "seed": 3}
    result = {"folder": "adapters/1234", "accuracy": {"de": 0.5, "en": 0.99}}
    worker.rows = [job_row(7, "done", kind="finetune", params=params, result=result)]
    app = run(job="7")
    assert "The adapter is in adapters/1234, below" in page_text(app)
    assert app.table[0].value["accuracy"].tolist() == ["50.0 %", "99.0 %"]
    assert (
        app.code[-1].value == "headlab finetune intents --steps 40 --learning-rate 0.001 --seed 3"
    )


# A kind of job of a package.


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The toy job, as an installed package announces it."""
    metadata_folder = tmp_path / "site" / "toy-0.1.dist-info"
    metadata_folder.mkdir(parents=True)
    (metadata_folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 0.1\n")
    (metadata_folder / "entry_points.txt").write_text(
        "[headlab.jobs]\ncount-words = support.toy_job:WordsJob\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    JOBS.refresh()
    yield JOBS["count-words"]
    monkeypatch.undo()
    JOBS.refresh()


def test_a_kind_of_job_of_a_package_has_a_form(toy, worker):
    app = run()
    assert app.radio(key=form_key("kind")).options == [
        "Scores",
        "Pruning curve",
        "Fine-tuning",
        "Words of a length",
    ]
    app.radio(key=form_key("kind")).set_value("count-words").run()
    assert "How many words of a length the dev texts have." in page_text(app)
    assert not [box for box in app.selectbox if box.key == form_key("method")]
    app.multiselect(key=form_key("languages", "intents")).set_value(["de", "th"]).run()
    app.number_input(key=form_key("length", "count-words")).set_value(5).run()
    choose(app, form_key("case", "count-words"), "upper")
    assert "What it will take: **About 2 min**" in page_text(app)
    assert [code.value for code in app.code] == [
        "headlab count-words --task intents --languages de,th --length 5 --case upper"
    ]
    press(app, "new-start")
    fields = {"task": "intents", "languages": ["de", "th"], "length": 5, "case": "upper"}
    assert worker.calls == [("submit", "count-words", fields, "here")]
    assert "Job 1: Words of a length for German (de), Thai (th)" in buttons(app).values()


def test_a_finished_job_of_a_package_shows_its_figures(toy, worker):
    fields = {"task": "intents", "languages": ["de", "th"], "length": 5, "case": "any"}
    outcome = {"words": {"de": 7, "th": 0.25}, "length": 5}
    worker.rows = [job_row(7, "done", kind="count-words", params=fields, result=outcome)]
    app = run(job="7")
    counts, singles, detail_rows = (table.value.to_numpy().tolist() for table in app.table)
    assert counts == [["de", "7"], ["th", "0.25"]]
    assert singles == [["Length", "5"]]
    assert ["Length", "5"] in detail_rows
    assert app.code[-1].value.startswith("headlab count-words --task intents --languages de,th")


def test_results_of_a_job_of_a_package_are_named_by_their_keys(toy, worker, cache):
    key = next(path.name for path in cache.iterdir() if (path / "result.npz").exists())
    fields = {"task": "intents", "languages": ["de"]}
    worker.rows = [
        job_row(
            7,
            "done",
            kind="count-words",
            params=fields,
            result={"keys": [key]},
        )
    ]
    app = run(job="7")
    assert app.table[0].value.to_numpy().tolist() == [["Result 1", key]]
    assert "Report (HTML)" in [element.label for element in app.get("download_button")]


def test_a_job_of_a_kind_that_is_not_known_here_is_shown_by_its_key(worker):
    worker.rows = [
        job_row(
            7,
            "done",
            kind="count-words",
            params={"languages": ["de", "th"], "n": 3},
        )
    ]
    app = run(job="7")
    assert app.subheader[0].value == "Job 7: count-words for German (de), Thai (th)"
    detail_rows = app.table[-1].value.to_numpy().tolist()
    assert detail_rows[0] == ["What", "count-words"]
    assert ["N", "3"] in detail_rows


# Offers on other pages.


@pytest.mark.parametrize("path", ["overview", "heads", "languages"])
def test_a_page_that_lacks_scores_offers_them_with_the_workers_forecast(worker, path):
    app = run(path, method="leave-one-out", langs=["hu", "ml"])
    assert "**About 2 min**, 147,456 forwards: measured here" in page_text(app)
    press(app, "compute")
    assert submitted_jobs(worker)[0].params["languages"] == ["hu", "ml"]
    assert "compute" not in buttons(app)  # they are under way now
    assert "cancel-1" in buttons(app)


def test_a_long_queue_does_not_fill_the_other_pages(worker):
    worker.rows = [job_row(1, "running"), *(job_row(number) for number in range(2, 8))]
    app = run("languages", method="leave-one-out", langs=["hu", "ml"])
    cancel_keys = {key for key in buttons(app) if key.startswith("cancel-")}
    assert cancel_keys == {"cancel-1", "cancel-2", "cancel-3"}


def test_where_no_worker_can_forecast_the_page_gives_the_maximum(worker):
    def refuse(*_):
        raise HeadlabError("not now", code="worker.unreachable")

    worker.forecast = refuse
    app = run("languages", method="leave-one-out", langs=["hu", "ml"])
    assert "Here at most 73,728 forwards for each language" in page_text(app)


def test_a_forecast_comes_when_its_worker_does(cache, client, monkeypatch):
    timers: list[float] = []
    fragment = st.fragment

    def noted_fragment(draw, run_every=None):
        timers.append(run_every)
        return fragment(draw)

    monkeypatch.setattr(job_actions.st, "fragment", noted_fragment)
    connect = [no_worker]
    with app_on(cache, lambda: connect[-1]()):
        app = run("languages", method="leave-one-out", langs=["hu", "ml"])
        assert "Here at most" in page_text(app)
        assert job_actions.RETRY_SECONDS in timers
        connect.append(lambda: FakeWorker(client))
        monkeypatch.setattr(worker_supervisor, "RETRY_SECONDS", 0.0)
        supervisor().client()
        app.run()
    assert "**About 2 min**" in page_text(app)


def test_the_page_that_requested_a_job_says_if_it_failed(worker):
    app = press(run("languages", method="leave-one-out", langs=["hu", "ml"]), "compute")
    worker.change(1, state="failed", error="it broke")
    app.run()
    assert "leave-one-out for hu, ml: failed. it broke" in shown_text(app.error[0])


@pytest.mark.parametrize("state_kind", ["starting", "away"])
def test_a_job_is_followed_though_the_state_in_the_sidebar_is_outdated(
    worker, monkeypatch, state_kind
):
    app = run("overview", method="leave-one-out", langs=["hu", "ml"])
    monkeypatch.setattr(
        supervisor(), "state", lambda: worker_supervisor.WorkerState(state_kind, "")
    )
    press(app, "compute")
    assert "cancel-1" in buttons(app)


@pytest.fixture
def reruns(monkeypatch):
    """The requests of this session's page to run again, as a list to which each is added."""
    session_state: dict[str, object] = {}
    requested_reruns: list[bool] = []
    monkeypatch.setattr(job_actions.st, "session_state", session_state)
    monkeypatch.setattr(job_actions.st, "rerun", lambda: requested_reruns.append(True))
    return requested_reruns


def test_a_job_list_from_before_the_click_does_not_forget_the_clicks_job(reruns):
    rows_before = [
        job_row(1, "done"),
        job_row(2, "running"),
    ]
    job_actions.job_requests().own_numbers.add(3)
    job_actions.rerun_if_job_ended(rows_before)
    assert job_actions.job_requests().own_numbers == {3}
    assert reruns == []
    job_actions.rerun_if_job_ended([*rows_before, job_row(3, "queued")])
    job_actions.rerun_if_job_ended([*rows_before, job_row(3, "failed", error="it broke")])
    assert reruns == [True]
    (failed_job,) = job_actions.job_requests().failed_jobs
    assert "it broke" in failed_job.reason
    assert job_actions.job_requests().own_numbers == set()


def test_the_page_runs_again_when_a_job_of_someone_else_ends(reruns):
    job_actions.rerun_if_job_ended([job_row(1, "running")])
    job_actions.rerun_if_job_ended([job_row(1, "failed", error="it broke")])
    assert reruns == [True]
    assert (
        not job_actions.job_requests().failure
    )  # the failure is for the page that requested the job
    job_actions.rerun_if_job_ended([job_row(1, "failed", error="it broke")])
    assert reruns == [True]


def test_a_job_that_was_deleted_is_not_waited_for(reruns):
    job_actions.job_requests().own_numbers.update({1, 2})
    job_actions.rerun_if_job_ended([job_row(2, "running")])
    assert job_actions.job_requests().own_numbers == {2}


def test_missing_gradients_are_requested_one_by_one_and_can_be_stopped():
    client = FakeClient()
    spec = {"model": "m", "task": "intents", "languages": ["de", "th"], "method": "gradient"}
    spec |= {"options": {"form": "token", "normalise": True}, "seed": 0, "ablation": "zero"}
    gradient_job = ScoreJob(**spec)
    next_languages = job_offer.request_gradient_scores(
        client,  # type: ignore[arg-type]
        gradient_job,
    )
    assert next(next_languages) == "de"
    assert client.calls == []
    assert list(next_languages) == ["th", ""]
    assert [call[3] for call in client.calls] == ["de", "th"]
    assert client.calls[0][4] == {"form": "token", "normalise": True, "label_map": None}
    assert job_offer.fits_live_request(gradient_job)
    for change in (
        {"seed": 1},
        {"ablation": "mean"},
        {"method": "confidence"},
        {"options": {"batch_size": 8}},
    ):
        other_job = ScoreJob(**{**spec, **change})
        assert not job_offer.fits_live_request(other_job)


def test_the_gradient_offer_asks_live(worker, tmp_path):
    for spec_file in (tmp_path / "cache").glob("*/spec.json"):
        if '"gradient"' in spec_file.read_text():
            spec_file.unlink()
    app = press(run("languages", method="gradient", langs=["hu", "ml"]), "compute")
    wait_until(lambda: len(worker.calls) == 2)
    app.run()
    assert [call[0] for call in worker.calls] == ["gradient", "gradient"]
    assert "compute" in buttons(app)  # this worker has stored nothing


def test_a_live_request_is_followed_on_once_the_first_language_is_there(
    worker, tmp_path, monkeypatch
):
    hungarian_specs = {}
    for spec_file in (tmp_path / "cache").glob("*/spec.json"):
        text = spec_file.read_text()
        if '"gradient"' in text:
            spec_file.unlink()
            if '"hu"' in text:
                hungarian_specs[spec_file] = text
    ((hungarian_file, hungarian_text),) = hungarian_specs.items()
    second_language_requested = threading.Event()
    go_on = threading.Event()

    def gradient(model, task, language, **options):
        if language == "hu":
            hungarian_file.write_text(hungarian_text)
        else:
            second_language_requested.set()
            go_on.wait(20)

    monkeypatch.setattr(worker, "gradient", gradient)
    app = press(run("languages", method="gradient", langs=["hu", "ml"]), "compute")
    assert second_language_requested.wait(20)
    app.run()
    assert "gradient-stop" in buttons(app)
    assert "compute" not in buttons(app)
    go_on.set()


# Titles, times and commands.


def test_times_and_states_in_words():
    current_time = datetime(2026, 11, 21, 14, 30, tzinfo=UTC).timestamp()
    row = job_row(1, "done", started=current_time - 200, ended=current_time - 20, done=2000)
    assert job_format.ended_line(row, current_time) == "done · 14:29 UTC · 3 min after its start"
    row = row.model_copy(update={"state": "failed", "attempts": 3, "done": 500})
    assert job_format.ended_line(row, current_time).endswith("25\u00a0% done · attempt 3")
    row = row.model_copy(update={"started": None, "state": "cancelled", "total": 0, "attempts": 0})
    assert job_format.ended_line(row, current_time) == "cancelled · 14:29 UTC, before it began"
    assert job_format.clock_time(current_time - 86400, current_time) == "20 Nov 2026, 14:30 UTC"
    waiting_row = job_row(2, created=current_time, attempts=1)
    line = job_format.waiting_line(waiting_row, 1, current_time)
    assert line == "next in line · since 14:30 UTC · attempts so far: 1"


def test_progress_in_words():
    row = job_row(1, "running", note="de: 3 of 144", seconds_left=200.0)
    assert job_format.progress_line(row) == "34 % · de: 3 of 144 · about 3 min left"
    assert job_format.progress_line(job_row(2)) == "queued"
    assert job_format.share_done(job_row(1, "running", done=5000)) == 1.0


def test_options_that_differ_from_the_default_name_it():
    params = {**SPEC, "options": {"level": 0.9}}
    rows = dict(job_format.job_details(job_row(1, params=params, place="ray")))
    assert rows["Option level"] == "0.9 (default 0.95)"
    assert rows["Where"] == "Ray"
    assert rows["Languages"] == "German (de), Thai (th)"
    curve = {**SPEC, "split": "test", "points": None, "size": None}
    rows = dict(job_format.job_details(job_row(1, kind="curve", params=curve)))
    assert rows["Examples"] == "all of test"


def test_a_job_s_ablation_is_said_in_words():
    params = {**SPEC, "ablation": "streaming:4,64"}
    rows = dict(job_format.job_details(job_row(1, params=params)))
    assert rows["Ablation"] == "streaming (first 4, last 64 tokens)"
    rows = dict(job_format.job_details(job_row(1, params={**SPEC, "ablation": "mean"})))
    assert rows["Ablation"] == "mean"


def test_titles_and_commands_of_every_kind():
    four_languages = {**SPEC, "languages": ["de", "th", "fi", "hu"]}
    assert (
        job_format.job_title(job_row(1, params=four_languages)) == "Leave one out for 4 languages"
    )
    curve = {**SPEC, "split": "dev", "points": 5, "size": None}
    title = job_format.job_title(job_row(1, kind="curve", params=curve))
    assert title.startswith("Pruning curve, Leave one out for German")
    title = job_format.job_title(job_row(1, kind="finetune", params={"task": "intents"}))
    assert title == "Fine-tuning"
    command = CurveJob(**curve).terminal_lines()
    assert command.endswith("--method leave-one-out --split dev --points 5")
    assert command_lines(job_row(1, kind="other", params={})) == ""
    failed_row = job_row(1, "failed", error="it broke")
    sentence = job_actions.failure_sentence(failed_row)
    assert sentence == "leave-one-out for de, th: failed. it broke"


def test_a_forecast_of_no_seconds_is_no_time():
    forecast = Forecast(forwards=0, seconds=0.0, basis="all there")
    assert job_format.forecast_line(forecast) == "**No time**: all there."
