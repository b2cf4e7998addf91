"""The Prune page as a user has it: real model, real worker, real clicks."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from support.browsing import choose_option, link_with_model, tick_first_row

from headlab.dashboard.panels.masks.accuracy import COLUMN
from headlab.dashboard.panels.masks.history import mask_link_text

GERMAN = "/prune?langs=de"
CELL_OFF = '[data-c][aria-checked="false"]'


@pytest.fixture(scope="module", autouse=True)
def loaded_model(warm_up):
    """The worker runs and has loaded the model before the first test."""
    warm_up(GERMAN, '[data-c="0.0"]')


@pytest.fixture(scope="module")
def light(light_model):
    """The page with a model that computes in no time, for tests that are not about its figures."""
    return link_with_model(GERMAN, light_model)


# Records every caption below the figures from now on, however briefly it is shown.
RECORD_CAPTIONS = """() => {
  window.said = [];
  const keep = () => {
    for (const p of document.querySelectorAll('p')) {
      if (p.textContent.includes(' off: ')) said.push(p.textContent);
    }
  };
  const changes = { childList: true, subtree: true, characterData: true };
  new MutationObserver(keep).observe(document.body, changes);
}"""


def cell(page, head):
    return page.locator(f'[data-c="{head}"]')


def accuracy(page, removed_count=0, examples="512 dev"):
    """Accuracy and difference of the first metric, once they are final for so many heads off."""
    heads = "All heads on"
    if removed_count == 1:
        heads = "1 head off"
    elif removed_count:
        heads = f"{removed_count} heads off"
    page.get_by_text(f"{heads}: final, {examples} examples").wait_for()
    # Once nothing is live, the whole page has been drawn with the final figures.
    expect(page.locator('[data-state="live"]')).to_have_count(0)
    metric = page.get_by_test_id("stMetric").first
    value = metric.get_by_test_id("stMetricValue").inner_text()
    difference = metric.get_by_test_id("stMetricDelta").inner_text()
    return value, difference


def switch_off(page, *heads):
    for head in heads:
        cell(page, head).click()
        expect(cell(page, head)).to_have_attribute("aria-checked", "false")


def expect_heads_off(page, number):
    expect(page.get_by_text(f"{number} of 144 heads off")).to_be_visible()


def test_switching_heads_off_moves_the_accuracy_and_the_mask_survives_a_file(visit, tmp_path):
    page = visit(GERMAN)
    baseline_metric = accuracy(page)
    baseline_accuracy, baseline_note = baseline_metric
    assert baseline_note == "unpruned · 512 of 512 · final"
    for layer in (9, 10, 11):
        page.get_by_role("button", name=f"layer {layer}: switch all its heads").click()
    expect_heads_off(page, 36)
    pruned_metric = accuracy(page, 36)
    pruned_accuracy, difference = pruned_metric
    assert pruned_accuracy != baseline_accuracy
    assert re.fullmatch(
        r"[−+]\d+\.\d \[[−+]\d+\.\d, [−+]\d+\.\d\] · 512 of 512 · final",
        difference,
    )
    with page.expect_download() as download:
        page.get_by_role("button", name="Export the mask").click()
    path = tmp_path / "mask.json"
    download.value.save_as(path)
    mask = json.loads(path.read_text())
    evaluations = mask["chosen"]["evaluated"]["dev"]["languages"]
    stored_percentage = 100 * evaluations["de"]["accuracy"]
    assert f"{stored_percentage:.1f} %" == pruned_accuracy
    page.get_by_role("button", name="Reset").click()
    expect_heads_off(page, 0)
    assert accuracy(page) == baseline_metric
    page.locator('input[type="file"]').set_input_files(path)
    expect_heads_off(page, 36)
    assert accuracy(page, 36) == pruned_metric
    expect(page.get_by_text("Imported mask.json: 36 of 144 heads are off.")).to_be_visible()


def test_the_split_test_can_be_chosen_and_is_held_in_the_link(visit, light):
    page = visit(light)
    page.get_by_test_id("stRadio").get_by_text("test", exact=True).click()
    page.get_by_text(re.compile("All heads on: .* 1,000 test examples")).wait_for()
    page.wait_for_function("location.search.includes('split=test')")


def test_the_first_figure_does_not_wait_for_the_last(visit):
    """How soon it comes is promised for an idle machine only; here there is a first and a last."""
    page = visit(GERMAN)
    accuracy(page)
    page.evaluate(RECORD_CAPTIONS)
    cell(page, "6.2").click()
    accuracy(page, 1)
    captions = " ".join(page.evaluate("window.said"))
    assert re.search("1 head off: (16|256) of 512 dev examples so far", captions)


def test_a_click_that_gets_lost_on_its_way_is_sent_again(light, connection):
    """As when streamlit drops a click that comes while it draws the page anew."""
    page = connection.page
    page.goto(light)
    expect_heads_off(page, 0)
    connection.is_cut = True
    switch_off(page, "11.2", "11.3")
    page.wait_for_function("document.documentElement.dataset.presses === '2'")
    connection.is_cut = False
    assert connection.lost_messages
    expect_heads_off(page, 2)
    page.get_by_role("button", name="Undo").click()
    expect_heads_off(page, 1)  # each click was taken once


def test_a_mask_of_another_model_is_refused_and_nothing_is_lost(light, visit, tmp_path):
    page = visit(light)
    switch_off(page, "3.7", "0.0")
    foreign_mask = {
        "format": "headlab-mask",
        "version": 1,
        "model": {"name": "other/model", "fingerprint": "e" * 64},
    }
    foreign_mask |= {
        "grid": {"encoder": [12] * 12},
        "kept": {"encoder": [[0] * 12] * 12},
        "chosen": {},
    }
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(foreign_mask))
    page.locator('input[type="file"]').set_input_files(path)
    expect(
        page.get_by_text("Not imported, the mask is unchanged: the mask was made for other/model")
    ).to_be_visible()
    expect_heads_off(page, 2)
    path = tmp_path / "torn.json"
    path.write_text("{")
    page.locator('input[type="file"]').set_input_files(path)
    expect(page.get_by_role("alert").filter(has_text="Not imported")).not_to_contain_text(
        "other/model"
    )
    expect_heads_off(page, 2)


def test_the_link_carries_the_mask(light, visit, page):
    visit(light)
    switch_off(page, "3.7", "11.11")
    expect(page.get_by_role("button", name="Undo")).to_be_enabled()
    is_kept = np.ones(144, bool)
    is_kept[[3 * 12 + 7, 143]] = False
    page.wait_for_function(f"location.search.includes('m={mask_link_text(is_kept)}')")
    link = page.evaluate("location.href")
    visit(link)
    expect_heads_off(page, 2)
    expect(page.locator(CELL_OFF)).to_have_count(2)
    expect(cell(page, "3.7")).to_have_attribute("aria-checked", "false")


def test_a_mask_is_measured_by_the_ablation_it_was_chosen_under_or_the_page_says_so(visit, page):
    is_kept = np.ones(144, bool)
    is_kept[[0, 143]] = False
    visit(f"{GERMAN}&m={mask_link_text(is_kept)}.mean")
    as_chosen = page.get_by_text("What is off gives its mean output, as when the mask was chosen.")
    expect(as_chosen).to_be_visible()
    by_means = accuracy(page, 2)
    page.get_by_test_id("stRadio").get_by_text("zeros", exact=True).click()
    words = "What is off gives zeros; the mask was chosen under mean ablation."
    expect(page.get_by_text(words)).to_be_visible()
    expect(as_chosen).to_have_count(0)
    by_zeros = accuracy(page, 2)
    assert by_zeros != by_means
    switch_off(page, "3.7")  # by hand: still of the mask that was chosen under means
    page.wait_for_function("location.search.includes('.mean')")
    page.get_by_role("button", name="Reset").click()
    # Streamlit keeps the radio in the page, hidden, as it had the focus.
    choice_in_sight = page.get_by_text("What is off gives").filter(visible=True)
    expect(choice_in_sight).to_have_count(0, timeout=20_000)


def test_a_broken_link_gives_a_sentence(light, visit):
    page = visit(f"{light}&m=%3Cscript%3E")
    expect(page.get_by_role("alert").filter(has_text="The mask in this link")).to_be_visible()
    expect_heads_off(page, 0)


def test_undo_redo_and_reset(light, visit):
    page = visit(light)
    switch_off(page, "3.7", "4.2")
    expect_heads_off(page, 2)
    page.get_by_role("button", name="Undo").click()
    expect_heads_off(page, 1)
    expect(cell(page, "4.2")).to_have_attribute("aria-checked", "true")
    page.get_by_role("button", name="Redo").click()
    expect_heads_off(page, 2)
    page.get_by_role("button", name="Reset").click()
    expect_heads_off(page, 0)
    page.get_by_role("button", name="Undo").click()
    expect_heads_off(page, 2)
    page.wait_for_function("document.documentElement.dataset.presses === '0'")
    # A session that begins on this page, as after a restart of the server, makes none of these
    # presses again.
    presses_of_new_session = "headlabPresses.since({}, 'prune-grid').length"
    assert page.evaluate(presses_of_new_session) == 2
    page.evaluate("headlabPresses.acknowledge({ taken: {}, session: 'another' })")
    assert page.evaluate(presses_of_new_session) == 0


def test_fast_clicks_are_all_counted(light, visit):
    page = visit(light)
    for number in range(10):
        cell(page, f"5.{number}").click()
    expect_heads_off(page, 10)
    accuracy(page, 10)
    expect_heads_off(page, 10)
    page.reload()
    expect_heads_off(page, 10)


MOVE_DOWN = "node => { node.getRootNode().host.style.cssText = 'position: relative; top: 300px'; }"
MOVE_BACK = "node => { node.getRootNode().host.style.cssText = ''; }"


def test_a_press_counts_where_it_began_though_the_page_moves_under_it(light, visit):
    """As when figures are drawn between the pointer's going down and up."""
    page = visit(light)
    switch_off(page, "6.1", "6.2")
    press_count = "headlabPresses.count"
    for presses, button, removed_count in (
        (3, '[data-c="5.5"]', 3),
        (4, '[data-key="prune-undo"]', 2),
    ):
        expect(page.get_by_role("button", name="Undo")).to_be_enabled()
        page.wait_for_function("document.documentElement.dataset.presses === '0'")
        pressed_element = page.locator(button)
        pressed_element.scroll_into_view_if_needed()
        box = pressed_element.bounding_box()
        x = box["x"] + box["width"] / 2
        y = box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        pressed_element.evaluate(MOVE_DOWN)
        page.mouse.up()
        assert page.evaluate(press_count) == presses
        pressed_element.evaluate(MOVE_BACK)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 200, y + 200)
        page.mouse.up()
        assert page.evaluate(press_count) == presses  # dragging away is no press
        expect_heads_off(page, removed_count)


