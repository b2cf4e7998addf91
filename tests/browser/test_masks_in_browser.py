"""The Masks page and the ways out of the Prune page, as a user has them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from playwright.sync_api import expect
from support.browsing import open_list
from support.cached_scores import GRID
from support.waiting import until, within

from headlab.core import HeadlabError
from headlab.masks import Mask
from headlab.models.embedded import fingerprint

HERE = "/masks?langs=de&langs=th"


@pytest.fixture(scope="module", autouse=True)
def loaded(warm_up):
    """Wait for the worker to start and load the model, once."""
    warm_up("/prune?langs=de", '[data-c="0.0"]')


def offered(page, box, name) -> bool:
    """Whether a list has an entry. A list closes when its entries change, so it may have to be opened again."""
    options = page.get_by_role("option")
    open_list(page.get_by_role("combobox", name=box, exact=True))
    if not within(options.count, 5.0):
        return False  # it closed before it was seen
    found = page.get_by_role("option", name=name, exact=True).count()
    page.keyboard.press("Escape")
    until(lambda: not options.count(), "a closed list")
    return bool(found)


def test_an_uploaded_mask_is_compared_opened_on_the_prune_page_and_taken_elsewhere(
    visit, page, tmp_path
):
    try:
        weights = fingerprint("e5-small-intents")
    except HeadlabError:
        weights = "0" * 64
    kept = np.ones(GRID.size, bool)
    kept[[5, 43]] = False  # 3.7, which the scores call harmful, is one of them
    path = tmp_path / "mine.json"
    Mask(
        GRID, kept, {"name": "e5-small-intents", "fingerprint": weights}, {"rule": "by hand"}
    ).save(path)
    visit(HERE)
    page.get_by_text("Where the masks come from").click()
    page.locator('input[type="file"]').set_input_files(path)
    expect(
        page.get_by_role("grid", name="B: 2 of 144 off")
    ).to_be_visible()  # it was chosen as it came
    until(lambda: offered(page, "A", "mine.json"), "the file among the masks")
    both = page.get_by_role("gridcell", name="layer 3, head 7: both switch it off")
    expect(both).to_be_visible()
    expect(
        page.get_by_role("gridcell", name="layer 0, head 5: only B switches it off")
    ).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("button", name="Open B on the Prune page").click()
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.get_by_text("2 of 144 heads off")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Use it elsewhere").click()
    script = page.get_by_test_id("stCode").filter(has_text="def apply_mask")
    expect(script).to_contain_text(".encoder.layer.{}.attention.output.dense")
    expect(script).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the script").click()
    download.value.save_as(tmp_path / "apply.py")
    assert '"0:5 3:7"' in (tmp_path / "apply.py").read_text(encoding="utf-8")
    page.keyboard.press("Escape")  # it lies over what is below
    with page.expect_download() as download:
        page.get_by_role("button", name="Export the mask").click()
    download.value.save_as(tmp_path / "again.json")
    told = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))
    assert told["model"]["architecture"]["model_type"] in ("bert", "xlm-roberta")
    assert (told["version"], told["removed"], told["chosen"]["rule"]) == (2, 2, "by hand")
