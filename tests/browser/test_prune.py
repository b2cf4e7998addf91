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

from headlab.dashboard.panels.accuracy import COLUMN
from headlab.dashboard.panels.history import mask_link_text

HERE = "/prune?langs=de"
OFF = '[data-c][aria-checked="false"]'


@pytest.fixture(scope="module", autouse=True)
def loaded(warm_up):
    """Wait for the worker to start and load the model, once: the tests are about what comes after."""
    warm_up(HERE, '[data-c="0.0"]')


@pytest.fixture(scope="module")
def light(light_model):
    """The page with a model that is computed in no time: most tests are not about its figures."""
    return link_with_model(HERE, light_model)


# All that stands below the figures from now on, however short a time.
KEEP_WHAT_IS_SAID = """() => {
  window.said = [];
  const keep = () => {
    for (const p of document.querySelectorAll('p')) if (p.textContent.includes(' off: ')) said.push(p.textContent);
  };
  new MutationObserver(keep).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


def cell(page, head):
    return page.locator(f'[data-c="{head}"]')


def accuracy(page, off=0, examples="512 dev"):
    """Accuracy and difference of the first metric once they are final for a mask with so many heads off."""
    heads = f"{off} head{'s' * (off != 1)} off" if off else "All heads on"
    page.get_by_text(f"{heads}: final, {examples} examples").wait_for()
    # then the whole page has been drawn with them
    expect(page.locator('[data-state="live"]')).to_have_count(0)
    metric = page.get_by_test_id("stMetric").first
    return metric.get_by_test_id("stMetricValue").inner_text(), metric.get_by_test_id(
        "stMetricDelta"
    ).inner_text()


def switch_off(page, *heads):
    for head in heads:
        cell(page, head).click()
        expect(cell(page, head)).to_have_attribute("aria-checked", "false")


def count(page, n):
    expect(page.get_by_text(f"{n} of 144 heads off")).to_be_visible()


def test_switching_heads_off_moves_the_accuracy_and_the_mask_survives_a_file(visit, tmp_path):
    page = visit(HERE)
    whole = accuracy(page)
    assert whole[1] == "unpruned · 512 of 512 · final"
    for layer in (9, 10, 11):
        page.get_by_role("button", name=f"layer {layer}: switch all its heads").click()
    count(page, 36)
    pruned = accuracy(page, 36)
    assert pruned[0] != whole[0]
    assert re.fullmatch(r"[−+]\d+\.\d \[[−+]\d+\.\d, [−+]\d+\.\d\] · 512 of 512 · final", pruned[1])
    with page.expect_download() as download:
        page.get_by_role("button", name="Export the mask").click()
    path = tmp_path / "mask.json"
    download.value.save_as(path)
    told = json.loads(path.read_text())["chosen"]["evaluated"]["dev"]["languages"]["de"]
    assert f"{100 * told['accuracy']:.1f} %" == pruned[0]
    page.get_by_role("button", name="Reset").click()
    count(page, 0)
    assert accuracy(page) == whole
    page.locator('input[type="file"]').set_input_files(path)
    count(page, 36)
    assert accuracy(page, 36) == pruned
    expect(page.get_by_text("Imported mask.json: 36 of 144 heads are off.")).to_be_visible()


def test_test_is_for_reporting(visit, light):
    page = visit(light)
    page.get_by_test_id("stRadio").get_by_text("test", exact=True).click()
    page.get_by_text(re.compile("All heads on: .* 1000 test examples")).wait_for()
    page.wait_for_function("location.search.includes('split=test')")


def test_the_first_figure_does_not_wait_for_the_last(visit):
    """Half a second is the promise on an idle machine; here only that there is a first figure, then a last."""
    page = visit(HERE)
    accuracy(page)
    page.evaluate(KEEP_WHAT_IS_SAID)
    cell(page, "6.2").click()
    accuracy(page, 1)
    said = " ".join(page.evaluate("window.said"))
    assert re.search("1 head off: (16|256) of 512 dev examples so far", said)


def test_a_click_that_gets_lost_on_its_way_is_sent_again(light, line):
    """As streamlit drops one that comes while it draws the page anew."""
    page = line.page
    page.goto(light)
    count(page, 0)
    line.cut = True
    switch_off(page, "11.2", "11.3")
    page.wait_for_function("document.documentElement.dataset.presses === '2'")
    line.cut = False
    assert line.lost
    count(page, 2)
    page.get_by_role("button", name="Undo").click()
    count(page, 1)  # each click was taken once


def test_a_mask_of_another_model_is_refused_and_nothing_is_lost(light, visit, tmp_path):
    page = visit(light)
    switch_off(page, "3.7", "0.0")
    other = {
        "format": "headlab-mask",
        "version": 1,
        "model": {"name": "other/model", "fingerprint": "e" * 64},
    }
    other |= {"grid": {"encoder": [12] * 12}, "kept": {"encoder": [[0] * 12] * 12}, "chosen": {}}
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(other))
    page.locator('input[type="file"]').set_input_files(path)
    expect(
        page.get_by_text("Not imported, the mask is unchanged: the mask was made for other/model")
    ).to_be_visible()
    count(page, 2)
    path = tmp_path / "torn.json"
    path.write_text("{")
    page.locator('input[type="file"]').set_input_files(path)
    expect(page.get_by_role("alert").filter(has_text="Not imported")).not_to_contain_text(
        "other/model"
    )
    count(page, 2)


def test_the_link_carries_the_mask(light, visit, page):
    visit(light)
    switch_off(page, "3.7", "11.11")
    expect(page.get_by_role("button", name="Undo")).to_be_enabled()
    kept = np.ones(144, bool)
    kept[[3 * 12 + 7, 143]] = False
    page.wait_for_function(f"location.search.includes('m={mask_link_text(kept)}')")
    link = page.evaluate("location.href")
    visit(link)
    count(page, 2)
    expect(page.locator(OFF)).to_have_count(2)
    expect(cell(page, "3.7")).to_have_attribute("aria-checked", "false")


def test_a_broken_link_gives_a_sentence(light, visit):
    page = visit(f"{light}&m=%3Cscript%3E")
    expect(page.get_by_role("alert").filter(has_text="The mask in this link")).to_be_visible()
    count(page, 0)


def test_undo_redo_and_reset(light, visit):
    page = visit(light)
    switch_off(page, "3.7", "4.2")
    count(page, 2)
    page.get_by_role("button", name="Undo").click()
    count(page, 1)
    expect(cell(page, "4.2")).to_have_attribute("aria-checked", "true")
    page.get_by_role("button", name="Redo").click()
    count(page, 2)
    page.get_by_role("button", name="Reset").click()
    count(page, 0)
    page.get_by_role("button", name="Undo").click()
    count(page, 2)
    page.wait_for_function("document.documentElement.dataset.presses === '0'")
    # A session that begins in this page, as after a restart of the server, draws none of these presses again.
    since = "headlabPresses.since({}, 'prune-grid').length"
    assert page.evaluate(since) == 2
    page.evaluate("headlabPresses.acknowledge({ taken: {}, session: 'another' })")
    assert page.evaluate(since) == 0


def test_fast_clicks_are_all_counted(light, visit):
    page = visit(light)
    for i in range(10):
        cell(page, f"5.{i}").click()
    count(page, 10)
    accuracy(page, 10)
    count(page, 10)
    page.reload()
    count(page, 10)


MOVE_DOWN = "node => { node.getRootNode().host.style.cssText = 'position: relative; top: 300px'; }"
MOVE_BACK = "node => { node.getRootNode().host.style.cssText = ''; }"


def test_a_press_counts_where_it_began_though_the_page_moves_under_it(light, visit):
    """As when figures come in between the pointer's going down and up."""
    page = visit(light)
    switch_off(page, "6.1", "6.2")
    made = "headlabPresses.count"
    for presses, button, off in ((3, '[data-c="5.5"]', 3), (4, '[data-key="prune-undo"]', 2)):
        expect(page.get_by_role("button", name="Undo")).to_be_enabled()
        page.wait_for_function("document.documentElement.dataset.presses === '0'")
        pressed = page.locator(button)
        pressed.scroll_into_view_if_needed()
        box = pressed.bounding_box()
        x = box["x"] + box["width"] / 2
        y = box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        pressed.evaluate(MOVE_DOWN)
        page.mouse.up()
        assert page.evaluate(made) == presses
        pressed.evaluate(MOVE_BACK)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 200, y + 200)
        page.mouse.up()
        assert page.evaluate(made) == presses  # dragged away: no press
        count(page, off)


