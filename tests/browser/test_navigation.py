"""Links, page switches and the way back."""

from __future__ import annotations

from importlib import resources
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import DEADLINE
from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option, tick_first_row

PAGES = (
    "Overview",
    "Heads",
    "Languages",
    "Roles",
    "Gates",
    "Prune",
    "Masks",
    "Experiments",
    "Attention",
    "Jobs",
)


def link(page) -> dict[str, list[str]]:
    """The parameters of the address as the browser shows it."""
    return parse_qs(urlsplit(page.evaluate("location.href")).query)


def choose(page, label, option):
    """Choose an option of a selectbox."""
    choose_option(page.get_by_role("combobox", name=label).first, option)


def wait_for_link(page, **wanted: list[str]):
    """Wait until the address has these values."""
    script = """wanted => Object.entries(wanted).every(([name, values]) =>
      JSON.stringify(new URLSearchParams(location.search).getAll(name)) === JSON.stringify(values))"""
    page.wait_for_function(script, arg=wanted)


def test_a_link_to_a_page_works_right_after_a_server_restart(app, visit, page):
    app.restart()
    visit("/heads?langs=de&langs=th&focus=th&head=encoder.3.7")
    expect(page.get_by_role("heading", name="Layer 3, head 7")).to_be_visible()
    expect(page.get_by_test_id("stSidebar").get_by_text("Model", exact=True)).to_be_visible()
    expect(page.get_by_role("grid", name="Thai (th)").first).to_be_visible()
    expect(page.get_by_role("grid")).to_have_count(3)
    expect(page.get_by_role("link", name="Languages").first).to_be_visible()
    assert link(page) == {"langs": ["de", "th"], "focus": ["th"], "head": ["encoder.3.7"]}


def test_choices_survive_a_page_switch(visit, page):
    visit("/?langs=de&langs=th")
    choose(page, "Method", "gradient")
    wait_for_link(page, method=["gradient"])
    for name in ("Heads", "Languages", "Jobs", "Overview"):
        page.get_by_role("link", name=name, exact=True).first.click()
        expect(page.locator("h1")).to_have_text("headlab" if name == "Overview" else name)
        wait_for_link(page, method=["gradient"], langs=["de", "th"])
        expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")


def test_a_choice_opens_again_from_its_link(visit, page, chromium, app):
    visit("/heads?langs=fi&method=gradient")
    address = page.evaluate("location.href")
    other = chromium.new_context().new_page()
    other.goto(address)
    expect(other.get_by_role("grid", name="Finnish (fi)")).to_have_count(2)
    expect(other.get_by_text("cover the sampling of the examples").first).to_be_visible()
    other.context.close()


def test_back_returns_to_the_page_and_choice_before(visit, page):
    visit("/?langs=de&langs=fr")
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("Heads")
    choose(page, "Method", "gradient")
    wait_for_link(page, method=["gradient"])
    page.go_back()
    expect(page.locator("h1")).to_have_text("headlab")
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Shapley value")
    expect(page.get_by_role("grid")).to_have_count(2)
    assert link(page) == {"langs": ["de", "fr"]}
    page.go_forward()
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")


@pytest.mark.parametrize("attempt", range(3))
def test_choices_survive_a_switch_before_the_page_is_drawn(page, attempt):
    page.goto("/?langs=de&langs=fr&method=gradient")
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.get_by_role("grid")).to_have_count(3)
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")


def test_choices_survive_a_switch_while_a_fresh_server_still_imports(app, page):
    app.restart()
    page.goto("/?langs=de&langs=fr&method=gradient")
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.get_by_role("grid")).to_have_count(3)
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")


def test_all_and_none_choose_all_and_none(visit, page):
    visit("/?langs=de&langs=fr")
    page.get_by_role("button", name="None", exact=True).click()
    expect(page.get_by_text("No language is chosen")).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.get_by_role("grid")).to_have_count(15)
    expect(page.get_by_test_id("stAlert")).to_have_count(0)


def test_a_page_link_carries_the_choice_and_the_head(visit, page):
    visit("/heads?langs=de&langs=th&head=encoder.3.7")
    page.get_by_role("link", name="Switch it off").click()
    expect(page.locator("h1")).to_have_text("Prune")
    page.wait_for_function("location.search.includes('m=')")
    wait_for_link(page, langs=["de", "th"])


