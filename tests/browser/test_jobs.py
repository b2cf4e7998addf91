"""The Jobs page as a user has it: real worker, real jobs, real clicks."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from playwright.sync_api import expect
from support.browsing import IDLE_APP, SHARPENING, choose_option, link_with_model, open_list
from support.saved_models import save_classifier
from support.waiting import wait_until

from headlab.methods import METHODS

pytestmark = pytest.mark.usefixtures("no_jobs_left")

SHAPLEY_JOB = "/jobs?langs=de&method=shapley"
# Records where an element is on its page, in every frame that the browser draws from now on.
WATCH_PLACE = """node => {
  window.places = [];
  const main = document.querySelector('.stMain');
  const look = () => {
    places.push(node.getBoundingClientRect().top + main.scrollTop);
    requestAnimationFrame(look);
  };
  look();
}"""


@pytest.fixture(scope="module", autouse=True)
def loaded_model(warm_up, light_model):
    """The worker runs and has loaded the model before the first test."""
    warm_up(link_with_model("/prune?langs=de", light_model), '[data-c="0.0"]')


@pytest.fixture
def visit(visit, light_model):
    return lambda path: visit(link_with_model(path, light_model))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model so small that a run takes seconds, or with many samples lasts until cancelled."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return str(save_classifier(folder))


def form(page):
    return page.locator(".st-key-new-job")


def choose_method(page, method):
    """Choose a method, and wait for the form to be that method's."""
    method_box = form(page).get_by_role("combobox", name="Method")
    choose_option(method_box, METHODS[method].title)
    cost_words = METHODS[method].costs.words
    expect(form(page)).to_contain_text(cost_words)
    page.locator(IDLE_APP).wait_for()


def name_model(page, text):
    box = form(page).get_by_role("combobox", name="Model")
    box.click()
    box.fill(text)
    box.press("Enter")


def fill_number(page, label, value):
    """Type a number as a hurried user does, without a key that ends the input."""
    box = form(page).get_by_role("spinbutton", name=label)
    box.fill(str(value))


def start(page):
    """Press Start.

    Returns:
        The number of the job that was made.
    """
    form(page).get_by_role("button", name="Start").click()
    return queued_job(page)


def queued_job(page):
    """The number of the job that the form says is in the queue."""
    queue_message = form(page).get_by_text(re.compile(r"^Job \d+ is in the queue"))
    queue_message.wait_for()
    number = re.search(r"\d+", queue_message.inner_text())
    return int(number.group())


def card(page, job):
    return page.locator(f".st-key-job-{job}")


def wait_until_running(page, job):
    """Wait until the job of a card runs."""
    bar = card(page, job).get_by_role("progressbar")
    expect(bar).to_be_visible()


def cancel(page, job):
    card(page, job).get_by_role("button", name="Cancel").click()
    cancelled_message = card(page, job).get_by_text(re.compile("^cancelled"))
    expect(cancelled_message).to_be_visible()


def delete(page, job):
    job_card = card(page, job)
    job_card.get_by_role("button", name="Delete").click()
    job_card.get_by_role("button", name=f"Delete job {job}").click()
    expect(job_card).to_have_count(0)


