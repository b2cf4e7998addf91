"""The Experiments page with a worker that is only a list of jobs, and reports that are made up."""

from __future__ import annotations

import dataclasses
import shlex
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, page_text, run_page, shown_text
from support.cached_reports import KEY_ROWS, keep_report, made_heads_report, made_report
from support.cached_scores import made_scores
from support.checked_jobs import checked_fields
from support.fake_client import job_row
from support.page_actions import choose, press
from support.submitted_jobs import submitted_jobs
from support.synthetic_roles import made_roles
from typer.main import get_command

from headlab.cli.run import build
from headlab.core import HeadlabError, Report, Table, is_p_column, p_equals_text
from headlab.dashboard.frame import Choice, choice, stored_results
from headlab.dashboard.names import count_words, with_minus_signs
from headlab.dashboard.pages.experiments.form import ExperimentForm
from headlab.dashboard.pages.jobs.details import command_lines
from headlab.dashboard.panels.jobs import job_format
from headlab.dashboard.panels.stored.stored_reports import (
    StoredJob,
    report_differences,
    report_label,
)
from headlab.dashboard.widgets import figures, with_p_values
from headlab.jobs.command import CommandContext
from headlab.jobs.experiment import ExperimentJob
from headlab.jobs.reading import read_command
from headlab.plots.report import heads_by_row
from headlab.results import FilePlaces, Result, Store
from headlab.results.store.places import note_places
from headlab.studies.table import STUDIES, offered_experiments
from headlab.tasks.intents.classes import LANGUAGES
from headlab.worker.schemas import JobRow, ModelCard

pytestmark = pytest.mark.usefixtures("native_buttons", "worker")

FLAGS = ("--size", "--seed", "--test-size")
OPTIONS = ("--method", "-o", "--option")
CHOICE = Choice("e5-small-intents", "intents", ("de", "th"), "shapley")


def form_job(key: str) -> ExperimentJob:
    """The job of an experiment's form before anything is changed in it."""
    return ExperimentForm(key, CHOICE).job({})


def stored_job(report: Report, **spec: Any) -> StoredJob:
    """The job that a report was made by.

    Args:
        report: The report, as it would be stored.
        spec: Parts of the report's spec to replace.
    """
    return StoredJob.of(dataclasses.replace(report, spec={**report.spec, **spec}))


def run(path: str = "experiments", **query) -> AppTest:
    return run_page(path, **query)


# The form of what would be computed.


def test_an_experiment_uses_the_cached_scores_however_precise_they_are(worker, cache):
    """Those of a demo are less precise than the default, and were once computed again."""
    scores = made_scores("de", "shapley")
    method = scores.spec["method"]
    options = {**method["options"], "stop": "width", "target": 0.02}
    spec = {**scores.spec, "method": {**method, "options": options}}
    precise_scores = dataclasses.replace(scores, spec=spec)
    Store(cache).run(spec).finish(precise_scores, {"versions": {}})
    app = run(experiment="targeted", langs=["de", "th"])
    assert "-o target=0.02 -o stop=width" in app.code[0].value
    press(app, "plan-start")
    assert submitted_jobs(worker)[0].params["method_options"] == options


@pytest.mark.parametrize("key", list(offered_experiments()))
def test_every_experiment_shows_its_question_and_what_it_would_take(worker, key):
    app = run(experiment=key, langs=["de", "th"])
    experiment_box = app.selectbox(key="experiment")
    assert experiment_box.format_func(experiment_box.value).endswith(STUDIES[key].question)
    assert (
        "What it will take: **About 2 min**, 147,456 forwards: measured here: 1 ms a forward."
        in page_text(app)
    )
    assert "There is no report yet on e5-small-intents and task intents" in page_text(app)
    press(app, "plan-start")
    assert submitted_jobs(worker)[0].kind == "experiment"
    assert submitted_jobs(worker)[0].params["experiment"] == key
    assert submitted_jobs(worker)[0].params["languages"] == ["de", "th"]
    assert "Job 1 is in the queue." in page_text(app)
    assert "cancel-1" in {str(button.key) for button in app.button}


