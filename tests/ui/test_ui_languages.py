"""The Languages page for scores with and without halves, intervals and signs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, open_share, page_text, run_page
from support.cached_scores import GRID, fill_cache, made_scores
from support.page_actions import choose

from headlab.core import HeadGrid, Stack, content_key
from headlab.dashboard.frame import Choice, choice
from headlab.dashboard.pages.languages import agreement
from headlab.dashboard.pages.languages.agreement import compared_languages, noise_note
from headlab.dashboard.panels.stored.page_report import page_report, page_report_name
from headlab.results import Store

pytestmark = pytest.mark.usefixtures("native_buttons")

ROOT = Path(__file__).parents[2]
MODEL_WITH_HALVES = "owner/new"  # a model whose scores have halves
HALVES = ("de", "en", "fi")
SMALL_MODEL = "owner/small"
FEW_HEADS_GRID = HeadGrid((Stack("encoder", (3, 3)),))


def scores_with_halves(language):
    """Made-up scores on each half of the examples; all languages share a part of them."""
    template = made_scores(language, "shapley")
    common_part = np.random.default_rng(1).normal(0, 0.01, GRID.size)
    language_seed = list(language.encode())
    noise = np.random.default_rng(language_seed).normal(0, 0.004, (2, GRID.size))
    halves = common_part + noise
    values = halves.mean(axis=0)
    model = {**template.spec["model"], "name": MODEL_WITH_HALVES}
    spec = {**template.spec, "model": model}
    return dataclasses.replace(
        template,
        values=values,
        low=values - 0.006,
        high=values + 0.006,
        halves=halves,
        spec=spec,
    )


def scores_of_few_heads(language):
    """Made-up scores of a model that has fewer heads than the page asks for at first."""
    template = made_scores(language, "shapley")
    first_heads = slice(FEW_HEADS_GRID.size)
    model = {**template.spec["model"], "name": SMALL_MODEL, "fingerprint": "5" * 64}
    spec = {**template.spec, "model": model}
    parts = {}
    for name in ("values", "low", "high", "samples", "p_values"):
        parts[name] = getattr(template, name)[first_heads]
    return dataclasses.replace(template, grid=FEW_HEADS_GRID, spec=spec, **parts)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """An app without a worker, with made-up results of three models.

    Those of one have no halves, those of another have, and the third has few heads.
    """
    root = fill_cache(tmp_path_factory.mktemp("cache"))
    for language in HALVES:
        for scores in (scores_with_halves(language), scores_of_few_heads(language)):
            stored_run = Store(root).run(scores.spec)
            stored_run.finish(scores, {"versions": {}})
    with app_on(root):
        yield root


def run(**query) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    return app.switch_page("pages/languages.py").run()


def columns(app: AppTest) -> list[list[str]]:
    return [list(frame.value.columns) for frame in app.dataframe]


def table_with(app: AppTest, column: str):
    """The first table of a page that has a column."""
    for frame in app.dataframe:
        if column in frame.value:
            return frame.value
    raise AssertionError(f"no table has a column {column}")


def test_results_without_halves_say_that_the_ceiling_is_unknown_and_how_to_get_it(cache):
    app = run(langs=["de", "th", "fi"])
    assert not app.exception
    assert not app.error
    assert "noise ceiling is not known: these scores" in page_text(app)
    assert "compute them again" in page_text(app)
    assert "median half-width is" in page_text(app)


def test_results_with_halves_show_ceiling_reliability_and_the_outlier(cache):
    app = run(model=MODEL_WITH_HALVES, langs=list(HALVES))
    assert not app.exception
    assert "ceiling is not known" not in page_text(app)
    assert "By mean ρ, " in page_text(app)
    pairs = table_with(app, "ceiling")
    assert len(pairs) == 3
    assert pairs["ceiling"].notna().all()
    assert any("reliability" in names for names in columns(app))
    assert any("support, %" in names for names in columns(app))


def test_heads_are_counted_raw_and_after_correction(cache):
    app = run(langs=["de", "th", "fi"])
    counts = table_with(app, "heads that")
    names_of_claims = list(counts.columns)[2:5]
    assert names_of_claims == ["raw", "Benjamini–Hochberg", "Holm"]
    assert "among the top 20 of every language" in counts["heads that"].tolist()
    app.slider(key="top").set_value(3).run()
    counts = table_with(app, "heads that")
    assert "among the top 3 of every language" in counts["heads that"].tolist()


def test_another_model_may_have_fewer_heads_than_the_number_asked_for(cache):
    app = run()
    assert app.slider(key="top").value == 20
    choose(app, "model", SMALL_MODEL)
    assert not app.error
    assert app.slider(key="top").value == FEW_HEADS_GRID.size
    assert app.slider(key="top").max == FEW_HEADS_GRID.size


def test_two_languages_have_no_outlier_but_all_the_rest(cache):
    app = run(langs=["de", "th"])
    assert not app.exception
    assert not app.error
    assert "By mean ρ" not in page_text(app)


def test_a_method_without_signs_or_intervals_has_what_is_left(cache):
    app = run(langs=["de", "th", "fi"], method="gradient")
    assert not app.exception
    assert not app.error
    assert "no signs" in page_text(app)
    assert not any("heads that" in names for names in columns(app))


def test_a_task_of_one_language_is_no_matter_of_the_method(cache, monkeypatch):
    monkeypatch.setattr(choice, "known_task", lambda name: SimpleNamespace(languages=("de",)))
    app = run(langs=["de"])
    assert not app.exception
    assert "This page compares languages, and task intents has one: German (de)." in page_text(app)
    assert "results to compare" not in page_text(app)


def test_the_tests_of_one_language_are_counted_in_the_singular(cache):
    app = run_page("heads", langs=["de"], head="encoder.3.7")
    assert "every head in the language shown." in page_text(app)
    app = run_page("heads", langs=["de", "th"], head="encoder.3.7")
    assert "every head in each of the 2 languages shown." in page_text(app)


def test_the_same_scores_are_resampled_once(cache, monkeypatch):
    scores = {name: scores_with_halves(name) for name in HALVES}
    comparison = compared_languages(scores)
    monkeypatch.setattr(agreement, "rank_agreement_of", None)
    assert compared_languages(scores).names == comparison.names
    finnish = dataclasses.replace(scores["fi"], halves=None)
    without_finnish_halves = scores | {"fi": finnish}
    with pytest.raises(TypeError):
        compared_languages(without_finnish_halves)


def test_the_note_on_noise_is_of_the_intervals():
    assert "not known" in noise_note({"de": made_scores("de", "random")})
    assert "median half-width is" in noise_note({"de": made_scores("de", "shapley")})


def download_labels(app):
    """The labels of the files that a page offers."""
    return [button.proto.label for button in app.get("download_button")]


@pytest.mark.parametrize("page", ["overview", "heads", "languages", "masks"])
def test_what_a_page_shows_is_saved_as_one_report(cache, page):
    choice = {"model": MODEL_WITH_HALVES, "langs": list(HALVES)}
    app = open_share(run_page(page, **choice))
    assert "Report of this view (HTML)" in download_labels(app)
    app = open_share(run_page(page, **choice, method="leave-one-out"))
    assert "Report of this view (HTML)" not in download_labels(app)


def test_the_report_of_a_view_has_its_languages_and_masks_and_no_others(cache):
    scores_by_language = {name: scores_with_halves(name) for name in HALVES[:2]}
    choice = Choice(MODEL_WITH_HALVES, "intents", HALVES[:2], "shapley")
    mask = scores_by_language["de"].mask("bottom", k=3)
    all_scores = tuple(scores_by_language.values())
    report_html = page_report(choice, all_scores, {"Prune": mask}).decode()
    assert "owner/new on intents: de, en</bdi></h1>" in report_html
    assert "Mask Prune: 141 of 144 heads kept" in report_html
    for name in HALVES:
        key = content_key(scores_with_halves(name).spec)
        assert (key[:8] in report_html) == (name in scores_by_language)
    key_of_other_model = content_key(made_scores("de", "shapley").spec)
    assert key_of_other_model[:8] not in report_html
    name_start = "report-owner-new-intents-shapley-shapley-top50-"
    assert page_report_name(choice, scores_by_language) == name_start + "de-en.html"
    scores_of_five = dict.fromkeys("abcde", scores_by_language["de"])
    assert page_report_name(choice, scores_of_five) == name_start + "5-languages.html"
    parent_folder = dataclasses.replace(choice, model="../../x")
    assert not page_report_name(parent_folder, {}).startswith(".")


def test_a_result_that_was_deleted_meanwhile_is_a_sentence_in_the_file(cache):
    stored_scores = scores_with_halves("de")
    spec = {**stored_scores.spec, "seed": 99}
    deleted_scores = dataclasses.replace(stored_scores, spec=spec)
    choice = Choice(MODEL_WITH_HALVES, "intents", ("de",), "shapley")
    report_html = page_report(choice, (deleted_scores,), {}).decode()
    assert "There is no report: no run in" in report_html


def test_heads_are_asked_for_that_are_specific_to_some_languages(cache):
    app = run(langs=["de", "th", "fi"], specific=["th", "fi"], most="5")
    assert not app.error
    assert app.multiselect(key="specific").value == ["th", "fi"]
    assert "Thai (th) and Finnish (fi) against German (de)" in page_text(app)
    table = table_with(app, "elsewhere, points")
    scores = {name: made_scores(name, "shapley") for name in ("de", "th", "fi")}
    here = (scores["th"].values + scores["fi"].values) / 2
    differences = 100 * (here - scores["de"].values)
    row = table[(table["layer"] == 9) & (table["head"] == 0)].iloc[0]
    assert row["difference, points"] == pytest.approx(differences[108], abs=1e-9)
    half_widths = 100 * 2 * 0.006
    assert row["high, points"] - row["low, points"] == pytest.approx(2 * half_widths, abs=1e-9)
    clear = (table["low, points"] > 0) | (table["high, points"] < 0)
    assert clear.tolist() == sorted(clear, reverse=True)  # the clear ones first
    app.multiselect(key="specific").set_value(["de", "th", "fi"]).run()
    assert "leave at least one for the comparison" in page_text(app)
    app.multiselect(key="specific").set_value([]).run()
    assert "Choose at least one of the languages" in page_text(app)


def test_a_link_that_asks_for_an_unknown_language_says_so(cache):
    app = run(langs=["de", "th"], specific=["xx"])
    assert "'xx', which is unknown here" in page_text(app)
    assert not app.error


def test_languages_that_are_no_longer_chosen_leave_the_question(cache):
    app = run(langs=["de", "th", "fi"], specific=["th"])
    app.pills(key="langs").set_value(["de", "fi"]).run()
    assert not app.exception
    assert not app.error
    assert app.multiselect(key="specific").value == []
