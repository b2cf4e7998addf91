"""Presses of every kind in random order, also while other programs keep the processor busy."""

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
from headlab.dashboard.panels.jobs.job_format import LIVE_STATES
from headlab.dashboard.panels.masks.history import MaskHistory
from headlab.worker.client import Client

GRID = HeadGrid((Stack("encoder", (12,) * 12),))
PRUNE = "Prune"
JOBS = "Jobs"
HEADS = "Heads"
METHODS = ["gradient", "shapley", "monte-carlo", "leave-one-out"]
LATE_MS = 120_000
LIVE_AT_MOST = 4
COUNTS_FILE_VARIABLE = "HEADLAB_PRESSES_OUT"  # names a file for the counts
# Records every press that reached the log, with its value, in the order that the person saw.
WATCH_PRESSES = """() => {
  const add = headlabPresses.add.bind(headlabPresses);
  window.made ??= [];
  if (window.watched) return;
  window.watched = true;
  headlabPresses.add = (sender, key, value) => {
    made.push([key, value]);
    add(sender, key, value);
  };
}"""


@dataclass
class Person:
    """Someone who presses things in the app, and the state that the presses must lead to.

    Attributes:
        page: The tab.
        worker: A client of the app's worker.
        rng: Draws the presses.
        history: The expected mask, with its undo and redo.
        turns: The names of the pages that were opened, as the browser's history has them.
        turn_index: Which of them is open.
        seeds: The seeds of the jobs that were started.
        cancelled_jobs: The numbers of the jobs that were cancelled.
        trace: What happened, for the message of a failure.
        duplicate_notes: What the form said of jobs that were there already.
        press_counts: Presses by kind.
        lost_counts: Lost presses by kind.
        doubled_counts: Presses that counted twice, by kind.
    """

    page: Any
    worker: Client
    rng: np.random.Generator
    history: MaskHistory = field(default_factory=lambda: MaskHistory(GRID))
    turns: list[str] = field(default_factory=lambda: [PRUNE])
    turn_index: int = 0
    seeds: list[int] = field(default_factory=list)
    cancelled_jobs: set[int] = field(default_factory=set)
    trace: list[str] = field(default_factory=list)
    duplicate_notes: set[str] = field(default_factory=set)
    press_counts: Counter[str] = field(default_factory=Counter)
    lost_counts: Counter[str] = field(default_factory=Counter)
    doubled_counts: Counter[str] = field(default_factory=Counter)

    @property
    def page_name(self) -> str:
        return self.turns[self.turn_index]

    def arrive(self, name: str) -> None:
        expect(self.page.locator("h1")).to_have_text(name, timeout=LATE_MS)
        self.page.evaluate(WATCH_PRESSES)

    @property
    def form(self) -> Any:
        return self.page.locator(".st-key-new-job")

    def press(self) -> None:
        """Make one press of a random kind that the page has."""
        kinds = {
            PRUNE: ["switch"] * 4 + ["Undo"] * 2 + ["Redo", "list", "turn", "Back", "Forward"],
            JOBS: ["Start"] * 2 + ["Cancel", "list", "turn", "Back", "Forward"],
            HEADS: ["list", "turn", "Back", "Forward"],
        }[self.page_name]
        kind = str(self.rng.choice(kinds))
        if getattr(self, f"do_{kind.lower()}")():
            self.press_counts[kind] += 1
        # the pause of a person
        self.page.wait_for_timeout(int(self.rng.choice([0, 0, 20, 100, 400])))

    def do_switch(self) -> bool:
        head = int(self.rng.integers(GRID.size))
        self.page.locator(f'[data-c="{head // 12}.{head % 12}"]').click(timeout=LATE_MS)
        return self._record_presses("switch")

    def do_undo(self) -> bool:
        return self.history.can_undo and self._button("Undo")

    def do_redo(self) -> bool:
        return self.history.can_redo and self._button("Redo")

    def _button(self, name: str) -> bool:
        self.page.get_by_role("button", name=name, exact=True).click(timeout=LATE_MS)
        return self._record_presses(name)

    def _record_presses(self, kind: str) -> bool:
        """Apply the presses that the browser has seen since the last call to the expected mask."""
        duplicate_note = self.page.get_by_text("the same work asked for twice is one job")
        self.duplicate_notes.update(duplicate_note.all_inner_texts())
        presses = self.page.evaluate("() => window.made.splice(0)")
        self.trace.append(f"{kind}: {presses}")
        if not presses:
            self.lost_counts[kind] += 1
        elif len(presses) > 1:
            self.doubled_counts[kind] += 1
        for key, value in presses:
            if key == "prune-grid":
                self.history.switch(value["heads"], value["on"])
            elif key == "prune-undo":
                self.history.undo()
            elif key == "prune-redo":
                self.history.redo()
        return True

    def do_list(self) -> bool:
        """Choose a method from the list in the sidebar."""
        box = self.page.get_by_test_id("stSidebar").get_by_role(
            "combobox", name="Method", exact=True
        )
        method = str(self.rng.choice(METHODS))
        box.wait_for(timeout=LATE_MS)
        open_list(box)
        try:
            self.page.get_by_role("option", name=method, exact=True).click(timeout=15_000)
        except TimeoutError:
            self.lost_counts["list"] += 1
            self.page.keyboard.press("Escape")
            return True
        expect(self.page.get_by_test_id("stSidebar")).to_contain_text(
            TITLES[method], timeout=LATE_MS
        )
        return True

    def do_start(self) -> bool:
        if len(self._live()) >= LIVE_AT_MOST:
            return False
        seed = 1000 + len(self.seeds)
        box = self.form.get_by_role("spinbutton", name="Seed")
        for _ in range(10):  # after a page turn its drawer is closed
            # When a form has just been replaced, both are there for a moment.
            options = self.form.get_by_text("More options").last
            options.wait_for(timeout=LATE_MS)
            if box.is_visible():
                break
            options.click(timeout=LATE_MS)
            with suppress(TimeoutError):
                box.wait_for(timeout=5000)
        box.fill(str(seed), timeout=LATE_MS)
        self.form.get_by_role("button", name="Start").click(timeout=LATE_MS)
        self.seeds.append(seed)
        shown_seeds = [seed_box.input_value() for seed_box in box.all()]
        self.trace.append(f"Start with seed {seed}; in the form {shown_seeds}")
        return self._record_presses("Start")

    def do_cancel(self) -> bool:
        candidates = [job.id for job in self._live() if job.id not in self.cancelled_jobs]
        if not candidates:
            return False
        number = int(self.rng.choice(candidates))
        button = self.page.locator(f".st-key-job-{number}").get_by_role("button", name="Cancel")
        try:
            button.click(timeout=30_000)
        except TimeoutError:
            if number in [job.id for job in self._live()]:
                raise
            return False  # it had ended
        self.cancelled_jobs.add(number)
        return self._record_presses("Cancel")

    def _live(self) -> list[Any]:
        return [job for job in self.worker.jobs() if job.state in LIVE_STATES]

    def do_turn(self) -> bool:
        other_pages = [name for name in (PRUNE, JOBS, HEADS) if name != self.page_name]
        name = str(self.rng.choice(other_pages))
        self.page.get_by_role("link", name=name, exact=True).first.click(timeout=LATE_MS)
        self.turns = [*self.turns[: self.turn_index + 1], name]
        self.turn_index += 1
        return self._record_page_turn("turn")

    def do_back(self) -> bool:
        return self.turn_index > 0 and self._move_in_history(-1, "Back")

    def do_forward(self) -> bool:
        return self.turn_index < len(self.turns) - 1 and self._move_in_history(1, "Forward")

    def _move_in_history(self, step: int, kind: str) -> bool:
        self.page.evaluate(f"history.go({step})")
        self.turn_index += step
        return self._record_page_turn(kind)

    def _record_page_turn(self, kind: str) -> bool:
        try:
            self.arrive(self.page_name)
        except AssertionError:
            self.lost_counts[kind] += 1
            self.trace.append(f"{kind} to {self.page_name} did not come: {self.page.url}")
            self.page.get_by_role("link", name=self.page_name, exact=True).first.click()
            self.arrive(self.page_name)
            self.turns = self.turns[: self.turn_index + 1]
        return True

    def judge(self) -> None:
        """Compare the app's state with the expected one, and count lost and doubled presses.

        Each wrong cell of the mask counts as a lost press, since nobody can tell which presses it
        comes from. A Start that is pressed once and counts twice makes the form say that its job is
        already there.
        """
        self.page.wait_for_function(
            "document.documentElement.dataset.presses === '0'", timeout=LATE_MS
        )
        jobs = self.worker.jobs()
        seeds = Counter(job.params.get("seed") for job in jobs)
        for job in reversed(jobs):
            fields = job.params
            self.trace.append(
                f"job {job.id}: {fields.get('method')}, seed {fields.get('seed')}, {job.state}"
            )
        self.trace.append(f"said to be there already: {sorted(self.duplicate_notes)}")
        for seed in self.seeds:
            self.lost_counts["Start"] += seeds[seed] == 0
            self.doubled_counts["Start"] += max(0, seeds[seed] - 1)
        self.doubled_counts["Start"] += len(self.duplicate_notes)
        for job in jobs:
            self.lost_counts["Cancel"] += job.id in self.cancelled_jobs and job.state in LIVE_STATES
        self.page.get_by_role("link", name=PRUNE, exact=True).first.click(timeout=LATE_MS)
        self.arrive(PRUNE)
        removed_count = int((~self.history.mask.kept).sum())
        try:
            self.page.get_by_text(f"{removed_count} of 144 heads off").wait_for(timeout=LATE_MS)
        except TimeoutError:
            self.lost_counts["switch"] += 1
        self.trace.append(f"the mask should have {removed_count} heads off")
        shown_as_kept = self.page.locator("[data-c]").evaluate_all(
            "cells => cells.map(c => c.ariaChecked === 'true')"
        )
        wrong_cells = int((np.array(shown_as_kept) != self.history.mask.kept).sum())
        self.lost_counts["switch"] += wrong_cells