@pytest.mark.parametrize("key", list(offered_experiments()))
def test_the_worker_takes_what_the_form_makes(key):
    params = form_job(key).params()
    checked_params = checked_fields("experiment", params)
    checked_params["options"] = {
        name: checked_params["options"][name] for name in params["options"]
    }
    assert {name: checked_params[name] for name in params} == params


def test_options_typed_just_before_the_click_count_and_survive_a_page_switch(worker):
    app = run(experiment="targeted", langs=["de", "th"])
    app.number_input(key="plan-targeted-runs").set_value(3)
    app.number_input(key="plan-test_size").set_value(200)
    press(app, "plan-start")
    params = submitted_jobs(worker)[0].params
    assert params["options"]["runs"] == 3
    assert params["test_size"] == 200
    app.switch_page("pages/overview.py").run()
    app.switch_page("pages/experiments.py").run()
    assert app.selectbox(key="experiment").value == "targeted"
    assert app.number_input(key="plan-targeted-runs").value == 3
    assert app.number_input(key="plan-test_size").value == 200
    app.number_input(key="plan-test_size").set_value(None).run()
    assert press(app, "plan-start").exception.len == 0
    assert submitted_jobs(worker)[-1].params["test_size"] is None


def test_too_few_languages_and_a_method_without_a_sign_hold_the_button(worker):
    app = run(experiment="transfer", langs=["de"])
    assert app.button(key="plan-start").disabled
    assert "Transfer of masks takes 2 languages; 1 is chosen." in page_text(app)
    assert "There is no report yet" in page_text(app)
    assert "makes one" not in page_text(app)
    app = run(experiment="targeted", langs=["de"], method="gradient")
    assert app.button(key="plan-start").disabled
    assert "method is 'gradient', but must be shapley" in page_text(app)
    app = run(experiment="targeted", langs=[""])
    assert app.button(key="plan-start").disabled
    assert "Choose a language." in page_text(app)


def test_a_task_of_one_language_opens_on_an_experiment_that_it_has_languages_for(
    worker, monkeypatch
):
    monkeypatch.setattr(choice, "known_task", lambda name: SimpleNamespace(languages=("de",)))
    app = run(langs=["de"])
    assert STUDIES[app.selectbox(key="experiment").value].least_languages == 1
    assert not app.button(key="plan-start").disabled
    assert "makes one" in page_text(app)
    agreement_app = run(experiment="agreement", langs=["de"])
    assert agreement_app.selectbox(key="experiment").value == "agreement"
    refusal = "takes 2 languages, and task intents has one; choose another question above."
    assert refusal in page_text(agreement_app)
    agreement_app.selectbox(key="experiment").set_value("transfer").run()
    assert agreement_app.selectbox(key="experiment").value == "transfer"
    assert refusal in page_text(agreement_app)


def test_a_task_whose_data_are_absent_is_named_in_a_sentence(worker, monkeypatch):
    def refuse(*_: Any, **__: Any) -> Any:
        raise HeadlabError(
            "task xnli needs its files: name their folder with --data or $HEADLAB_DATA",
            code="data.folder_missing",
        )

    monkeypatch.delenv("HEADLAB_DATA", raising=False)
    monkeypatch.setattr(worker, "forecast", refuse)
    monkeypatch.setattr(worker, "submit", refuse)
    app = run(task="xnli", experiment="transfer")
    assert "task xnli needs its files: name their folder with --data or $HEADLAB_DATA" in page_text(
        app
    )
    press(app, "plan-start")
    assert "task xnli needs its files" in shown_text(app.error[0])


def test_without_a_worker_reports_are_shown_and_the_rest_says_so(cache):
    keep_report(cache, made_report("heads"))
    with app_on(cache):
        app = run(experiment="heads")
    assert "not known, as no worker could be asked" in page_text(app)
    assert len(app.dataframe) == 2


# The link.


def test_a_link_opens_its_experiment_and_a_choice_changes_the_link(worker):
    app = run(experiment="transfer")
    assert app.selectbox(key="experiment").value == "transfer"
    choose(app, "experiment", "gap")
    assert app.query_params["experiment"] == "gap"
    app.query_params["experiment"] = "heads"  # as by a link on the page
    app.run()
    assert app.selectbox(key="experiment").value == "heads"


