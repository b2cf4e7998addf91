"""The page of one head with made-up results: its values, its roles, and the masks without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import streamlit as st
from support.app_pages import app_on, page_text, run_page
from support.cached_reports import keep_report
from support.cached_scores import GRID, HARMFUL, HELPFUL, fill_cache, made_scores, while_cached
from support.page_actions import choose, press
from support.synthetic_roles import made_roles

from headlab.dashboard.frame import scores_of
from headlab.dashboard.names import head_number
from headlab.dashboard.pages.head.known_values import table_of_values
from headlab.dashboard.pages.head.sentences import (
    LISTED_SENTENCES,
    MarkedSentence,
    strongest_in,
    strongest_sentences,
)
from headlab.dashboard.panels.heads import head_data_of
from headlab.dashboard.panels.masks.history import HISTORY_KEY_PREFIX
from headlab.plots.matrices import Panel

pytestmark = pytest.mark.usefixtures("native_buttons")

HARMFUL_HEAD = GRID.heads[HARMFUL]
HELPFUL_HEAD = GRID.heads[HELPFUL]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """An app without a worker, with made-up scores of one model and a report of its roles."""
    root = fill_cache(tmp_path_factory.mktemp("cache"))
    keep_report(root, made_roles("de", grid=GRID))
    with app_on(root):
        yield root


def head_page(**query):
    return run_page("head", **{"langs": ["de", "th"], **query})


def shown_head(app):
    return app.selectbox(key="head").value


def frames_with(app, *columns):
    return [frame.value for frame in app.dataframe if {*columns} <= {*frame.value.columns}]


def test_a_link_opens_its_head_with_its_values_by_every_method(cache):
    app = head_page(head=head_number(HARMFUL_HEAD, GRID))
    assert not app.error
    assert shown_head(app) == head_number(HARMFUL_HEAD, GRID)
    text = page_text(app)
    assert "harms" in text
    assert "harms in all 15, each by its own interval" in text
    (values,) = frames_with(app, "method", "language", "value")
    assert {"shapley", "gradient", "leave-one-out"} <= {*values["method"]}
    first_rows = values[values["method"] == "shapley"].head(2)
    assert sorted(first_rows["language"]) == ["German (de)", "Thai (th)"]


def test_the_table_has_the_scores_own_numbers(cache):
    def read(choice):
        data = head_data_of(choice)
        return table_of_values(data, HARMFUL_HEAD, choice), scores_of(choice).scores

    table, scores = in_session(read)
    rows = [row for row in table.rows if row[:2] == ("shapley", "th")]
    (row,) = rows
    factor = 100 if row[5] == "points" else 1
    assert row[2] == pytest.approx(factor * scores["th"].values[HARMFUL])
    assert row[3] == pytest.approx(factor * scores["th"].low[HARMFUL])
    assert row[6] == int(scores["th"].ranks[HARMFUL])


def in_session(read):
    """What a function of the choice gives on the page."""
    given = []

    from unittest.mock import patch

    from headlab.dashboard.pages.head import page as head_page_module

    def keep(choice, data):
        given.append(read(choice))

    with patch.object(head_page_module, "draw_head", keep):
        app = head_page()
    assert not app.error
    return given[-1]


def test_the_signs_are_counted_over_all_languages_of_the_task(cache):
    app = head_page(head=head_number(HELPFUL_HEAD, GRID))
    assert "helps in all 15" in page_text(app)


def test_without_a_link_the_most_useful_head_is_shown(cache):
    assert shown_head(head_page()) == head_number(HELPFUL_HEAD, GRID)


@pytest.mark.parametrize("text", ["99.9", "nonsense", "encoder.-1.0", "3." + "9" * 300])
def test_a_link_to_a_head_that_the_model_does_not_have_says_so(cache, text):
    app = head_page(head=text)
    assert not app.error
    assert not app.exception
    assert "unknown here" in page_text(app)
    assert shown_head(app) == head_number(HELPFUL_HEAD, GRID)


def test_the_head_of_a_link_lives_through_pages_without_a_widget_for_it(cache):
    number = head_number(HARMFUL_HEAD, GRID)
    app = head_page(head=number)
    app.switch_page("pages/languages.py").run()
    app.switch_page("pages/head.py").run()
    assert shown_head(app) == number


def test_a_link_to_another_page_brings_its_head_along(cache):
    number = head_number(HARMFUL_HEAD, GRID)
    app = run_page("languages", langs=["de", "th"], head=number)
    app.switch_page("pages/head.py").run()
    assert shown_head(app) == number


def test_roles_are_those_of_the_language_or_of_another_one_with_a_word(cache):
    app = head_page(focus="th")
    assert "There is no report on Thai (th): this is German (de)." in page_text(app)
    choose(app, "focus", "de")
    assert "There is no report" not in page_text(app)


def test_masks_that_switch_the_head_off_are_listed(cache):
    app = head_page(head=head_number(HARMFUL_HEAD, GRID))
    (masks,) = frames_with(app, "Mask", "Heads off")
    assert any("harmful" in name for name in masks["Mask"])
    app = head_page(head=head_number(HELPFUL_HEAD, GRID))
    assert not frames_with(app, "Mask", "Heads off")
    assert "None of the " in page_text(app)


def test_the_head_is_switched_off_on_prune(cache):
    app = head_page(head=head_number(HARMFUL_HEAD, GRID))
    press(app, "one-head-off")
    history = app.session_state[f"{HISTORY_KEY_PREFIX}{'0' * 64}"]
    assert np.flatnonzero(~history.mask.kept).tolist() == [HARMFUL]


def test_without_languages_and_without_results_the_page_says_what_to_do(cache, tmp_path):
    app = head_page(langs=[])
    assert "language" in page_text(app)
    st.cache_data.clear()
    with app_on(tmp_path):
        app = head_page()
        assert not app.error
        assert "Nothing is cached of the heads" in page_text(app)


def plain_strongest_link(panel, head):
    """The strongest link between two different plain words, by a loop: (weight, from, to)."""
    best = None
    for query in range(len(panel.tokens)):
        for key in range(len(panel.tokens)):
            if query == key or {query, key} & {*panel.special}:
                continue
            weight = panel.weights[head][query][key]
            if best is None or weight > best[0]:
                best = (weight, panel.tokens[query], panel.tokens[key])
    return best


def made_panel(rng, tokens, special):
    weights = rng.dirichlet(np.ones(len(tokens)), len(tokens))
    return Panel("a title", tuple(tokens), {"encoder.0.0": weights}, special=special)


def test_the_strongest_link_of_a_sentence_is_that_of_a_loop():
    rng = np.random.default_rng(3)
    for size in range(2, 9):
        tokens = ["<s>", *(f"w{number}" for number in range(size)), "</s>"]
        panel = made_panel(rng, tokens, (0, size + 1))
        sentence = strongest_in(panel, "encoder.0.0")
        expected = plain_strongest_link(panel, "encoder.0.0")
        found = (sentence.weight, sentence.words[sentence.query], sentence.words[sentence.key])
        assert found == expected


def test_sentences_are_listed_by_their_strongest_link_and_short_ones_left_out():
    rng = np.random.default_rng(4)
    panels = [made_panel(rng, ["<s>", "a", "b", "c", "</s>"], (0, 4)) for _ in range(30)]
    panels += [None, made_panel(rng, ["<s>", "alone", "</s>"], (0, 2))]
    marked = strongest_sentences(panels, "encoder.0.0")
    assert len(marked) == LISTED_SENTENCES
    weights = [sentence.weight for sentence in marked]
    assert weights == sorted(weights, reverse=True)
    all_weights = [plain_strongest_link(panel, "encoder.0.0")[0] for panel in panels[:30]]
    assert weights == sorted(all_weights, reverse=True)[:LISTED_SENTENCES]


def test_words_of_a_sentence_are_no_html():
    sentence = MarkedSentence(0.5, ["<script>", "&", "x"], 0, 1)
    assert "<script>" not in sentence.html
    assert "&lt;script&gt;" in sentence.html
    assert "<mark" in sentence.html


def test_values_of_another_model_with_the_same_heads_are_left_out(cache):
    other_scores = made_scores("de", "shapley", "1" * 64, "owner/other")
    with while_cached(cache, other_scores):
        app = head_page(head=head_number(HARMFUL_HEAD, GRID))
        (values,) = frames_with(app, "method", "language", "value")
        assert not any("owner/other" in str(method) for method in values["method"])
        app = run_page("scatter", langs=["de"])
        assert any("owner/other" in name for name in app.selectbox(key="across").options)


def test_values_that_lean_on_slopes_show_what_their_interval_is_of(cache):
    scores = made_scores("de", "shapley")
    joined_scores = replace(scores, sample_means=scores.values + 0.001)
    with while_cached(cache, joined_scores):
        app = head_page(langs=["de"], head=head_number(HARMFUL_HEAD, GRID))
        (values,) = frames_with(app, "method", "language", "mean of samples")
        row = values[(values["method"] == "shapley") & (values["language"] == "German (de)")]
        assert row["mean of samples"].iloc[0] == pytest.approx(-4.9)
        assert row["value"].iloc[0] == pytest.approx(-5.0)
        assert "Intervals are of the mean of samples" in page_text(app)


def test_every_value_says_what_it_rests_on(cache):
    app = head_page(head=head_number(HARMFUL_HEAD, GRID))
    (values,) = frames_with(app, "method", "language", "basis")
    assert values["basis"].str.contains("512 examples").all()