TITLES = {
    "gradient": "Gradient importance",
    "shapley": "Shapley value (TMAB)",
    "monte-carlo": "Shapley value (plain permutations)",
    "leave-one-out": "Leave one out",
}


@pytest.mark.parametrize("presses", [12, pytest.param(300, marks=pytest.mark.soak)])
def test_no_press_is_lost_and_none_counts_twice(app, page, warm_up, light_model, presses):
    address = (
        "/prune?langs=de" if presses > 100 else link_with_model("/prune?langs=de", light_model)
    )
    warm_up(address, '[data-c="0.0"]')
    worker = app.worker()
    jobs_before = {job.id for job in worker.jobs()}
    person = Person(page, worker, np.random.default_rng(presses))
    page.goto(address)
    page.locator('[data-c="0.0"]').wait_for(timeout=LATE_MS)
    person.arrive(PRUNE)
    try:
        with busy(2) if presses > 100 else nullcontext():
            while person.press_counts.total() < presses:
                person.press()
        person.judge()
    finally:
        for job in worker.jobs():
            if job.id not in jobs_before and job.state in LIVE_STATES:
                worker.cancel(job.id)
        worker.close()
    counts_file = os.environ.get(COUNTS_FILE_VARIABLE)
    if counts_file:
        counts = {
            "presses": person.press_counts.total(),
            "made": person.press_counts,
            "lost": +person.lost_counts,
            "doubled": +person.doubled_counts,
            "trace": person.trace,
        }
        Path(counts_file).write_text(json.dumps(counts, indent=1))
    trace = "\n".join(person.trace)
    assert +person.lost_counts == Counter(), trace
    assert +person.doubled_counts == Counter(), trace
