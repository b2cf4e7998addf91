"""The Gates page as a user has it: the training played back, another λ, and its mask."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from support.browsing import click_dot
from support.cached_scores import GRID
from support.synthetic_gates import keep_gates, made_gates

from headlab.core import HeadlabError
from headlab.models.embedded import fingerprint


@pytest.fixture(scope="module", autouse=True)
def stored_gates(warm_up, cache_folder):
    """Two runs for the model's own weights are in the cache."""
    try:
        weights = fingerprint("e5-small-intents")
    except HeadlabError:
        weights = "0" * 64
    for weight in (0.01, 0.03):
        keep_gates(
            cache_folder, made_gates(weight=weight, grid=GRID, history=20, fingerprint=weights)
        )
    warm_up("/gates?langs=de", '[data-c="0.1"]')


def test_a_training_is_played_back_and_the_mask_of_a_run_goes_to_the_prune_page(
    visit, page, choose
):
    visit("/gates?langs=de")
    chart = page.locator("[class*='st-key-gates-map-']").first
    step_label = chart.locator(".slider-label").first
    expect(step_label).to_have_text("step 100")
    gate_picture = chart.locator(".hm image").first
    picture_at_end = gate_picture.get_attribute("href")
    chart.get_by_text("▶ Play").click()
    expect(step_label).to_have_text(re.compile(r"step [0-8]\d?$"))
    expect(step_label).to_have_text("step 100")
    expect(gate_picture).to_have_attribute("href", picture_at_end)
    choose("λ", "0.01")
    expect(page.get_by_text("12 of 144 heads would be off.")).to_be_visible()
    page.wait_for_function("location.search.includes('weight=0.01')")
    page.get_by_role("button", name="Try it on the Prune page").click()
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.get_by_text("12 of 144 heads off")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    visit("/gates?langs=de")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_click_on_a_dot_of_the_trade_off_shows_its_run(visit, page):
    visit("/gates?langs=de")
    expect(page.get_by_text("35 of 144 heads would be off.")).to_be_visible()
    click_dot(page.locator(".st-key-gates-tradeoff .scatterlayer .points path").first)
    expect(page.get_by_text("12 of 144 heads would be off.")).to_be_visible()
    page.wait_for_function("location.search.includes('weight=0.01')")
