"""A person's own examples: from a file dropped on the page to a page that shows them."""

from __future__ import annotations

from playwright.sync_api import expect
from support.saved_models import keep_two_classes, save_classifier

ROWS = "comment,intent,tongue\n" + "".join(
    f"turn it {number},{('turn_on', 'turn_off')[number % 2]},{('de', 'fr')[number // 10]}\n"
    for number in range(20)
)


def test_a_dropped_file_becomes_a_task_that_pages_show(
    visit, page, choose, light_model, tmp_path, cache_folder
):
    visit("/own")
    field = page.get_by_label("Model folder or hub id")
    field.fill(light_model)
    field.press("Enter")
    expect(page.get_by_text("12 layers × 12 heads = 144")).to_be_visible()
    page.get_by_role("button", name="Load it and check the rest").click()
    expect(page.get_by_text("Open gates change no answer")).to_be_visible()
    page.get_by_role("button", name="Use this model").click()
    expect(page.get_by_text("This model is chosen in the sidebar")).to_be_visible()
    torn_file = tmp_path / "torn.csv"
    sound_file = tmp_path / "mine.csv"
    torn_file.write_text(ROWS + "ragged\n", "utf-8")
    page.locator('input[type="file"]').set_input_files(torn_file)
    expect(page.get_by_text("torn.csv, line 22")).to_be_visible()
    page.get_by_role("button", name="Remove torn.csv").click()
    expect(page.get_by_text("torn.csv, line 22")).to_have_count(0)
    sound_file.write_text(ROWS, "utf-8")
    page.locator('input[type="file"]').set_input_files(sound_file)
    choose("Text", "comment")
    choose("Language", "tongue")
    expect(page.get_by_text("German (de) 5 dev, 5 test; French (fr) 5 dev, 5 test")).to_be_visible()
    page.get_by_role("button", name="Save the task").click()
    page.locator("summary").filter(has_text="The same from a terminal").click()
    expect(page.get_by_test_id("stCode").filter(has_text='text = "comment"')).to_be_visible()
    assert (cache_folder / "tasks" / "mine" / "mine.toml").is_file()
    page.get_by_role("button", name="Use this task").click()
    expect(page.get_by_role("link", name="Overview: its first map").last).to_be_visible()
    expect(page.get_by_role("link", name="Prune: its accuracy")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("link", name="Prune: its accuracy").click()
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.get_by_role("combobox", name="Task", exact=True)).to_have_value("mine")
    expect(page.get_by_text("All heads on: final")).to_be_visible()


def test_reported_13_a_stranger_s_columns_are_recognised_or_asked_for(visit, page, tmp_path):
    visit("/own")
    nli_file = tmp_path / "nli.csv"
    unknown_file = tmp_path / "unknown.csv"
    rows = []
    for number in range(20):
        language = ("de", "fr")[number // 10]
        label = ("entailment", "neutral")[number % 2]
        rows.append(f"{language},A man {number},Somebody {number},{label}")
    nli_file.write_text("lang,premise,hypothesis,gold\n" + "\n".join(rows), "utf-8")
    page.locator('input[type="file"]').set_input_files(nli_file)
    expect(page.get_by_text("2 labels: entailment, neutral")).to_be_visible()
    for title, column in (
        ("Text", "premise"),
        ("Second text", "hypothesis"),
        ("Label", "gold"),
        ("Language", "lang"),
    ):
        expect(page.get_by_role("combobox", name=title, exact=True)).to_have_value(column)
    page.get_by_role("button", name="Remove nli.csv").click()
    expect(page.get_by_text("2 labels: entailment, neutral")).to_have_count(0)
    unknown_rows = [f"so {number} it goes,{'ab'[number % 2]}\n" for number in range(20)]
    unknown_file.write_text("eins,zwei\n" + "".join(unknown_rows), "utf-8")
    page.locator('input[type="file"]').set_input_files(unknown_file)
    expect(page.get_by_text("Choose the column for: Text, Label.")).to_be_visible()
    expect(page.get_by_role("button", name="Save the task")).to_have_count(0)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_saved_task_has_its_first_map_of_the_model_that_was_checked_above(
    visit, page, tmp_path, no_jobs_left
):
    folder = keep_two_classes(save_classifier(tmp_path / "reviewer"), ("good", "bad"))
    reviews = tmp_path / "reviews.csv"
    rows = [f"it was so {number},{('good', 'bad')[number % 2]}\n" for number in range(20)]
    reviews.write_text("text,label\n" + "".join(rows), "utf-8")
    visit("/own")
    page.locator('input[type="file"]').set_input_files(reviews)
    page.get_by_role("button", name="Save the task").click()
    page.get_by_role("button", name="Use this task").click()
    # The chosen model cannot do it: the page says so, and starts nothing.
    expect(page.get_by_text("e5-small-intents cannot do the task reviews")).to_be_visible()
    expect(page.get_by_role("button", name="Choose the task intents")).to_be_visible()
    page.get_by_role("button", name="Choose the task intents").click()
    field = page.get_by_label("Model folder or hub id")
    field.fill(str(folder))
    field.press("Enter")
    expect(page.get_by_text("With the model checked above")).to_be_visible()
    page.get_by_role("button", name="Use this task").click()
    page.get_by_role("link", name="Overview: its first map").last.click()
    expect(page.locator("h1")).to_have_text("headlab")
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value(str(folder))
    expect(page.get_by_role("grid").first).to_be_visible()
    expect(page.get_by_text("cannot do the task")).to_have_count(0)
