"""Share as a user has it: the link is copied, files are saved, results get a name."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import expect
from support.browsing import IDLE_APP


def open_share(page):
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Copy link").wait_for()
    page.locator(IDLE_APP).wait_for()


def saved_file(page, name) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name=name).click()
    return Path(download.value.path())


def test_the_link_of_the_view_is_copied(visit, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit("/heads?langs=de&langs=th&head=3.7&focus=th")
    open_share(page)
    expect(page.get_by_text("The link opens this view, on this machine only.")).to_be_visible()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    link = parse_qs(urlsplit(copied).query)
    assert urlsplit(copied).path == "/heads"
    assert link["langs"] == ["de", "th"]
    # Also what the browser's address leaves out because it is the default now.
    assert (link["model"], link["task"]) == (["e5-small-intents"], ["intents"])
    assert (link["method"], link["head"], link["focus"]) == (["shapley"], ["3.7"], ["th"])
    visit(copied)
    expect(page.locator("h3").first).to_have_text("Head 3.7")


def test_the_map_is_saved_as_a_picture_with_its_caption(visit, page):
    visit("/heads?langs=de&langs=th&focus=th")
    open_share(page)
    picture = Image.open(saved_file(page, "Map of Thai (th) (PNG)"))
    assert picture.width > 1000
    assert "Thai (th)" in picture.text["Description"]


@pytest.mark.usefixtures("no_names_left")
def test_results_get_a_name_that_is_shown_after_a_reload_and_in_their_report(visit, page):
    visit("/heads?langs=de&langs=th")
    open_share(page)
    page.get_by_label("Name of these results").fill("baseline")
    page.get_by_label("Name of these results").press("Tab")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Save name and note").click()
    expect(page.get_by_text("“baseline”")).to_be_visible()
    page.reload()
    expect(page.get_by_text("“baseline”")).to_be_visible()
    open_share(page)
    report = saved_file(page, "Report of this view (HTML)").read_text("utf-8")
    assert "“baseline”" in report


@pytest.fixture
def no_names_left(cache_folder):
    """Take the names of results away after the test."""
    yield
    for file in (cache_folder / ".labels").glob("*.json"):
        file.unlink()


def test_the_mask_of_prune_leaves_from_any_page(visit, page):
    visit("/prune?langs=de")
    page.locator('[data-c="3.7"]').click()
    expect(page.locator('[data-c="3.7"]')).to_have_attribute("aria-checked", "false")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("Heads")
    open_share(page)
    mask = json.loads(saved_file(page, "Mask without 1 head (JSON)").read_text())
    assert mask["kept"]["encoder"][3][7] == 0
