"""The page of one head as a user has it: clicked, carried along, switched off, measured."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, tick_first_row

PATH = "/head?langs=de&langs=th&head=3.7"


@pytest.fixture(scope="module", autouse=True)
def loaded_model(warm_up):
    """The worker runs and has loaded the model before the first test."""
    warm_up("/prune?langs=de", '[data-c="0.0"]')


def chosen_head(page):
    return page.get_by_role("combobox", name="Head", exact=True)


def test_a_click_in_the_map_opens_another_head_which_stays_chosen_on_other_pages(visit, page):
    visit("/head?langs=de&langs=th")
    page.get_by_role("grid").first.locator('[data-c="3.7"]').click()
    expect(page.get_by_text("harms: its interval lies below 0")).to_be_visible()
    expect(chosen_head(page)).to_have_value("3.7")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("link", name="Languages", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("Languages")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("link", name="One head", exact=True).first.click()
    expect(chosen_head(page)).to_have_value("3.7")
    page.wait_for_function("location.search.includes('head=3.7')")
    page.locator(IDLE_APP).wait_for()
    page.reload()
    expect(chosen_head(page)).to_have_value("3.7")


def test_any_page_takes_the_head_of_a_link_along(visit, page):
    visit("/languages?langs=de&langs=th&head=3.7")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("link", name="One head", exact=True).first.click()
    expect(chosen_head(page)).to_have_value("3.7")


def test_other_pages_lead_here_with_their_head(visit, page):
    visit("/heads?langs=de&langs=th&head=3.7")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("link", name="All that is known of it").click()
    expect(page.locator("h1")).to_have_text("One head")
    expect(chosen_head(page)).to_have_value("3.7")


def test_its_accuracy_without_it_is_measured_and_the_changed_answers_are_listed(visit, page):
    visit(PATH)
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Measure its accuracy without this head").click()
    page.get_by_text("1 head off: final, 512 dev examples").wait_for()
    page.locator(IDLE_APP).wait_for()
    page.get_by_text("Which sentences changed").click()
    page.get_by_role("button", name="now right and").click()
    expect(
        page.get_by_text("Tick a row to see what the heads that are off look at")
    ).to_be_visible()


def test_the_sentences_in_which_it_looks_hardest_are_read_to_the_end(visit, page):
    visit("/head?langs=de&head=3.7")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Look through all").click()
    expect(page.locator("mark").first).to_be_visible()
    page.get_by_text("gives another one (marked) the largest share").wait_for()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.locator("mark")).to_have_count(10)
    page.locator(IDLE_APP).wait_for()
    page.reload()
    expect(page.locator("mark")).to_have_count(10)  # what is read belongs to the server


def test_it_is_switched_off_on_prune(visit, page):
    visit(PATH)
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Switch this head off").click()
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.locator('[data-c="3.7"]')).to_have_attribute("aria-checked", "false")


def test_a_mask_that_switches_it_off_opens_on_prune(visit, page):
    visit(PATH)
    page.locator(IDLE_APP).wait_for()
    table = page.locator('.st-key-masks-without [data-testid="stDataFrame"]')
    tick_first_row(table)
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.locator('[data-c="3.7"]')).to_have_attribute("aria-checked", "false")


def test_a_link_to_a_head_that_the_model_lacks_says_so(visit, page):
    visit("/head?langs=de&head=77.7")
    expect(page.get_by_text("'77.7', which is unknown here")).to_be_visible()
    expect(page.get_by_text("In German (de)")).to_be_visible()