def test_shift_click_takes_the_rectangle_and_headers_take_lines(light, visit):
    page = visit(light)
    cell(page, "2.3").click()
    cell(page, "4.5").click(modifiers=["Shift"])
    expect_heads_off(page, 9)
    page.get_by_role("button", name="layer 7: switch all its heads").click()
    expect_heads_off(page, 21)
    page.get_by_role("button", name="head 0: switch it in every layer").click()
    expect_heads_off(page, 32)  # 7.0 was off already
    page.get_by_role("button", name="head 0: switch it in every layer").click()
    expect_heads_off(page, 20)


def test_the_grid_is_reachable_by_keyboard_alone(light, visit):
    page = visit(light)
    cell(page, "0.0").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter", "End", " ", "Home", "Enter"):
        page.keyboard.press("Space" if key == " " else key)
    expect_heads_off(page, 3)
    for head in ("1.0", "1.2", "1.11"):
        expect(cell(page, head)).to_have_attribute("aria-checked", "false")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")  # the layer's header
    expect_heads_off(page, 12)
    assert page.evaluate(
        "document.activeElement.shadowRoot.activeElement.getAttribute('aria-label')"
    ).startswith("layer 1")


def test_the_list_is_a_twin_of_the_grid(light, visit):
    page = visit(light)
    switch_off(page, "3.7")
    page.get_by_text("The same switches as a list").click()
    expect(page.get_by_test_id("stMultiSelectTagsContainer").filter(has_text="3.7")).to_be_visible()
    page.get_by_role("button", name="Switch it off").click()
    expect_heads_off(page, 13)
    expect(page.get_by_text("Heads off: layer 0 12, layer 3 1.")).to_be_visible()
    expect(cell(page, "0.4")).to_have_attribute("aria-checked", "false")
    page.get_by_role("button", name="Switch it on").click()
    # This is drawn after the list, which is a new one.
    expect(page.get_by_text("Heads off: layer 3 1.")).to_be_visible()
    box = page.get_by_role("combobox", name="Heads that are off")
    for head_label in ("8.5", "8.2"):
        choose_option(box, head_label, filter_text=head_label)
    page.keyboard.press("Escape")  # the open list lies over the button
    page.get_by_role("button", name="Switch exactly these off").click()
    expect_heads_off(page, 3)
    expect(cell(page, "8.2")).to_have_attribute("aria-checked", "false")


