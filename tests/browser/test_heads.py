"""The Heads page: a click, its widget twin, the card, the table."""

from __future__ import annotations

import csv
import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from support.browsing import SHARPENING, choose_option, link_with_model
from support.cached_scores import made_scores
from support.saved_models import save_classifier
from support.waiting import wait_until

from headlab.pictures import maps_of_scores, rgb


def head(page, language, head_name, grid_number=0):
    """A head's cell in the map of a language."""
    grid = page.get_by_role("grid", name=language, exact=True).nth(grid_number)
    return grid.locator(f'[data-c="{head_name}"]')


def card(page):
    return page.locator("h3").first


def test_the_large_map_marks_the_heads_that_differ_from_0_and_a_click_opens_a_heads_card(
    visit, page
):
    visit("/heads?langs=de&langs=th")
    scores = made_scores("de", "shapley")
    marked_cells = page.get_by_role("grid", name="German (de)").first.locator("button.mark")
    differs_from_0 = scores.helpful | scores.harmful
    expect(marked_cells).to_have_count(int(differs_from_0.sum()))
    head(page, "German (de)", "3.7").click()
    expect(card(page)).to_have_text("Head 3.7")
    expect(page.get_by_text("harms: its interval lies below 0")).to_be_visible()
    expect(page.get_by_text("−5.00 points [−5.60, −4.40]")).to_be_visible()
    expect(head(page, "German (de)", "3.7")).to_have_attribute("aria-selected", "true")
    assert "head=3.7" in page.evaluate("location.href")


def test_two_results_stand_side_by_side_and_their_difference_opens_a_head(visit, page):
    visit("/heads?langs=de&langs=th&focus=de&head=encoder.3.7")
    against = page.get_by_role("combobox", name="Compare with")
    choose_option(
        against,
        "Thai (th): shapley",
        filter_text="Thai (th): shap",
        exact=False,
    )
    expect(page.get_by_text("Their rankings of the heads have Spearman's")).to_be_visible()
    difference = page.get_by_role("grid", name="Difference, first − second")
    difference.locator('[data-c="5.2"]').click()
    expect(card(page)).to_have_text("Head 5.2")
    expect(difference.locator('[data-c="5.2"]')).to_have_attribute("aria-selected", "true")
    page.wait_for_function("location.search.includes('against=')")


@pytest.mark.parametrize("method", ["shapley", "gradient"])
def test_a_head_has_the_same_colour_and_mark_on_the_page_as_in_the_figure_and_the_report(
    visit, page, method
):
    """tests/test_pictures.py compares the figure and the report with what is decided once."""
    visit(f"/heads?langs=de&langs=th&method={method}")
    scores = {code: made_scores(code, method) for code in ("de", "th")}
    cells = page.get_by_role("grid", name="Thai (th)", exact=True).last.locator("[data-c]")
    expect(cells).to_have_count(144)
    drawn_cells = cells.evaluate_all(
        """cells => cells.map(cell => {
          const has = name => cell.classList.contains(name);
          const mark = has('mark') * (has('plus') ? 1 : -1) * (1 + has('sure'));
          return [cell.dataset.c, getComputedStyle(cell).backgroundColor, mark];
        })"""
    )
    thai_map = maps_of_scores(scores)["th"]
    head_names = []
    for map_head in thai_map.grid.heads:
        head_names.append(f"{map_head.layer}.{map_head.head}")
    assert [head_name for head_name, _, _ in drawn_cells] == head_names
    pairs = zip(drawn_cells, thai_map.colours, thai_map.marks, strict=True)
    for drawn_cell, colour, mark in pairs:
        head_name, css_colour, drawn_mark = drawn_cell
        parts = re.findall(r"[\d.e-]+", css_colour.removeprefix("color(srgb"))
        drawn_colour = [255 * float(part) for part in parts[:3]]
        is_alike = np.allclose(drawn_colour, rgb(colour), atol=1)
        assert is_alike, (head_name, css_colour, colour)
        assert drawn_mark == mark, head_name


def test_a_click_in_a_small_map_also_turns_to_its_language(visit, page):
    visit("/heads?langs=de&langs=th")
    head(page, "Thai (th)", "2.5").click()
    expect(card(page)).to_have_text("Head 2.5")
    expect(page.get_by_text("In Thai (th)")).to_be_visible()
    expect(page.get_by_role("grid", name="Thai (th)", exact=True)).to_have_count(2)


def test_the_language_of_prune_stays_when_one_turns_to_this_page(visit, page):
    visit("/prune?langs=de&langs=th&langs=bg&from=th")
    link = page.locator(".st-key-navigation").get_by_role("link", name="Heads", exact=True)
    link.click()
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.get_by_role("combobox", name="Language", exact=True).first).to_have_value("th")


def test_the_selectbox_does_what_the_click_does(visit, page):
    visit("/heads?langs=de&langs=th")
    box = page.get_by_role("combobox", name="Head", exact=True)
    box.click()
    box.fill("9.0")
    box.press("Enter")
    expect(card(page)).to_have_text("Head 9.0")
    expect(head(page, "German (de)", "9.0")).to_have_attribute("aria-selected", "true")


def test_the_map_answers_to_the_keyboard(visit, page):
    visit("/heads?langs=de&head=encoder.3.7")
    head(page, "German (de)", "3.7").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(card(page)).to_have_text("Head 3.8")