def test_one_head_and_language_hold_from_page_to_page_and_on_the_way_back(visit, page):
    visit("/heads?langs=de&langs=th")
    page.get_by_role("grid", name="Thai (th)").last.locator('[data-c="2.5"]').click()
    wait_for_link(page, focus=["th"], head=["encoder.2.5"])
    # The address changes before the card does, whose link is that of the head shown before.
    expect(page.get_by_role("heading", name="Layer 2, head 5")).to_be_visible()
    expect(page.get_by_text("In Thai (th)")).to_be_visible()
    page.get_by_role("link", name="Switch it off").click()
    expect(page.locator("h1")).to_have_text("Prune")
    wait_for_link(page, **{"from": ["th"], "focus": []})
    page.go_back()
    expect(page.get_by_role("heading", name="Layer 2, head 5")).to_be_visible()
    expect(page.get_by_text("In Thai (th)")).to_be_visible()
    assert link(page) == {"langs": ["de", "th"], "focus": ["th"], "head": ["encoder.2.5"]}
    page.get_by_role("link", name="Languages", exact=True).first.click()
    page.get_by_role("tab", name="Tree").click()
    wait_for_link(page, tab=["Tree"])
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.get_by_role("heading", name="Layer 2, head 5")).to_be_visible()
    expect(page.get_by_text("In Thai (th)")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("tab", name="Tree")).to_have_attribute("aria-selected", "true")


def test_a_row_of_a_table_leads_to_its_head(visit, page):
    visit("/languages?langs=de&langs=th")
    heads = page.get_by_text("Tick a row to open its head.")
    expect(heads.first).to_be_visible()
    table = page.get_by_text("Heads among the 20 highest").locator(
        "xpath=following::*[@data-testid='stDataFrame'][1]"
    )
    tick_first_row(table)
    expect(page.locator("h1")).to_have_text("Heads")
    expect(
        page.get_by_role("heading", name="Layer 9, head 0")
    ).to_be_visible()  # the most useful of all languages


@pytest.mark.parametrize(
    ("path", "named", "shown"),
    [
        (
            "/heads?model=nonsense&method=magic&task=chess&langs=de&langs=klingon&head=encoder.99.1",
            ("'nonsense'", "'magic'", "'chess'", "'klingon'", "'encoder.99.1'"),
            "German (de)",
        ),
        ("/heads?head=%3Cscript%3E&focus=xx", ("'<script>'",), "English (en)"),
    ],
)
def test_what_a_link_asks_for_and_is_not_there_is_said(visit, page, path, named, shown):
    visit(path)
    for word in named:
        expect(page.get_by_test_id("stAlert").filter(has_text=word).first).to_be_visible()
    expect(page.get_by_role("grid", name=shown).first).to_be_visible()


def test_no_page_is_blank_with_no_language_chosen(visit, page, settled):
    visit("/?langs=")
    for name in PAGES:
        page.get_by_role("link", name=name, exact=True).first.click()
        expect(page.locator("h1")).to_have_text("headlab" if name == "Overview" else name)
        settled()  # until then the page before may still say so
        expect(page.get_by_test_id("stAlert").first).to_be_visible()
        wait_for_link(page, langs=[""])


def test_a_page_turn_that_gets_lost_on_its_way_is_asked_for_again(line):
    """As where streamlit takes the request of a timer, made on the old page, in its place."""
    page = line.page
    page.goto("/heads?langs=de")
    expect(page.locator("h1")).to_have_text("Heads")
    page.wait_for_function("window.headlabTurn?.drawn === 'heads'")
    line.cut = True
    page.get_by_role("link", name="Languages", exact=True).click()
    for _ in range(200):  # playwright hands messages on only while it is asked for something
        if line.lost:
            break
        page.evaluate("() => new Promise(requestAnimationFrame)")
    assert line.lost
    line.cut = False
    expect(page.locator("h1")).to_have_text("Languages")


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_serious_rule_of_axe(app, chromium, scheme):
    """benchmarks/ui.py counts the same on the demo's results."""
    axe = (resources.files(pytest.importorskip("axe_playwright_python")) / "axe.min.js").read_text(
        "utf-8"
    )
    context = chromium.new_context(
        base_url=app.url, color_scheme=scheme, viewport={"width": 1440, "height": 900}
    )
    context.set_default_timeout(DEADLINE)
    try:
        tab = context.new_page()
        found = []
        for name in (*PAGES, "own"):
            tab.goto("/" if name == "Overview" else f"/{name.lower()}")
            tab.locator("h1").first.wait_for()
            tab.locator(IDLE_APP).wait_for()
            tab.evaluate(axe)
            broken = tab.evaluate("() => axe.run().then(r => r.violations)")
            found += [
                (name, r["id"], len(r["nodes"]))
                for r in broken
                if r["impact"] in ("serious", "critical")
            ]
        assert found == []
    finally:
        context.close()