def test_the_suggestion_switches_off_what_the_scores_call_harmful(light, visit):
    page = visit(light)
    page.get_by_text("Take the method's suggestion").click()
    suggestion = page.get_by_text(re.compile(r"^\d+ of 144 heads would be off"))
    removed_count = int(suggestion.inner_text().split()[0])
    page.get_by_role("button", name="Switch these off").click()
    expect_heads_off(page, removed_count)
    # By the made-up scores, head 3.7 harms and head 9.0 helps.
    expect(cell(page, "3.7")).to_have_attribute("aria-checked", "false")
    expect(cell(page, "9.0")).to_have_attribute("aria-checked", "true")
    page.get_by_role("button", name="What does it do on test?").click()
    page.get_by_text(
        re.compile(f"{removed_count} heads? off: final, 1,000 test examples")
    ).wait_for()
    verdict = page.locator(".st-key-board-verdict")
    expect(verdict).to_have_text(
        re.compile(r"^German \(de\) on test: .* points \[.*\], (not proven )?(better|worse)\.$")
    )
    accuracy(page, removed_count, "1,000 test")
    page.get_by_test_id("stRadio").get_by_text("dev", exact=True).click()
    expect(verdict).to_contain_text("test decides")
    expect(page.get_by_text("German (de) on test: ")).to_be_visible()  # below the suggestion
    page.get_by_text("Holm: any false one is unlikely").click()
    expect(
        page.get_by_text("The probability that any of them is false is at most 5 %.")
    ).to_be_visible()


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)])
def test_the_table_ends_where_a_column_ends_so_that_no_number_is_cut(light, visit, page, size):
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    visit(light)
    cell(page, "6.5").scroll_into_view_if_needed()
    switch_off(page, "6.5")
    accuracy(page, 1)
    table = page.locator(".st-key-whole-columns").get_by_test_id("stDataFrame")
    table.scroll_into_view_if_needed()
    width_of_cells = round(table.bounding_box()["width"]) - 2
    columns, rest = divmod(width_of_cells, COLUMN)
    assert columns >= 3
    assert rest == 0


