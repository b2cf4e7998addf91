"""The Masks page, and where a mask goes from the Prune page, with made-up scores and no worker."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, page_text, run_page, shown_text
from support.cached_scores import GRID, HARMFUL, MODEL, fill_cache
from support.fake_client import loaded_model
from support.page_actions import choose

from headlab.core import HeadGrid, Stack
from headlab.dashboard.frame import Choice
from headlab.dashboard.pages.masks.comparison import difference_values
from headlab.dashboard.pages.masks.sources import read_mask_files
from headlab.dashboard.panels.masks.accuracy import FinalFigures
from headlab.dashboard.panels.masks.history import HISTORY_KEY_PREFIX, MaskHistory
from headlab.dashboard.panels.masks.known_masks import CURRENT_MASK
from headlab.dashboard.panels.masks.mask_figures import AccuracyQuestion
from headlab.dashboard.panels.masks.mask_files import (
    mask_file_name,
    place_of,
)
from headlab.dashboard.panels.masks.target_model import TargetModel, why_not_openable
from headlab.masks import Mask, ScriptModel, compare_masks, mask_script, noted, parse_grid
from headlab.worker.schemas import Figure

pytestmark = pytest.mark.usefixtures("native_buttons")

WEIGHTS = "0" * 64
FIGURE = {
    "accuracy": 0.61,
    "n": 512,
    "baseline": 0.6,
    "difference": 0.01,
    "low": -0.01,
    "high": 0.03,
    "p": 0.4,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """An app with made-up results of the embedded model and without a worker."""
    root = fill_cache(tmp_path_factory.mktemp("cache"))
    with app_on(root):
        yield root


class File:
    """A file as streamlit's uploader gives it."""

    def __init__(self, name, text):
        self.name = name
        self.text = text

    def getvalue(self):
        return self.text.encode()


def mask_without(*removed_heads, grid=GRID, model=None, **fields):
    kept_heads = np.ones(grid.size, bool)
    kept_heads[list(removed_heads)] = False
    return Mask(grid, kept_heads, model or {"name": MODEL, "fingerprint": WEIGHTS}, **fields)


def test_the_page_counts_masks_without_a_fingerprint_among_others():
    def body(masks, choice, target):

        from headlab.dashboard.pages.masks.comparison import draw_combiner

        draw_combiner(choice, masks, list(masks), target)

    masks = {
        "A": mask_without(1),
        "B": mask_without(2, model={"name": None, "fingerprint": None}),
    }
    choice = Choice(MODEL, "intents", ("de",), "shapley")
    app = AppTest.from_function(
        body, args=(masks, choice, TargetModel(WEIGHTS, GRID)), default_timeout=30
    ).run()
    assert not app.exception
    assert "1 of the 2 masks have no fingerprint" in page_text(app)


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def test_the_suggestions_of_two_languages_are_compared_and_combined(cache):
    app = run_page("masks", langs=["de", "th"])
    names = app.selectbox(key="masks-a").options
    assert names == [
        "German (de): shapley, bottom",
        "Thai (th): shapley, bottom",
        "Mean of 2 languages: shapley, bottom",
    ]
    choose(app, "masks-b", names[1])
    comparison_metrics = metrics(app)
    assert (
        int(comparison_metrics["Only A"])
        == int(comparison_metrics["Only B"])
        == 12 - int(comparison_metrics["Both"])
    )
    app.radio(key="masks-way").set_value("or").run()
    assert not app.exception
    off_in_both = int(comparison_metrics["Both"])
    assert off_in_both >= 1  # head 3.7 harms in every made-up language
    assert "Neither mask holds accuracies" in page_text(app)
    assert "heads** would be off" in page_text(app)
    tables = [frame.value for frame in app.dataframe]
    assert int(tables[0]["off in both"].astype(int).sum()) == off_in_both


def test_the_present_mask_of_the_prune_page_can_be_compared_and_taken_back(cache):
    app = run_page("masks", langs=["de", "th"])
    history = MaskHistory(GRID)
    history.set_mask(mask_without(HARMFUL, 5).kept, {"rule": "by hand"})
    app.session_state[HISTORY_KEY_PREFIX + WEIGHTS] = history
    app.run()
    assert app.selectbox(key="masks-a").options[0] == CURRENT_MASK
    choose(app, "masks-a", CURRENT_MASK)
    app.button(key="masks-open-B").click()
    app.run()
    assert len(history.masks) == 3
    assert history.mask.chosen["rule"] == "bottom"
    assert history.mask.chosen["k"] == 12


def test_without_results_the_page_says_where_masks_come_from(cache):
    app = run_page("masks", model="owner/unknown", langs=["de"])
    assert "There are no masks to compare" in page_text(app)
    app = run_page("masks", langs=[""])
    assert "No language is chosen" in page_text(app)


