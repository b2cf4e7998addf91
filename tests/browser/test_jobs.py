"""The Jobs page as a user has it: real worker, real jobs, real clicks."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, SHARPENING, choose_option, link_with_model, open_list
from support.saved_models import save_classifier
from support.waiting import until

from headlab.methods import METHODS

pytestmark = pytest.mark.usefixtures("no_jobs_left")

HERE = "/jobs?langs=de&method=shapley"
# Where an element is on its page, in every frame that the browser draws from now on.
WATCH_PLACE = """node => {
  window.places = [];
  const main = document.querySelector('.stMain');
  const look = () => { places.push(node.getBoundingClientRect().top + main.scrollTop); requestAnimationFrame(look); };
  look();
}"""


@pytest.fixture(scope="module", autouse=True)
def loaded(warm_up, light_model):
    """Wait for the worker to start and load the model, once: the tests are about what comes after."""
    warm_up(link_with_model("/prune?langs=de", light_model), '[data-c="0.0"]')


@pytest.fixture
def visit(visit, light_model):
    return lambda path: visit(link_with_model(path, light_model))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model so small that a whole run takes seconds, and one of very many samples can be stopped at will."""
    return str(save_classifier(tmp_path_factory.mktemp("models") / "tiny"))


def form(page):
    return page.locator(".st-key-new-job")


def pick(page, method):
    """Choose a method, and wait for the form to be that method's."""
    choose_option(form(page).get_by_role("combobox", name="Method"), METHODS[method].title)
    expect(form(page)).to_contain_text(METHODS[method].costs.words)
    page.locator(IDLE_APP).wait_for()


def name_model(page, text):
    box = form(page).get_by_role("combobox", name="Model")
    box.click()
    box.fill(text)
    box.press("Enter")


def number(page, label, value):
    """Type a number and leave it: as a hurried user does, without a key that ends it."""
    form(page).get_by_role("spinbutton", name=label).fill(str(value))


def start(page):
    """Press Start; the number of the job it made."""
    form(page).get_by_role("button", name="Start").click()
    return queued(page)


def queued(page):
    """The number of the job that the form says is in the queue."""
    told = form(page).get_by_text(re.compile(r"^Job \d+ is in the queue"))
    told.wait_for()
    return int(re.search(r"\d+", told.inner_text()).group())


def card(page, job):
    return page.locator(f".st-key-job-{job}")


def running(page, job):
    """Wait until the job of a card runs."""
    expect(card(page, job).get_by_role("progressbar")).to_be_visible()


def cancel(page, job):
    card(page, job).get_by_role("button", name="Cancel").click()
    expect(card(page, job).get_by_text(re.compile("^cancelled"))).to_be_visible()


def delete(page, job):
    card(page, job).get_by_role("button", name="Delete").click()
    card(page, job).get_by_role("button", name=f"Delete job {job}").click()
    expect(card(page, job)).to_have_count(0)


def test_a_job_from_the_form_ends_on_the_heads_page(visit, page):
    visit("/jobs?langs=fi&method=leave-one-out")
    expect(
        page.get_by_text("No job is running or waiting. Create one under New job")
    ).to_be_visible()
    form(page).get_by_text("More options").click()
    expect(
        form(page).get_by_text(re.compile("^What it will take: (About|How long)"))
    ).to_be_visible()
    number(page, "Examples of dev, at most", 8)
    job = start(page)
    expect(card(page, job).get_by_text("Leave one out for Finnish (fi)")).to_be_visible()
    form(page).get_by_role("button", name=f"Open job {job}").click()
    expect(
        page.get_by_role("heading", name=f"Job {job}: Leave one out for Finnish (fi)")
    ).to_be_visible()
    expect(
        page.get_by_role("row", name="Examples 8")
    ).to_be_visible()  # typed just before the click
    expect(page.get_by_text("--languages fi --method leave-one-out --size 8")).to_be_visible()
    expect(page.get_by_text("submitted")).to_be_visible()
    expect(page.get_by_text(re.compile("started, attempt 1"))).to_be_visible()
    page.get_by_role("button", name="Open on the Heads page").click()
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.get_by_role("grid", name="Finnish (fi)")).to_have_count(2)
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Leave one out")
    visit(f"/jobs?langs=fi&method=leave-one-out&job={job}")
    expect(page.get_by_role("button", name="Open on the Heads page")).to_be_visible()
    page.get_by_role("button", name="All jobs").click()
    delete(page, job)


