"""Players of other kinds than heads: chosen in the sidebar, drawn, switched, saved and compared."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option, link_with_model
from support.cached_scores import made_scores, while_cached
from support.saved_models import save_classifier

from headlab import load, score
from headlab.core import Head
from headlab.evaluation import Evaluator
from headlab.hooks import with_players_of
from headlab.masks import load_mask
from headlab.methods import model_with_players
from headlab.results import HeadScores
from headlab.studies.savings import saved_shares
from headlab.studies.savings_run import costs_of
from headlab.tasks import task

NEURONS = "neurons:2"
JOINT = "heads,neurons:2"
LAYERS = 3
SECONDS_TO_WRITE = 300
SECONDS_TO_MEASURE = 120
SETTINGS = "langs=de&method=leave-one-out"


@pytest.fixture(scope="module")
def scores_of_players(cache_folder, tmp_path_factory):
    """The folder of a tiny model, and its scores of groups of neurons, and of these with heads."""
    folder = str(save_classifier(tmp_path_factory.mktemp("models") / "players", layers=LAYERS))
    model = load(folder, device="cpu")
    intents = task("intents", ["de"])
    records: dict[str, HeadScores] = {}
    with ExitStack() as cached:
        for players in (NEURONS, JOINT):
            variant = model_with_players(model, intents, players)
            record = score(
                variant, intents, language="de", method="leave-one-out", size=24, progress=False
            )
            records[players] = record
            cached.enter_context(while_cached(cache_folder, record))
        yield folder, records


def link(page_name: str, model: str, players: str = NEURONS, more: str = "") -> str:
    """A link to a page with these players."""
    asked = players.replace(":", "%3A").replace(",", "%2C")
    return link_with_model(f"/{page_name}?{SETTINGS}&players={asked}{more}", model)


def group(page, layer: int, number: int):
    """A group of neurons on a page's first map."""
    return page.locator(f'[data-c="encoder-neurons {layer}.{number}"]').first


def test_the_heads_page_shows_the_players_of_the_link_and_what_one_is(
    visit, page, scores_of_players
):
    folder, records = scores_of_players
    visit(link("heads", folder))
    grid = records[NEURONS].grid
    neurons = grid.stacks[0].members[1].count(0)
    expect(page.locator("caption").first).to_have_text("Groups of neurons")
    page.locator(IDLE_APP).wait_for()
    group(page, 1, 0).hover()
    tip = page.locator(".tip b", has_text=f"layer 1, group 0 of neurons: {neurons} neurons")
    expect(tip.first).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    group(page, 1, 0).click()
    expect(page.locator("h3").first).to_have_text(f"Layer 1, group 0 of neurons: {neurons} neurons")
    expect(page.get_by_text(f"rank {records[NEURONS].ranks[2]} of {grid.size}")).to_be_visible()
    expect(page.get_by_text("What it attends to")).to_have_count(0)
    assert "players=neurons%3A2" in page.evaluate("location.href")


def test_players_are_chosen_in_the_sidebar_only_where_some_are_stored(
    visit, page, scores_of_players
):
    folder, _ = scores_of_players
    visit("/heads?langs=de")
    expect(page.get_by_role("grid", name="German (de)").first).to_be_visible()
    expect(page.get_by_role("combobox", name="Players")).to_have_count(0)
    visit(link_with_model(f"/overview?{SETTINGS}".replace("/overview", "/"), folder))
    players = page.get_by_role("combobox", name="Players")
    expect(players).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    choose_option(players, JOINT)
    expect(page.get_by_text("Heads and neurons in 2 groups.")).to_be_visible()
    expect(page.locator("caption").nth(0)).to_have_text("Heads")
    expect(page.locator("caption").nth(1)).to_have_text("Groups of neurons")
    page.wait_for_function("location.search.includes('players=heads%2Cneurons%3A2')")


