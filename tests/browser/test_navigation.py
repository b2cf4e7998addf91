"""Links, page switches and the way back."""

from __future__ import annotations

from importlib import resources
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect
from support.browsing import DEADLINE, IDLE_APP, choose_option, tick_first_row

PAGES = (
    "Overview",
    "Heads",
    "One head",
    "Scatter",
    "Pairs",
    "Languages",
    "Roles",
    "Gates",
    "Prune",
    "Masks",
    "Experiments",
    "Attention",
    "Jobs",
)
PAGES_IN_ORDER = [
    "Overview",
    "Heads",
    "One head",
    "Scatter",
    "Languages",
    "Attention",
    "Roles",
    "Prune",
    "Gates",
    "Pairs",
    "Masks",
    "Jobs",
    "Experiments",
    "Bring your own",
]

IN_SIGHT_AT_THE_END = """() => {
  const main = document.querySelector('[data-testid="stMain"]');
  main.scrollTop = main.scrollHeight;
  const navigation = document.querySelector('.st-key-navigation');
  return main.scrollTop > 100 && navigation.getBoundingClientRect().top === 0;
}"""


def link(page) -> dict[str, list[str]]:
    """The parameters of the address as the browser shows it."""
    return parse_qs(urlsplit(page.evaluate("location.href")).query)


def choose(page, label, option):
    """Choose an option of a select box."""
    choose_option(page.get_by_role("combobox", name=label).first, option)


def wait_for_link(page, **parameters: list[str]):
    """Wait until the address has these parameters."""
    script = """parameters => Object.entries(parameters).every(([name, values]) =>
      JSON.stringify(new URLSearchParams(location.search).getAll(name)) === JSON.stringify(values))"""
    page.wait_for_function(script, arg=parameters)


def test_a_link_to_a_page_works_right_after_a_server_restart(app, visit, page):
    app.restart()
    visit("/heads?langs=de&langs=th&focus=th&head=encoder.3.7")
    expect(page.get_by_role("heading", name="Head 3.7", exact=True)).to_be_visible()
    expect(page.get_by_test_id("stSidebar").get_by_text("Model", exact=True)).to_be_visible()
    expect(page.get_by_role("grid", name="Thai (th)").first).to_be_visible()
    expect(page.get_by_role("grid")).to_have_count(6)  # three of them of the comparison
    expect(page.get_by_role("link", name="Languages").first).to_be_visible()
    assert link(page) == {"langs": ["de", "th"], "focus": ["th"], "head": ["encoder.3.7"]}


def test_an_address_in_other_letters_leads_to_its_page(visit, page):
    visit("/Heads?langs=de")
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.get_by_text("Page not found")).to_have_count(0)
    assert page.evaluate("location.pathname") == "/heads"
    assert link(page)["langs"] == ["de"]


def test_choices_survive_a_page_switch(visit, page):
    visit("/?langs=de&langs=th")
    choose(page, "Method", "gradient")
    wait_for_link(page, method=["gradient"])
    for name in ("Heads", "Languages", "Jobs", "Overview"):
        page.get_by_role("link", name=name, exact=True).first.click()
        expect(page.locator("h1")).to_have_text("headlab" if name == "Overview" else name)
        wait_for_link(page, method=["gradient"], langs=["de", "th"])
        expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)])
def test_all_pages_are_in_sight_in_five_groups(visit, page, size):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    visit("/?langs=de")
    navigation = page.locator(".st-key-navigation")
    expect(navigation.get_by_role("link")).to_have_text(PAGES_IN_ORDER)
    for name in PAGES_IN_ORDER:
        box = navigation.get_by_role("link", name=name, exact=True).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
        assert 0 <= box["y"] < 150
    groups = navigation.get_by_test_id("stCaptionContainer")
    expect(groups).to_have_text(["Look", "Prune", "Compare", "Work", "Yours"])
    navigation.get_by_role("link", name="Bring your own").click()
    expect(page.locator("h1")).to_have_text("Bring your own")


