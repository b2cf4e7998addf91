"""The front on the Prune page: a click on a dot makes its mask the present one."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from support.browsing import click_dot
from support.cached_scores import while_cached
from support.synthetic_fronts import embedded_grid, made_embedded_front

from headlab.models.embedded import fingerprint

TWO_LANGUAGES = "/prune?langs=de&langs=th"
FINDER = f"{TWO_LANGUAGES}&tool=Find+a+smaller+model"


@pytest.fixture(scope="module", autouse=True)
def front(cache_folder, warm_up):
    """A made-up front of the real model, removed again before other files' tests."""
    with while_cached(cache_folder, made_embedded_front(fingerprint("e5-small-intents"))):
        warm_up(TWO_LANGUAGES, '[data-c="0.0"]')
        yield


def test_a_click_on_a_dot_switches_its_heads_off_and_undo_takes_it_back(visit):
    page = visit(FINDER)
    figure = page.locator(".js-plotly-plot").last
    figure.scroll_into_view_if_needed()
    # The second dot of the first order, with a third of the heads off.
    click_dot(figure.locator(".scatterlayer .trace .points path.point").nth(1))
    size = embedded_grid().size
    # The tab with the board opens.
    expect(page.get_by_text(f"{size // 3} of {size} heads off")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text(f"0 of {size} heads off")).to_be_visible()


def test_a_quick_front_is_filled_in_by_a_press_and_says_what_it_grows_with(visit):
    page = visit(TWO_LANGUAGES)
    page.get_by_role("tab", name="Find a smaller model").click()
    expect(
        page.get_by_text("2 languages × 3 orders × 25 sizes × 512 dev examples = 76,800 forwards")
    ).to_be_visible()
    page.get_by_role("button", name="Quick", exact=True).click()
    expect(
        page.get_by_text(re.compile(r"2 languages × 1 order × \d+ sizes × 512 dev examples"))
    ).to_be_visible()
    page.get_by_role("button", name="Full", exact=True).click()
    expect(page.get_by_text("2 languages × 3 orders × 25 sizes")).to_be_visible()
