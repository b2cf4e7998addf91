"""People at one app, each with other heads switched off in another language: what each is shown is their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.browsing import link_with_model

from headlab import load
from headlab.core import Head
from headlab.dashboard.panels.history import mask_link_text
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.tasks import task

REAL = "e5-small-intents"
TASK = "intents"
LANGUAGES = ("de", "en", "fi", "ru", "th")
CLICKS = 1
FIRST_LAYER = 9
WAIT_MS = 240_000
LINKED = "() => new URLSearchParams(location.search).get('m')"


@dataclass(frozen=True)
class Person:
    """One session.

    Attributes:
        link: The mask it comes with.
        clicks: Heads it switches off by hand, one after the other.
    """

    number: int
    model: str
    language: str
    link: np.ndarray
    clicks: tuple[Head, ...]

    @property
    def path(self) -> str:
        return link_with_model(
            f"/prune?langs={self.language}&m={mask_link_text(self.link)}", self.model
        )


def people(model: Model, many: int) -> list[Person]:
    """Different masks for all, in all languages, from a fixed seed; of late layers, which are answered sooner."""
    rng = np.random.default_rng(4)
    heads = list(model.grid.heads)
    late = [i for i, head in enumerate(heads) if head.layer >= FIRST_LAYER]
    made = []
    for number in range(many):
        off = rng.permutation(late)[: 3 + number + CLICKS]
        kept = np.ones(len(heads), bool)
        kept[off[CLICKS:]] = False
        language = LANGUAGES[number % len(LANGUAGES)]
        clicks = tuple(heads[i] for i in off[:CLICKS])
        made.append(Person(number, model.name, language, kept, clicks))
    return made


def shown_percent(tab: Any) -> str:
    return str(tab.get_by_test_id("stMetricValue").first.inner_text()).strip()


def settled(tab: Any, off: int) -> None:
    """Wait for the final figures of a mask with so many heads off."""
    tab.get_by_text(f"{off} heads off: final, 512 dev examples").wait_for(timeout=WAIT_MS)


@pytest.mark.slow
@pytest.mark.parametrize("many", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_sessions_at_once_each_see_their_own_mask_and_figures(
    profile: Any, light_model: str, many: int
) -> None:
    model = load(light_model if many == 2 else REAL)
    everyone = people(model, many)
    tabs = [profile.new_page() for _ in everyone]  # the app knows people by their tabs
    try:
        for person, tab in zip(
            everyone, tabs, strict=True
        ):  # the page's own scripts take the browser seconds each
            tab.goto(person.path)
            tab.locator(f'[data-c="{person.clicks[0].layer}.{person.clicks[0].head}"]').wait_for(
                timeout=WAIT_MS
            )
        # Nobody's figures are waited for: all are under way at once.
        for person, tab in zip(everyone, tabs, strict=True):
            for at, head in enumerate(person.clicks):
                tab.locator(f'[data-c="{head.layer}.{head.head}"]').click(timeout=WAIT_MS)
                tab.get_by_text(re.compile(rf"^{3 + person.number + at + 1} heads off:")).wait_for(
                    timeout=WAIT_MS
                )
        shown = {}
        for person, tab in zip(everyone, tabs, strict=True):
            settled(tab, 3 + person.number + CLICKS)
            shown[person.number] = (shown_percent(tab), tab.evaluate(LINKED))
            assert tab.get_by_test_id("stException").count() == 0
    finally:
        for tab in tabs:
            tab.close()
    evaluators = {
        name: Evaluator(model, task(TASK), name, "dev", 512)
        for name in {p.language for p in everyone}
    }
    wanted = {}
    for person in everyone:
        kept = person.link.copy()
        kept[[model.grid.index(head) for head in person.clicks]] = False
        mask = Mask(model.grid, kept, model.identity())
        accuracy = evaluators[person.language].evaluate(mask).accuracy
        wanted[person.number] = (f"{100 * accuracy:.1f} %", mask_link_text(kept))
    assert shown == wanted
    assert len({link for _, link in shown.values()}) == many
    assert len({percent for percent, _ in shown.values()}) > many // 2  # a mix-up would show