@pytest.mark.parametrize("key", ["dance", "front"])  # a front has a page of its own
def test_a_link_to_an_experiment_that_is_not_offered_here_brings_a_warning(worker, key):
    app = run(experiment=key)
    assert repr(key) in shown_text(app.warning[0])
    assert app.selectbox(key="experiment").value == next(iter(offered_experiments()))


def test_a_link_names_a_report_and_another_can_be_chosen(cache):
    older_key, newer_key = (
        keep_report(cache, made_report("heads", seed=seed), day=day)
        for seed, day in ((1, 1), (2, 2))
    )
    app = run(experiment="heads")
    assert "2 Nov 2026" in page_text(app)
    assert "report" not in app.query_params
    app = run(experiment="heads", report=older_key[:12])
    assert "1 Nov 2026" in page_text(app)
    choose(app, "report-heads", newer_key)
    assert "2 Nov 2026" in page_text(app)
    assert app.query_params["report"] == newer_key[:12]
    app = run(experiment="heads", report="0123456789ab")
    assert "2 Nov 2026" in page_text(app)
    assert "The link asks for report '0123456789ab', which does not exist" in page_text(app)
    assert "The link asks" not in page_text(app.run())


def test_a_start_turns_to_the_newest_report(worker, cache):
    older_key, _ = (
        keep_report(cache, made_report("heads", seed=seed), day=day)
        for seed, day in ((1, 1), (2, 2))
    )
    app = run(experiment="heads", report=older_key[:12])
    press(app, "plan-start")
    assert "Job 1 is in the queue." in page_text(app)
    keep_report(cache, made_report("heads", seed=3), day=3)
    worker.change(1, state="done")
    app.run()
    assert "3 Nov 2026" in page_text(app)
    assert "is in the queue" not in page_text(app)


# The report.


def test_a_report_is_shown_with_figures_tables_notes_and_how_it_was_made(cache):
    keep_report(cache, made_report("heads"))
    app = run(experiment="heads", langs=["de", "th"])
    assert "- Made up for a test." in page_text(app)
    frame = app.dataframe[0].value
    assert frame.columns.tolist() == [
        "language",
        "stack",
        "layer",
        "head",
        "difference, points",
        "p",
    ]
    assert frame["language"].tolist() == ["German (de)", "Thai (th)"]
    assert frame["difference, points"].tolist() == [1.25, -2.5]
    run_details = dict(app.table[-1].value.to_numpy().tolist())
    assert run_details["Language"] == "de,th"
    assert run_details["Versions"] == "headlab 0.5"
    assert run_details["Time"] == "12 s"
    assert app.code[0].value.startswith(
        "headlab experiment heads --model e5-small-intents --task intents"
    )
    assert "other settings" not in page_text(app)


def test_reported_20_how_it_was_made_names_files_by_their_paths(cache, tmp_path):
    """A name alone would be refused where the command looks for the files elsewhere."""
    report = made_report("heads")
    keep_report(cache, report)
    data = tmp_path / "my data"
    data.mkdir()
    note_places(cache, report.spec, FilePlaces(data=data))
    app = run(experiment="heads", langs=["de", "th"])
    command_words = shlex.split(app.code[0].value)
    assert command_words[command_words.index("--data") + 1] == str(data)


def test_a_report_of_other_settings_says_which(cache):
    keep_report(cache, made_report("heads"))
    app = run(experiment="heads", langs=["de", "th", "fi"], method="leave-one-out")
    message = (
        "This report was made with other settings than those chosen below: "
        "languages de, th; method shapley."
    )
    assert message in page_text(app)