def test_144_cells_can_be_tapped_on_a_phone(light, visit, page):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(light)
    for scheme, head in (("light", "6.5"), ("dark", "6.6")):
        page.emulate_media(color_scheme=scheme)
        cell(page, "11.11").scroll_into_view_if_needed()
        for head_name in ("0.0", "11.11", head):
            box = cell(page, head_name).bounding_box()
            assert box["width"] >= 24
            assert box["height"] >= 24
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        switch_off(page, head)


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)])
def test_the_whole_grid_and_the_headline_are_seen_without_scrolling(light, visit, page, size):
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    visit(f"{light}&langs=th")
    accuracy(page)
    grid = cell(page, "11.11")
    metric = page.get_by_test_id("stMetric").first
    boxes = [element.bounding_box() for element in (cell(page, "0.0"), grid, metric)]
    for box in boxes:
        bottom_edge = box["y"] + box["height"]
        right_edge = box["x"] + box["width"]
        assert box["y"] >= 0
        assert bottom_edge <= height
        assert box["x"] >= 0
        assert right_edge <= width
    first_cell, last_cell, headline = boxes
    if width == 390:
        assert headline["y"] > last_cell["y"]
    else:
        assert headline["x"] > last_cell["x"]
        assert headline["y"] <= first_cell["y"]
    table = page.get_by_test_id("stDataFrame").first.bounding_box()
    assert table["y"] > headline["y"]
    switch_off(page, "11.11")  # a cell at the edge can be pressed
    page.get_by_text("How to read this").click()
    expect(page.get_by_text("In the grid a cross is a head that is off.")).to_be_visible()


