"""A site of results opened from the disk: no server, no request, and it works."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from support.cached_reports import keep_report
from support.cached_scores import GRID, made_scores
from support.synthetic_roles import made_roles

from headlab.report.site.build import write_site
from headlab.results import Store


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a site of two methods in two languages, with roles."""
    folder = tmp_path_factory.mktemp("site")
    store = Store(folder / "cache")
    keys = []
    for method in ("shapley", "confidence"):
        for language in ("de", "th"):
            scores = made_scores(language, method)
            run = store.run(scores.spec)
            run.finish(scores, {"created": "2026-11-21", "versions": {}})
            keys.append(run.key)
    keys.append(keep_report(store.root, made_roles("de", grid=GRID)))
    write_site(keys, folder / "pages", store)
    return folder / "pages"


@pytest.fixture
def disk(chromium):
    """A tab without a server, which records requests and errors."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert [url for url in requests if not url.startswith("file://")] == []
    assert errors == []


def test_a_map_leads_to_a_head_and_a_scatter_too(disk, site):
    disk.goto((site / "index.html").as_uri())
    expect(disk.locator("h1")).to_have_text("Maps")
    disk.locator('a[href="head.html#model=e5-small-intents&head=3.7"]').first.click()
    expect(disk.get_by_role("heading", name="Head 3.7", exact=True)).to_be_visible()
    row = disk.get_by_role("region", name="value by shapley").get_by_role("row").first
    expect(row).to_contain_text("−5.00 [−5.60, −4.40] points")
    disk.get_by_role("link", name="Scatter").click()
    point = disk.locator('.plot a[href="head.html#model=e5-small-intents&head=9.0"]')
    point.hover()
    expect(disk.locator(".tip")).to_contain_text("Head 9.0\nvalue by shapley, de: ")
    point.click()
    expect(disk.get_by_role("heading", name="Head 9.0", exact=True)).to_be_visible()
    disk.go_back()
    expect(disk.locator("h1")).to_have_text("Scatter")
    disk.get_by_role("link", name="Report").click()
    expect(disk.get_by_role("heading", name="Contents")).to_be_visible()


def test_any_two_measures_and_colours_are_chosen_and_held_in_the_address(disk, site):
    disk.goto((site / "scatter.html").as_uri())
    expect(disk.locator(".plot a")).to_have_count(GRID.size)
    entropy = "attention: entropy, de, nats"
    disk.get_by_label("Upwards").select_option(label=entropy)
    disk.get_by_label("Colours").select_option(label="role, de")
    expect(disk.locator(".legend")).to_contain_text("positional 1")
    disk.reload()
    value = "value by shapley, de, points"
    picture = disk.locator(".plot svg")
    expect(picture).to_have_attribute("aria-label", f"All heads by {value} and {entropy}")
    expect(disk.get_by_label("Colours").locator("option:checked")).to_have_text("role, de")


def test_a_list_keeps_the_keyboard_while_it_is_used(disk, site):
    disk.goto((site / "scatter.html").as_uri())
    across = disk.get_by_label("Across")
    across.focus()
    disk.keyboard.press("ArrowDown")
    disk.keyboard.press("ArrowDown")
    expect(across).to_be_focused()
    expect(across.locator("option:checked")).to_have_text(
        "value by confidence, de, attention weight"
    )


def test_a_link_with_a_head_that_is_not_there_says_so(disk, site):
    disk.goto(f"{(site / 'head.html').as_uri()}#head=99.9")
    expect(disk.get_by_role("alert")).to_contain_text("The link asks for 99.9, which is not here")
    disk.get_by_label("Head").select_option(label="0.2")
    expect(disk.get_by_role("heading", name="Head 0.2", exact=True)).to_be_visible()
    expect(disk.get_by_text("nsubj: dependent to governor")).to_be_visible()


@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("page_name", ["index.html", "scatter.html", "head.html"])
def test_the_pages_fit_their_window(disk, site, page_name, width):
    disk.set_viewport_size({"width": width, "height": 844})
    disk.goto((site / page_name).as_uri())
    expect(disk.locator("h1")).to_be_visible()
    assert disk.evaluate("document.documentElement.scrollWidth") <= width