def test_shift_click_takes_the_rectangle_and_headers_take_lines(light, visit):
    page = visit(light)
    cell(page, "2.3").click()
    cell(page, "4.5").click(modifiers=["Shift"])
    count(page, 9)
    page.get_by_role("button", name="layer 7: switch all its heads").click()
    count(page, 21)
    page.get_by_role("button", name="head 0: switch it in every layer").click()
    count(page, 32)  # 7.0 was off already
    page.get_by_role("button", name="head 0: switch it in every layer").click()
    count(page, 20)


def test_the_grid_is_reachable_by_keyboard_alone(light, visit):
    page = visit(light)
    cell(page, "0.0").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter", "End", " ", "Home", "Enter"):
        page.keyboard.press("Space" if key == " " else key)
    count(page, 3)
    for head in ("1.0", "1.2", "1.11"):
        expect(cell(page, head)).to_have_attribute("aria-checked", "false")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")  # the layer's header
    count(page, 12)
    assert page.evaluate(
        "document.activeElement.shadowRoot.activeElement.getAttribute('aria-label')"
    ).startswith("layer 1")


def test_the_list_is_a_twin_of_the_grid(light, visit):
    page = visit(light)
    switch_off(page, "3.7")
    page.get_by_text("The same switches as a list").click()
    expect(
        page.get_by_test_id("stMultiSelectTagsContainer").filter(has_text="Layer 3, head 7")
    ).to_be_visible()
    page.get_by_role("button", name="Switch it off").click()
    count(page, 13)
    expect(page.get_by_text("Heads off: layer 0 12, layer 3 1.")).to_be_visible()
    expect(cell(page, "0.4")).to_have_attribute("aria-checked", "false")
    page.get_by_role("button", name="Switch it on").click()
    expect(
        page.get_by_text("Heads off: layer 3 1.")
    ).to_be_visible()  # drawn after the list, which is a new one
    box = page.get_by_role("combobox", name="Heads that are off")
    for words in ("Layer 8, head 5", "Layer 8, head 2"):
        choose_option(box, words, filter_text=words)
    page.keyboard.press("Escape")  # the open list lies over the button
    page.get_by_role("button", name="Switch exactly these off").click()
    count(page, 3)
    expect(cell(page, "8.2")).to_have_attribute("aria-checked", "false")


