"""Many people at one app, each with other heads off, who all see their own results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.browsing import link_with_model

from headlab import load
from headlab.core import Head
from headlab.dashboard.panels.masks.history import mask_link_text
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
MASK_OF_LINK = "() => new URLSearchParams(location.search).get('m')"


@dataclass(frozen=True)
class Person:
    """A person with a session of their own.

    Attributes:
        number: Counts the people.
        model: The model's name.
        language: The language of the page.
        link: The mask of the link that is opened, bool [head].
        clicks: The heads that are switched off by hand, one after the other.
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


def people(model: Model, count: int) -> list[Person]:
    """So many people with different masks, in all languages, from a fixed seed.

    The masks remove heads of late layers, whose figures come sooner.
    """
    rng = np.random.default_rng(4)
    heads = list(model.grid.heads)
    late_heads = [index for index, head in enumerate(heads) if head.layer >= FIRST_LAYER]
    sessions = []
    for number in range(count):
        removed_heads = rng.permutation(late_heads)[: 3 + number + CLICKS]
        is_kept = np.ones(len(heads), bool)
        is_kept[removed_heads[CLICKS:]] = False
        language = LANGUAGES[number % len(LANGUAGES)]
        clicks = tuple(heads[index] for index in removed_heads[:CLICKS])
        sessions.append(Person(number, model.name, language, is_kept, clicks))
    return sessions


def cell_of(tab: Any, head: Head) -> Any:
    return tab.locator(f'[data-c="{head.layer}.{head.head}"]')


def shown_percent(tab: Any) -> str:
    return str(tab.get_by_test_id("stMetricValue").first.inner_text()).strip()


def wait_for_final_figures(tab: Any, removed_count: int) -> None:
    """Wait for the final figures of a mask with so many heads off."""
    tab.get_by_text(f"{removed_count} heads off: final, 512 dev examples").wait_for(timeout=WAIT_MS)


@pytest.mark.slow
@pytest.mark.parametrize("many", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_sessions_at_once_each_see_their_own_mask_and_figures(
    profile: Any, light_model: str, many: int
) -> None:
    model = load(light_model if many == 2 else REAL)
    everyone = people(model, many)
    tabs = [profile.new_page() for _ in everyone]  # the app knows people by their tabs
    try:
        # In a loop of their own, since the browser needs seconds for the scripts of each page.
        for person, tab in zip(everyone, tabs, strict=True):
            tab.goto(person.path)
            cell_of(tab, person.clicks[0]).wait_for(timeout=WAIT_MS)
        # No figures are waited for, so that all are computed at once.
        for person, tab in zip(everyone, tabs, strict=True):
            for clicks, head in enumerate(person.clicks, start=1):
                cell_of(tab, head).click(timeout=WAIT_MS)
                caption = re.compile(rf"^{3 + person.number + clicks} heads off:")
                tab.get_by_text(caption).wait_for(timeout=WAIT_MS)
        shown_results = {}
        for person, tab in zip(everyone, tabs, strict=True):
            wait_for_final_figures(tab, 3 + person.number + CLICKS)
            shown_results[person.number] = (shown_percent(tab), tab.evaluate(MASK_OF_LINK))
            assert tab.get_by_test_id("stException").count() == 0
    finally:
        for tab in tabs:
            tab.close()
    evaluators = {}
    for language in {person.language for person in everyone}:
        evaluators[language] = Evaluator(model, task(TASK), language, "dev", 512)
    expected_results = {}
    for person in everyone:
        is_kept = person.link.copy()
        is_kept[[model.grid.index(head) for head in person.clicks]] = False
        mask = Mask(model.grid, is_kept, model.identity())
        accuracy = evaluators[person.language].evaluate(mask).accuracy
        expected_results[person.number] = (f"{100 * accuracy:.1f} %", mask_link_text(is_kept))
    assert shown_results == expected_results
    assert len({link for _, link in shown_results.values()}) == many
    assert (
        len({percent for percent, _ in shown_results.values()}) > many // 2
    )  # a mix-up would show
