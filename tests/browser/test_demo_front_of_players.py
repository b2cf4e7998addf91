"""A front of groups of neurons on the demo's scores, from the form to the switches."""

from __future__ import annotations

import json
import re

from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option, click_dot

from headlab.masks import mask_from_json

LINK = "/prune?langs=de&method=shapley"
SECONDS_TO_MEASURE = 300
"""In which four models are measured, however busy the machine is."""
KEPT = re.compile(r"(\d+) of 96 groups of neurons kept")


def fill(page, name: str, value: str) -> None:
    """Type a number into a field of the form."""
    page.locator(IDLE_APP).wait_for()
    box = page.get_by_role("spinbutton", name=name, exact=True)
    box.fill(value)
    box.press("Enter")
    page.locator(IDLE_APP).wait_for()
    expect(box).to_have_value(value)


def test_a_quick_front_of_groups_of_neurons_grows_and_one_of_its_models_is_switched(
    demo_page, tmp_path
):
    page = demo_page
    page.goto(LINK)
    players = page.get_by_role("combobox", name="Players")
    expect(players).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    choose_option(players, "neurons:8")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("tab", name="Find a smaller model").click()
    expect(page.get_by_text("Groups of neurons are removed in several orders")).to_be_visible()
    expect(page.get_by_text("Best model with k groups of neurons")).to_be_visible()
    expect(page.get_by_text("neurons in 8 groups is in the cache yet")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Quick", exact=True).click()
    expect(page.get_by_text(re.compile(r"1 language × 1 order × \d+ sizes"))).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_text("More options").click()
    fill(page, "Sizes to try", "4")
    fill(page, "Examples of test, at most", "64")
    expect(page.get_by_text("1 language × 1 order × 4 sizes × 512 dev examples")).to_be_visible()
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_text("German (de): being computed")).to_be_visible()
    growing = page.locator(".st-key-front-growing")
    expect(growing.get_by_text(re.compile(r"[1-4] of 4 models measured"))).to_be_visible(
        timeout=SECONDS_TO_MEASURE * 1000
    )
    card = page.locator(".st-key-front-pinned")
    expect(card).to_be_visible(timeout=SECONDS_TO_MEASURE * 1000)
    expect(card.get_by_text(KEPT)).to_be_visible()
    expect(page.get_by_role("radiogroup").get_by_text("groups of neurons kept")).to_be_visible()
    # A model that keeps two thirds is pinned by a click on its dot.
    page.locator(IDLE_APP).wait_for()
    figure = page.locator(".js-plotly-plot").last
    click_dot(figure.locator(".scatterlayer .trace .points path.point").nth(1))
    expect(page).to_have_url(re.compile(r"point=mean-32\b"))
    expect(card.get_by_text("64 of 96 groups of neurons kept")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    card.get_by_role("button", name="Make it the current mask").click()
    expect(page.get_by_text("32 of 96 groups of neurons off")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export the mask (JSON)").click()
    path = tmp_path / "mask.json"
    download.value.save_as(path)
    record = json.loads(path.read_text())
    assert record["version"] == 3
    mask = mask_from_json(record)
    assert len(mask.removed) == 32
    assert mask.chosen["order"] == "mean"
    assert mask.chosen["front"]["players"] == "neurons:8"
    # Fronts of heads are not among those of groups, nor the other way round.
    page.locator(IDLE_APP).wait_for()
    choose_option(players, "heads")
    expect(page.get_by_text("0 of 144 heads off")).to_be_visible()
    page.get_by_role("tab", name="Find a smaller model").click()
    expect(page.get_by_text(re.compile(r"\d+ of 144 heads kept")).first).to_be_visible()
    expect(page.get_by_text(KEPT)).to_have_count(0)
