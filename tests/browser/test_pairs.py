"""The Pairs page as a user has it: a stored result, a job, and the way from a head."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option, table_download
from support.cached_reports import keep_report
from support.saved_models import save_classifier
from support.synthetic_pairs import made_pairs

from headlab.core import HeadlabError
from headlab.models.embedded import fingerprint


@pytest.fixture(scope="module", autouse=True)
def stored_reports(warm_up, cache_folder):
    """Pairs of two languages are in the cache."""
    try:
        weights = fingerprint("e5-small-intents")
    except HeadlabError:
        weights = "0" * 64
    keep_report(cache_folder, made_pairs(weights=weights), 20)
    warm_up("/pairs?langs=de&langs=th", ".js-plotly-plot >> nth=0")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model so small that its pairs take seconds."""
    return str(save_classifier(tmp_path_factory.mktemp("models") / "tiny"))


def test_pairs_are_seen_downloaded_and_linked_from_a_head(visit, page):
    visit("/pairs?langs=de&langs=th")
    expect(page.get_by_text("Of 3 pairs, 2 decided.")).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    box = page.locator(".js-plotly-plot").first.bounding_box()
    assert 500 < box["width"] <= 620
    choose_option(page.get_by_role("combobox", name="Language").last, "th")
    expect(page.get_by_text("−2.60")).to_be_visible()
    page.wait_for_function("location.search.includes('focus=th')")
    with page.expect_download() as download:
        table_download(page, "interactions").click()
    rows = download.value.path().read_text().splitlines()
    assert rows[0].startswith("language,head,other head,")
    assert len(rows) == 4
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    visit("/head?langs=de&langs=th&head=9.4&focus=de")
    expect(page.get_by_text("Which heads does it work with?")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("link", name="All pairs").click()
    expect(page.locator("h1")).to_have_text("Pairs")


def test_pairs_of_named_heads_are_measured_by_the_worker(visit, page, tiny):
    visit("/pairs?langs=de")
    page.get_by_test_id("stSidebar").get_by_text("Another model").click()
    box = page.get_by_role("textbox", name="Hub id or folder")
    box.fill(tiny)
    box.press("Enter")
    expect(page.get_by_text("No pairs of")).to_be_visible()
    form = page.locator(".st-key-pairs-form")
    choose_option(form.get_by_role("combobox", name="Whose pairs?"), "Heads by their numbers")
    expect(form.get_by_text("Write the heads.")).to_be_visible()
    heads = form.get_by_role("textbox", name="Heads")
    heads.fill("0.0,1.1")
    heads.press("Enter")
    form.get_by_role("spinbutton", name="Half-width to reach").fill("0.4")
    expect(form.get_by_text("What it will take:")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    form.get_by_role("button", name="Start").click()
    expect(page.get_by_text(re.compile("^Of 1 pair, "))).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    page.get_by_role("button", name=re.compile("Interactions of heads, 0.0, 1.1")).first.click()
    page.get_by_role("button", name="Open on the Pairs page").click()
    expect(page.locator("h1")).to_have_text("Pairs")
    expect(page.get_by_text(re.compile("^Of 1 pair, "))).to_be_visible()