def test_a_job_from_the_form_ends_on_the_heads_page(visit, page):
    visit("/jobs?langs=fi&method=leave-one-out")
    empty_message = page.get_by_text("No job is running or waiting. Create one under New job")
    expect(empty_message).to_be_visible()
    form(page).get_by_text("More options").click()
    forecast_words = re.compile("^What it will take: (About|How long)")
    expect(form(page).get_by_text(forecast_words)).to_be_visible()
    fill_number(page, "Examples of dev, at most", 8)
    job = start(page)
    title = card(page, job).get_by_text("Leave one out for Finnish (fi)")
    expect(title).to_be_visible()
    form(page).get_by_role("button", name=f"Open job {job}").click()
    heading = page.get_by_role("heading", name=f"Job {job}: Leave one out for Finnish (fi)")
    expect(heading).to_be_visible()
    # The number typed just before the click.
    expect(page.get_by_role("row", name="Examples 8")).to_be_visible()
    command = page.get_by_text("--languages fi --method leave-one-out --size 8")
    expect(command).to_be_visible()
    expect(page.get_by_text("submitted")).to_be_visible()
    first_attempt = page.get_by_text(re.compile("started, attempt 1"))
    expect(first_attempt).to_be_visible()
    page.get_by_role("button", name="Open on the Heads page").click()
    expect(page.locator("h1")).to_have_text("Heads")
    expect(page.get_by_role("grid", name="Finnish (fi)")).to_have_count(2)
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Leave one out")
    visit(f"/jobs?langs=fi&method=leave-one-out&job={job}")
    expect(page.get_by_role("button", name="Open on the Heads page")).to_be_visible()
    page.get_by_role("button", name="All jobs").click()
    delete(page, job)


def test_the_button_stays_where_it_is_while_the_forecast_changes(visit, page):
    visit(SHAPLEY_JOB)
    form(page).get_by_text("More options").click()
    forecast = form(page).get_by_text(re.compile("^What it will take"))
    # The form has its full height before the button is watched.
    expect(form(page).get_by_role("spinbutton", name="Samples")).to_be_visible()
    expect(forecast).not_to_contain_text("Asking")
    page.locator(IDLE_APP).wait_for()
    button = form(page).get_by_role("button", name="Start")
    button.hover()  # playwright waits until it stands still, since the drawer opens slowly
    button.evaluate(WATCH_PLACE)
    for samples in (20, 200_000, 30):  # the forecast of each differs from the one before
        previous_forecast = forecast.inner_text()
        fill_number(page, "Samples", samples)
        page.keyboard.press("Tab")  # ends the input
        expect(forecast).not_to_have_text(previous_forecast)
        expect(forecast).not_to_contain_text("Asking")
    positions = page.evaluate("window.places")
    assert max(positions) - min(positions) < 10  # pixels; a line is 22 high


def test_a_job_is_cancelled_resumed_and_deleted(visit, page, tiny, long_job):
    job = long_job(tiny)
    visit(SHAPLEY_JOB)
    job_card = card(page, job)
    wait_until_running(page, job)
    cancel(page, job)
    job_card.get_by_role("button", name="Resume").click()
    wait_until_running(page, job)
    cancel(page, job)
    job_card.get_by_role("button", name="Delete").click()
    question = job_card.get_by_text(f"Delete job {job} with its log")
    expect(question).to_be_visible()
    job_card.get_by_role("button", name="Keep it").click()
    expect(question).to_have_count(0)
    delete(page, job)
    page.reload()
    expect(page.get_by_text("No job is running or waiting")).to_be_visible()
    expect(card(page, job)).to_have_count(0)


def test_jobs_wait_for_each_other_and_an_open_list_stays_open_meanwhile(visit, page, tiny):
    visit(SHAPLEY_JOB)
    name_model(page, tiny)
    choose_method(page, "monte-carlo")
    form(page).get_by_text("More options").click()
    fill_number(page, "Target", 0.00001)
    fill_number(page, "Samples", 1_000_000)
    first_job = start(page)
    second_job = first_job + 1
    wait_until_running(page, first_job)
    fill_number(page, "Seed", 7)
    form(page).get_by_role("button", name="Start").click()
    queue_message = form(page).get_by_text(f"Job {second_job} is in the queue")
    expect(queue_message).to_be_visible()
    expect(card(page, second_job).get_by_text("next in line")).to_be_visible()
    form(page).get_by_role("button", name="Start").click()
    refusal = form(page).get_by_text(f"This is already job {second_job}, waiting now")
    expect(refusal).to_be_visible()
    # an open list hides the rest from roles
    bar = card(page, first_job).get_by_test_id("stProgress")
    open_list(form(page).get_by_role("combobox", name="Method"))
    option = page.get_by_role("option", name="Leave one out", exact=True)
    option.wait_for()
    progress_before = bar.inner_text()
    expect(bar).not_to_have_text(progress_before)  # a timer has redrawn it
    other_tab = page.context.new_page()
    other_tab.goto(page.url)
    cancel(other_tab, first_job)
    # The whole page has been drawn anew by then.
    bar_of_second_job = card(page, second_job).get_by_test_id("stProgress")
    expect(bar_of_second_job).to_be_visible()
    expect(option).to_be_visible()
    option.click()
    expect(form(page).get_by_text("Cost: heads × examples")).to_be_visible()
    other_tab.close()
    cancel(page, second_job)
    for job in (first_job, second_job):
        delete(page, job)


