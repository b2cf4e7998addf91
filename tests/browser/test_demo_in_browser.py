"""What a newcomer sees of other players than heads, who has started the app and computed nothing."""

from __future__ import annotations

from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option


def choose_players(page, players: str) -> None:
    """Choose players in the sidebar."""
    player_list = page.get_by_role("combobox", name="Players")
    expect(player_list).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    choose_option(player_list, players)


def test_groups_of_neurons_of_the_encoder_are_there_to_look_at_and_to_switch_off(demo_page):
    page = demo_page
    page.goto("/")
    expect(page.get_by_text("What was found", exact=True)).to_be_visible()
    expect(page.get_by_text("6 heads hurt Bulgarian")).to_be_visible()
    choose_players(page, "neurons:8")
    expect(page.get_by_text("Neurons in 8 groups.")).to_be_visible()
    expect(page.locator("caption").first).to_have_text("Groups of neurons")
    choose_players(page, "heads,neurons:8")  # of which another method has scores
    page.wait_for_function("location.search.includes('method=smoothed')")
    expect(page.locator("caption").nth(0)).to_have_text("Heads")
    expect(page.locator("caption").nth(1)).to_have_text("Groups of neurons")
    page.locator(IDLE_APP).wait_for()
    page.goto("/prune?langs=de&players=neurons%3A8")
    expect(page.get_by_text("All groups of neurons on: final")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.locator('[data-c="encoder-neurons 11.7"]').first.click()
    expect(page.get_by_text("1 of 96 groups of neurons off")).to_be_visible()
    expect(page.get_by_text("1 group of neurons off: final")).to_be_visible()
    choose_players(page, "heads")
    expect(page.get_by_text("0 of 144 heads off")).to_be_visible()


def test_key_value_groups_of_the_decoder_are_there_to_look_at(demo_page):
    page = demo_page
    page.goto("/?model=smollm2-135m&task=repeats&langs=en")
    choose_players(page, "kv-groups")
    page.wait_for_function("location.search.includes('method=leave-one-out')")
    expect(page.locator("caption").first).to_have_text("Key–value groups")
    expect(page.locator('[data-c="decoder-kv-groups 1.1"]').first).to_be_visible()
    expect(page.get_by_text("8 key–value groups harm English")).to_be_visible()