def test_a_click_switches_a_group_off_and_the_accuracy_is_the_library_s(
    visit, page, scores_of_players, tmp_path
):
    folder, records = scores_of_players
    visit(link("prune", folder))
    expect(page.get_by_text("All groups of neurons on: final")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    group(page, 2, 1).click()
    expect(page.get_by_text("1 group of neurons off: final")).to_be_visible()
    expect(page.get_by_text("1 of 6 groups of neurons off")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export the mask (JSON)").click()
    path = Path(download.value.path())
    mask = load_mask(path)
    content = json.loads(path.read_text())
    assert content["version"] == 3
    assert [tuple(player) for player in mask.removed] == [("encoder-neurons", 2, 1)]
    assert mask.grid == records[NEURONS].grid
    model = with_players_of(load(folder, device="cpu"), mask.grid)
    evaluator = Evaluator(model, task("intents", ["de"]), "de", "dev", 512)
    figures = mask.evaluated["dev"]["languages"]["de"]
    assert figures["accuracy"] == evaluator.evaluate(mask).accuracy
    # Undone, it is on again; a suggestion names what it would switch off.
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("All groups of neurons on: final")).to_be_visible()
    page.locator("summary").filter(has_text="Take the method").click()
    page.get_by_text("The k lowest").click()
    expect(page.get_by_text("of 6 groups of neurons would be off")).to_be_visible()


def test_what_a_group_saves_is_counted_at_once_and_its_speed_estimated(
    visit, page, scores_of_players, no_jobs_left
):
    folder, records = scores_of_players
    grid = records[NEURONS].grid
    costs = costs_of(with_players_of(load(folder, device="cpu"), grid))
    kept = np.ones(grid.size, bool)
    kept[grid.index(Head("encoder-neurons", 2, 1))] = False
    shares = saved_shares(costs.baseline(), costs.shrunk(kept))
    visit(link("prune", folder))
    savings = page.get_by_test_id("stMetric").filter(has_text=re.compile("^(Parameters|Multiply)"))
    metrics = savings.get_by_test_id("stMetricDelta")
    expect(metrics).to_have_text(["unchanged", "unchanged"])
    page.locator(IDLE_APP).wait_for()
    group(page, 2, 1).click()
    expect(metrics).to_have_text(
        [f"−{round(100 * shares[name], 1)} %" for name in ("parameters", "macs")]
    )
    expect(page.get_by_text("After removing the groups of neurons that are off")).to_be_visible()
    expect(page.get_by_text("1 group of neurons off: final")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Estimate the speed").click()
    expect(page.get_by_text("An estimate, from")).to_be_visible(timeout=SECONDS_TO_MEASURE * 1000)
    page.locator(IDLE_APP).wait_for()
    page.locator("summary").filter(has_text="All measurements").click()
    expect(page.get_by_text("Measured time of a forward pass")).to_be_visible()
    # What was measured is found again by the mask of the link.
    page.reload()
    expect(page.get_by_text("An estimate, from")).to_be_visible()
    expect(page.get_by_role("button", name="Estimate the speed")).to_have_count(0)


def test_a_group_that_is_off_is_used_elsewhere_by_a_script(visit, page, scores_of_players):
    folder, _ = scores_of_players
    visit(link("prune", folder))
    expect(page.get_by_text("All groups of neurons on: final")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    group(page, 0, 1).click()
    expect(page.get_by_text("1 group of neurons off: final")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Use it elsewhere").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the script").click()
    names = runpy.run_path(str(download.value.path()))
    model = load(folder, device="cpu")
    downs = [path for path, _, _ in names["OFF"]]
    assert len(names["apply_mask"](model.module)) == len(downs) == 1
    page.get_by_role("tab", name="Other tools").click()
    expect(page.get_by_text("here 1 group of neurons is off")).to_be_visible()


def test_a_saved_mask_is_imported_again_and_compared(visit, page, scores_of_players, tmp_path):
    folder, records = scores_of_players
    mask = records[NEURONS].mask("bottom", k=2)
    path = tmp_path / "two.json"
    mask.save(path)
    visit(link("prune", folder))
    expect(page.get_by_text("All groups of neurons on: final")).to_be_visible()
    page.locator("input[type=file]").first.set_input_files(path)
    expect(page.get_by_text("Imported two.json: 2 of 6 groups of neurons are off.")).to_be_visible()
    visit(link("masks", folder))
    page.locator("summary").filter(has_text="Where the masks come from").click()
    page.locator("input[type=file]").first.set_input_files(path)
    expect(page.get_by_text("In the lists of A and B: two.json.")).to_be_visible()
    expect(page.get_by_text("Rows are layers, columns are groups of neurons")).to_be_visible()
    expect(page.get_by_text("Groups of neurons off, by layer")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Open B on the Prune page").click()
    expect(page.get_by_text("2 of 6 groups of neurons off")).to_be_visible()


def test_a_smaller_model_without_a_group_is_written(visit, page, scores_of_players, request):
    folder, _ = scores_of_players
    visit(link("prune", folder))
    expect(page.get_by_text("All groups of neurons on: final")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    group(page, 2, 1).click()
    expect(page.get_by_text("1 group of neurons off: final")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Write the model").click()
    page.get_by_role("button", name="Write it", exact=True).click()
    expect(page.get_by_text("Written to:")).to_be_visible(timeout=SECONDS_TO_WRITE * 1000)
    written_to = page.get_by_test_id("stCode").filter(has_text="players-small-")
    folder_written = Path(written_to.inner_text().strip())
    request.addfinalizer(partial(shutil.rmtree, folder_written))
    proof = json.loads((folder_written / "proof.json").read_text(encoding="utf-8"))
    assert proof["parameters_after"] < proof["parameters_before"]


def test_a_mask_of_heads_is_refused_where_groups_are_switched(
    visit, page, scores_of_players, tmp_path
):
    folder, _ = scores_of_players
    heads_mask = made_scores("de", "shapley").mask("bottom", k=2)
    path = tmp_path / "heads.json"
    heads_mask.save(path)
    visit(link("prune", folder))
    expect(page.get_by_text("All groups of neurons on: final")).to_be_visible()
    page.locator("input[type=file]").first.set_input_files(path)
    sentence = "the mask switches heads, and here neurons are switched"
    expect(page.get_by_text(sentence)).to_be_visible()


def test_pages_about_heads_stay_with_heads_and_say_so(visit, page, scores_of_players):
    folder, _ = scores_of_players
    for name in ("languages", "head", "scatter", "pairs", "roles", "gates", "attention"):
        visit(link(name, folder))
        expect(page.get_by_text("This page is about heads.")).to_be_visible()


def test_a_link_to_players_of_which_nothing_is_stored_says_so(visit, page):
    visit("/heads?langs=de&players=neurons%3A4096")
    expect(page.get_by_text("which are not stored for this model and task")).to_be_visible()
    expect(page.get_by_role("grid", name="German (de)").first).to_be_visible()


def test_the_job_form_scores_any_players_and_shows_them(
    visit, page, scores_of_players, no_jobs_left
):
    folder, _ = scores_of_players
    visit(link_with_model(f"/jobs?{SETTINGS}", folder))
    box = page.get_by_role("combobox", name="What is switched")
    page.locator(IDLE_APP).wait_for()
    box.fill("hats")
    box.press("Enter")
    expect(page.get_by_text("unknown players 'hats'; use heads, kv-groups")).to_be_visible()
    expect(page.get_by_role("button", name="Start")).to_be_disabled()
    page.locator(IDLE_APP).wait_for()
    choose_option(box, "Layers (layers)", filter_text="layers")
    expect(page.get_by_text("unknown players")).to_have_count(0)
    page.locator("summary").filter(has_text="The same from a terminal").click()
    expect(page.get_by_text("--players layers")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Start").click()
    page.get_by_role("button", name="Open job").click()
    page.get_by_role("button", name="Open on the Heads page").click()
    expect(page.locator("caption").first).to_have_text("Layers")
    expect(page.locator('[data-c="encoder-layers 2.0"]').first).to_be_visible()
    assert "players=layers" in page.evaluate("location.href")
