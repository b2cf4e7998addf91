"""The Scatter page as a user has it: drawn around, clicked, by keyboard, and where it leads."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option

PATH = "/scatter?langs=de&langs=th"
CHOSEN_POINTS = ".st-key-scatter .scatterlayer .points path.point"


@pytest.fixture(scope="module", autouse=True)
def loaded_model(warm_up):
    """The worker runs and has loaded the model before the first test."""
    warm_up("/prune?langs=de", '[data-c="0.0"]')


@pytest.fixture
def scatter(visit):
    """A function that opens the page and waits for its figure."""

    def open_page(path: str = PATH):
        page = visit(path)
        page.locator(CHOSEN_POINTS).first.wait_for()
        return page

    return open_page


def draw_around(page, left: float, top: float, right: float, bottom: float) -> None:
    """Draw a loop in the figure with the mouse.

    Args:
        page: Of the browser.
        left: Its edges, as shares of the plot's width and height from the top left.
        top: As `left`.
        right: As `left`.
        bottom: As `left`.
    """
    drag(page, [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)])


def drag(page, places: Sequence[tuple[float, float]]) -> None:
    """Draw a line in the figure with the mouse.

    Args:
        page: Of the browser.
        places: Its corners, as shares of the plot's width and height from the top left.
    """
    page.locator(IDLE_APP).wait_for()
    plot = page.locator(".st-key-scatter .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    pixels = [
        (box["x"] + across * box["width"], box["y"] + down * box["height"])
        for across, down in places
    ]
    page.mouse.move(*pixels[0])
    page.mouse.down()
    for corner in pixels[1:]:
        page.mouse.move(*corner, steps=5)
    page.mouse.up()


def test_heads_drawn_around_are_switched_off_and_their_accuracy_is_measured(scatter):
    page = scatter()
    draw_around(
        page, 0.01, 0.75, 0.3, 0.99
    )  # head 3.7 harms in both languages, far from all others
    expect(page.get_by_text("1 head chosen")).to_be_visible()
    page.wait_for_function("location.search.includes('chosen=')")
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Switch this head off").click()
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.get_by_text("1 of 144 heads off")).to_be_visible()
    expect(page.locator('[data-c="3.7"]')).to_have_attribute("aria-checked", "false")
    page.get_by_text("1 head off: final, 512 dev examples").wait_for()


def test_the_chosen_heads_leave_as_a_mask_and_stay_over_other_axes_and_a_reload(scatter, tmp_path):
    page = scatter()
    draw_around(page, 0.01, 0.01, 0.99, 0.99)
    expect(page.get_by_text("144 heads chosen")).to_be_visible()
    draw_around(page, 0.7, 0.01, 0.99, 0.3)
    expect(page.get_by_text("1 head chosen")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a mask").click()
    path = tmp_path / "mask.json"
    download.value.save_as(path)
    mask = json.loads(path.read_text())
    assert mask["removed"] == 1
    assert mask["kept"]["encoder"][9][0] == 0
    assert mask["model"]["name"] == "e5-small-intents"
    # Typed first, as a long list draws no option that is out of sight.
    choose_option(
        page.get_by_role("combobox", name="Across", exact=True), "layer", filter_text="layer"
    )
    page.wait_for_function("location.search.includes('across=layer')")
    page.locator(IDLE_APP).wait_for()
    expect(page.get_by_text("1 head chosen")).to_be_visible()
    page.reload()
    expect(page.get_by_text("1 head chosen")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Choose none").click()
    expect(page.get_by_text("Draw around heads to choose them")).to_be_visible()


def test_an_area_without_heads_keeps_what_was_chosen_and_says_so(scatter):
    page = scatter()
    draw_around(page, 0.7, 0.01, 0.99, 0.3)
    expect(page.get_by_text("1 head chosen")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    draw_around(page, 0.75, 0.6, 0.95, 0.9)
    expect(page.get_by_text("There is no head in that area")).to_be_visible()
    expect(page.get_by_text("1 head chosen")).to_be_visible()


def test_more_areas_add_heads_and_take_them_away(scatter):
    page = scatter()
    draw_around(page, 0.7, 0.01, 0.99, 0.3)  # head 9.0, which helps by far the most
    expect(page.get_by_text("1 head chosen")).to_be_visible()
    page.get_by_role("radiogroup", name="The next area").get_by_text("adds to them").click()
    page.locator(IDLE_APP).wait_for()
    draw_around(page, 0.01, 0.75, 0.3, 0.99)
    expect(page.get_by_text("2 heads chosen")).to_be_visible()
    page.get_by_role("radiogroup", name="The next area").get_by_text("takes from them").click()
    page.locator(IDLE_APP).wait_for()
    draw_around(page, 0.7, 0.01, 0.99, 0.3)
    expect(page.get_by_text("1 head chosen")).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.get_by_role("button", name="Switch this head off").click()
    expect(page.locator('[data-c="3.7"]')).to_have_attribute("aria-checked", "false")


def test_a_box_chooses_too(scatter):
    page = scatter()
    page.locator(".st-key-scatter .js-plotly-plot").hover()
    page.locator('.st-key-scatter [data-title="Box Select"]').click()
    drag(page, [(0.7, 0.01), (0.99, 0.3)])
    expect(page.get_by_text("1 head chosen")).to_be_visible()


def test_two_ranges_choose_by_keyboard(scatter):
    page = scatter("/scatter?langs=de&across=layer&upwards=value+by+shapley")
    page.locator("summary", has_text="Choose by two ranges").click()
    first_slider = page.get_by_role("slider").first
    first_slider.focus()
    page.keyboard.press("End")
    page.locator(IDLE_APP).wait_for()
    choose_button = page.get_by_role("button", name="Choose the 12 heads in both ranges")
    expect(choose_button).to_be_visible()
    choose_button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("12 heads chosen")).to_be_visible()


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_the_figure_and_what_is_chosen_fit_the_window(scatter, page, width):
    page.set_viewport_size({"width": width, "height": 844})
    scatter()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator(".st-key-scatter .js-plotly-plot").bounding_box()
    assert box["width"] >= min(300, width - 40)
