"""The Masks page, and the ways to take a mask out of the Prune page."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from support.browsing import open_list
from support.cached_scores import GRID
from support.waiting import wait_until, wait_within

from headlab.core import HeadlabError
from headlab.masks import Mask
from headlab.models.embedded import fingerprint

TWO_LANGUAGES = "/masks?langs=de&langs=th"
SECONDS_TO_WRITE = 300
"""In which a model is written, however busy the machine is."""


@pytest.fixture(scope="module", autouse=True)
def loaded_model(warm_up):
    """The worker runs and has loaded the model before the first test."""
    warm_up("/prune?langs=de", '[data-c="0.0"]')


def list_has_entry(page, box, name) -> bool:
    """Whether the list of a select box has an entry.

    A list closes when its entries change, so that it may have to be opened again.
    """
    options = page.get_by_role("option")
    open_list(page.get_by_role("combobox", name=box, exact=True))
    if not wait_within(options.count, 5.0):
        return False  # it closed before it was seen
    entry_count = page.get_by_role("option", name=name, exact=True).count()
    page.keyboard.press("Escape")
    wait_until(lambda: not options.count(), "a closed list")
    return bool(entry_count)


def test_an_uploaded_mask_is_compared_opened_on_the_prune_page_and_taken_elsewhere(
    visit, page, tmp_path
):
    try:
        weights = fingerprint("e5-small-intents")
    except HeadlabError:
        weights = "0" * 64
    is_kept = np.ones(GRID.size, bool)
    is_kept[[5, 43]] = False  # 3.7, which the scores call harmful, is one of them
    path = tmp_path / "mine.json"
    identity = {"name": "e5-small-intents", "fingerprint": weights}
    Mask(GRID, is_kept, identity, {"rule": "by hand"}).save(path)
    visit(TWO_LANGUAGES)
    page.get_by_text("Where the masks come from").click()
    page.locator('input[type="file"]').set_input_files(path)
    # The mask is chosen at once.
    expect(page.get_by_role("grid", name="B: 2 of 144 off")).to_be_visible()
    wait_until(lambda: list_has_entry(page, "A", "mine.json"), "the file among the masks")
    cell_of_both = page.get_by_role("gridcell", name="layer 3, head 7: both switch it off")
    expect(cell_of_both).to_be_visible()
    expect(
        page.get_by_role("gridcell", name="layer 0, head 5: only B switches it off")
    ).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("button", name="Open B on the Prune page").click()
    expect(page.locator("h1")).to_have_text("Prune")
    expect(page.get_by_text("2 of 144 heads off")).to_be_visible()
    expect(page.get_by_text("2 heads off: final")).to_be_visible()  # or the figures move the rest
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
    page.keyboard.press("Escape")  # the open panel lies over the button
    with page.expect_download() as download:
        page.get_by_role("button", name="Export the mask").click()
    download.value.save_as(tmp_path / "again.json")
    exported_mask = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))
    assert exported_mask["model"]["architecture"]["model_type"] in ("bert", "xlm-roberta")
    assert exported_mask["version"] == 2
    assert exported_mask["removed"] == 2
    assert exported_mask["chosen"]["rule"] == "by hand"


def test_a_model_is_written_from_the_prune_page(visit, page, request):
    visit("/prune?langs=de")
    page.locator('[data-c="0.0"]').click()
    expect(page.get_by_text("1 of 144 heads off")).to_be_visible()
    expect(page.get_by_text("1 head off: final")).to_be_visible()  # or the figures move the rest
    page.get_by_role("button", name="Write the model").click()
    open_list(page.get_by_role("combobox", name="Form", exact=True))
    page.get_by_role("option", name="Same size, for transformers").click()
    expect(page.get_by_text("the untouched, the masked and the written model")).to_be_visible()
    page.get_by_role("button", name="Write it", exact=True).click()
    written_to = page.get_by_test_id("stCode").filter(has_text="e5-small-intents-folder-")
    expect(written_to).to_be_visible(timeout=SECONDS_TO_WRITE * 1000)
    expect(page.get_by_text("Read back and compared on 128 examples")).to_be_visible()
    folder = Path(written_to.inner_text().strip())
    request.addfinalizer(partial(shutil.rmtree, folder))
    proof = json.loads((folder / "proof.json").read_text(encoding="utf-8"))
    assert proof["max_logit_difference"] <= 1e-5 * (1 + proof["max_logit"])
    assert set(proof["files"]) == {path.name for path in folder.iterdir()} - {"proof.json"}
    page.reload()  # what was written is not forgotten
    expect(page.get_by_text("1 of 144 heads off")).to_be_visible()
    page.get_by_role("button", name="Write the model").click()
    open_list(page.get_by_role("combobox", name="Form", exact=True))
    page.get_by_role("option", name="Same size, for transformers").click()
    expect(page.get_by_role("button", name="Write it again")).to_be_visible()
    expect(written_to).to_be_visible()