def test_the_suggestion_switches_off_what_the_scores_call_harmful(light, visit):
    page = visit(light)
    page.get_by_text("Take the method's suggestion").click()
    said = page.get_by_text(re.compile(r"^\d+ of 144 heads would be off"))
    n = int(said.inner_text().split()[0])
    page.get_by_role("button", name="Switch these off").click()
    count(page, n)
    # the harmful head of the made-up scores
    expect(cell(page, "3.7")).to_have_attribute("aria-checked", "false")
    expect(cell(page, "9.0")).to_have_attribute("aria-checked", "true")
    page.get_by_role("button", name="What does it do on test?").click()
    page.get_by_text(re.compile(f"{n} heads? off: final, 1000 test examples")).wait_for()
    expect(page.get_by_text("On test, in points:")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="1,000 of 1,000 · final")).to_be_visible()
    page.get_by_text("Holm: any false one is unlikely").click()
    expect(
        page.get_by_text("The probability that any of them is false is at most 5%.")
    ).to_be_visible()


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)])
def test_the_table_ends_where_a_column_ends_so_that_no_number_is_cut(light, visit, page, size):
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    visit(light)
    cell(page, "6.5").scroll_into_view_if_needed()
    switch_off(page, "6.5")
    accuracy(page, 1)
    table = page.locator(".st-key-whole-columns").get_by_test_id("stDataFrame")
    table.scroll_into_view_if_needed()
    columns, rest = divmod(round(table.bounding_box()["width"]) - 2, COLUMN)
    assert columns >= 3
    assert rest == 0


def test_144_cells_can_be_tapped_on_a_phone(light, visit, page):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(light)
    for scheme, head in (("light", "6.5"), ("dark", "6.6")):
        page.emulate_media(color_scheme=scheme)
        cell(page, "11.11").scroll_into_view_if_needed()
        boxes = [cell(page, place).bounding_box() for place in ("0.0", "11.11", head)]
        assert all(box["width"] >= 24 and box["height"] >= 24 for box in boxes)
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
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
    places = [shown.bounding_box() for shown in (cell(page, "0.0"), grid, metric)]
    assert all(box["y"] >= 0 and box["y"] + box["height"] <= height for box in places)
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in places)
    first, last, headline = places
    assert (
        headline["y"] > last["y"]
        if width == 390
        else headline["x"] > last["x"] and headline["y"] <= first["y"]
    )
    table = page.get_by_test_id("stDataFrame").first.bounding_box()
    assert table["y"] > headline["y"]
    switch_off(page, "11.11")  # what is at the edge can be pressed
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
    right, wrong = map(int, re.findall(r"\d+", button.inner_text().removeprefix("list")))
    button.click()
    kinds = page.get_by_role("radiogroup", name="Answers")
    expect(kinds.get_by_text(f"now right: {right}")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all of them as CSV").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text("utf-8").splitlines()))
    assert [sum(row["kind"] == kind for row in rows) for kind in ("now right", "now wrong")] == [
        right,
        wrong,
    ]
    kind, of = ("now right", right) if right else ("now wrong", wrong)
    kinds.get_by_text(f"{kind}: {of}").click()
    first = next(row for row in rows if row["kind"] == kind)
    table = (
        page.get_by_test_id("stExpander")
        .filter(has_text="Which sentences changed")
        .get_by_test_id("stDataFrame")
    )
    expect(table).to_be_visible()
    tick_first_row(table)
    page.wait_for_url(re.compile("/attention"))
    expect(page.get_by_label("one sentence a line")).to_have_value(first["text"])
    expect(page.get_by_text("Layer 9, head 0").first).to_be_visible()