def test_a_link_to_the_first_page_has_its_address_and_is_not_turned_back(visit, page):
    """Streamlit gives it an empty address, that of the page one is on, which was asked for again."""
    visit("/jobs?langs=de")
    link_to_overview = page.locator(".st-key-navigation").get_by_role("link", name="Overview")
    link_to_overview.hover()
    page.mouse.down()
    root = page.evaluate("location.origin + '/'")
    assert link_to_overview.evaluate("link => link.href") == root
    page.mouse.up()
    expect(page.locator("h1")).to_have_text("headlab")
    assert page.evaluate("window.headlabTurn.wanted") in (None, "")


def test_the_navigation_stays_in_sight_while_one_scrolls_a_wide_window(visit, page):
    visit("/?langs=de")
    navigation = page.locator(".st-key-navigation")
    expect(navigation.get_by_role("link")).to_have_text(PAGES_IN_ORDER)
    page.wait_for_function(IN_SIGHT_AT_THE_END)  # scrolls again until the page is long enough
    navigation.get_by_role("link", name="Heads").click()
    expect(page.locator("h1")).to_have_text("Heads")


def test_a_choice_opens_again_from_its_link(visit, page, chromium, app):
    visit("/heads?langs=fi&method=gradient")
    address = page.evaluate("location.href")
    other_tab = chromium.new_context().new_page()
    other_tab.goto(address)
    expect(other_tab.get_by_role("grid", name="Finnish (fi)")).to_have_count(2)
    expect(other_tab.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")
    other_tab.context.close()


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
    expect(page.get_by_role("grid")).to_have_count(6)
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")


def test_choices_survive_a_switch_while_a_fresh_server_still_imports(app, page):
    app.restart()
    page.goto("/?langs=de&langs=fr&method=gradient")
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.get_by_role("grid")).to_have_count(6)
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")


def test_the_buttons_all_and_none_choose_all_languages_and_none(visit, page):
    visit("/?langs=de&langs=fr")
    page.get_by_role("button", name="None", exact=True).click()
    expect(page.get_by_text("No language is chosen")).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.get_by_role("grid")).to_have_count(15)
    expect(page.get_by_test_id("stAlert")).to_have_count(0)
    page.get_by_role("button", name="None", exact=True).click()
    page.get_by_role("button", name="Choose all languages").click()
    expect(page.get_by_role("grid")).to_have_count(15)


def test_a_page_link_carries_the_choice_and_the_head(visit, page):
    visit("/heads?langs=de&langs=th&head=encoder.3.7")
    page.get_by_role("link", name="Switch it off").click()
    expect(page.locator("h1")).to_have_text("Prune")
    page.wait_for_function("location.search.includes('m=')")
    wait_for_link(page, langs=["de", "th"])