def test_the_button_stays_where_it_is_while_the_forecast_changes(visit, page):
    visit(HERE)
    form(page).get_by_text("More options").click()
    told = form(page).get_by_text(re.compile("^What it will take"))
    told.wait_for()
    button = form(page).get_by_role("button", name="Start")
    button.hover()  # playwright waits until it stands still: the drawer opens slowly
    button.evaluate(WATCH_PLACE)
    for samples in (20, 200_000, 30):  # with a forecast that differs
        before = told.inner_text()
        number(page, "Samples", samples)
        page.keyboard.press("Tab")  # which ends the number
        expect(told).not_to_have_text(before)
        expect(told).not_to_contain_text("Asking")
    places = page.evaluate("window.places")
    assert max(places) - min(places) < 10  # pixels; a line has 22


def test_a_job_is_cancelled_resumed_and_deleted(visit, page, tiny, long_job):
    job = long_job(tiny)
    visit(HERE)
    running(page, job)
    cancel(page, job)
    card(page, job).get_by_role("button", name="Resume").click()
    running(page, job)
    cancel(page, job)
    card(page, job).get_by_role("button", name="Delete").click()
    expect(card(page, job).get_by_text(f"Delete job {job} with its log")).to_be_visible()
    card(page, job).get_by_role("button", name="Keep it").click()
    expect(card(page, job).get_by_text(f"Delete job {job} with its log")).to_have_count(0)
    delete(page, job)
    page.reload()
    expect(page.get_by_text("No job is running or waiting")).to_be_visible()
    expect(card(page, job)).to_have_count(0)


def test_jobs_wait_for_each_other_and_an_open_list_stays_open_meanwhile(visit, page, tiny):
    visit(HERE)
    name_model(page, tiny)
    pick(page, "monte-carlo")
    form(page).get_by_text("More options").click()
    number(page, "Target", 0.00001)
    number(page, "Samples", 1_000_000)
    first = start(page)
    second = first + 1
    running(page, first)
    number(page, "Seed", 7)
    form(page).get_by_role("button", name="Start").click()
    expect(form(page).get_by_text(f"Job {second} is in the queue")).to_be_visible()
    expect(card(page, second).get_by_text("next in line")).to_be_visible()
    form(page).get_by_role("button", name="Start").click()
    expect(form(page).get_by_text(f"This is already job {second}, waiting now")).to_be_visible()
    bar = card(page, first).get_by_test_id("stProgress")  # an open list hides the rest from roles
    open_list(form(page).get_by_role("combobox", name="Method"))
    option = page.get_by_role("option", name="Leave one out", exact=True)
    option.wait_for()
    before = bar.inner_text()
    expect(bar).not_to_have_text(before)  # a timer has redrawn it
    other = page.context.new_page()
    other.goto(page.url)
    cancel(other, first)
    expect(
        card(page, second).get_by_test_id("stProgress")
    ).to_be_visible()  # all of the page is new
    expect(option).to_be_visible()
    option.click()
    expect(form(page).get_by_text("Cost: heads × examples")).to_be_visible()
    other.close()
    cancel(page, second)
    for job in (first, second):
        delete(page, job)


def test_a_number_that_got_lost_on_its_way_comes_with_the_press(visit, page, tiny, app):
    """The browser shows it, but streamlit was never told: a request for another page may drop what widgets hold."""
    visit(HERE)
    name_model(page, tiny)
    form(page).get_by_text("More options").click()
    seed = form(page).get_by_role("spinbutton", name="Seed")
    seed.wait_for()
    page.locator(IDLE_APP).wait_for()
    # No event, so nothing is sent; and at once, since whatever draws the field again puts back what it holds.
    form(page).get_by_role("button", name="Start").evaluate(
        """button => {
          document.querySelector('[class*="st-key-new-seed"] input').value = '1013';
          button.click();
        }"""
    )
    job = queued(page)
    with closing(app.worker()) as worker:
        assert worker.job(job).params["seed"] == 1013


def test_the_map_of_a_running_job_sharpens_and_its_heads_can_be_clicked(
    visit, page, tiny, long_job
):
    job = long_job(tiny)
    visit(HERE)
    card(page, job).get_by_role("button", name=f"Job {job}").click()
    line = page.get_by_text(SHARPENING)
    line.wait_for()
    page.get_by_role("grid", name="German (de)").locator('[data-c="1.2"]').click()
    expect(page.get_by_text("Layer 1, head 2, so far:")).to_be_visible()
    before = line.inner_text()
    expect(line).not_to_have_text(before)
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text(re.compile("^Cancelled · "))).to_be_visible()
    expect(page.get_by_test_id("stCode").first).to_contain_text("cancelled")  # the log says so too
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name=f"Delete job {job}").click()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()


