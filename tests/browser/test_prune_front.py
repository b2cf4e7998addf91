"""The front on the Prune page: it grows, a click pins a model, and a model can be written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from support.browsing import click_dot, hover_dot
from support.cached_scores import while_cached
from support.synthetic_fronts import embedded_grid, made_embedded_front
from support.waiting import wait_until

from headlab.models.embedded import fingerprint

TWO_LANGUAGES = "/prune?langs=de&langs=th"
FINDER = f"{TWO_LANGUAGES}&tool=Find+a+smaller+model"
SECONDS_TO_WRITE = 300
"""In which a model is written, however busy the machine is."""


@pytest.fixture(scope="module", autouse=True)
def front(cache_folder, warm_up):
    """A made-up front of the real model, removed again before other files' tests."""
    with while_cached(cache_folder, made_embedded_front(fingerprint("e5-small-intents"))):
        warm_up(TWO_LANGUAGES, '[data-c="0.0"]')
        yield


def test_a_click_on_a_dot_pins_a_model_which_becomes_the_mask_and_undo_takes_it_back(visit):
    page = visit(FINDER)
    size = embedded_grid().size
    card = page.locator(".st-key-front-pinned")
    # The answer, to begin with.
    expect(card.get_by_text(f"{size - size // 3} of {size} heads kept")).to_be_visible()
    figure = page.locator(".js-plotly-plot").last
    figure.scroll_into_view_if_needed()
    click_dot(figure.locator(".scatterlayer .trace .points path.point").nth(2))
    pinned_words = card.get_by_text(f"{size - size // 2} of {size} heads kept")
    expect(pinned_words).to_be_visible()
    expect(card.get_by_text(re.compile(r"MB, \d\d\.\d\s% of the whole model"))).to_be_visible()
    expect(card.get_by_text("Time: not measured yet.")).to_be_visible()
    expect(page).to_have_url(re.compile(rf"point=mean-{size // 2}\b"))
    # A link that is copied opens the same model, in whatever browser.
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(pinned_words).to_be_visible()
    card.get_by_role("button", name="Make it the current mask").click()
    # The tab with the board opens.
    expect(page.get_by_text(f"{size // 2} of {size} heads off")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text(f"0 of {size} heads off")).to_be_visible()


def test_a_dot_says_what_its_model_is(visit):
    page = visit(FINDER)
    figure = page.locator(".js-plotly-plot").last
    hover_dot(figure.locator(".scatterlayer .trace .points path.point").nth(1))
    words = figure.locator(".hoverlayer .hovertext")
    expect(words).to_contain_text("heads kept")
    expect(words).to_contain_text("% of the whole model")
    expect(words).to_contain_text("time not measured yet")
    assert "<b>" not in words.text_content()


def test_the_form_is_in_the_link(visit, page):
    visit(FINDER)
    field = page.get_by_role("spinbutton", name="d, points that may be lost")
    field.fill("2.5")
    field.press("Enter")
    expect(page).to_have_url(re.compile(r"ask=within(\+|%20)2\.5"))
    page.reload()
    expect(field).to_have_value("2.50")


def test_a_point_of_a_front_is_written_as_a_model_that_headlab_loads(visit, page, request):
    visit(FINDER)
    page.get_by_role("button", name="Write the smaller model").click()
    expect(page.get_by_text("What is off leaves the weights.")).to_be_visible()
    page.get_by_role("button", name="Write it", exact=True).click()
    written_to = page.get_by_test_id("stCode").filter(has_text="e5-small-intents-small-")
    expect(written_to).to_be_visible(timeout=SECONDS_TO_WRITE * 1000)
    folder = Path(written_to.inner_text().strip())
    request.addfinalizer(partial(shutil.rmtree, folder))
    expect(page.get_by_text("Read back and compared on 128 examples")).to_be_visible()
    command = [sys.executable, "-m", "headlab.cli", "evaluate", "--model", str(folder)]
    command += ["--languages", "de", "--size", "16", "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert '"accuracy"' in process.stdout


def test_a_front_grows_on_the_page_while_it_is_measured(
    visit, page, app, light_model, no_jobs_left
):
    front_fields = {
        "model": light_model,
        "task": "intents",
        "languages": ["de", "th"],
        "method": "random",
        "options": {"points": 140, "within": 1.0, "by": "bound", "orders": "mean,own"},
        "dev_size": 512,
        "test_size": 16,
    }
    link = f"{FINDER}&model={quote(light_model)}&method=random"
    visit(link)
    with closing(app.worker()) as worker:
        worker.submit("front", front_fields)
    page.reload()
    measured = page.get_by_text(re.compile(r"\d+ of \d+ models measured so far"))
    expect(measured).to_be_visible()
    expect(page.get_by_text("Not final: no intervals").first).to_be_visible()

    def dot_count() -> int:
        dots = page.locator(".st-key-front-growing .scatterlayer .trace .points path.point")
        return dots.count()

    wait_until(lambda: dot_count() > 2, "some models")
    first_count = dot_count()
    wait_until(lambda: dot_count() > first_count, "more models")
    page.reload()
    expect(measured).to_be_visible()
    wait_until(lambda: dot_count() >= first_count, "the models that were there before")


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