def test_one_head_and_language_hold_from_page_to_page_and_on_the_way_back(visit, page):
    visit("/heads?langs=de&langs=th")
    page.get_by_role("grid", name="Thai (th)", exact=True).last.locator('[data-c="2.5"]').click()
    wait_for_link(page, focus=["th"], head=["2.5"])
    # The address changes before the card does, and the card's heading before its link.
    expect(page.get_by_role("heading", name="Head 2.5", exact=True)).to_be_visible()
    expect(page.get_by_text("In Thai (th)")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("link", name="Switch it off").click()
    expect(page.locator("h1")).to_have_text("Prune")
    wait_for_link(page, **{"from": ["th"], "focus": []})
    page.go_back()
    expect(page.get_by_role("heading", name="Head 2.5", exact=True)).to_be_visible()
    expect(page.get_by_text("In Thai (th)")).to_be_visible()
    assert link(page) == {"langs": ["de", "th"], "focus": ["th"], "head": ["2.5"]}
    page.get_by_role("link", name="Languages", exact=True).first.click()
    page.get_by_role("tab", name="Tree").click()
    wait_for_link(page, tab=["Tree"])
    page.get_by_role("link", name="Heads", exact=True).first.click()
    expect(page.get_by_role("heading", name="Head 2.5", exact=True)).to_be_visible()
    expect(page.get_by_text("In Thai (th)")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("tab", name="Tree")).to_have_attribute("aria-selected", "true")


def test_a_row_of_a_table_leads_to_its_head(visit, page):
    visit("/languages?langs=de&langs=th")
    heads = page.get_by_text("Tick a row to see all that is known of its head.")
    expect(heads.first).to_be_visible()
    title = page.get_by_text("Heads among the 20 highest")
    table = title.locator("xpath=following::*[@data-testid='stDataFrame'][1]")
    tick_first_row(table)
    expect(page.locator("h1")).to_have_text("One head")
    # The most helpful head of all languages.
    expect(page.get_by_role("heading", name="Head 9.0", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("path", "unknown_values", "grid_title"),
    [
        (
            "/heads?model=nonsense&method=magic&task=chess&langs=de&langs=klingon&head=encoder.99.1",
            ("'nonsense'", "'magic'", "'chess'", "'klingon'", "'encoder.99.1'"),
            "German (de)",
        ),
        ("/heads?head=%3Cscript%3E&focus=xx", ("'<script>'",), "English (en)"),
    ],
)
def test_what_a_link_asks_for_in_vain_is_named(visit, page, path, unknown_values, grid_title):
    visit(path)
    for value in unknown_values:
        expect(page.get_by_test_id("stAlert").filter(has_text=value).first).to_be_visible()
    expect(page.get_by_role("grid", name=grid_title).first).to_be_visible()


def test_no_page_is_blank_with_no_language_chosen(visit, page, wait_until_drawn):
    visit("/?langs=")
    for name in PAGES:
        page.get_by_role("link", name=name, exact=True).first.click()
        expect(page.locator("h1")).to_have_text("headlab" if name == "Overview" else name)
        wait_until_drawn()  # until then the alert may be that of the page before
        expect(page.get_by_test_id("stAlert").first).to_be_visible()
        wait_for_link(page, langs=[""])


def test_a_page_turn_that_gets_lost_on_its_way_is_asked_for_again(connection):
    """As when streamlit takes a timer's request from the old page instead of the page turn."""
    page = connection.page
    page.goto("/heads?langs=de")
    expect(page.locator("h1")).to_have_text("Heads")
    page.wait_for_function("window.headlabTurn?.drawn === 'heads'")
    connection.is_cut = True
    page.get_by_role("link", name="Languages", exact=True).click()
    for _ in range(200):  # playwright passes messages on only while it handles a call
        if connection.lost_messages:
            break
        page.evaluate("() => new Promise(requestAnimationFrame)")
    assert connection.lost_messages
    connection.is_cut = False
    expect(page.locator("h1")).to_have_text("Languages")


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_serious_rule_of_axe(app, chromium, scheme):
    """benchmarks/ui.py counts the same on the demo's results."""
    package = resources.files(pytest.importorskip("axe_playwright_python"))
    axe = (package / "axe.min.js").read_text("utf-8")
    context = chromium.new_context(
        base_url=app.url, color_scheme=scheme, viewport={"width": 1440, "height": 900}
    )
    context.set_default_timeout(DEADLINE)
    try:
        tab = context.new_page()
        violations = []
        for name in (*PAGES, "own"):
            tab.goto("/" if name == "Overview" else f"/{name.lower()}")
            tab.locator("h1").first.wait_for()
            tab.locator(IDLE_APP).wait_for()
            tab.evaluate(axe)
            page_violations = tab.evaluate("() => axe.run().then(r => r.violations)")
            for violation in page_violations:
                if violation["impact"] in ("serious", "critical"):
                    violations.append((name, violation["id"], len(violation["nodes"])))
        assert violations == []
    finally:
        context.close()