def test_the_sentences_that_changed_are_listed_filtered_downloaded_and_lead_to_their_attention(
    light, visit
):
    page = visit(light)
    for layer in (9, 10, 11):
        page.get_by_role("button", name=f"layer {layer}: switch all its heads").click()
    accuracy(page, 36)
    page.get_by_text("Which sentences changed").click()
    button = page.get_by_role("button", name=re.compile(r"List \d+ now right and \d+ now wrong"))
    label = button.inner_text().removeprefix("list")
    gain_count, loss_count = map(int, re.findall(r"\d+", label))
    button.click()
    kinds = page.get_by_role("radiogroup", name="Answers")
    expect(kinds.get_by_text(f"now right: {gain_count}")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all of them as CSV").click()
    lines = Path(download.value.path()).read_text("utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    kinds_of_rows = [row["kind"] for row in rows]
    assert kinds_of_rows.count("now right") == gain_count
    assert kinds_of_rows.count("now wrong") == loss_count
    if gain_count:
        kind = "now right"
        kind_count = gain_count
    else:
        kind = "now wrong"
        kind_count = loss_count
    kinds.get_by_text(f"{kind}: {kind_count}").click()
    first_row = next(row for row in rows if row["kind"] == kind)
    table = (
        page.get_by_test_id("stExpander")
        .filter(has_text="Which sentences changed")
        .get_by_test_id("stDataFrame")
    )
    expect(table).to_be_visible()
    tick_first_row(table)
    page.wait_for_url(re.compile("/attention"))
    expect(page.get_by_label("one sentence a line")).to_have_value(first_row["text"])
    expect(page.get_by_text("Head 9.0").first).to_be_visible()


def test_the_verdict_stays_in_view_and_speaks_of_the_language_of_the_colours(visit, page, light):
    visit(f"{light}&langs=de&langs=th&langs=fr&langs=hu")
    switch_off(page, "6.5")
    accuracy(page, 1)
    verdict = page.locator(".st-key-board-verdict")
    expect(verdict).to_contain_text(re.compile(r"on dev: .* points \[.*test decides\.$"))
    for size in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.get_by_role("button", name="Undo").scroll_into_view_if_needed()
            cell(page, "11.11").scroll_into_view_if_needed()
            box = verdict.bounding_box()
            assert 0 <= box["y"] < size[1] / 3
            colours = """node => {
              const block = node.closest('.st-key-board > *') || node;
              const app = document.querySelector('[data-testid="stApp"]');
              return [getComputedStyle(block).backgroundColor, getComputedStyle(app).backgroundColor];
            }"""
            of_verdict, of_page = verdict.evaluate(colours)
            assert of_verdict == of_page


def test_the_other_languages_are_folded_and_the_headline_has_the_large_figure(visit, page, app):
    visit("/prune?from=th")
    expect(page.get_by_text("Heads in Thai (th)")).to_be_visible()
    metric = page.locator(".st-key-board-figures").get_by_test_id("stMetric")
    expect(metric).to_have_count(1)
    expect(metric).to_contain_text("Thai (th)")
    expect(page.locator(".st-key-whole-columns")).not_to_be_visible()
    page.get_by_text("Also in 14 languages").click()
    table = page.get_by_test_id("stDataFrame").first
    expect(table).to_be_visible()


def test_a_rule_in_a_link_of_an_earlier_version_is_still_chosen(visit, page, light):
    visit(f"{light}&rule=bottom&k=7")
    page.get_by_text("Take the method's suggestion").click()
    expect(page.get_by_role("radio", name="The k lowest")).to_be_checked()
    expect(page.get_by_text("7 of 144 heads would be off")).to_be_visible()
    page.get_by_text("Below a value").click()
    expect(page.get_by_role("radio", name="Below a value")).to_be_checked()