@pytest.mark.parametrize(
    "creation_time", [None, "soon", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
def test_a_report_of_no_year_that_a_clock_shows_is_labelled(tmp_path, creation_time):
    result = Result[Report](
        "0" * 64,
        tmp_path,
        made_report("heads"),
        {"created": creation_time},
    )
    assert "1 Jan 1970" in report_label(result)


def test_reports_of_another_model_task_or_experiment_are_left_out(cache):
    keep_report(cache, made_report("heads", model="another"))
    keep_report(cache, made_report("heads", task="xnli"))
    keep_report(cache, made_report("gap"))
    app = run(experiment="heads")
    assert "There is no report yet" in page_text(app)
    assert {
        str(button.key) for button in app.button if str(button.key).startswith("report-of-")
    } == {
        "report-of-another on intents",
        "report-of-e5-small-intents on xnli",
    }
    press(app, "report-of-e5-small-intents on xnli")
    assert app.selectbox(key="task").value == "xnli"
    assert app.selectbox(key="experiment").value == "heads"
    assert "21 Nov 2026" in page_text(app)


def test_a_model_with_roles_and_a_report_on_the_chosen_task_is_offered_once(cache):
    """This ended the page: two buttons of one key."""
    keep_report(cache, made_report("heads", model="another"), 1)
    keep_report(cache, made_roles("de", model="another"), 2)
    app = run(experiment="heads")
    keys = [str(button.key) for button in app.button]
    assert keys.count("report-of-another on intents") == 1
    assert not app.error


def report_of_weights(digit: str, **fields: str) -> Report:
    """A report whose model has another fingerprint, or another dtype."""
    report = made_report("heads")
    model = {**report.spec["model"], "fingerprint": digit * 64, **fields}
    return dataclasses.replace(report, spec={**report.spec, "model": model})


def test_a_report_of_other_weights_or_another_dtype_says_so(cache):
    keep_report(cache, report_of_weights("1", dtype="bfloat16"))
    app = run(experiment="heads", langs=["de", "th"])
    differences = "made with other weights (111111111111…)", "in bfloat16"
    assert f"than those chosen below: {'; '.join(differences)}." in page_text(app)
    assert " · ".join(differences) in page_text(app)
    assert app.code[0].value.endswith("--dtype bfloat16")
    run_details = dict(app.table[-1].value.to_numpy().tolist())
    assert run_details["Precision"] == "bfloat16"


def test_reports_of_the_model_s_own_weights_come_before_newer_ones_of_others(cache):
    keep_report(cache, made_report("heads"), day=1)
    keep_report(cache, report_of_weights("0", dtype="bfloat16"), day=2)
    key_of_other_weights = keep_report(cache, report_of_weights("1"), day=3)
    app = run(experiment="heads", langs=["de", "th"])
    assert "1 Nov 2026" in page_text(app)
    assert "other settings" not in page_text(app)
    options = app.selectbox(key="report-heads").options
    assert options[0] == "The newest of the chosen model in float32"
    assert [option.split(",")[0] for option in options[1:]] == [
        "1 Nov 2026",
        "2 Nov 2026",
        "3 Nov 2026",
    ]
    choose(app, "report-heads", key_of_other_weights)
    assert "made with other weights (111111111111…)" in page_text(app)


WITHOUT_FILES = ModelCard(name="e5-small-intents", summary="", embedded=True, fingerprint=None)


@pytest.mark.parametrize("models", [[], [WITHOUT_FILES], None])
def test_where_the_weights_are_not_known_the_newest_stands_and_its_own_are_named(
    worker, cache, models
):
    def refuse():
        raise HeadlabError("the worker is not reachable", code="worker.unreachable")

    worker.models = refuse if models is None else lambda: models
    keep_report(cache, made_report("heads"), day=1)
    keep_report(cache, report_of_weights("1"), day=2)
    app = run(experiment="heads", langs=["de", "th"])
    assert "2 Nov 2026" in page_text(app)
    assert "weights 111111111111…" in page_text(app)
    assert "other settings" not in page_text(app)


def test_options_of_orderings_count_as_settings_and_their_spelling_does_not():
    study = STUDIES["iterative"]
    selected_job = form_job("iterative").model_copy(update={"test_size": None})

    def differences(options: dict[str, Any]) -> list[str]:
        return report_differences(
            stored_job(made_report("iterative"), options=options), selected_job
        )

    defaults = study.resolve({})
    assert differences(defaults) == []
    as_stored_earlier = {**defaults, "monte_carlo_options": {}, "method_options": {}}
    assert differences(as_stored_earlier) == []
    with_spaces = study.options["orderings"].default.replace(",", ", ")
    assert differences({**defaults, "orderings": with_spaces}) == []
    assert differences(study.resolve({"method_options": {"samples": 64}})) == ["samples 64"]
    (difference,) = differences(study.resolve({"monte_carlo_options": {"samples": 64}}))
    assert difference.startswith(
        "monte carlo options estimand shapley, value accuracy, samples 64,"
    )


@pytest.mark.parametrize(
    "options", [{}, {"method": "nonesuch"}, {"method": ["shapley"]}, {"method_options": "x"}]
)
def test_a_report_whose_options_another_program_wrote_is_compared_as_far_as_it_can_be(options):
    report_job = stored_job(made_report("heads"), options=options)
    selected_job = form_job("heads")
    job_of_another_seed = selected_job.model_copy(update={"seed": 5})
    assert "seed 0" in report_differences(report_job, job_of_another_seed)


@pytest.mark.parametrize("damage", ["torn", "foreign", "empty"])
def test_a_bad_report_is_a_sentence(cache, damage):
    key = keep_report(cache, made_report("heads"))
    path = cache / key / "result.npz"
    data = path.read_bytes()
    text = "Made up".encode("utf-32-le")
    other_text = "Cooked!".encode("utf-32-le")
    damaged_data = {
        "torn": data[:200],
        "foreign": data.replace(text, other_text),
        "empty": b"",
    }
    path.write_bytes(damaged_data[damage])
    app = run(experiment="heads")
    assert "1 report was skipped" in [expander.label for expander in app.expander]
    assert key in page_text(app)
    assert "There is no report yet" in page_text(app)


def test_a_report_whose_tables_are_others_than_the_figures_need_is_still_shown(cache):
    keep_report(cache, made_report("separators"))  # its tables are those of heads
    app = run(experiment="separators")
    assert "The figures cannot be drawn" in page_text(app)
    assert len(app.dataframe) == 2


def test_a_cell_without_a_value_and_a_text_among_numbers_can_be_shown():
    table = Table(
        "x",
        "X.",
        ("language", "a", "b"),
        ("", ".1f", "d"),
        (("all", None, 3), ("de", 1.25, "none")),
    )
    frame = figures.data_frame(table)
    assert frame["language"].tolist() == ["all", "German (de)"]
    assert frame["a"].isna().tolist() == [True, False]
    assert frame["b"].tolist() == ["3", "none"]


@pytest.mark.parametrize(
    ("column", "is_p"),
    [
        ("p", True),
        ("p (Holm)", True),
        ("p, Holm", True),
        ("p of the loss", True),
        ("minus own p", True),
        ("p_holm", True),
        ("p_before", False),
        ("points", False),
        ("top", False),
        ("in p", True),
    ],
)
def test_a_column_of_p_values_is_known_by_its_name(column, is_p):
    assert is_p_column(column) == is_p


def test_small_p_values_look_alike_in_tables_and_on_pages_unless_the_table_is_large():
    table = Table(
        "x", "X.", ("head", "p (Holm)"), ("d", ".4f"), ((1, 0.0004), (2, 0.25), (3, None))
    )
    assert [row[1] for row in table.shown_cells()] == ["< 0.001", "0.250", "–"]
    assert [p_equals_text(p) for p in (0.0004, 0.25)] == ["p < 0.001", "p = 0.250"]
    styled_table = with_p_values(figures.data_frame(table))
    assert styled_table.data["p (Holm)"].tolist()[:2] == [0.0004, 0.25]
    assert "&lt; 0.001" in styled_table.to_html(escape=True) or "< 0.001" in styled_table.to_html()
    large_frame = pd.DataFrame({"p": np.zeros(figures.MAX_STYLED_CELLS + 1)})
    assert with_p_values(large_frame) is large_frame


def test_tables_write_numbers_as_text_does_and_sort_them_as_numbers():
    table = Table(
        "x", "X.", ("head", "value", "samples"), ("d", "+.1f", "d"), ((1, -0.25, 2048), (2, 3.5, 7))
    )
    frame = figures.data_frame(table)
    styled = with_p_values(frame, {"value": "+.1f", "samples": "d"})
    assert styled.data["value"].tolist() == [-0.25, 3.5]
    html = styled.to_html()
    for text in ("−0.2", "+3.5", "2,048"):
        assert text in html
    assert figures.number_text(-1234.5, ".1f") == "−1,234.5"
    assert with_minus_signs("0.03 [-0.11, 0.14], 2026-11-21, position -1, top-5") == (
        "0.03 [−0.11, 0.14], 2026-11-21, position −1, top-5"
    )
    assert [count_words(number, "head") for number in (1, 2.5, 1000)] == [
        "1 head",
        "2.5 heads",
        "1,000 heads",
    ]


# Heads of both kinds.


def test_a_table_without_columns_of_heads_has_no_heads():
    table = Table("x", "X.", ("language",), ("",), (("de",),))
    assert list(heads_by_row(table)) == []


def test_a_head_of_each_kind_can_be_chosen_on_the_page(cache):
    keep_report(cache, made_heads_report())
    app = run(experiment="heads", langs=["de", "th"])
    assert app.selectbox(key="look-agnostic").options == ["9.0", "3.7"]
    assert app.selectbox(key="look-specific").options == ["5.1"]
    link = next(link for link in app.get("page_link") if "side by side" in link.proto.label)
    assert parse_qs(link.proto.query_string)["agnostic"] == ["encoder.9.0"]
    assert parse_qs(link.proto.query_string)["specific"] == ["encoder.5.1"]
    assert parse_qs(link.proto.query_string)["side"] == ["de", "th"]


def test_a_report_that_cannot_be_read_offers_no_heads_and_shows_its_tables(cache):
    keep_report(cache, made_report("heads"))
    app = run(experiment="heads")
    assert "The figures cannot be drawn" in page_text(app)
    assert "What do they look at?" not in page_text(app)
    assert len(app.dataframe) == 2


# The Jobs page, titles and commands.


def job_of(state: str, **fields: Any) -> JobRow:
    params = {
        **form_job("transfer").params(),
        "options": {"k": 3},
        "test_size": 500,
    }
    return job_row(7, state, kind="experiment", params=params, **fields)


def test_the_jobs_page_knows_an_experiment(worker):
    worker.rows = [job_of("done", result={"keys": ["ab" * 32]})]
    app = run("jobs", job="7")
    assert app.subheader[0].value == "Job 7: Transfer of masks for German (de), Thai (th)"
    rows = dict(app.table[0].value.to_numpy().tolist())
    assert rows["Experiment"] == "Transfer of masks (transfer)"
    assert rows["Option k"] == "3"
    assert rows["Test size"] == "500"
    assert rows["Method"] == "Shapley value (TMAB) (shapley)"
    assert rows["Option samples"] == "8192"
    press(app, "results-experiments")
    assert app.title[0].value == "Experiments"
    assert app.selectbox(key="experiment").value == "transfer"
    assert app.session_state["_choice"].languages == ("de", "th")


def test_the_title_and_the_command_of_an_experiment():
    row = job_of("failed", error="it broke")
    assert job_format.describe_job(row) == "transfer for de, th"
    line = command_lines(row)
    assert line == ExperimentJob(**row.params).terminal_lines()
    assert line.startswith(
        "headlab experiment transfer --model e5-small-intents --task intents --languages de,th "
    )
    assert "--option k=3" in line
    assert line.endswith("--test-size 500")


def read_back(key: str, line: str) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The options that the command line reads from a command, and the command's values by flag."""
    command_words = shlex.split(line)
    values_by_flag: dict[str, list[str]] = {flag: [] for flag in (*FLAGS, *OPTIONS, "--dtype")}
    for index, word in enumerate(command_words):
        if word in values_by_flag:
            values_by_flag[word].append(command_words[index + 1])
    job = read_command(line)
    assert isinstance(job, ExperimentJob)
    assert job.experiment == key
    return job.study().resolve(job.study_options()), values_by_flag


@pytest.mark.parametrize(
    ("key", "options"),
    [
        (
            "targeted",
            {"leave_one_out": False, "k": 3, "method_options": {"target": None, "samples": 5}},
        ),
        ("transfer", {"source": "true"}),
        ("separators", {"method": "gradient", "method_options": {"normalise": True}}),
        ("separators", {"method": "confidence", "method_options": {"exclude": "none"}}),
        ("iterative", {}),
        ("iterative", {"points": None, "monte_carlo_options": {"samples": 64, "target": None}}),
        (
            "iterative",
            {"orderings": "random,shapley", "method_options": {"samples": 64, "stop": "width"}},
        ),
    ],
)
def test_the_command_of_a_report_gives_its_options_again(key, options):
    all_options = STUDIES[key].resolve(options)
    line = stored_job(made_report(key), options=all_options).job.terminal_lines()
    read_options, values_by_flag = read_back(key, line)
    assert read_options == all_options
    assert values_by_flag["--dtype"] == []
    study_options = [name for name in options if name not in ("method", "method_options")]
    method_flags = len(options.get("method_options", {}))
    if key == "iterative" and "method_options" in options:
        method_flags = 1
    option_flags = len(values_by_flag["--option"]) + len(values_by_flag["-o"])
    assert option_flags == len(study_options) + method_flags


def test_the_command_of_a_report_in_another_dtype_names_it():
    report_job = stored_job(report_of_weights("1", dtype="bfloat16"))
    (command_words,) = report_job.job.commands(CommandContext(dtype=report_job.dtype))
    assert command_words[-2:] == ["--dtype", "bfloat16"]
    assert "--dtype" in flags_of_experiment()


def flags_of_experiment() -> set[str]:
    """All flags of `headlab experiment`."""
    flags: set[str] = set()
    for parameter in get_command(build()).commands["experiment"].params:
        flags.update(parameter.opts)
    return flags


@pytest.mark.parametrize("key", list(offered_experiments()))
def test_the_command_line_reads_the_command_as_the_job_reads_its_details(key):
    changed_values = {"points": 9, "runs": 4, "k": 5, "top": 7, "loss": 2.5}
    options = {
        name: value for name, value in changed_values.items() if name in STUDIES[key].options
    }
    selected_job = form_job(key).model_copy(update={"options": options, "dev_size": 64, "seed": 2})
    if selected_job.method_options:
        method_options = {**selected_job.method_options, "samples": 96, "target": None}
        selected_job = selected_job.model_copy(update={"method_options": method_options})
    read_options, values_by_flag = read_back(key, selected_job.terminal_lines())
    assert read_options == STUDIES[key].resolve(selected_job.study_options())
    assert values_by_flag["--size"] == ["64"]
    assert values_by_flag["--seed"] == ["2"]
    assert values_by_flag["--test-size"] == []
    assert set(FLAGS) | set(OPTIONS) <= flags_of_experiment()


def test_a_report_s_command_is_that_of_its_job(cache):
    keep_report(cache, made_report("heads"))
    (result,) = stored_results(Report).results
    report_job = StoredJob.of(result.record)
    selected_job = form_job("heads")
    params = report_job.job.params()
    expected_params = selected_job.params()
    del expected_params["test_size"]
    assert {name: params[name] for name in expected_params} == expected_params
    assert report_job.job.test_size == 1000
    assert report_differences(report_job, selected_job) == []
    changed_job = selected_job.model_copy(
        update={
            "languages": ["th", "de"],
            "test_size": 64,
            "options": {**selected_job.options, "top": 5},
        }
    )
    assert report_differences(report_job, changed_job) == ["test size 1000", "top 20"]


def test_an_experiment_that_is_not_known_here_has_a_title():
    assert len(KEY_ROWS) == 2
    params = {"experiment": "old", "model": "m", "task": "t", "languages": list(LANGUAGES)}
    row = job_row(1, kind="experiment", params=params)
    assert job_format.job_title(row) == f"Experiment old for {len(LANGUAGES)} languages"


def test_reported_09_a_report_with_scores_of_an_earlier_version_says_so(cache):
    keep_report(cache, made_report("targeted"))
    app = run(experiment="targeted")
    assert (
        "Made with an earlier version of gradient (token): form token before version 3"
        in page_text(app)
    )
    assert "earlier version" not in page_text(run(experiment="agreement"))