def upload(app, **masks):
    files = [
        (f"{name}.json", json.dumps(mask.to_json()).encode(), "") for name, mask in masks.items()
    ]
    app.file_uploader(key="masks-files").set_value(files).run()
    assert not app.exception
    return app.selectbox(key="masks-a").value, app.selectbox(key="masks-b").value


def test_an_uploaded_mask_is_chosen_and_what_was_chosen_by_hand_stays(cache):
    app = run_page("masks", langs=["de", "th"])
    german, thai, mean = app.selectbox(key="masks-a").options
    assert upload(app, x=mask_without(3)) == (german, "x.json")
    assert "In the lists of A and B: x.json." in page_text(app)
    choose(app, "masks-b", thai)
    assert upload(app, x=mask_without(3)) == (german, thai)  # the file was there before
    assert upload(app, x=mask_without(3), y=mask_without(4)) == ("y.json", thai)
    choose(app, "masks-a", mean)
    assert upload(
        app,
        x=mask_without(3),
        y=mask_without(4),
        z=mask_without(5),
    ) == (mean, thai)
    assert upload(run_page("masks", langs=["de", "th"]), x=mask_without(3), y=mask_without(4)) == (
        "x.json",
        "y.json",
    )


def test_the_prune_page_s_mask_brings_the_accuracies_that_it_has_shown(cache):
    app = run_page("masks", langs=["de", "th"])
    history = MaskHistory(GRID)
    history.set_mask(mask_without(HARMFUL, 5).kept, {"rule": "by hand"})
    app.session_state[HISTORY_KEY_PREFIX + WEIGHTS] = history
    app.run()
    choose(app, "masks-a", CURRENT_MASK)
    assert "Open one on the Prune page" in page_text(app)
    question = AccuracyQuestion.unchecked(
        MODEL, WEIGHTS, "intents", "dev", mask_without(HARMFUL, 5)
    )
    figure = Figure(
        language="de",
        n=512,
        total=512,
        accuracy=0.61,
        done=True,
        baseline=0.6,
        difference=0.01,
        low=-0.01,
        high=0.03,
        p=0.4,
        flipped_right=9,
        flipped_wrong=4,
    )
    app.session_state[FinalFigures.key] = FinalFigures({question.key("de"): figure})
    app.run()
    assert "Neither mask holds accuracies" not in page_text(app)
    assert any("61.0" in str(frame.value.to_numpy().tolist()) for frame in app.dataframe)


def test_files_are_listed_by_name_and_broken_ones_named_as_problems():
    mask_text = json.dumps(mask_without(3).to_json())
    masks, problems = read_mask_files(
        [File("a.json", mask_text), File("a.json", mask_text), File("b.json", "{")]
    )
    assert list(masks) == ["a.json", "a.json (2)"]
    assert [problem.startswith("b.json is not valid JSON") for problem in problems] == [True]


def test_the_map_of_differences_shows_four_cases():
    grid = parse_grid("1x4")
    comparison = compare_masks(
        mask_without(0, 1, grid=grid),
        mask_without(1, 2, grid=grid),
    )
    assert np.array_equal(difference_values(comparison), [-1, np.nan, 1, 0], equal_nan=True)


def test_a_mask_opens_only_on_its_own_model():
    target = TargetModel(WEIGHTS, GRID)
    nameless = {"name": None, "fingerprint": None}
    assert (
        why_not_openable(mask_without(1), target)
        == why_not_openable(mask_without(1), TargetModel(WEIGHTS, None))
        == ""
    )
    assert why_not_openable(mask_without(1, model=nameless), target) == ""
    assert "made for other" in why_not_openable(
        mask_without(1, model={"name": "other", "fingerprint": "e" * 64}), target
    )
    assert "does not fit" in why_not_openable(
        mask_without(1, model=nameless, grid=parse_grid("3x4")), target
    )
    for unknown in (TargetModel(None, GRID), TargetModel(WEIGHTS, None)):
        assert "not known here yet" in why_not_openable(mask_without(1, model=nameless), unknown)


def test_masks_of_other_grids_are_shown_without_a_comparison():
    def body(mask_a, mask_b):

        from headlab.dashboard.pages.masks.comparison import draw_maps, draw_tables

        comparison = draw_maps(("here", "there"), mask_a, mask_b)
        if comparison is not None:
            draw_tables(mask_a, mask_b, comparison)

    app = AppTest.from_function(
        body, args=(mask_without(1), mask_without(1, grid=parse_grid("3x4"))), default_timeout=30
    ).run()
    assert not app.exception
    assert "the masks are for different models" in shown_text(app.warning[0])
    assert not app.metric