def test_a_number_that_got_lost_on_its_way_comes_with_the_press(visit, page, tiny, app):
    """The browser shows the number, but streamlit never got it."""
    visit(SHAPLEY_JOB)
    name_model(page, tiny)
    form(page).get_by_text("More options").click()
    seed = form(page).get_by_role("spinbutton", name="Seed")
    seed.wait_for()
    page.locator(IDLE_APP).wait_for()
    # The value is set without an event, so that nothing is sent. The button is pressed at once,
    # since the field would be reset when it is drawn again.
    form(page).get_by_role("button", name="Start").evaluate(
        """button => {
          document.querySelector('[class*="st-key-new-seed"] input').value = '1013';
          button.click();
        }"""
    )
    job = queued_job(page)
    with closing(app.worker()) as worker:
        assert worker.job(job).params["seed"] == 1013


def test_the_map_of_a_running_job_sharpens_and_its_heads_can_be_clicked(
    visit, page, tiny, long_job
):
    job = long_job(tiny)
    visit(SHAPLEY_JOB)
    job_card = card(page, job)
    job_card.get_by_role("button", name=f"Job {job}").click()
    line = page.get_by_text(SHARPENING)
    line.wait_for()
    head_map = page.get_by_role("grid", name="German (de)")
    head_map.locator('[data-c="1.2"]').click()
    expect(page.get_by_text("Head 1.2, so far:")).to_be_visible()
    text_before = line.inner_text()
    expect(line).not_to_have_text(text_before)
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    cancelled_message = page.get_by_text(re.compile("^Cancelled · "))
    expect(cancelled_message).to_be_visible()
    log = page.get_by_test_id("stCode").first
    expect(log).to_contain_text("cancelled")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name=f"Delete job {job}").click()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()


def test_what_is_typed_stays_where_it_is_when_the_method_changes(page, visit):
    visit(SHAPLEY_JOB)
    form(page).get_by_text("More options").click()
    fill_number(page, "Seed", 41)
    seed = form(page).get_by_role("spinbutton", name="Seed")
    seed.evaluate("node => { node.dataset.same = 'yes'; }")
    sidebar = page.get_by_test_id("stSidebar")
    method_list = sidebar.get_by_role("combobox", name="Method", exact=True)
    method_box = form(page).get_by_role("combobox", name="Method")
    for method, title in (
        ("leave-one-out", "Leave one out"),
        ("monte-carlo", "plain permutations"),
        ("random", "Random"),
    ):
        choose_option(method_list, method)
        expect(method_box).to_have_value(re.compile(title))
        expect(seed).to_be_visible()
        expect(seed).to_have_attribute("data-same", "yes")
        expect(seed).to_have_value("41")


def test_a_job_that_fails_says_why(visit, page, tiny):
    visit(SHAPLEY_JOB)
    name_model(page, f"{tiny}-that-is-not-there")
    job = start(page)
    job_card = card(page, job)
    alert = job_card.get_by_test_id("stAlert")
    expect(alert).to_contain_text("that-is-not-there")
    job_card.get_by_role("button", name=f"Job {job}").click()
    expect(page.get_by_text(re.compile("failed: "))).to_be_visible()
    page.get_by_role("button", name="All jobs").click()
    delete(page, job)


