"""Names, labels and files that others wrote: no script runs, and no page breaks."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice, product
from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.sync_api import expect
from support.cached_scores import GRID, made_scores, while_cached

from headlab.masks import Mask

DO = "window.top.PWNED=1"
ACTIONS = (
    f"<script>{DO}</script>",
    "http://evil.invalid/x.png",
    f"<img src=x onerror={DO}>",
    f"javascript:{DO}",
    f"<iframe srcdoc='<script>{DO}</script>'></iframe>",
    f"<a href=javascript:{DO}>x</a>",
    f"<svg onload={DO}>",
    "<style>body{display:none}</style>",
    "<link rel=stylesheet href=http://evil.invalid/x.css>",
    "<base href=http://evil.invalid/>",
)
CONTEXTS = (
    "{}", "![x]({})", "</script>{}", "[x]({})", "\"'>{}", "<!--{}-->", "`{}`", "]]>{}", "</title></style>{}", "$${}$$",
    ":red[{}]", "{{{{{}}}}}", "&lt;{}&gt;", "\u202e{}", "a" * 200 + "{}", "| {} |", "# {}", ":material/{}:", "<b>{}",
    "\\{}",
)  # fmt: skip
ALL_PAYLOADS = [place.format(action) for place, action in product(CONTEXTS, ACTIONS)]
SOME_PAYLOADS = [place.format(action) for place, action in zip(CONTEXTS, ACTIONS, strict=False)]
PAGES = ("", "heads", "head", "scatter", "pairs", "languages", "roles", "gates", "experiments")
# The suite visits these pages alone, which show the names of results most.
PAGES_OF_THE_SUITE = ("", "heads", "languages")
GROUP = 10
LONGEST = 380  # characters of the sentences of one visit; the field takes a few more
with_payloads = pytest.mark.parametrize(
    "payloads",
    [SOME_PAYLOADS, pytest.param(ALL_PAYLOADS, marks=pytest.mark.soak)],
    ids=["few", "every"],
)


@pytest.fixture(autouse=True)
def payload_count(request, record_property):
    """Record how many payloads each test tries, for `benchmarks/reliability.py`."""
    if hasattr(request.node, "callspec"):
        record_property("payloads", len(request.node.callspec.params["payloads"]))


def test_there_are_two_hundred_payloads():
    assert len(set(ALL_PAYLOADS)) == 200


def groups(payloads):
    remaining_payloads = iter(payloads)
    return iter(lambda: list(islice(remaining_payloads, GROUP)), [])


def check_harmless(page, width=1440):
    """Check that the page is whole, and that no payload has acted."""
    assert page.evaluate("window.PWNED") is None
    expect(page.locator("h1").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def scores_named(name, language):
    """Scores whose model, task and class all have this name."""
    scores = made_scores(language, "shapley", name=name)
    task = {**scores.spec["task"], "name": name, "language": language, "classes": {name: name}}
    return replace(scores, spec={**scores.spec, "task": task})


@with_payloads
def test_names_in_results_stay_text_on_every_page(visit, page, app, payloads):
    """All payloads of a group are languages; on each page another one is the model and the task."""
    pages = PAGES if payloads is ALL_PAYLOADS else PAGES_OF_THE_SUITE
    for group_number, group in enumerate(groups(payloads)):
        for page_number, path in enumerate(pages):
            name = group[(group_number + page_number) % GROUP][:290]
            parameters = [("model", name), ("task", name)]
            parameters += [("langs", language) for language in group]
            with ExitStack() as stored_results:
                for language in group:
                    scores = scores_named(name, language)
                    stored_results.enter_context(while_cached(app.cache, scores))
                visit(f"/{path}?{urlencode(parameters)}")
                sidebar = page.get_by_test_id("stSidebar")
                expect(sidebar.get_by_role("combobox", name="Model")).to_have_value(name)
                check_harmless(page)
                page.set_viewport_size({"width": 390, "height": 844})
                check_harmless(page, 390)
                page.set_viewport_size({"width": 1440, "height": 900})


@with_payloads
def test_what_a_link_asks_for_stays_text(visit, page, payloads):
    """What the link asks for is unknown, so that a sentence names it."""
    for group in groups(payloads):
        parameters = list(zip(("method", "model", "task", "head"), group, strict=False))
        parameters += [("langs", language) for language in group]
        visit(f"/heads?{urlencode(parameters)}")
        expect(page.get_by_text("The link asks for model")).to_be_visible()
        check_harmless(page)
        visit(f"/jobs?{urlencode([('job', group[1])])}")
        expect(page.get_by_text("The link asks for job")).to_be_visible()
        check_harmless(page)


@with_payloads
def test_names_of_files_and_what_masks_say_stay_text(visit, page, wait_until_drawn, payloads):
    for group in groups(payloads):
        files = []
        for number, text in enumerate(group):
            is_kept = np.arange(GRID.size) != number
            identity = {"name": text, "fingerprint": "0" * 64}
            provenance = {"rule": text, "task": text, "method": text}
            mask = Mask(GRID, is_kept, identity, provenance)
            files.append(
                {
                    "name": f"{text}.json",
                    "mimeType": "application/json",
                    "buffer": json.dumps(mask.to_json()).encode(),
                }
            )
        visit("/masks?langs=de")
        page.get_by_text("Where the masks come from").click()
        page.locator('input[type="file"]').set_input_files(files)
        expect(page.get_by_text("Combine several masks into one")).to_be_visible()
        wait_until_drawn()
        check_harmless(page)


def short_groups(payloads):
    """Groups of up to four payloads that are short enough for the field of sentences."""
    group = []
    for text in payloads:
        if group and (len(group) == 4 or sum(map(len, group)) + len(text) > LONGEST):
            yield group
            group = []
        group.append(text)
    yield group


@with_payloads
def test_sentences_stay_text(visit, page, wait_until_drawn, payloads):
    for group in short_groups(payloads if payloads is ALL_PAYLOADS else payloads[::2]):
        visit("/attention?langs=de&heads=encoder.3.7&source=my+own&view=BertViz")
        page.get_by_label("one sentence a line").fill("\n".join(group))
        page.get_by_label("one sentence a line").press("Control+Enter")
        expect(
            page.frame_locator('[data-testid="stIFrame"]').locator(f"#bertviz-{len(group) - 1}")
        ).to_be_visible()
        wait_until_drawn()
        check_harmless(page)
