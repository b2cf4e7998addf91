"""The Scatter page with made-up results: its axes, its colours, and what is done with some heads."""

from __future__ import annotations

import json

import numpy as np
import pytest
import streamlit as st
from support.app_pages import app_on, page_text, run_page
from support.cached_reports import keep_report
from support.cached_scores import GRID, HARMFUL, HELPFUL, fill_cache, made_scores, while_cached
from support.page_actions import choose, press
from support.synthetic_roles import made_roles

from headlab.charts.head_measures import layer_measure
from headlab.core import fingerprint_of
from headlab.dashboard.frame import scores_of
from headlab.dashboard.pages.scatter.chosen import (
    ADD,
    CHART,
    REMOVE,
    REPLACE,
    WAY,
    ChosenHeads,
    choose_by_chart,
    indices_of_points,
)
from headlab.dashboard.panels.heads import head_data_of
from headlab.dashboard.panels.masks.history import HISTORY_KEY_PREFIX, mask_link_text

pytestmark = pytest.mark.usefixtures("native_buttons")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """An app without a worker, with made-up scores of one model and a report of its roles."""
    root = fill_cache(tmp_path_factory.mktemp("cache"))
    keep_report(root, made_roles("de", grid=GRID))
    with app_on(root):
        yield root


def link_of(*head_indices: int) -> str:
    kept_heads = np.ones(GRID.size, bool)
    kept_heads[list(head_indices)] = False
    return mask_link_text(kept_heads)


def scatter(**query):
    return run_page("scatter", **{"langs": ["de", "th"], **query})


def figure_of(app):
    (chart,) = app.get("plotly_chart")
    return json.loads(chart.proto.spec)


def names_of(figure):
    return [trace["name"] for trace in figure["data"]]


def test_two_languages_are_held_against_each_other_at_first(cache):
    app = scatter()
    assert not app.error
    assert app.selectbox(key="across").value == "value by shapley"
    assert app.selectbox(key="acrosslang").value == "de"
    assert app.selectbox(key="upwardslang").value == "th"
    figure = figure_of(app)
    assert names_of(figure) == ["neither for sure", "helps", "harms"]
    assert sum(len(trace["text"]) for trace in figure["data"]) == GRID.size
    assert "Spearman's ρ = " in page_text(app)


def test_one_language_is_held_against_confidence(cache):
    app = scatter(langs=["th"])
    assert app.selectbox(key="upwards").value == "value by confidence"
    assert app.selectbox(key="upwardslang").value == "th"


def test_all_that_is_stored_can_be_an_axis_and_the_link_says_which(cache):
    app = scatter(across="attention: entropy", upwards="rank by gradient", upwardslang="fr")
    assert app.selectbox(key="acrosslang").value == "de"
    figure = figure_of(app)
    assert figure["layout"]["xaxis"]["title"]["text"] == "attention: entropy, de, nats"
    assert figure["layout"]["yaxis"]["title"]["text"] == "rank by gradient, fr"
    options = app.selectbox(key="across").options
    for name in ("value by leave-one-out", "share of role position −1", "layer"):
        assert name in options


def test_a_link_to_a_measure_that_is_not_stored_says_so(cache):
    app = scatter(across="value by magic")
    assert "value by magic" in page_text(app)
    assert app.selectbox(key="across").value == "value by shapley"


def test_colours_are_signs_roles_or_none(cache):
    app = scatter(colour="role")
    assert "positional" in names_of(figure_of(app))
    assert "no role" in names_of(figure_of(app))
    assert "the clearest role on German (de) sentences" in page_text(app)
    app.radio(key="colour").set_value("none").run()
    assert len(figure_of(app)["data"]) == 1


