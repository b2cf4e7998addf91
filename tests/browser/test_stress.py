"""Presses of every kind in random order; many of them beside programs that keep the processor busy."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import TimeoutError, expect
from support.browsing import link_with_model, open_list

from benchmarks.suite import busy
from headlab.core import HeadGrid, Stack
from headlab.dashboard.panels.history import MaskHistory
from headlab.dashboard.panels.job_format import LIVE_STATES
from headlab.worker.client import Client

GRID = HeadGrid((Stack("encoder", (12,) * 12),))
PRUNE = "Prune"
JOBS = "Jobs"
HEADS = "Heads"
METHODS = ["gradient", "shapley", "monte-carlo", "leave-one-out"]
LATE_MS = 120_000
LIVE_AT_MOST = 4
OUT = "HEADLAB_PRESSES_OUT"  # a file for the counts
# Every press that reached the log, with what it was about: the order that the person saw.
WATCHED = """() => {
  const add = headlabPresses.add.bind(headlabPresses);
  window.made ??= [];
  if (window.watched) return;
  window.watched = true;
  headlabPresses.add = (sender, key, value) => { made.push([key, value]); add(sender, key, value); };
}"""


@dataclass
class Person:
    """Someone at the app who presses things, and what must come of it.

    Attributes:
        made, lost, doubled: Presses by kind.
    """

    page: Any
    worker: Client
    rng: np.random.Generator
    history: MaskHistory = field(default_factory=lambda: MaskHistory(GRID))
    turns: list[str] = field(default_factory=lambda: [PRUNE])
    at: int = 0
    seeds: list[int] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    trace: list[str] = field(default_factory=list)
    # what the form said of jobs that were there already
    twice: set[str] = field(default_factory=set)
    made: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)

    @property
    def where(self) -> str:
        return self.turns[self.at]

    def arrive(self, name: str) -> None:
        expect(self.page.locator("h1")).to_have_text(name, timeout=LATE_MS)
        self.page.evaluate(WATCHED)

    @property
    def form(self) -> Any:
        return self.page.locator(".st-key-new-job")

    def press(self) -> None:
        """One press of a kind that fits where the person is."""
        kinds = {
            PRUNE: ["switch"] * 4 + ["Undo"] * 2 + ["Redo", "list", "turn", "Back", "Forward"],
            JOBS: ["Start"] * 2 + ["Cancel", "list", "turn", "Back", "Forward"],
            HEADS: ["list", "turn", "Back", "Forward"],
        }[self.where]
        kind = str(self.rng.choice(kinds))
        if getattr(self, f"do_{kind.lower()}")():
            self.made[kind] += 1
        # a person's own pause
        self.page.wait_for_timeout(int(self.rng.choice([0, 0, 20, 100, 400])))

    def do_switch(self) -> bool:
        head = int(self.rng.integers(GRID.size))
        self.page.locator(f'[data-c="{head // 12}.{head % 12}"]').click(timeout=LATE_MS)
        return self._seen("switch")

    def do_undo(self) -> bool:
        return self.history.can_undo and self._button("Undo")

    def do_redo(self) -> bool:
        return self.history.can_redo and self._button("Redo")

    def _button(self, name: str) -> bool:
        self.page.get_by_role("button", name=name, exact=True).click(timeout=LATE_MS)
        return self._seen(name)

    def _seen(self, kind: str) -> bool:
        """Take into the expected mask what the press was about; nothing, if the browser itself did not see it."""
        for said in self.page.get_by_text(
            "the same work asked for twice is one job"
        ).all_inner_texts():
            self.twice.add(said)
        made = self.page.evaluate("() => window.made.splice(0)")
        self.trace.append(f"{kind}: {made}")
        if len(made) != 1:
            (self.lost if not made else self.doubled)[kind] += 1
        for key, value in made:
            if key == "prune-grid":
                self.history.switch(value["heads"], value["on"])
            elif key in ("prune-undo", "prune-redo"):
                (self.history.undo if key == "prune-undo" else self.history.redo)()
        return True

    def do_list(self) -> bool:
        """Choose a method from the list in the sidebar."""
        box = self.page.get_by_test_id("stSidebar").get_by_role(
            "combobox", name="Method", exact=True
        )
        wanted = str(self.rng.choice(METHODS))
        box.wait_for(timeout=LATE_MS)
        open_list(box)
        try:
            self.page.get_by_role("option", name=wanted, exact=True).click(timeout=15_000)
        except TimeoutError:
            self.lost["list"] += 1
            self.page.keyboard.press("Escape")
            return True
        expect(self.page.get_by_test_id("stSidebar")).to_contain_text(
            TITLES[wanted], timeout=LATE_MS
        )
        return True

    def do_start(self) -> bool:
        if len(self._live()) >= LIVE_AT_MOST:
            return False
        seed = 1000 + len(self.seeds)
        box = self.form.get_by_role("spinbutton", name="Seed")
        for _ in range(10):  # after a page turn its drawer is closed
            options = self.form.get_by_text(
                "More options"
            ).last  # of a form just replaced, both are there for a moment
            options.wait_for(timeout=LATE_MS)
            if box.is_visible():
                break
            options.click(timeout=LATE_MS)
            with suppress(TimeoutError):
                box.wait_for(timeout=5000)
        box.fill(str(seed), timeout=LATE_MS)
        self.form.get_by_role("button", name="Start").click(timeout=LATE_MS)
        self.seeds.append(seed)
        self.trace.append(
            f"Start with seed {seed}; in the form {[b.input_value() for b in box.all()]}"
        )
        return self._seen("Start")

    def do_cancel(self) -> bool:
        live = [job.id for job in self._live() if job.id not in self.cancelled]
        if not live:
            return False
        number = int(self.rng.choice(live))
        button = self.page.locator(f".st-key-job-{number}").get_by_role("button", name="Cancel")
        try:
            button.click(timeout=30_000)
        except TimeoutError:
            if number in [job.id for job in self._live()]:
                raise
            return False  # it had ended
        self.cancelled.add(number)
        return self._seen("Cancel")

    def _live(self) -> list[Any]:
        return [job for job in self.worker.jobs() if job.state in LIVE_STATES]

    def do_turn(self) -> bool:
        name = str(self.rng.choice([p for p in (PRUNE, JOBS, HEADS) if p != self.where]))
        self.page.get_by_role("link", name=name, exact=True).first.click(timeout=LATE_MS)
        self.turns = [*self.turns[: self.at + 1], name]
        self.at += 1
        return self._turned("turn")

    def do_back(self) -> bool:
        return self.at > 0 and self._along(-1, "Back")

    def do_forward(self) -> bool:
        return self.at < len(self.turns) - 1 and self._along(1, "Forward")

    def _along(self, step: int, kind: str) -> bool:
        self.page.evaluate(f"history.go({step})")
        self.at += step
        return self._turned(kind)

    def _turned(self, kind: str) -> bool:
        try:
            self.arrive(self.where)
        except AssertionError:
            self.lost[kind] += 1
            self.trace.append(f"{kind} to {self.where} did not come: {self.page.url}")
            self.page.get_by_role("link", name=self.where, exact=True).first.click()
            self.arrive(self.where)
            self.turns = self.turns[: self.at + 1]
        return True

    def judge(self) -> None:
        """Compare what came of all presses with what they ask for.

        A wrong mask counts as a lost press, as nobody can tell; a Start that counts twice says that its job is there.
        """
        self.page.wait_for_function(
            "document.documentElement.dataset.presses === '0'", timeout=LATE_MS
        )
        jobs = self.worker.jobs()
        seeds = Counter(job.params.get("seed") for job in jobs)
        for job in reversed(jobs):
            about = job.params
            self.trace.append(
                f"job {job.id}: {about.get('method')}, seed {about.get('seed')}, {job.state}"
            )
        self.trace.append(f"said to be there already: {sorted(self.twice)}")
        for seed in self.seeds:
            self.lost["Start"] += seeds[seed] == 0
            self.doubled["Start"] += max(0, seeds[seed] - 1)
        self.doubled["Start"] += len(self.twice)
        for job in jobs:
            self.lost["Cancel"] += job.id in self.cancelled and job.state in LIVE_STATES
        self.page.get_by_role("link", name=PRUNE, exact=True).first.click(timeout=LATE_MS)
        self.arrive(PRUNE)
        off = int((~self.history.mask.kept).sum())
        try:
            self.page.get_by_text(f"{off} of 144 heads off").wait_for(timeout=LATE_MS)
        except TimeoutError:
            self.lost["switch"] += 1
        self.trace.append(f"the mask should have {off} heads off")
        shown = self.page.locator("[data-c]").evaluate_all(
            "cells => cells.map(c => c.ariaChecked === 'true')"
        )
        wrong = int((np.array(shown) != self.history.mask.kept).sum())
        self.lost["switch"] += wrong


TITLES = {
    "gradient": "Gradient importance",
    "shapley": "Shapley value (TMAB)",
    "monte-carlo": "Shapley value (plain permutations)",
    "leave-one-out": "Leave one out",
}


@pytest.mark.parametrize("presses", [12, pytest.param(300, marks=pytest.mark.soak)])
def test_no_press_is_lost_and_none_counts_twice(app, page, warm_up, light_model, presses):
    here = "/prune?langs=de" if presses > 100 else link_with_model("/prune?langs=de", light_model)
    warm_up(here, '[data-c="0.0"]')
    worker = app.worker()
    before = {job.id for job in worker.jobs()}
    person = Person(page, worker, np.random.default_rng(presses))
    page.goto(here)
    page.locator('[data-c="0.0"]').wait_for(timeout=LATE_MS)
    person.arrive(PRUNE)
    try:
        with busy(2) if presses > 100 else nullcontext():
            while person.made.total() < presses:
                person.press()
        person.judge()
    finally:
        for job in worker.jobs():
            if job.id not in before and job.state in LIVE_STATES:
                worker.cancel(job.id)
        worker.close()
    if out := os.environ.get(OUT):
        told = {
            "presses": person.made.total(),
            "made": person.made,
            "lost": +person.lost,
            "doubled": +person.doubled,
        }
        told |= {"trace": person.trace}
        Path(out).write_text(json.dumps(told, indent=1))
    assert (+person.lost, +person.doubled) == (Counter(), Counter()), "\n".join(person.trace)