def test_a_link_to_a_job_works_in_another_session_and_a_wrong_one_is_named(
    visit, page, tiny, long_job
):
    job = long_job(tiny)
    visit(SHAPLEY_JOB)
    cancel(page, job)
    visit(f"/jobs?langs=de&langs=th&method=gradient&job={job}")
    heading = page.get_by_role("heading", name=f"Job {job}: ")
    expect(heading).to_be_visible()
    expect(page.get_by_test_id("stSidebar")).to_contain_text("Gradient importance")
    page.get_by_role("button", name="All jobs").click()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()
    page.wait_for_function(
        "!location.search.includes('job=') && location.search.includes('method=gradient')"
    )
    delete(page, job)
    visit("/jobs?job=999")
    alert = page.get_by_test_id("stAlert")
    expect(alert.filter(has_text="no job 999")).to_be_visible()
    visit("/jobs?job=seven")
    expect(alert.filter(has_text="'seven'")).to_be_visible()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()


def test_pages_that_lack_scores_offer_to_compute_them(visit, page, wait_until_drawn):
    visit("/languages?langs=hu&langs=ml&method=leave-one-out")
    offer = page.locator(".st-key-offer")
    for name in ("Languages", "Prune", "Attention"):
        page.get_by_role("link", name=name, exact=True).first.click()
        expect(page.locator("h1")).to_have_text(name)
        wait_until_drawn()
        button = offer.get_by_role("button", name="Compute the 2 missing languages")
        expect(button).to_be_visible()
        missing_scores = offer.get_by_text(
            "No leave-one-out scores of Hungarian (hu), Malayalam (ml) are cached"
        )
        expect(missing_scores).to_be_visible()
        cost_words = re.compile("Cost: .* (About|How long|Here at most)")
        expect(offer.get_by_text(cost_words)).to_be_visible()


def test_gradient_scores_are_computed_at_once_and_without_a_job(page, tiny):
    page.goto("/languages?langs=de&langs=th&method=gradient")
    # The scores of the first model are there, so that nothing is offered yet.
    heading = page.get_by_role("heading", name="Do languages rank the heads alike?")
    heading.wait_for()
    page.get_by_test_id("stSidebar").get_by_text("Another model").click()
    box = page.get_by_role("textbox", name="Hub id or folder")
    box.fill(tiny)
    box.press("Enter")
    page.get_by_role("button", name="Compute the 2 missing languages").click()
    expect(heading).to_be_visible()
    expect(page.locator(".st-key-offer")).to_have_count(0)
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    expect(page.get_by_text("No job is running or waiting")).to_be_visible()


def test_a_model_that_the_browser_has_not_seen_survives_its_timers(
    connection, app, tiny, long_job, tmp_path
):
    """A timer's request also carries what the lists showed, and may start a run of the page."""
    page = connection.page
    job = long_job(tiny)
    sidebar = page.get_by_test_id("stSidebar")
    with closing(app.worker()) as worker:
        wait_until(lambda: worker.job(job).state == "running", "a job that runs")

    def page_shows_progress() -> bool:
        page.goto("/languages?langs=de&langs=th&method=gradient")
        page.get_by_role("heading", name="Do languages rank the heads alike?").wait_for()
        page.locator(IDLE_APP).wait_for()
        return "running a job" in sidebar.inner_text()

    # While a job runs, a timer asks for the worker's state every two seconds.
    wait_until(page_shows_progress, "a page with a timer")
    sidebar.get_by_text("Another model").click()
    connection.is_deaf = True
    box = page.get_by_role("textbox", name="Hub id or folder")
    unseen_model = save_classifier(tmp_path / "unseen")
    box.fill(str(unseen_model))
    box.press("Enter")
    connection.wait_for_runs(1)
    with closing(app.worker()) as worker:
        worker.cancel(job)
    # When the job has ended, the sidebar's line on the worker draws the page anew.
    connection.wait_for_runs(2)
    connection.hear()
    button = page.get_by_role("button", name="Compute the 2 missing languages")
    expect(button).to_be_visible()
