"""The Overview page: its findings, and missing scores that the real worker computes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option
from support.cached_scores import made_scores, while_cached
from support.synthetic_fronts import made_embedded_front

from headlab.core import HeadGrid, Stack
from headlab.models import smollm
from headlab.models.embedded import fingerprint


def test_a_click_on_a_small_map_opens_that_head(visit, page):
    visit("/?langs=de&langs=th")
    small_map = page.get_by_role("grid", name="Thai (th)")
    small_map.locator('[data-c="3.7"]').click()
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.locator("h3").first).to_have_text("Head 3.7")
    expect(page.get_by_text("In Thai (th)")).to_be_visible()


def test_a_map_is_compared_with_another_result_and_a_click_opens_that_head(visit, page):
    visit("/?langs=de&langs=th")
    page.locator("summary").filter(has_text="Beside another result").click()
    against = page.get_by_role("combobox", name="Compare with")
    choose_option(against, "Thai (th): shapley", filter_text="Thai (th): shap", exact=False)
    expect(page.get_by_text("Their rankings of the heads have Spearman's")).to_be_visible()
    difference_map = page.get_by_role("grid", name="Difference, first − second")
    difference_map.locator('[data-c="5.2"]').click()
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.locator("h3").first).to_have_text("Head 5.2")
    expect(page.get_by_text("In German (de)")).to_be_visible()


def test_a_finding_leads_to_the_view_that_it_is_of(visit, page):
    visit("/?langs=de&langs=th")
    page.locator("summary").filter(has_text="Details").click()
    expect(page.get_by_text("harm, each by its own 95 % interval")).to_be_visible()
    link = page.get_by_role("link", name=re.compile("^The map of "))
    expect(link).to_have_attribute("href", re.compile("focus=de"))
    link.click()
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.get_by_role("grid", name="German (de)").first).to_be_visible()


def test_reported_12_a_front_on_two_languages_names_them_and_its_link_opens_it(visit, page, app):
    """Also with three languages chosen, and beside an older front without a head to remove."""
    weights = fingerprint("e5-small-intents")
    front = made_embedded_front(weights)
    scores = made_scores("de", "shapley", weights)
    spec = {**front.spec, "model": scores.spec["model"]}
    front = replace(front, spec=spec)
    options = {**spec["options"], "within": 1.0}
    empty_front = replace(
        front,
        notes=("No head can be removed here.",),
        spec={**spec, "options": options},
    )
    with while_cached(app.cache, empty_front, 21), while_cached(app.cache, front, 22):
        for languages in ("langs=de&langs=th&langs=hu", "langs=de&langs=th"):
            visit(f"/?{languages}")
            page.locator("summary").filter(has_text="Details").click()
            sentence = page.get_by_text(
                "48 of 144 heads can go in German (de) and Thai (th) at once with a loss of at most 2"
            )
            expect(sentence).to_be_visible()
            page.get_by_role("link", name="Smaller models").click()
            expect(page.locator("h1")).to_have_text("Prune")
            tab = page.get_by_role("tab", name="Find a smaller model")
            expect(tab).to_have_attribute("aria-selected", "true")
            expect(page.get_by_text("On German (de) and Thai (th):")).to_be_visible()
            expect(page.get_by_text("A made-up front.")).to_be_visible()
            expect(page.get_by_text("No head can be removed here.")).to_have_count(0)


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)])
def test_the_first_map_and_the_findings_are_seen_without_scrolling(visit, page, size):
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    visit("/")
    headlines = page.locator(".st-key-overview-findings button.card")
    expect(headlines.first).to_be_visible()
    first_map = page.get_by_role("grid", name="English (en)")
    for box in (first_map.bounding_box(), headlines.last.bounding_box()):
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
    assert headlines.evaluate_all(cut) == 0
    scales = page.locator(".st-key-overview-maps .legend .scale")
    expect(scales).to_have_count(1)  # one legend for all maps
    expect(scales).to_contain_text("helps, points")


def test_findings_and_maps_are_reached_by_tab(visit, page):
    """Chromium leaves out buttons in shadow trees where the style sheet sets a reading-flow."""
    visit("/?langs=de&langs=th")
    expect(page.locator(".st-key-overview-findings button.card").first).to_be_visible()
    page.locator("h1").click()
    in_order = []
    place = (
        "['maps', 'findings'].find(p => document.activeElement.closest('.st-key-overview-' + p))"
    )
    for _ in range(24):
        page.keyboard.press("Tab")
        in_order.append(page.evaluate(f"() => {place}"))
    assert {"maps", "findings"} <= set(in_order)


def test_each_map_has_its_own_ends_where_each_has_its_own_scale(visit, page):
    visit("/?langs=de&langs=th")
    # The page is run once more for its findings, and a press before that may come to nothing.
    expect(page.locator(".st-key-overview-findings button.card").first).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    page.locator("summary").filter(has_text="What colours and marks mean").click()
    page.get_by_text("each map's own").click()
    scales = page.locator(".st-key-overview-maps .legend .scale")
    expect(scales).to_have_count(3)
    expect(scales.first).to_have_text("harmshelps")
    visit("/?langs=de")
    expect(page.locator(".st-key-overview-maps .compact")).to_have_count(0)  # alone, it is large
    expect(scales).to_have_count(1)


def test_a_finding_opens_its_mask_on_the_prune_page_as_often_as_it_is_pressed(visit, page):
    visit("/?langs=de&langs=th")
    headline = page.locator(".st-key-overview-findings button.card").first
    expect(headline).to_contain_text("harm German by their own")
    harmful_count = int(headline.inner_text().split("\n")[-1].split()[0])
    assert "512 examples" in headline.get_attribute("title")
    headline.click()
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.get_by_text(f"{harmful_count} of 144 heads off")).to_be_visible()
    expect(page.get_by_text("Heads in German (de)")).to_be_visible()
    page.wait_for_function("location.search.includes('split=test')")
    page.wait_for_function("location.search.includes('from=de')")
    verdict = page.locator(".st-key-board-verdict")
    expect(verdict).to_contain_text(re.compile(r"^German \(de\) on test: .* points \["))
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_text("0 of 144 heads off")).to_be_visible()
    page.get_by_role("link", name="Overview", exact=True).first.click()
    page.locator(".st-key-overview-findings button.card").first.click()
    expect(page.get_by_text(f"{harmful_count} of 144 heads off")).to_be_visible()


def test_results_of_other_settings_are_chosen_in_the_sidebar_and_stay_in_the_link(
    visit, page, app, choose
):
    scores = made_scores("de", "shapley", fingerprint("e5-small-intents"))
    method = scores.spec["method"]
    options = {**method["options"], "estimand": "shapley"}
    spec = {**scores.spec, "method": {**method, "options": options}}
    full_scores = replace(scores, estimand="shapley", spec=spec)
    with while_cached(app.cache, full_scores):
        visit("/?langs=de")
        expect(page.get_by_text("estimand shapley-top50")).to_be_visible()
        choose("Settings", "shapley")
        expect(page.get_by_text("estimand shapley, in points")).to_be_visible()
        page.wait_for_function("location.search.includes('settings=shapley')")
        page.get_by_role("link", name="Heads", exact=True).first.click()
        expect(page.locator("h1")).to_have_text("Heads")
        expect(page.get_by_text("estimand shapley, in points").first).to_be_visible()
        visit(page.url)
        expect(page.get_by_text("estimand shapley, in points").first).to_be_visible()
        expect(page.get_by_role("combobox", name="Settings")).to_have_value("shapley")


def test_the_worker_is_started_by_itself_and_what_is_missing_comes_with_its_command(visit, page):
    visit("/?langs=de&langs=hu&langs=ml&method=leave-one-out")
    expect(page.get_by_text("Worker: ready")).to_be_visible(timeout=240_000)
    expect(page.get_by_role("button", name="Compute the 2 missing languages")).to_be_visible()
    expect(
        page.get_by_text("headlab score --model e5-small-intents --task intents --languages hu,ml")
    ).to_be_visible()


def test_a_job_that_cannot_be_done_says_why(visit, page):
    visit("/?langs=de")
    sidebar = page.get_by_test_id("stSidebar")
    sidebar.get_by_text("Another model").click()
    box = page.get_by_role("textbox", name="Hub id or folder")
    box.fill("no/such-model")
    box.press("Enter")
    # A model that was just brought gets its first map by itself; this one does not load.
    card = page.locator(".st-key-first-steps")
    expect(card.get_by_text("no/such-model is not in the local cache")).to_be_visible()
    expect(page.get_by_text("no shapley results of no/such-model")).to_be_visible()
    alert = page.get_by_test_id("stAlert").filter(has_text="no/such-model")
    expect(alert.filter(has_text="failed")).to_have_count(0)  # nothing was queued
    page.get_by_role("button", name="Compute the missing language (de)").click()
    expect(alert.filter(has_text="failed")).to_be_visible()


def test_the_tour_leads_through_the_pages_and_can_be_left(visit, page):
    visit("/?langs=de&langs=th")
    page.get_by_text("How to read this").click()
    expect(
        page.get_by_text("A hollow + or − marks a head whose own interval excludes 0.").last
    ).to_be_visible()
    page.get_by_role("button", name="Take the tour").click()
    names = ("Heads", "Prune", "Attention", "Jobs")
    for number, name in enumerate(names, 2):
        page.get_by_role("link", name=f"Next: {name}").click()
        expect(page.locator("h1")).to_have_text(name)
        expect(page.get_by_text(f"Tour, {number} of 5.")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("Tour, 4 of 5.")).to_be_visible()
    page.get_by_role("button", name="End the tour").click()
    expect(page.get_by_text("Tour, ")).to_have_count(0)
    page.get_by_role("link", name="Languages", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("Languages")
    page.get_by_text("How to read this").click()
    page.get_by_role("button", name="Take the tour").click()  # this page has no step
    page.get_by_role("link", name="Next: Overview").click()
    expect(page.get_by_text("Tour, 1 of 5.")).to_be_visible()


def test_the_view_is_saved_as_one_file_of_these_languages_whose_name_says_so(
    visit, page, wait_until_drawn
):
    for path in ("/", "/heads", "/prune"):
        visit(f"{path}?langs=de&langs=th")
        # Streamlit gives the button a new file whenever a page redraws itself, as it does while
        # figures arrive and the worker starts; a press meanwhile asks for one that is gone.
        expect(page.locator('[data-state="live"]')).to_have_count(0)
        expect(page.get_by_text("Worker: ready")).to_be_visible()
        wait_until_drawn()
        page.get_by_role("button", name="Share").click()
        report_button = page.get_by_role("button", name="Report of this view (HTML)")
        report_button.wait_for()
        wait_until_drawn()
        with page.expect_download() as download:
            report_button.click()
        file_name = download.value.suggested_filename
        assert file_name.startswith("report-e5-small-intents-intents-shapley-")
        assert file_name.endswith("-de-th.html")
        path = Path(download.value.path())
        report = path.read_text("utf-8")
        assert "Shapley value (TMAB) on intents: de, th" in report
        assert "<script" not in report


def test_heads_that_share_a_key_and_a_value_stand_together(visit, page, app):
    stack = Stack("decoder", (9,) * 30)
    grid = HeadGrid((stack,))
    weights = str(smollm.source()["fingerprint"])
    scores = made_scores("en", "shapley", weights, smollm.NAME)
    rows = np.linspace(-0.02, 0.02, grid.size)
    task = {**scores.spec["task"], "name": "repeats"}
    smollm_scores = replace(
        scores,
        grid=grid,
        values=rows,
        low=rows,
        high=rows,
        samples=None,
        p_values=None,
        spec={**scores.spec, "task": task},
    )
    with while_cached(app.cache, smollm_scores):
        visit(f"/?model={smollm.NAME}&task=repeats&langs=en&method=shapley")
        cell = page.locator('[data-c="decoder 2.4"]')
        expect(cell).to_have_accessible_name(re.compile("key and value shared by heads 3 to 5$"))
        expect(page.locator("td.last [data-c^='decoder 2.']")).to_have_count(2)


def test_a_link_starts_nothing_and_a_press_gives_a_first_map_that_marks_no_head(visit, page):
    visit("/?model=e5-small-slots&task=slots&langs=de")
    page.locator(IDLE_APP).wait_for()
    expect(page.get_by_text("shapley is not computed yet")).to_be_visible()
    page.get_by_role("button", name="A first map, in seconds").click()
    expect(page.get_by_role("grid", name="German (de)").first).to_be_visible(timeout=240_000)
    expect(page.get_by_role("combobox", name="Method").first).to_have_value("smoothed")
    page.wait_for_function("location.search.includes('method=smoothed')")
    head = page.locator('[data-c="0.0"]').first
    expect(head).to_have_attribute(
        "aria-label", re.compile("from sampling.*does not cover its bias")
    )
    expect(page.locator("[data-c].mark")).to_have_count(0)
    assert "no head is marked" in page.get_by_test_id("stMain").inner_text()
