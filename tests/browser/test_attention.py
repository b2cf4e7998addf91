"""The Attention page as a user has it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from playwright.sync_api import expect
from support.browsing import IDLE_APP, link_with_model, table_download, tick_first_row
from support.cached_scores import made_scores, while_cached
from support.saved_models import letter_tokenizer, save_model
from support.tiny_models import tiny_module

from headlab import load
from headlab.dashboard.pages.attention.pictures import head_view
from headlab.plots.matrices import Panel

LINK = "/attention?langs=de&langs=en&heads=encoder.3.7&heads=encoder.5.1"
TWO_HEADS = f"{LINK}&view=BertViz"
ATTACK = "</script><script>parent.document.title='PWNED'</script><img src=x onerror=\"parent.document.title='PWNED'\">"


@pytest.fixture(scope="module", autouse=True)
def loaded_model(warm_up):
    """The worker runs and has loaded the model before the first test."""
    warm_up(TWO_HEADS, '[data-testid="stIFrame"]')


def frame(page):
    return page.frame_locator('[data-testid="stIFrame"]')


def test_bertviz_draws_the_chosen_heads_of_every_language_and_a_square_hides_its_head(visit):
    page = visit(TWO_HEADS)
    for number, title in enumerate(("English (en)", "German (de)")):
        panel = frame(page).locator(f"#bertviz-{number}")
        expect(panel.get_by_role("heading")).to_have_text(title)
        tokens = panel.locator("#left text").count()
        assert tokens > 2
        lines = panel.locator("#attention line")
        expect(lines).to_have_count(2 * tokens * tokens)
        head_names = panel.locator(".heads li")
        expect(head_names).to_have_text(["Head 3.7", "Head 5.1"])
    panel = frame(page).locator("#bertviz-0")
    visible_lines = "#attention .headAttention:nth-child(1) line:not([stroke-opacity='0'])"
    expect(panel.locator(visible_lines).first).to_be_attached()
    panel.locator("#vis svg > g:last-child rect").first.click()
    expect(panel.locator(visible_lines)).to_have_count(0)


def test_the_strongest_head_comes_first_where_the_link_names_none(visit):
    page = visit("/attention?langs=de")
    # of the made-up scores
    expect(page.get_by_role("heading", name="Head 9.0", exact=True)).to_be_visible()


def test_the_head_of_a_link_is_shown_and_a_wrong_one_named(visit):
    page = visit("/attention?langs=de&head=encoder.2.4&heads=encoder.99.0&view=BertViz")
    alert = page.get_by_role("alert").filter(has_text="99")
    expect(alert).to_be_visible()
    head_names = frame(page).locator(".heads li")
    expect(head_names).to_have_text(["Head 2.4"])


def test_text_of_the_user_cannot_run(visit, choose, wait_until_drawn):
    page = visit(f"{TWO_HEADS}&source=my+own")
    text = page.get_by_label("one sentence a line")
    text.fill(ATTACK + "\nzwei Lampen")
    text.press("Control+Enter")
    expect(frame(page).locator("#bertviz-1")).to_be_visible()
    for view in ("Shaded tokens", "Table of weights", "All heads"):
        choose("View", view)
        wait_until_drawn()
    assert "PWNED" not in page.title()


def test_a_token_that_is_markup_is_only_text(page):
    """The whole attack is one token, as a tokenizer of words would make it."""
    weights = {"encoder.0.0": np.full((2, 2), 0.5)}
    panel = Panel(ATTACK, ("a", ATTACK), weights)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(head_view([panel], {"encoder.0.0": ATTACK}))
    expect(page.locator("#attention line")).to_have_count(4)
    second_token = page.locator("#left text").nth(1)
    expect(second_token).to_have_text(ATTACK)
    assert page.title() == "Attention"
    assert page.locator("img").count() == 0
    assert errors == []


def test_the_light_views_need_no_script(visit, choose):
    page = visit(f"{LINK}&view=Shaded+tokens")
    expect(page.get_by_text("darkest:").first).to_be_visible()
    assert page.get_by_text("darkest:").count() == 4  # two heads, two languages
    choose("View", "Table of weights")
    expect(page.get_by_test_id("stDataFrame").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tokens_are_readable_in_both_themes_and_nothing_overflows_on_a_phone(visit, page, scheme):
    page.emulate_media(color_scheme=scheme)
    visit(TWO_HEADS)
    token = frame(page).locator("#bertviz-0 #left text").first
    expect(token).to_be_visible()
    red, green, blue = token.evaluate(
        "e => getComputedStyle(e).fill.match(/\\d+/g).slice(0, 3).map(Number)"
    )
    if scheme == "dark":
        assert min(red, green, blue) > 180
    else:
        assert max(red, green, blue) < 90
    page.set_viewport_size({"width": 390, "height": 844})
    left_tokens = frame(page).locator("#bertviz-1 #left text")
    expect(left_tokens.first).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_run_does_not_write_the_link_unless_it_changes_it(connection):
    """It would write the link as it was when the run began, over what was typed since then."""
    page = connection.page
    page.goto(f"{TWO_HEADS}&source=my+own")
    text = page.get_by_label("one sentence a line")
    text.fill("licht an")
    page.locator(IDLE_APP).wait_for()
    connection.is_deaf = True
    text.press("Control+Enter")
    connection.wait_for_runs(1)
    for message in connection.held_messages():
        assert not message.HasField("page_info_changed")
    connection.hear()
    left_tokens = frame(page).locator("#bertviz-0 #left text")
    expect(left_tokens.nth(1)).to_be_attached()


def test_the_state_is_in_the_link(visit, page):
    visit(f"{TWO_HEADS}&source=my+own")
    page.get_by_label("one sentence a line").fill("licht an")
    page.get_by_label("one sentence a line").press("Control+Enter")
    left_tokens = frame(page).locator("#bertviz-0 #left text")
    expect(left_tokens.nth(1)).to_be_attached()
    page.wait_for_function("location.search.includes('text=')")
    page.reload()
    expect(frame(page).locator("#bertviz-0 #left")).to_contain_text("licht")
    expect(frame(page).locator(".heads li")).to_have_count(2)


def test_a_click_on_a_small_map_chooses_its_head_here_and_elsewhere_and_tells_what_it_does(
    visit, wait_until_drawn
):
    page = visit(LINK)
    expect(page.get_by_text("Answers with these 2 heads on and off")).to_be_visible()
    cell = page.locator('[data-c="7.4"]')
    assert 'url("data:image/png' in cell.evaluate(
        "e => getComputedStyle(e, '::after').backgroundImage"
    )
    cell.click()
    expect(page.get_by_text("Answers with this head on and off")).to_be_visible()
    expect(page.get_by_role("heading", name="Head 7.4", exact=True)).to_be_visible()
    expect(cell).to_have_attribute("aria-selected", "true")
    expect(page.get_by_test_id("stTable")).to_contain_text("get_state")
    page.set_viewport_size({"width": 390, "height": 844})
    wait_until_drawn()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("link", name="Heads", exact=True).click()
    expect(page.get_by_role("heading", name="Head 7.4", exact=True)).to_be_visible()


def test_words_and_special_tokens_are_switches_that_the_link_holds(visit, page):
    visit(f"{TWO_HEADS}&source=my+own&text=Badezimmert%C3%BCr+zu")
    left_tokens = frame(page).locator("#bertviz-0 #left text")
    expect(left_tokens.first).to_have_text("<s>")
    page.get_by_text("Words, not pieces").click()
    page.get_by_text("Hide special tokens").click()
    expect(left_tokens).to_have_text(["Badezimmertür", "zu"])
    page.wait_for_function(
        "location.search.includes('whole=') && location.search.includes('hide=')"
    )
    page.reload()
    expect(left_tokens).to_have_text(["Badezimmertür", "zu"])
    expect(page.get_by_text("a row may sum to less than 1")).to_be_visible()


@pytest.mark.parametrize(("kind", "begins"), [("svg", b"<svg "), ("png", b"\x89PNG")])
def test_the_bertviz_picture_is_saved(visit, kind, begins):
    page = visit(TWO_HEADS)
    left_tokens = frame(page).locator("#bertviz-1 #left text")
    expect(left_tokens.first).to_be_attached()
    with page.expect_download() as download:
        frame(page).get_by_role("button", name=kind.upper(), exact=True).click()
    assert download.value.suggested_filename == f"attention-e5-small-intents-intents.{kind}"
    picture = download.value.path().read_bytes()
    assert picture.startswith(begins)
    if kind == "svg":
        text_nodes = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
        texts = [node.text for node in text_nodes]
        assert texts.count("Head 3.7") == 2
        assert texts.count("Head 5.1") == 2
        assert texts.count("<s>") == 4


CONTROLS = '.st-key-attention-controls [data-testid="stWidgetLabel"]'


def test_the_controls_stand_above_all_heads_in_one_row_where_there_is_room(visit, page):
    """All heads come first: a link without a view shows them."""
    visit(LINK)
    maps = page.get_by_role("grid", name="English (en)")
    expect(maps).to_be_visible()
    for width, height, rows in ((1440, 900, 1), (1024, 768, 2), (390, 844, None)):
        page.set_viewport_size({"width": width, "height": height})
        page.locator(IDLE_APP).wait_for()
        labels = page.locator(CONTROLS)
        expect(labels.first).to_be_visible()
        tops = {round(label.bounding_box()["y"]) for label in labels.all()}
        assert max(tops) < maps.bounding_box()["y"]
        if rows is not None:
            assert len(rows_of(tops)) <= rows
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def rows_of(tops):
    """Tops of labels, those of one row taken together."""
    rows = []
    for top in sorted(tops):
        if not rows or top - rows[-1] > ROW_HEIGHT:
            rows.append(top)
    return rows


ROW_HEIGHT = 90
"""Pixels of a row of controls: the three switches stand below each other in one."""


def test_which_of_several_chosen_heads_is_enlarged_can_be_chosen(visit, page):
    visit(LINK)
    expect(page.get_by_role("heading", name="Head 3.7", exact=True)).to_be_visible()
    chosen_heads = page.get_by_role("radiogroup", name="Chosen heads")
    chosen_heads.get_by_text("5.1", exact=True).click()
    expect(page.get_by_role("heading", name="Head 5.1", exact=True)).to_be_visible()
    cell = page.locator('[data-c="5.1"]')
    expect(cell).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("Answers with these 2 heads on and off")).to_be_visible()


def test_the_link_of_a_head_shows_its_lines_in_several_languages(visit):
    page = visit("/heads?langs=de&langs=en&head=5.1")
    page.get_by_role("link", name="What it attends to").click()
    expect(page.locator("h1")).to_have_text("Attention")
    expect(frame(page).locator(".heads li")).to_have_text(["Head 5.1", "Head 5.1"])


def where_else(page):
    return page.get_by_test_id("stExpander").filter(has_text="Where else")


def test_a_sentence_in_which_the_head_does_the_same_is_opened_from_the_list_of_all(
    visit, light_model, choose, wait_until_drawn
):
    page = visit(link_with_model("/attention?langs=de&heads=encoder.1.7&view=BertViz", light_model))
    page.get_by_text("Where else does this head do that").click()
    page.get_by_role("button", name="Look through").click()
    expect(where_else(page).get_by_text("Tick a row to open its sentence")).to_be_visible()
    caption = where_else(page).get_by_text("Head 1.7: searched")
    expect(caption).to_contain_text(re.compile(r"searched (all|the first) [\d,]+ sentences; 20 of"))
    expect(caption).to_contain_text("by the mean over the tokens that have one")
    choose("Looks", "to the same token elsewhere")
    expect(caption).to_contain_text("by its strongest link")
    choose("Looks", "to what followed the same token before (induction)")
    expect(caption).to_contain_text("by the mean over the tokens that have one")
    wait_until_drawn()
    left_tokens = frame(page).locator("#bertviz-0 #left")
    first_sentence = left_tokens.text_content()
    tick_first_row(where_else(page).get_by_test_id("stDataFrame"))
    expect(left_tokens).not_to_have_text(first_sentence)
    wait_until_drawn()
    opened_sentence = left_tokens.text_content()
    page.reload()
    expect(left_tokens).to_have_text(opened_sentence)
    page.get_by_text("Where else does this head do that").click()
    expect(caption).to_be_visible()  # without another search


def test_the_search_shows_what_it_has_found_can_be_stopped_and_goes_on(visit, choose):
    page = visit("/attention?langs=de&heads=encoder.1.8&view=BertViz")
    page.get_by_text("Where else does this head do that").click()
    page.get_by_role("button", name="Look through").click()
    progress = where_else(page).get_by_test_id("stProgress")
    expect(progress).to_contain_text(re.compile(r"^\d+ of [\d,]+ sentences read"))
    expect(where_else(page).get_by_test_id("stDataFrame")).to_be_visible()
    choose("Looks", "to the next token")  # the page lives meanwhile
    expect(progress).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(progress).to_have_count(0)
    expect(where_else(page).get_by_text("Tick a row to open its sentence")).to_be_visible()
    stopped = where_else(page).get_by_text(re.compile(r"^\d+ of [\d,]+ sentences read"))
    count = int(stopped.text_content().partition(" ")[0])
    page.reload()
    page.get_by_text("Where else does this head do that").click()
    expect(stopped).to_be_visible()
    known_count = int(stopped.text_content().partition(" ")[0])
    assert known_count - count in (0, 1)  # the sentence that was under way is read, too
    page.get_by_role("button", name="Go on", exact=True).click()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("button", name="Go on", exact=True)).to_be_visible()
    more_count = int(stopped.text_content().partition(" ")[0])
    assert more_count > known_count


@pytest.fixture
def language_model(cache_folder, tmp_path_factory):
    """The folder of a tiny decoder, which a link can name as the cache has made-up scores of it."""
    folder = tmp_path_factory.mktemp("models") / "decoder"
    save_model(folder, tiny_module("llama-lm", torch.float32), letter_tokenizer())
    scores = made_scores("de", "shapley", load(str(folder)).fingerprint, str(folder))
    with while_cached(cache_folder, scores):
        yield str(folder)


def test_a_decoder_is_shown_with_the_probability_of_each_next_token_on_and_off(
    visit, page, language_model
):
    link = "/attention?task=repeats&langs=en&heads=decoder.1.2&source=my+own&text=hello+all"
    visit(link_with_model(link, language_model))
    title = page.get_by_role("heading", name="Next token with this head on and off")
    expect(title).to_be_visible()
    expect(page.get_by_text(re.compile(r"most probable one at \d+ of 10 tokens"))).to_be_visible()
    chart = page.locator(".st-key-figure-next-tokens-1")
    expect(chart.get_by_text("probability of the token that follows")).to_be_visible()
    expect(chart.get_by_text("this head off")).to_be_visible()
    expect(page.get_by_text("are not shown")).to_have_count(0)
    with page.expect_download() as download:
        table_download(page, "next-tokens-1").click()
    rows = download.value.path().read_text("utf-8").splitlines()
    assert len(rows) == 1 + 10 + 1  # <s> hello▁all </s>: ten that follow, and what would be next
    assert rows[1].startswith("h,")
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.locator(IDLE_APP).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
