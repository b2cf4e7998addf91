"""The Experiments page as a user has it: a report that is there, and one that is made."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, choose_option, table_download
from support.cached_reports import keep_report, made_heads_report
from support.saved_models import save_classifier
from support.waiting import wait_until


@pytest.fixture(scope="module", autouse=True)
def stored_reports(warm_up, cache_folder):
    """Two reports are in the cache, and the worker has loaded its model."""
    for day in (1, 2):
        keep_report(cache_folder, made_heads_report(seed=day), day)
    warm_up("/prune?langs=de", '[data-c="0.0"]')


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model so small that an experiment takes seconds."""
    return str(save_classifier(tmp_path_factory.mktemp("models") / "tiny"))


def choose(page, label, option):
    choose_option(page.get_by_role("combobox", name=label).first, option, exact=False)


def test_a_report_is_read_downloaded_and_leads_to_what_its_heads_look_at(visit, page):
    visit("/experiments?langs=de&langs=th")
    choose(page, "What do you want to know?", re.compile("^Heads of all languages and of one"))
    page.wait_for_function("location.search.includes('experiment=heads')")
    expect(page.get_by_text("2 Nov 2026")).to_be_visible()
    choose(page, "Report", re.compile("^1 Nov 2026"))
    page.wait_for_function("location.search.includes('report=')")
    page.reload()
    report_date = page.get_by_test_id("stMain").get_by_text(re.compile("^1 Nov 2026"))
    expect(report_date.first).to_be_visible()
    with page.expect_download() as download:
        table_download(page, "heads-counts").click()
    rows = download.value.path().read_text().splitlines()
    assert rows[1] == "help in every language,2,1,"
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    expect(page.get_by_role("button", name="Start")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("link", name="Their attention, side by side").click()
    expect(page.locator("h1")).to_have_text("Attention")
    rows_of_frame = page.frame_locator('[data-testid="stIFrame"]').locator(".row")
    heads = rows_of_frame.first.locator(".heads li")
    expect(heads).to_have_text(
        [
            "Head 9.0 (language-agnostic)",
            "Head 5.1 (language-specific)",
        ]
    )
    expect(heads.first).to_be_visible()
    caption = page.get_by_text(re.compile("^Weight on special tokens"))
    expect(caption).to_be_visible()
    frame = page.get_by_test_id("stIFrame")
    # The frame grows to the height of its content.
    page.wait_for_function("document.querySelector('[data-testid=stIFrame]').clientHeight > 500")
    frame_box = frame.bounding_box()
    caption_box = caption.bounding_box()
    assert frame_box["y"] + frame_box["height"] <= caption_box["y"]


def test_a_download_pressed_while_the_page_is_redrawn_is_saved(connection):
    page = connection.page
    page.goto("/experiments?langs=de&langs=th&experiment=heads")
    download_button = table_download(page, "heads-counts")
    expect(download_button).to_be_visible()
    page.locator(IDLE_APP).wait_for()
    connection.is_deaf = True
    page.get_by_role("button", name="Increment").first.click()
    connection.wait_for_runs(1)  # the server knows the button by another id now
    with page.expect_download() as download:
        download_button.click()
        connection.hear()
    assert download.value.path().read_text().splitlines()[1] == "help in every language,2,1,"


def test_an_experiment_is_started_followed_and_read_where_it_was_started(visit, page, tiny):
    visit("/experiments?experiment=transfer&langs=de&langs=th&method=leave-one-out")
    page.get_by_test_id("stSidebar").get_by_text("Another model").click()
    box = page.get_by_role("textbox", name="Hub id or folder")
    box.fill(tiny)
    box.press("Enter")
    # From then on the page has the model.
    expect(page.get_by_text(f"There is no report yet on {tiny}")).to_be_visible()
    plan = page.locator(".st-key-plan")
    plan.get_by_role("spinbutton", name="K", exact=True).fill("2")
    plan.get_by_text("More options").click()
    plan.get_by_role("spinbutton", name="Examples of dev, at most").fill("32")
    plan.get_by_role("spinbutton", name="Examples of test, at most").fill("64")
    plan.get_by_role("button", name="Start").click()
    expect(page.get_by_text("There is no report yet")).to_have_count(0)
    expect(page.get_by_text("up to 32 examples of dev and 64 of test")).to_be_visible()
    expect(page.get_by_test_id("stDataFrame").first).to_be_visible()
    expect(page.get_by_text("other settings")).to_have_count(0)
    forecast = re.compile("What it will take: No time: the report is in the cache")
    expect(page.get_by_text(forecast)).to_be_visible()
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    job_name = re.compile("Transfer of masks for German")
    page.get_by_role("button", name=job_name).first.click()
    page.get_by_role("button", name="Open on the Experiments page").click()
    expect(page.locator("h1")).to_have_text("Experiments")
    expect(page.get_by_text("up to 32 examples of dev and 64 of test")).to_be_visible()


def test_a_link_s_experiment_is_shown_by_a_browser_that_draws_its_list_late(
    connection, app, tiny, long_job
):
    """Until the script that draws lists has been fetched, a timer may start another run."""
    page = connection.page
    job = long_job(tiny)
    with closing(app.worker()) as worker:
        wait_until(lambda: worker.job(job).state == "running", "a job that runs")
        delayed_scripts = []

        def delay(route):
            delayed_scripts.append(route)

        page.route(re.compile(r"/Selectbox\.\w+\.js$"), delay)
        page.goto("/experiments?experiment=transfer&langs=de&langs=th&method=leave-one-out")
        bar = page.get_by_test_id("stProgress")
        bar.first.wait_for()
        assert delayed_scripts
        worker.cancel(job)
        expect(bar).to_have_count(0)  # the page has been drawn anew
        delayed_scripts.pop().continue_()
    box = page.get_by_role("combobox", name="What do you want to know?")
    expect(box).to_have_value(re.compile("^Transfer of masks"))