def test_what_is_typed_stays_where_it_is_when_the_method_changes(page, visit):
    visit(HERE)
    form(page).get_by_text("More options").click()
    number(page, "Seed", 41)
    seed = form(page).get_by_role("spinbutton", name="Seed")
    seed.evaluate("node => { node.dataset.same = 'yes'; }")
    for method, said in (
        ("leave-one-out", "Leave one out"),
        ("monte-carlo", "plain permutations"),
        ("random", "Random"),
    ):
        choose_option(
            page.get_by_test_id("stSidebar").get_by_role("combobox", name="Method", exact=True),
            method,
        )
        expect(form(page).get_by_role("combobox", name="Method")).to_have_value(re.compile(said))
        expect(seed).to_be_visible()
        expect(seed).to_have_attribute("data-same", "yes")
        expect(seed).to_have_value("41")


def test_a_job_that_fails_says_why(visit, page, tiny):
    visit(HERE)
    name_model(page, f"{tiny}-that-is-not-there")
    job = start(page)
    alert = card(page, job).get_by_test_id("stAlert")
    expect(alert).to_contain_text("that-is-not-there")
    card(page, job).get_by_role("button", name=f"Job {job}").click()
    expect(page.get_by_text(re.compile("failed: "))).to_be_visible()
    page.get_by_role("button", name="All jobs").click()
    delete(page, job)


def test_a_link_to_a_job_works_in_another_session_and_a_wrong_one_is_said(
    visit, page, tiny, long_job
):
    job = long_job(tiny)
    visit(HERE)
    cancel(page, job)
    visit(f"/jobs?langs=de&langs=th&method=gradient&job={job}")
    expect(page.get_by_role("heading", name=f"Job {job}: ")).to_be_visible()
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")
    page.get_by_role("button", name="All jobs").click()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()
    page.wait_for_function(
        "!location.search.includes('job=') && location.search.includes('method=gradient')"
    )
    delete(page, job)
    visit("/jobs?job=999")
    expect(page.get_by_test_id("stAlert").filter(has_text="no job 999")).to_be_visible()
    visit("/jobs?job=seven")
    expect(page.get_by_test_id("stAlert").filter(has_text="'seven'")).to_be_visible()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()


def test_pages_that_lack_scores_offer_to_compute_them(visit, page, settled):
    visit("/languages?langs=hu&langs=ml&method=leave-one-out")
    offer = page.locator(".st-key-offer")
    for name in ("Languages", "Prune", "Attention"):
        page.get_by_role("link", name=name, exact=True).first.click()
        expect(page.locator("h1")).to_have_text(name)
        settled()
        expect(offer.get_by_role("button", name="Compute the 2 missing languages")).to_be_visible()
        said = offer.get_by_text(
            "No leave-one-out scores of Hungarian (hu), Malayalam (ml) are cached"
        )
        expect(said).to_be_visible()
        expect(
            offer.get_by_text(re.compile("Cost: .* (About|How long|Here at most)"))
        ).to_be_visible()


def test_gradient_scores_are_computed_at_once_and_without_a_job(page, tiny):
    page.goto("/languages?langs=de&langs=th&method=gradient")
    page.get_by_role(
        "heading", name="Do languages rank the heads alike?"
    ).wait_for()  # so nothing is offered yet
    page.get_by_test_id("stSidebar").get_by_text("Another model").click()
    box = page.get_by_role("textbox", name="Hub id or folder")
    box.fill(tiny)
    box.press("Enter")
    page.get_by_role("button", name="Compute the 2 missing languages").click()
    expect(page.get_by_role("heading", name="Do languages rank the heads alike?")).to_be_visible()
    expect(page.locator(".st-key-offer")).to_have_count(0)
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    expect(page.get_by_text("No job is running or waiting")).to_be_visible()


def test_a_model_that_the_browser_has_not_seen_survives_its_timers(
    line, app, tiny, long_job, tmp_path
):
    """A timer's request also brings what the lists showed, and may start a run of the whole page."""
    page = line.page
    job = long_job(tiny)
    sidebar = page.get_by_test_id("stSidebar")
    with closing(app.worker()) as worker:
        until(lambda: worker.job(job).state == "running", "a job that runs")

    def opened() -> bool:
        page.goto("/languages?langs=de&langs=th&method=gradient")
        page.get_by_role("heading", name="Do languages rank the heads alike?").wait_for()
        page.locator(IDLE_APP).wait_for()
        return "computing scores" in sidebar.inner_text()

    until(opened, "a page with a timer")  # the state of the worker is asked for every two seconds
    sidebar.get_by_text("Another model").click()
    line.deaf = True
    box = page.get_by_role("textbox", name="Hub id or folder")
    box.fill(str(save_classifier(tmp_path / "unseen")))
    box.press("Enter")
    line.wait_for_runs(1)
    with closing(app.worker()) as worker:
        worker.cancel(job)
    # the sidebar's line on the worker draws the page anew when the job has ended
    line.wait_for_runs(2)
    line.hear()
    expect(page.get_by_role("button", name="Compute the 2 missing languages")).to_be_visible()