def test_the_table_of_all_heads_downloads_with_the_stored_values(visit, page):
    visit("/heads?langs=de&langs=th")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download every head as CSV").click()
    lines = Path(download.value.path()).read_text("utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    assert len(rows) == 2 * 144
    thai_values = []
    for row in rows:
        if row["language"] == "th":
            thai_values.append(float(row["value"]))
    stored_values = made_scores("th", "shapley").values.tolist()
    assert thai_values == pytest.approx(stored_values, abs=1e-12)


def test_a_method_without_intervals_or_signs_says_so(visit, page):
    visit("/heads?langs=de&method=gradient")
    page.locator("summary").filter(has_text="What colours and marks mean").click()
    expect(page.get_by_text("cover the sampling of the examples").first).to_be_visible()
    expect(page.get_by_text("orange heads harm")).to_have_count(0)


def test_a_missing_map_is_computed_and_its_result_takes_its_place(visit, page, tmp_path):
    """With a tiny model, so that it takes only seconds."""
    folder = save_classifier(tmp_path / "tiny", layers=1)
    visit("/heads?langs=de&langs=th&head=encoder.0.2")
    page.get_by_test_id("stSidebar").get_by_text("Another model").click()
    box = page.get_by_role("textbox", name="Hub id or folder")
    box.fill(str(folder))
    box.press("Enter")
    expect(
        page.get_by_text(f"No shapley results of {folder} on intents are cached")
    ).to_be_visible()
    expect(page.get_by_text("In German (de)")).to_have_count(0)  # the other model's card is gone
    page.get_by_role("button", name="Compute", exact=True).first.click()
    # Without a reload there are the card of the chosen head and both maps, and no line on a run any
    # more.
    expect(page.get_by_text("In German (de)")).to_be_visible(timeout=240_000)
    expect(card(page)).to_have_text("Head 0.2")
    expect(page.get_by_text(SHARPENING)).to_have_count(0)
    expect(page.get_by_role("grid", name="German (de)")).to_have_count(2)
    expect(page.get_by_role("button", name="Compute the missing language (th)")).to_be_visible()


@pytest.mark.soak  # tests/browser/test_jobs.py has such a test on the job's own page
def test_a_map_sharpens_while_its_job_runs_and_takes_clicks(
    app, visit, page, light_model, long_job
):
    visit("/heads?langs=de")  # the first visitor starts the worker
    job = long_job(light_model)
    visit(link_with_model("/heads?langs=de&method=monte-carlo", light_model))
    line = page.get_by_text(SHARPENING)
    line.wait_for()
    head(page, "German (de)", "0.2").click()
    expect(page.get_by_text("Head 0.2, so far:")).to_be_visible()
    page.wait_for_function(MORE_SAMPLES, arg=sample_count(line.inner_text()))
    with closing(app.worker()) as worker:
        worker.cancel(job)
    expect(line).to_have_count(0)


def sample_count(text):
    match = re.search(r"([\d,]+) samples", text)
    number = match.group(1).replace(",", "")
    return int(number)


MORE_SAMPLES = """(first) => {
  const paragraphs = [...document.querySelectorAll('p')];
  const line = paragraphs.find((p) => p.textContent.startsWith('sharpening:'));
  return line && Number(line.textContent.match(/([0-9,]+) samples/)[1].replaceAll(',', '')) > first;
}"""


def test_ten_clicks_one_after_the_other_end_at_the_last_one(visit, page):
    """benchmarks/ui.py measures how soon a click is painted."""
    visit("/heads?langs=de&langs=th&langs=fr&langs=fi&langs=hu&langs=ml")
    for number in range(10):
        head_name = f"{number}.{number}"
        head(page, "German (de)", head_name).click()
    expect(card(page)).to_have_text("Head 9.9")
    page.wait_for_function("document.documentElement.dataset.presses === '0'")
    expect(card(page)).to_have_text("Head 9.9")


# Under load Plotly lays a figure out again after the page's script has ended: as fonts arrive, and
# as what stands beside it is drawn.
LOOK_OF_FIGURE = """async () => {
    const idle = () => new Promise(done => requestIdleCallback(done));
    await document.fonts.ready;
    await idle();
    await new Promise(done => setTimeout(done, 250));
    await idle();
    const figure = document.querySelector('.js-plotly-plot .main-svg');
    return figure ? figure.innerHTML : '';
}"""


def settled_figure(page):
    """The page's first figure as SVG, once it is the same in three looks with the browser idle."""

    def same_in_three_looks():
        looks = {page.evaluate(LOOK_OF_FIGURE) for _ in range(3)}
        return looks.pop() if len(looks) == 1 else ""

    return wait_until(same_in_three_looks, "a figure that stays as it is")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_figure_saves_as_svg_and_png_alike_in_both_themes(visit, page, theme):
    """It is drawn on white, without a request, and the page's own figure stays as it was."""
    page.emulate_media(color_scheme=theme)
    visit("/heads?langs=de&langs=th&head=encoder.3.7")
    figure_before = settled_figure(page)
    files = {}
    for kind in ("SVG", "PNG"):
        with page.expect_download() as download:
            label = f"Save this figure as {kind}: head-encoder.3.7"
            page.get_by_role("button", name=label).click()
        file_name = f"head-encoder.3.7-e5-small-intents-intents.{kind.lower()}"
        assert download.value.suggested_filename == file_name
        files[kind] = Path(download.value.path()).read_bytes()
    svg = files["SVG"].decode("utf-8")
    assert svg.startswith('<svg class="main-svg"')
    assert 'width="900"' in svg
    assert "rgb(255, 255, 255)" in svg
    assert files["PNG"].startswith(b"\x89PNG")
    png_width = int.from_bytes(files["PNG"][16:20], "big")
    assert png_width == 1800
    assert page.locator(".js-plotly-plot .main-svg").first.inner_html() == figure_before
