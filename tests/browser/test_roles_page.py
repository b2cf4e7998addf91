"""The Roles page as a user has it: a stored report, by mouse and keys, and a new one."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option, table_download, tick_first_row
from support.cached_reports import keep_report
from support.cached_scores import GRID
from support.saved_models import save_classifier
from support.synthetic_roles import made_roles

from headlab.models import fingerprint

LEGEND = (
    "Rrare word 1",
    "Iinduction 0",
    "=same token elsewhere 0",
    "Eseparator 1",
    "Ffirst token 1",
    "no role 138",
)


@pytest.fixture(scope="module", autouse=True)
def stored_reports(warm_up, cache_folder):
    """Reports of two languages, on the very model that the worker loads, are in the cache."""
    weights = fingerprint("e5-small-intents")
    for day, language in enumerate(("de", "th"), start=1):
        report = made_roles(language, seed=day, shift=day, grid=GRID, fingerprint=weights)
        keep_report(cache_folder, report, day)
    warm_up("/roles?langs=de&langs=th", '[data-c="0.1"]')


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model so small that its roles take seconds."""
    return str(save_classifier(tmp_path_factory.mktemp("models") / "tiny"))


def test_heads_are_told_apart_by_colour_letter_and_name_and_reached_by_mouse_and_keys(visit, page):
    visit("/roles?langs=de&langs=th")
    cell = page.locator('[data-c="0.2"]')
    expect(cell).to_have_text("S")
    assert cell.evaluate("node => getComputedStyle(node).backgroundColor") == "rgb(28, 117, 21)"
    expect(cell).to_have_accessible_name(
        re.compile(r"^layer 0, head 2: nsubj: dependent to governor, \d+ %")
    )
    legend = page.locator(".roles .legend .key")
    expect(legend).to_have_text(
        [*("±positional 1", "Snsubj 1", "Oobj 1", "Aamod 1", "Vadvmod 0"), *LEGEND]
    )
    page.locator('[data-c="0.6"]').hover()
    expect(page.locator(".roles .tip")).to_contain_text("2 roles")
    cell.click()
    expect(page.get_by_role("heading", name="Head 0.2", exact=True)).to_be_visible()
    page.wait_for_function("location.search.includes('head=0.2')")
    cell.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Head 0.3", exact=True)).to_be_visible()
    page.reload()
    expect(page.locator('[data-c="0.3"]')).to_have_attribute("aria-selected", "true")
    page.locator(IDLE_APP).wait_for()  # a press while the page is drawn may find its file replaced
    with page.expect_download() as download:
        table_download(page, "roles-encoder-0-3").click()
    assert download.value.path().read_text().startswith("role,has it,")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    expect(page.locator('[data-c="11.11"]')).to_be_visible()
    assert page.locator('[data-c="11.11"]').bounding_box()["width"] >= 24
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("path", ["heads", "roles"])
@pytest.mark.parametrize("width", [1440, 1024, 820, 390])
def test_every_column_of_the_map_is_in_sight_with_a_card_that_can_be_read(visit, page, path, width):
    page.set_viewport_size({"width": width, "height": 768})
    visit(f"/{path}?langs=de&langs=th&head=11.8")
    scrolled = page.locator(".st-key-map-and-card .scroll").first
    expect(page.get_by_role("heading", name="Head 11.8", exact=True)).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    assert scrolled.evaluate("node => node.scrollWidth <= node.clientWidth")
    card = page.locator(".st-key-map-and-card").get_by_test_id("stColumn").last
    assert card.bounding_box()["width"] >= 240


def test_head_and_language_hold_on_the_way_from_the_heads_page(visit, page):
    """The browser has drawn the page, so that nothing of its link is left to be read again."""
    visit("/heads?langs=de&langs=th&focus=th&head=encoder.3.7")
    for title, heading in (("Roles", "Head 3.7"), ("Heads", "Head 3.7"), ("Roles", "Head 3.7")):
        page.locator(IDLE_APP).wait_for()
        page.get_by_role("link", name=title, exact=True).first.click()
        expect(page.locator("h1")).to_have_text(title)
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        expect(page.get_by_role("combobox", name="Language", exact=True)).to_have_value("th")


def test_the_head_chosen_last_is_shown_by_whatever_way_one_comes(visit, page):
    """Clicks on the Overview twice, and a choice on Attention that Heads has never shown."""
    visit("/?langs=de&langs=th")
    for number in ("3.7", "5.2"):
        page.get_by_role("grid", name="German (de)").locator(f'[data-c="{number}"]').click()
        expect(page.get_by_role("heading", name=f"Head {number}", exact=True)).to_be_visible()
        page.locator(IDLE_APP).wait_for()
        page.get_by_role("link", name="Overview", exact=True).first.click()
        expect(page.locator("h1")).to_have_text("headlab")
    page.get_by_role("link", name="Roles", exact=True).first.click()
    expect(page.get_by_role("heading", name="Head 5.2", exact=True)).to_be_visible()


