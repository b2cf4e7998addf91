"""Share: the link and whom it reaches, names and notes, the report, the map and the mask."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from support.app_pages import app_on, open_share, page_text, run_page
from support.cached_scores import GRID, HARMFUL, fill_cache, made_scores
from support.page_actions import press

from headlab.core import content_key
from headlab.dashboard.names import PAGES
from headlab.dashboard.panels.masks import mask_link_text
from headlab.dashboard.panels.masks.share import reach_of
from headlab.results import ResultLabel, Store

pytestmark = pytest.mark.usefixtures("native_buttons")


@pytest.fixture
def cache(tmp_path):
    """An app without a worker, with made-up scores of one model."""
    root = fill_cache(tmp_path / "cache")
    with app_on(root):
        yield root


def share_of(path, **query):
    """A page whose Share is unfolded."""
    return open_share(run_page(path, **{"langs": ["de", "th"], **query}))


def offered(app):
    """The labels of the files that a page offers."""
    return [element.proto.label for element in app.get("download_button")]


@pytest.mark.parametrize("path", list(PAGES))
def test_every_page_has_it_and_folded_it_makes_nothing(cache, path):
    assert not {"Report of this view (HTML)", "Map of German (de) (PNG)"} & {
        *offered(run_page(path, langs=["de", "th"]))
    }
    app = share_of(path)
    assert {"Report of this view (HTML)", "Map of German (de) (PNG)"} <= {*offered(app)}


def test_where_nothing_is_cached_it_says_so_and_offers_no_file(tmp_path):
    with app_on(tmp_path):
        app = share_of("heads")
        assert "there is no report and no map" in page_text(app)
        assert not [label for label in offered(app) if "PNG" in label or "HTML" in label]


def test_the_map_is_of_the_language_in_focus(cache):
    assert "Map of Thai (th) (PNG)" in offered(share_of("heads", focus="th"))


def test_the_mask_of_the_prune_page_is_offered(cache):
    assert not any("Mask without" in label for label in offered(share_of("heads")))
    kept_heads = np.arange(GRID.size) != HARMFUL
    app = share_of("scatter", chosen=mask_link_text(kept_heads))
    press(app, "scatter-actions-off")
    app = open_share(app.switch_page("pages/heads.py").run())
    assert "Mask without 1 head (JSON)" in offered(app)


def test_a_name_and_a_note_are_kept_for_the_results_on_view_and_shown_with_them(cache):
    app = share_of("heads")
    app.text_input(key="label-name").set_value("baseline").run()
    app.text_area(key="label-note").set_value("Seed 0.").run()
    press(app, "label-save")
    store = Store(cache)
    for language in ("de", "th"):
        key = content_key(made_scores(language, "shapley").spec)
        assert store.label(key) == ResultLabel("baseline", "Seed 0.")
    assert store.label(content_key(made_scores("fr", "shapley").spec)) == ResultLabel()
    assert "“baseline”: Seed 0." in page_text(run_page("languages", langs=["de", "th"]))
    assert "baseline" not in page_text(run_page("languages", langs=["fr", "fi"]))
    app = share_of("heads", langs=["de"])
    assert app.text_input(key="label-name").value == "baseline"


def test_results_of_different_names_are_not_given_one_unasked(cache):
    store = Store(cache)
    store.set_label(content_key(made_scores("de", "shapley").spec), ResultLabel("old"))
    app = share_of("heads")
    assert "different names or notes" in page_text(app)
    assert app.text_input(key="label-name").value == ""


def test_a_note_of_a_result_that_was_deleted_meanwhile_is_a_sentence(cache):
    app = share_of("heads")
    app.text_input(key="label-name").set_value("baseline").run()
    for language in ("de", "th"):
        shutil.rmtree(cache / content_key(made_scores(language, "shapley").spec))
    press(app, "label-save")
    assert "not in the cache any more" in page_text(app)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://localhost:8501/heads", "on this machine only"),
        ("http://127.0.0.1/", "on this machine only"),
        ("https://heads.example.org/heads?x=1", "for whoever can reach heads.example.org"),
        ("", "for whoever can reach this server"),
    ],
)
def test_it_says_whom_the_link_reaches(address, words):
    assert words in reach_of(address)


def test_a_folded_and_unfolded_form_keeps_the_name(cache):
    store = Store(cache)
    for language in ("de", "th"):
        key = content_key(made_scores(language, "shapley").spec)
        store.set_label(key, ResultLabel("baseline", "Seed 0."))
    app = share_of("heads")
    app.session_state["share"] = False
    app.run()
    app.session_state["share"] = True
    app.run()
    assert app.text_input(key="label-name").value == "baseline"
    assert app.text_area(key="label-note").value == "Seed 0."
    press(app, "label-save")
    assert store.label(key) == ResultLabel("baseline", "Seed 0.")


def test_empty_fields_do_not_remove_different_names(cache):
    store = Store(cache)
    key = content_key(made_scores("de", "shapley").spec)
    store.set_label(key, ResultLabel("old"))
    app = share_of("heads")
    press(app, "label-save")
    assert store.label(key) == ResultLabel("old")
    assert "Nothing was saved" in page_text(app)
    assert "de: “old”" in page_text(app)


def test_a_name_stands_only_on_pages_that_show_its_scores(cache):
    key = content_key(made_scores("de", "shapley").spec)
    Store(cache).set_label(key, ResultLabel("old"))
    for path in ("overview", "heads", "head", "scatter", "languages"):
        assert "de: “old”" in page_text(run_page(path, langs=["de", "th"]))
    for path in ("jobs", "roles", "gates", "own"):
        assert "“old”" not in page_text(run_page(path, langs=["de", "th"]))