def test_heads_of_a_link_are_chosen_and_stand_out_and_stay_so_with_other_axes(cache):
    app = scatter(chosen=link_of(HARMFUL, HELPFUL))
    (table,) = [frame.value for frame in app.dataframe if "head" in frame.value]
    assert table[["layer", "head"]].to_numpy().tolist() == [[9, 0], [3, 7]]
    choose(app, "across", "layer")
    faint = [opacity for trace in figure_of(app)["data"] for opacity in trace["marker"]["opacity"]]
    assert faint.count(1.0) == 2
    link_text = link_of(HARMFUL, HELPFUL)
    assert app.query_params["chosen"] in (link_text, [link_text])
    press(app, "scatter-none")
    assert "chosen" not in app.query_params
    assert "Draw around heads" in page_text(app)


@pytest.mark.parametrize("text", ["AAAA", "%%%", "A" * 400])
def test_a_link_with_heads_of_another_model_chooses_none_and_says_so(cache, text):
    app = scatter(chosen=text)
    assert "The link chooses heads that this model does not have" in page_text(app)
    assert "chosen" not in app.query_params


def test_two_ranges_choose_the_heads_in_both(cache):
    app = scatter(across="layer", upwards="value by shapley", upwardslang="de")
    layers, values = app.slider
    layers.set_range(3, 3).run()
    _, values = app.slider
    values.set_range(values.min, values.min + 1).run()
    assert press(app, "scatter-ranges")
    (table,) = [frame.value for frame in app.dataframe if "head" in frame.value]
    assert table[["layer", "head"]].to_numpy().tolist() == [[3, 7]]


def test_chosen_heads_are_switched_off_on_prune(cache):
    app = scatter(chosen=link_of(HARMFUL))
    press(app, "scatter-actions-off")
    history = app.session_state[f"{HISTORY_KEY_PREFIX}{'0' * 64}"]
    assert [(head.layer, head.head) for head in history.mask.removed] == [(3, 7)]
    assert history.mask.chosen == {"rule": "by hand", "chosen_in_scatter": "by a link"}


def test_more_heads_are_added_to_those_that_are_off(cache):
    app = scatter(chosen=link_of(HARMFUL))
    press(app, "scatter-actions-off")
    app = app.switch_page("pages/scatter.py").run()
    assert not [button for button in app.button if button.key == "scatter-actions-add"]
    app.session_state["_scatter"].choose([HARMFUL, HELPFUL], "by an area")
    app.run()
    assert "Switch these 2 heads off" in [button.label for button in app.button]
    app.session_state["_scatter"].choose([HELPFUL], "by an area")
    app.run()
    assert "Switch only this head off" in [button.label for button in app.button]
    press(app, "scatter-actions-add")
    history = app.session_state[f"{HISTORY_KEY_PREFIX}{'0' * 64}"]
    assert len(history.mask.removed) == 2
    assert history.mask.chosen["added"] == {"chosen_in_scatter": "by an area"}
    assert history.mask.chosen["started_from"]["chosen_in_scatter"] == "by a link"


def test_what_a_measure_rests_on_is_said(cache):
    app = scatter()
    assert "value by shapley, de, points: shapley-top50, zero ablation, dev split" in page_text(app)


def test_another_language_of_an_axis_blames_no_link(cache):
    app = scatter(across="value by leave-one-out", upwards="layer", langs=["en"])
    languages = app.selectbox(key="acrosslang").options
    choose(app, "acrosslang", languages[-1])
    choose(app, "across", "attention: entropy")
    assert app.selectbox(key="acrosslang").value == "de"
    assert "The link asks for" not in page_text(app)


def test_heads_chosen_of_a_model_are_not_those_of_another_with_as_many(cache):
    other = made_scores("de", "shapley", "7" * 64, "owner/other")
    with while_cached(cache, other):
        app = scatter()
        app.session_state["_scatter"].choose([HARMFUL], "by an area")
        app.run()
        assert "chosen" in app.query_params
        choose(app, "model", "owner/other")
        assert app.session_state["_scatter"].indices == ()
        assert "The link chooses heads" not in page_text(app)