def test_a_link_of_an_earlier_version_opens_its_head_also_on_the_way_back(visit, page):
    visit("/heads?langs=de&langs=th&head=encoder.5.2")
    expect(page.get_by_role("heading", name="Head 5.2", exact=True)).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("link", name="Switch it off").click()
    expect(page.locator("h1")).to_have_text("Prune")
    page.locator(IDLE_APP).wait_for()
    page.go_back()
    expect(page.get_by_role("heading", name="Head 5.2", exact=True)).to_be_visible()
    page.get_by_role("grid", name="German (de)").first.locator('[data-c="3.7"]').click()
    expect(page.get_by_role("heading", name="Head 3.7", exact=True)).to_be_visible()
    page.wait_for_function("location.search.includes('head=3.7')")


def test_a_row_of_a_table_leads_to_the_page_of_its_head(visit, page):
    """Head and language are bound to widgets of this page, which may not be written in a link."""
    visit("/roles?langs=de&langs=th&focus=th&head=5.5")
    page.locator(IDLE_APP).wait_for()
    caption = page.get_by_text("Tick a row to see all that is known of its head.").first
    tick_first_row(caption.locator("xpath=preceding::*[@data-testid='stDataFrame'][1]"))
    expect(page.locator("h1")).to_have_text("One head")
    heading = page.get_by_role("heading", name=re.compile(r"^Head \d+\.\d+$"))
    expect(heading).to_be_visible()
    expect(heading).not_to_have_text("Head 5.5")


def test_a_pick_that_the_browser_has_not_seen_survives_what_it_sends_meanwhile(connection):
    """Every request carries what the lists showed, which here is the head before."""
    page = connection.page
    page.goto("/roles?langs=de&langs=th")
    page.locator(IDLE_APP).wait_for()
    connection.is_deaf = True
    page.locator('[data-c="0.2"]').click()
    connection.wait_for_runs(2)  # the press is sent again, since no answer confirms it
    connection.hear()
    page.wait_for_function("document.documentElement.dataset.presses === '0'")
    expect(page.get_by_role("heading", name="Head 0.2", exact=True)).to_be_visible()


def test_roles_are_found_followed_and_shown_where_they_were_started(visit, page, tiny):
    visit("/roles?langs=de")
    page.get_by_test_id("stSidebar").get_by_text("Another model").click()
    box = page.get_by_role("textbox", name="Hub id or folder")
    box.fill(tiny)
    box.press("Enter")
    expect(
        page.get_by_text(f"There is no report yet on what the heads of {tiny} do")
    ).to_be_visible()
    sentences = page.get_by_role("combobox", name="Sentences").first
    choose_option(sentences, "The texts of the task, without syntax", exact=False)
    expect(page.get_by_text("the texts of task intents, without syntax").first).to_be_visible()
    expect(
        page.get_by_text(re.compile("What it will take: .*one pass over 512 sentences of de"))
    ).to_be_visible()
    page.locator(".st-key-roles-plan").get_by_role("button", name="Start").click()
    expect(page.get_by_text("There is no report yet")).to_have_count(0)
    expect(page.locator('[data-c="0.0"]')).to_be_visible()
    expect(page.get_by_text("512 sentences of dev (task intents, without syntax)")).to_be_visible()
    expect(page.get_by_text("no relation of syntax could be looked for")).to_be_visible()
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    page.get_by_role("button", name=re.compile("Roles of heads for German")).first.click()
    page.get_by_role("button", name="Open on the Roles page").click()
    expect(page.locator("h1")).to_have_text("Roles")
    expect(page.locator('[data-c="0.0"]')).to_be_visible()


def test_the_heads_of_a_role_stand_out_and_are_switched_off(visit, page):
    """A press in the legend, then the button beside the map, and the accuracy without the heads."""
    visit("/roles?langs=de&langs=th")
    legend_key = page.locator('.roles .legend button[data-kind="1"]')
    expect(legend_key).to_have_accessible_name("nsubj 1")
    legend_key.click()
    expect(legend_key).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("heading", name="1 head: nsubj", exact=True)).to_be_visible()
    page.wait_for_function("location.search.includes('role=nsubj')")
    expect(page.locator('[data-c="0.2"]')).not_to_have_class(re.compile("beside"))
    expect(page.locator('[data-c="0.3"]')).to_have_class(re.compile("beside"))
    page.reload()
    expect(legend_key).to_have_attribute("aria-pressed", "true")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Switch this head off").click()
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.get_by_text("1 of 144 heads off")).to_be_visible()
    expect(page.locator('[data-c="0.2"]')).to_have_attribute("aria-checked", "false")
    page.get_by_text("1 head off: final, 512 dev examples").wait_for()


def test_a_role_is_chosen_and_left_by_keyboard(visit, page):
    visit("/roles?langs=de&langs=th")
    legend_key = page.locator('.roles .legend button[data-kind="2"]')
    legend_key.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="1 head: obj", exact=True)).to_be_visible()
    expect(legend_key).to_be_focused()
    page.locator(IDLE_APP).wait_for()
    page.keyboard.press("Space")
    expect(page.get_by_role("heading", name="1 head: obj", exact=True)).to_have_count(0)
    expect(legend_key).to_have_attribute("aria-pressed", "false")
    page.wait_for_function("!location.search.includes('role=')")