def test_masks_of_other_players_are_compared_with_each_other_and_open_nowhere():
    neurons = Stack("encoder-neurons", (2, 2), ((0, 1, 1), (1, 0, 0)))
    grid = HeadGrid((*GRID.stacks, neurons))
    masks = [mask_without(1, grid.size - 1, grid=grid), mask_without(2, grid=grid)]

    def body(mask_a, mask_b):

        from headlab.dashboard.pages.masks.comparison import draw_maps, draw_tables

        comparison = draw_maps(("here", "there"), mask_a, mask_b)
        if comparison is not None:
            draw_tables(mask_a, mask_b, comparison)

    app = AppTest.from_function(body, args=tuple(masks), default_timeout=30).run()
    assert not app.exception
    assert not app.warning
    assert "does not fit" in why_not_openable(masks[0], TargetModel(WEIGHTS, GRID))
    read_masks, problems = read_mask_files([File("a.json", json.dumps(masks[0].to_json()))])
    assert problems == []
    assert read_masks["a.json"].grid == grid


def test_accuracies_that_masks_carry_stand_side_by_side():
    def body(mask_a, mask_b):

        from headlab.dashboard.pages.masks.comparison import draw_maps, draw_tables

        comparison = draw_maps(("here", "there"), mask_a, mask_b)
        if comparison is not None:
            draw_tables(mask_a, mask_b, comparison)

    how_chosen = noted({}, "test", "intents", {"th": FIGURE})
    app = AppTest.from_function(
        body, args=(mask_without(1, chosen=how_chosen), mask_without(2)), default_timeout=30
    ).run()
    assert not app.exception
    row = app.dataframe[0].value.loc[0, ["mask", "split", "language", "95 % interval"]]
    assert row.tolist() == ["A", "test", "Thai (th)", "-1.0 … +3.0"]


def test_a_mask_is_offered_as_a_script_and_in_other_forms():
    def body(mask, script_model):

        from headlab.dashboard.panels.masks.mask_files import draw_use_elsewhere

        draw_use_elsewhere(mask, script_model)

    script_model = ScriptModel(
        [f"bert.layer.{i}.out" for i in range(12)],
        {"class": "BertModel", "model_type": "bert"},
        "owner/bert",
    )
    app = AppTest.from_function(
        body, args=(mask_without(0, 5), script_model), default_timeout=30
    ).run()
    assert not app.exception
    script, form = (block.value for block in app.code)
    assert '("bert.layer.{}.out", 12, "0:0,5")' in script
    assert form == '{"0": [0, 5]}'
    choose(app, "mask-form", "text")
    assert app.code[1].value == "0:0,5"
    shared_layers = ScriptModel(
        ["albert.layer.0.out"] * 12, {"class": "AlbertModel", "model_type": "albert"}
    )
    app = AppTest.from_function(
        body, args=(mask_without(0, 5), shared_layers), default_timeout=30
    ).run()
    assert not app.exception
    assert "cannot tell the layers apart" in shown_text(app.markdown[0])
    app = AppTest.from_function(body, args=(mask_without(), script_model), default_timeout=30).run()
    assert "nothing to switch off" in shown_text(app.markdown[0])


def test_the_script_of_a_page_is_for_the_workers_own_weights():
    of_hub = loaded_model(
        "theirs",
        revision="c0ffee",
        architecture={"class": "BertModel", "model_type": "bert"},
        projections=[f"bert.layer.{i}.out" for i in range(12)],
        source="owner/bert",
    )
    of_folder = of_hub.model_copy(update={"revision": "folder", "source": "/models/bert"})
    for description, expected_text in (
        (of_hub, "from_pretrained('owner/bert', revision='c0ffee')"),
        (of_folder, "from_pretrained('/models/bert')"),
        (of_hub.model_copy(update={"source": None}), "headlab.load('mine').module"),
    ):
        assert expected_text in mask_script(mask_without(0), place_of(description, "mine"))


def test_names_of_files_hold_whatever_a_model_is_called():
    name = "../my model's/$(x)"
    assert mask_file_name(mask_without(1), name) == "mask-..-my-model-s---x--1-off.json"
    mask = mask_without(1)
    harmful_mask = dataclasses.replace(mask, chosen={"rule": "harmful", "languages": ["de", "th"]})
    assert mask_file_name(harmful_mask, "a") == "mask-a-harmful-de-th-1-off.json"
    mask_of_four_languages = dataclasses.replace(
        mask, chosen={"rule": "by hand", "languages": ["de", "th", "fi", "ru"]}
    )
    assert mask_file_name(mask_of_four_languages, "a") == "mask-a-by-hand-4-languages-1-off.json"