def test_the_results_are_those_of_the_other_pages(cache):
    """Other weights have results in two languages, and are the newer ones there."""
    german, thai = (made_scores(language, "shapley", "8" * 64) for language in ("de", "th"))
    with while_cached(cache, german), while_cached(cache, thai):
        app = scatter()
        shown = app.session_state["_choice"]
        expected = fingerprint_of(scores_of(shown).first_scores.spec)
        assert head_data_of(shown).fingerprint == expected


def test_an_empty_cache_offers_the_first_scores(tmp_path):
    with app_on(tmp_path):
        app = scatter(model="owner/unknown")
        assert "Nothing is cached of the heads of owner/unknown yet" in page_text(app)


# What the chart sends.


@pytest.fixture
def state(monkeypatch):
    """A session in which the chart says something."""
    session = {}
    monkeypatch.setattr(st, "session_state", session)
    return session


def event(*indices: int, **areas):
    points = [{"customdata": [index]} for index in indices]
    return {"selection": {"points": points, "box": [], "lasso": [], **areas}}


def send(state, *indices: int, **areas):
    state[CHART] = event(*indices, **areas)
    measure = layer_measure(GRID)
    choose_by_chart(measure, measure)
    return ChosenHeads.of_session()


def test_an_area_chooses_its_heads_and_an_empty_one_keeps_them_and_says_so(state):
    chosen = send(state, 7, 3, lasso=[{"x": [0], "y": [0]}])
    assert chosen.indices == (3, 7)
    chosen = send(state, lasso=[{"x": [0], "y": [0]}])
    assert chosen.indices == (3, 7)
    assert chosen.problem.startswith("There is no head in that area")
    chosen = send(state, 5, box=[{"x": [0, 1], "y": [0, 1]}])
    assert chosen.indices == (5,)
    assert not chosen.problem


def test_an_area_adds_heads_or_takes_them_away(state):
    area = [{"x": [0], "y": [0]}]
    send(state, 4, 9, lasso=area)
    state[WAY] = ADD
    assert send(state, 2, 4, lasso=area).indices == (2, 4, 9)
    state[WAY] = REMOVE
    assert send(state, 4, 50, lasso=area).indices == (2, 9)
    assert send(state, 2, 9, lasso=area).indices == ()
    assert send(state, 2, lasso=area).indices == (2,)  # of none, none can be taken away
    state[WAY] = "something else"
    assert send(state, 6, lasso=area).indices == (6,)


def test_an_area_that_is_given_up_changes_nothing(state):
    send(state, 4, lasso=[{"x": [0], "y": [0]}])
    chosen = send(state)
    assert chosen.indices == (4,)
    assert not chosen.problem


def test_how_heads_were_chosen_is_told_as_a_whole(state):
    area = "by an area of layer against layer"
    assert send(state, 7, 3, lasso=[{"x": [0], "y": [0]}]).how == area
    state[WAY] = ADD
    assert send(state, 5, box=[{"x": [0], "y": [0]}]).how == f"{area}, and {area}"
    state[WAY] = REMOVE
    chosen = send(state, 5, box=[{"x": [0], "y": [0]}])
    assert chosen.how == f"{area}, and {area}, without those {area}"
    state[WAY] = REPLACE
    assert send(state, 1, box=[{"x": [0], "y": [0]}]).how == area
    state[WAY] = ADD
    for index in range(2, 40):
        chosen = send(state, index, lasso=[{"x": [0], "y": [0]}])
    assert len(chosen.indices) == 39
    assert len(chosen.how) < 450
    assert chosen.how.endswith(", then by further areas")


def test_what_is_no_head_is_no_choice():
    points = [
        {"customdata": [2]},
        {"customdata": None},
        {},
        {"customdata": ["x"]},
        {"customdata": 1},
    ]
    assert indices_of_points(points) == [1, 2]


def test_nothing_sent_chooses_nothing(state):
    choose_by_chart(layer_measure(GRID), layer_measure(GRID))
    assert ChosenHeads.of_session().indices == ()
