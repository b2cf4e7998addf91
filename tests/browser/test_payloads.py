"""Names, labels and files that others wrote: none of their scripts runs, nothing is fetched, no page is broken."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice, product
from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.sync_api import expect
from support.cached_scores import GRID, made_up, while_cached

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
PLACES = (
    "{}", "![x]({})", "</script>{}", "[x]({})", "\"'>{}", "<!--{}-->", "`{}`", "]]>{}", "</title></style>{}", "$${}$$",
    ":red[{}]", "{{{{{}}}}}", "&lt;{}&gt;", "\u202e{}", "a" * 200 + "{}", "| {} |", "# {}", ":material/{}:", "<b>{}",
    "\\{}",
)  # fmt: skip
EVERY = [place.format(action) for place, action in product(PLACES, ACTIONS)]
FEW = [place.format(action) for place, action in zip(PLACES, ACTIONS, strict=False)]
PAGES = ("", "heads", "languages", "roles", "gates", "experiments")
FEWER = ("", "heads", "languages")  # in the suite: these show the names of results most
GROUP = 10
LONGEST = 380  # in a group; characters of the sentences of one visit, fewer than the field takes
some = pytest.mark.parametrize(
    "payloads", [FEW, pytest.param(EVERY, marks=pytest.mark.soak)], ids=["few", "every"]
)


@pytest.fixture(autouse=True)
def counted(request, record_property):
    """How many each test has tried, for the page that `benchmarks/reliability.py` makes."""
    if hasattr(request.node, "callspec"):
        record_property("payloads", len(request.node.callspec.params["payloads"]))


def test_there_are_two_hundred_of_them():
    assert len(set(EVERY)) == 200


def groups(payloads):
    left = iter(payloads)
    return iter(lambda: list(islice(left, GROUP)), [])


def check(page, width=1440):
    """The page stands, and nothing that it was given has acted."""
    assert page.evaluate("window.PWNED") is None
    expect(page.locator("h1").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def stored(name, language):
    """A result of a model, a task, a class and a language of these names."""
    scores = made_up(language, "shapley", name=name)
    task = {**scores.spec["task"], "name": name, "language": language, "classes": {name: name}}
    return replace(scores, spec={**scores.spec, "task": task})


@some
def test_names_in_results_stay_text_on_every_page(visit, page, app, payloads):
    """All of a group are languages; on each page another one is the model and the task."""
    for number, group in enumerate(groups(payloads)):
        for turn, path in enumerate(PAGES if payloads is EVERY else FEWER):
            name = group[(number + turn) % GROUP][:290]
            with ExitStack() as kept:
                for language in group:
                    kept.enter_context(while_cached(app.cache, stored(name, language)))
                visit(
                    f"/{path}?{urlencode([('model', name), ('task', name), *(('langs', text) for text in group)])}"
                )
                expect(
                    page.get_by_test_id("stSidebar").get_by_role("combobox", name="Model")
                ).to_have_value(name)
                check(page)
                page.set_viewport_size({"width": 390, "height": 844})
                check(page, 390)
                page.set_viewport_size({"width": 1440, "height": 900})


@some
def test_what_a_link_asks_for_stays_text(visit, page, payloads):
    """It is unknown here, so a sentence says it."""
    for group in groups(payloads):
        link = [
            (name, text)
            for name, text in zip(("method", "model", "task", "head"), group, strict=False)
        ]
        visit(f"/heads?{urlencode([*link, *(('langs', text) for text in group)])}")
        expect(page.get_by_text("The link asks for model")).to_be_visible()
        check(page)
        visit(f"/jobs?{urlencode([('job', group[1])])}")
        expect(page.get_by_text("The link asks for job")).to_be_visible()
        check(page)


@some
def test_names_of_files_and_what_masks_say_stay_text(visit, page, settled, payloads):
    for group in groups(payloads):
        files = []
        for number, text in enumerate(group):
            kept = np.arange(GRID.size) != number
            said = Mask(
                GRID,
                kept,
                {"name": text, "fingerprint": "0" * 64},
                {"rule": text, "task": text, "method": text},
            )
            files.append(
                {
                    "name": f"{text}.json",
                    "mimeType": "application/json",
                    "buffer": json.dumps(said.to_json()).encode(),
                }
            )
        visit("/masks?langs=de")
        page.get_by_text("Where the masks come from").click()
        page.locator('input[type="file"]').set_input_files(files)
        expect(page.get_by_text("Combine several masks into one")).to_be_visible()
        settled()
        check(page)


def together(payloads):
    """Groups of up to four, short enough for the field of sentences."""
    group = []
    for text in payloads:
        if group and (len(group) == 4 or sum(map(len, group)) + len(text) > LONGEST):
            yield group
            group = []
        group.append(text)
    yield group


@some
def test_sentences_stay_text(visit, page, settled, payloads):
    for group in together(payloads if payloads is EVERY else payloads[::2]):
        visit("/attention?langs=de&heads=encoder.3.7&source=my+own")
        page.get_by_label("one sentence a line").fill("\n".join(group))
        page.get_by_label("one sentence a line").press("Control+Enter")
        expect(
            page.frame_locator('[data-testid="stIFrame"]').locator(f"#bertviz-{len(group) - 1}")
        ).to_be_visible()
        settled()
        check(page)
